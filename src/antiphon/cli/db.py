"""`antiphon db`: migrate, look at, copy and shrink the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from antiphon.cli.access import run
from antiphon.cli.options import GroupedCommand, read_settings, setting_options

__all__ = ["db"]

_STORE = ["store", "data_dir"]


@click.group()
def db() -> None:
    """Migrate, look at, copy and shrink the store that --store and --data-dir name.

    'status' and 'backup' may run while a server has it; 'migrate' and 'vacuum' need a file for themselves. With
    PostgreSQL, all of them run beside servers.

    \b
    Examples:
      antiphon db status
      antiphon db backup /backups/antiphon-2026-11-30.db
    """  # noqa: D301 - the escape is click's mark for lines to keep


@setting_options(_STORE)
@db.command(cls=GroupedCommand)
def migrate(**params: Any) -> None:
    """Bring the store to this version's schema, as the start of a server does.

    \b
    Examples:
      antiphon db migrate
    """  # noqa: D301 - the escape is click's mark for lines to keep
    from antiphon.store import maintenance

    before, after = run(maintenance.migrate(read_settings(params)))
    if before == after:
        click.echo(f"The store has schema {after} already, which is this version's.", err=True)
    else:
        click.echo(f"The store went from schema {before} to {after}.", err=True)


@setting_options(_STORE)
@db.command(cls=GroupedCommand)
@click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")
@click.pass_context
def status(ctx: click.Context, as_json: bool, **params: Any) -> None:
    """Say how the store stands; the exit code is 1 where its schema is not this version's.

    \b
    Examples:
      antiphon db status
      antiphon db status --json
    """  # noqa: D301 - the escape is click's mark for lines to keep
    import msgspec

    from antiphon.store import maintenance

    report = run(maintenance.status(read_settings(params)))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        current = report.schema == report.newest_schema
        note = "" if current else f", and this version's is {report.newest_schema}: antiphon db migrate"
        click.echo(
            f"location       {report.location}\n"
            f"schema         {report.schema}{note}\n"
            f"size           {report.size / 1e6:.1f} MB\n"
            f"responses      {report.responses}, of which {report.running} run\n"
            f"items          {report.items}\n"
            f"conversations  {report.conversations}\n"
            f"files          {report.files}, of {report.file_bytes / 1e6:.1f} MB\n"
            f"vector stores  {report.vector_stores}, of {report.chunks} chunks\n"
            f"servers        {', '.join(report.servers) or 'none'}"
        )
    ctx.exit(0 if report.schema == report.newest_schema else 1)


@setting_options(_STORE)
@db.command(cls=GroupedCommand)
@click.argument("target", type=click.Path(path_type=Path, dir_okay=False))
def backup(target: Path, **params: Any) -> None:
    """Write a copy of the store to TARGET, a file that is not there yet; a server may run meanwhile.

    The copy of a file is a store: give it as --store to serve it. That of a PostgreSQL database is made by pg_dump, in
    its own format: make a database of it with pg_restore. Where the store is encrypted, so is the copy, under the same
    key.

    \b
    Examples:
      antiphon db backup /backups/antiphon-2026-11-30.db
    """  # noqa: D301 - the escape is click's mark for lines to keep
    from antiphon.store import maintenance

    size = run(maintenance.backup(read_settings(params), target))
    click.echo(f"Wrote {size / 1e6:.1f} MB to {target}.", err=True)


@setting_options(_STORE)
@db.command(cls=GroupedCommand)
def vacuum(**params: Any) -> None:
    """Give the space of what was removed back to the system.

    A file is written anew, so it takes as much free space again while it runs. In PostgreSQL the space becomes free for
    new rows, and servers go on.

    \b
    Examples:
      antiphon db vacuum
    """  # noqa: D301 - the escape is click's mark for lines to keep
    from antiphon.store import maintenance

    report = run(maintenance.vacuum(read_settings(params)))
    click.echo(f"The store took {report.before / 1e6:.1f} MB and takes {report.after / 1e6:.1f} MB now.", err=True)
