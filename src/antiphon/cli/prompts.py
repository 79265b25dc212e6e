"""`antiphon prompts`: keep, list, show and delete the prompt templates of a store, whether its server runs or not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

import click

from antiphon.cli.access import run
from antiphon.cli.keys import check_tenant
from antiphon.cli.options import GroupedCommand, read_settings, setting_options
from antiphon.cli.terminal import printable

if TYPE_CHECKING:
    from antiphon.settings import Settings
    from antiphon.store.base import StoredPrompt

__all__ = ["prompts"]

_STORE = ["store", "data_dir", "encryption_key_file", "encryption_key"]
_MAX_NAME = 64
_ATTEMPTS = 8

_tenant = click.option(
    "--tenant", default="default", show_default=True, callback=check_tenant, help="Whose prompts they are."
)


def _check_name(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if len(value) > _MAX_NAME or not (value == "" or value.isprintable()):
        raise click.BadParameter(f"at most {_MAX_NAME} printable characters are expected.", ctx, param)
    return value


@click.group()
def prompts() -> None:
    """Keep prompt templates, for requests that name them with `prompt`.

    A template is text with variables such as {{city}}. It becomes the instructions of a request that names it; the
    request gives the variables. Templates are never changed: each new text is a further version.

    \b
    Examples:
      antiphon prompts create weather.md --name weather
      antiphon prompts create weather.md --id PROMPT_ID
      antiphon prompts list
      antiphon prompts show PROMPT_ID --version 1
      antiphon prompts delete PROMPT_ID
    """  # noqa: D301 - the escape is click's mark for lines to keep


@setting_options(_STORE)
@prompts.command(cls=GroupedCommand)
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option("--id", "prompt_id", help="The prompt that this is a further version of; by default a new one.")
@click.option("--name", default="", callback=_check_name, help="What the prompt is for, to tell it from others.")
@_tenant
def create(file: IO[str], prompt_id: str | None, name: str, tenant: str, **params: Any) -> None:
    """Keep the text of FILE ('-' for standard input), and write the id of its prompt to standard output.

    \b
    Examples:
      antiphon prompts create support.md --name support
      echo 'Answer in {{language}}.' | antiphon prompts create - --tenant acme
    """  # noqa: D301 - the escape is click's mark for lines to keep
    text = _text(file)
    kept = run(_create(read_settings(params), tenant, prompt_id, name, text))
    if kept is None:
        raise click.ClickException(f"There is no prompt '{printable(prompt_id or '')}' of the tenant {tenant}.")
    click.echo(f"Kept version {kept.version} of {kept.id}{_variables(text)}.", err=True)
    click.echo(kept.id)


@setting_options(_STORE)
@prompts.command("list", cls=GroupedCommand)
@click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")
@_tenant
def list_prompts(as_json: bool, tenant: str, **params: Any) -> None:
    """List the versions of all prompts.

    \b
    Examples:
      antiphon prompts list
      antiphon prompts list --tenant acme --json
    """  # noqa: D301 - the escape is click's mark for lines to keep
    import msgspec

    found = run(_list(read_settings(params), tenant))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode([_plain(prompt) for prompt in found])).decode())
    elif not found:
        click.echo("There are no prompts. Keep one: antiphon prompts create FILE", err=True)
    else:
        click.echo("\n".join(_table(found)))


@setting_options(_STORE)
@prompts.command(cls=GroupedCommand)
@click.argument("prompt_id")
@click.option("--version", type=click.IntRange(min=1), help="The version; by default the last one.")
@_tenant
def show(prompt_id: str, version: int | None, tenant: str, **params: Any) -> None:
    """Write the text of the prompt PROMPT_ID to standard output.

    \b
    Examples:
      antiphon prompts show PROMPT_ID
      antiphon prompts show PROMPT_ID --version 2 > support.md
    """  # noqa: D301 - the escape is click's mark for lines to keep
    from antiphon.prompt.templates import decode_template

    found = run(_find(read_settings(params), tenant, prompt_id, version))
    if found is None:
        which = f"version {version} of the prompt" if version is not None else "prompt"
        raise click.ClickException(f"There is no {which} '{printable(prompt_id)}' of the tenant {tenant}.")
    click.echo(decode_template(found.body).text)


@setting_options(_STORE)
@prompts.command(cls=GroupedCommand)
@click.argument("prompt_id")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_tenant
def delete(prompt_id: str, yes: bool, tenant: str, **params: Any) -> None:
    """Delete all versions of the prompt PROMPT_ID; requests that name it are answered 404 from then on.

    \b
    Examples:
      antiphon prompts delete PROMPT_ID
    """  # noqa: D301 - the escape is click's mark for lines to keep
    if not yes:
        click.confirm(f"Delete all versions of {printable(prompt_id)}?", abort=True, err=True)
    if not run(_delete(read_settings(params), tenant, prompt_id)):
        raise click.ClickException(f"There is no prompt '{printable(prompt_id)}' of the tenant {tenant}.")
    click.echo(f"Deleted {prompt_id}.", err=True)


def _text(file: IO[str]) -> str:
    from antiphon.prompt.templates import MAX_TEMPLATE

    try:
        text = file.read(MAX_TEMPLATE + 1)
    except UnicodeDecodeError:
        raise click.ClickException("The text is not UTF-8.") from None
    if not text.strip():
        raise click.ClickException("The text is empty.")
    if len(text) > MAX_TEMPLATE:
        raise click.ClickException(f"The text is longer than {MAX_TEMPLATE} characters.")
    return text.rstrip("\n")


async def _create(settings: Settings, tenant: str, prompt_id: str | None, name: str, text: str) -> StoredPrompt | None:
    import time

    from antiphon.errors import ConflictError
    from antiphon.prompt.templates import Template, decode_template, encode_template
    from antiphon.protocol.ids import new_id
    from antiphon.runtime.templates import PREFIX
    from antiphon.store.base import Scope, StoredPrompt
    from antiphon.store.keyring import open_prompts

    scope = Scope(tenant)
    async with open_prompts(settings) as registers:
        for attempt in range(_ATTEMPTS):
            last = None if prompt_id is None else await registers.find_prompt(scope, prompt_id)
            if prompt_id is not None and last is None:
                return None
            called = name or ("" if last is None else decode_template(last.body).name)
            kept = StoredPrompt(
                prompt_id or new_id(PREFIX),
                1 if last is None else last.version + 1,
                int(time.time()),
                encode_template(Template(text, called)),
            )
            try:
                await registers.add_prompt(scope, kept)
            except ConflictError:
                # Another command has kept this version in between.
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return kept
    return None


async def _list(settings: Settings, tenant: str) -> list[StoredPrompt]:
    from antiphon.store.base import Scope
    from antiphon.store.keyring import open_prompts

    async with open_prompts(settings) as registers:
        return await registers.prompts(Scope(tenant))


async def _find(settings: Settings, tenant: str, prompt_id: str, version: int | None) -> StoredPrompt | None:
    from antiphon.store.base import Scope
    from antiphon.store.keyring import open_prompts

    async with open_prompts(settings) as registers:
        return await registers.find_prompt(Scope(tenant), prompt_id, version)


async def _delete(settings: Settings, tenant: str, prompt_id: str) -> bool:
    from antiphon.store.base import Scope
    from antiphon.store.keyring import open_prompts

    async with open_prompts(settings) as registers:
        return await registers.delete_prompt(Scope(tenant), prompt_id)


def _variables(text: str) -> str:
    from antiphon.prompt.templates import names_of

    names = names_of(text)
    return f", with the variables {', '.join(names)}" if names else ", without variables"


def _plain(prompt: StoredPrompt) -> dict[str, Any]:
    from antiphon.prompt.templates import decode_template, names_of

    template = decode_template(prompt.body)
    return {
        "id": prompt.id,
        "version": str(prompt.version),
        "name": template.name,
        "created_at": prompt.created_at,
        "variables": names_of(template.text),
    }


def _table(found: Sequence[StoredPrompt]) -> list[str]:
    rows = [("ID", "VERSION", "NAME", "CREATED", "VARIABLES")]
    for prompt in found:
        plain = _plain(prompt)
        created = datetime.fromtimestamp(prompt.created_at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        name, variables = printable(plain["name"]) or "-", ", ".join(plain["variables"]) or "-"
        rows.append((prompt.id, plain["version"], name, created, variables))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
