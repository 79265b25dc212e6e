"""`antiphon corpus`: bring folders into a vector store, look at what is there, and search it."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from antiphon.cli.access import first_key, run
from antiphon.cli.folder import Skipped
from antiphon.cli.options import GroupedCommand, read_settings, setting_options
from antiphon.cli.terminal import printable
from antiphon.errors import ConfigurationError

if TYPE_CHECKING:
    from antiphon.cli.documents_api import DocumentsApi, Known
    from antiphon.cli.syncing import Outcome

__all__ = ["corpus"]

T = TypeVar("T")

DEFAULT_STORE: Final = "documents"
_SHOWN: Final = 3
_SNIPPET: Final = 240
_TELL_SECONDS: Final = 5.0
_SETTINGS = ["data_dir"]


def _check_store(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not value.strip() or "/" in value:
        raise click.BadParameter(
            "the name of a vector store is expected; a database is named by ANTIPHON_STORE or --data-dir.", ctx, param
        )
    return value


def _options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--api-key", envvar="ANTIPHON_API_KEY", help="The server's key. [env ANTIPHON_API_KEY]"),
        click.option(
            "--server",
            envvar="ANTIPHON_BASE_URL",
            metavar="URL",
            help="The server that has the documents; by default the one at the default address where one answers, and "
            "else the local store itself. [env ANTIPHON_BASE_URL]",
        ),
    ):
        command = option(command)
    return command


def _store_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--store",
        "name",
        default=DEFAULT_STORE,
        show_default=True,
        callback=_check_store,
        metavar="NAME",
        help="The vector store, by its name or its id.",
    )(command)


@click.group()
def corpus() -> None:
    """Bring documents into a vector store, and search them.

    They are in the server that answers, or in the local store where none runs. Models search them with the tools
    file_search and search_corpus.

    \b
    Examples:
      antiphon corpus add docs/
      antiphon corpus search "How is a key revoked?"
      antiphon corpus list
    """  # noqa: D301 - the escape is click's mark for lines to keep


@setting_options(_SETTINGS)
@corpus.command(cls=GroupedCommand)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@_store_option
@click.option("--prune", is_flag=True, help="Remove what came from these folders and is no longer in them.")
@click.option(
    "--max-file-bytes", default=64 * 1024 * 1024, show_default=True, type=click.IntRange(min=1), help="Largest file."
)
@click.option("--chunk-size", type=click.IntRange(100, 4096), help="Tokens of a chunk; by default the server decides.")
@click.option("--chunk-overlap", type=click.IntRange(0, 2048), help="Tokens of a chunk that the next one says again.")
@click.option("--json", "as_json", is_flag=True, help="Write what was done as JSON, for programs.")
@_options
@click.pass_context
def add(ctx: click.Context, paths: tuple[Path, ...], name: str, as_json: bool, **params: Any) -> None:
    """Add the documents in PATHS, folders or files, to a vector store, which is made where it is not there.

    It may be run again and again: what has not changed is left as it is, and what has changed is replaced once the new
    text can be found. Hidden files, links, and what is no text, HTML, PDF, docx, xlsx or pptx are left out. The exit
    code is 1 where a file failed.

    \b
    Examples:
      antiphon corpus add docs/
      antiphon corpus add handbook.pdf notes/ --store handbook --prune
      antiphon corpus add docs/ --server https://llm.example.com --api-key sk-...
    """  # noqa: D301 - the escape is click's mark for lines to keep
    chunking = _chunking(params["chunk_size"], params["chunk_overlap"])
    progress = _Progress()

    async def work(api: DocumentsApi) -> Outcome:
        from antiphon.cli.syncing import bring

        store = await api.named(name) or await api.create(name)
        return await bring(
            api,
            store["id"],
            paths,
            most=params["max_file_bytes"],
            prune=params["prune"],
            chunking=chunking,
            tell=progress.tell,
        )

    try:
        outcome = _done(ctx, params, work)
    finally:
        progress.end()
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(outcome)).decode())
    else:
        _report(name, outcome)
    if outcome.failed:
        ctx.exit(1)


@setting_options(_SETTINGS)
@corpus.command("list", cls=GroupedCommand)
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")
@_options
@click.pass_context
def list_stores(ctx: click.Context, name: str | None, as_json: bool, **params: Any) -> None:
    """List the vector stores, or the files of the one that is called NAME.

    \b
    Examples:
      antiphon corpus list
      antiphon corpus list documents
    """  # noqa: D301 - the escape is click's mark for lines to keep
    import msgspec

    async def work(api: DocumentsApi) -> Sequence[Any]:
        if name is None:
            return await api.stores()
        store = await _existing(api, name)
        return sorted([file async for file in api.files(store["id"])], key=lambda file: (file.path, file.id))

    found = _done(ctx, params, work)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
    elif not found:
        click.echo("There is nothing. Add documents: antiphon corpus add FOLDER", err=True)
    elif name is None:
        _table(
            ("NAME", "ID", "FILES", "FAILED", "BYTES", "STATUS"),
            [
                (
                    printable(store["name"] or "-"),
                    store["id"],
                    str(store["file_counts"]["total"]),
                    str(store["file_counts"]["failed"]),
                    str(store["usage_bytes"]),
                    store["status"],
                )
                for store in found
            ],
        )
    else:
        _table(("FILE", "ID", "STATUS", "BYTES", "WHY"), [_file_row(file) for file in found])


@setting_options(_SETTINGS)
@corpus.command(cls=GroupedCommand)
@click.argument("name")
@click.argument("files", nargs=-1)
@click.option("--yes", is_flag=True, help="Do not ask whether a whole vector store may go.")
@_options
@click.pass_context
def remove(ctx: click.Context, name: str, files: tuple[str, ...], yes: bool, **params: Any) -> None:
    """Remove FILES from the vector store NAME, as 'list' names them, or all of it where none is named.

    Files that 'add' has uploaded are deleted, too; others stay uploaded.

    \b
    Examples:
      antiphon corpus remove documents docs/old.md
      antiphon corpus remove documents --yes
    """  # noqa: D301 - the escape is click's mark for lines to keep
    if not files and not yes:
        click.confirm(f"Remove the vector store '{printable(name)}' and its documents?", abort=True, err=True)

    async def work(api: DocumentsApi) -> tuple[int, list[str]]:
        store = await _existing(api, name)
        there = [file async for file in api.files(store["id"])]
        named = set(files)
        chosen = [file for file in there if not files or file.path in named or file.id in named]
        for file in chosen:
            if file.path or files:
                await api.remove(store["id"], file.id)
        if not files:
            await api.delete_store(store["id"])
        missing = named - {file.path for file in chosen} - {file.id for file in chosen}
        return len(chosen), sorted(missing)

    count, missing = _done(ctx, params, work)
    click.echo(f"Removed {_files(count)} of '{printable(name)}'.", err=True)
    for each in missing:
        click.echo(f"Error: There is no file '{printable(each)}' in it.", err=True)
    if missing:
        ctx.exit(1)


@setting_options(_SETTINGS)
@corpus.command(cls=GroupedCommand)
@click.argument("words", nargs=-1, required=True)
@_store_option
@click.option("--most", default=5, show_default=True, type=click.IntRange(1, 50), help="How many results.")
@click.option("--json", "as_json", is_flag=True, help="Write the results whole, as JSON.")
@_options
@click.pass_context
def search(ctx: click.Context, words: tuple[str, ...], name: str, most: int, as_json: bool, **params: Any) -> None:
    """Search a vector store as the tools of models do; the best first.

    \b
    Examples:
      antiphon corpus search How is a key revoked
      antiphon corpus search "opening hours" --store handbook --most 10
    """  # noqa: D301 - the escape is click's mark for lines to keep
    import msgspec

    async def work(api: DocumentsApi) -> list[dict[str, Any]]:
        return await api.search((await _existing(api, name))["id"], " ".join(words), most)

    found = _done(ctx, params, work)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
        return
    if not found:
        click.echo("Nothing was found.", err=True)
    for result in found:
        text = " ".join(" ".join(part["text"] for part in result["content"]).split())
        shown = text if len(text) <= _SNIPPET else f"{text[:_SNIPPET]}…"
        attributes: dict[str, Any] = result.get("attributes") or {}
        path = attributes.get("path") or result["filename"]
        click.echo(f"{result['score']:.3f}  {printable(str(path))}\n       {printable(shown)}")


class _Progress:
    """One line on a terminal that changes; now and then a line of its own elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._told = time.monotonic()

    def tell(self, text: str) -> None:
        if self._terminal:
            click.echo(f"\r\x1b[K{printable(text)[:100]}", err=True, nl=False)
        elif time.monotonic() - self._told > _TELL_SECONDS:
            self._told = time.monotonic()
            click.echo(printable(text), err=True)

    def end(self) -> None:
        if self._terminal:
            click.echo("\r\x1b[K", err=True, nl=False)


def _done(ctx: click.Context, params: dict[str, Any], work: Callable[[DocumentsApi], Awaitable[T]]) -> T:
    """The result of work on the vector stores that the options name; an error ends the command with one line."""
    from antiphon.cli.connection import ServerError, UnreachableError
    from antiphon.cli.documents_api import open_documents

    # Not the key: to a server that is set up, it is one of those that are let in.
    settings = read_settings({name: params[name] for name in (*_SETTINGS, "config")})

    async def opened() -> T:
        async with open_documents(settings, params["server"], first_key(params["api_key"])) as api:
            return await work(api)

    try:
        return run(opened())
    except (ServerError, UnreachableError) as error:
        click.echo(f"Error: {printable(str(error))}", err=True)
        return ctx.exit(1)
    except KeyboardInterrupt:
        click.echo("Stopped. What was added is read by the server, or by the next run.", err=True)
        return ctx.exit(130)


async def _existing(api: DocumentsApi, name: str) -> dict[str, Any]:
    store = await api.named(name)
    if store is None:
        raise ConfigurationError(f"There is no vector store '{printable(name)}'. See: antiphon corpus list")
    return store


def _chunking(size: int | None, overlap: int | None) -> dict[str, Any] | None:
    if size is None:
        if overlap:
            raise click.UsageError("--chunk-overlap needs --chunk-size.")
        return None
    if overlap is not None and overlap > size // 2:
        raise click.UsageError("--chunk-overlap may be half of --chunk-size at most.")
    return {"type": "static", "static": {"max_chunk_size_tokens": size, "chunk_overlap_tokens": overlap or 0}}


def _report(name: str, outcome: Outcome) -> None:
    told = [
        f"{len(names)} {word}"
        for word, names in (
            ("added", outcome.added),
            ("replaced", outcome.replaced),
            ("unchanged", outcome.unchanged),
            ("removed", outcome.removed),
            ("skipped", outcome.skipped),
            ("failed", outcome.failed),
        )
        if names or word in ("added", "unchanged")
    ]
    click.echo(f"{printable(name)}: {', '.join(told)}.")
    _reasons("Skipped", outcome.skipped)
    _reasons("Failed", outcome.failed)


def _reasons(title: str, left: Sequence[Skipped]) -> None:
    counts = Counter(each.reason for each in left)
    for reason, count in counts.most_common():
        names = [each.name for each in left if each.reason == reason][:_SHOWN]
        more = f" and {count - len(names)} more" if count > len(names) else ""
        click.echo(f"{title}, {printable(reason.rstrip('.'))}: {printable(', '.join(names))}{more}")


def _file_row(file: Known) -> tuple[str, ...]:
    why = "-" if file.error is None else f"{file.error[0]}: {file.error[1]}"
    return printable(file.path or "-"), file.id, file.status, str(file.size), printable(why)


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
