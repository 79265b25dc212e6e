"""`antiphon keys`: make, list and revoke the API keys of a store, whether its server runs or not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from antiphon.cli.access import run
from antiphon.cli.options import GroupedCommand, read_settings, setting_options
from antiphon.cli.terminal import printable

if TYPE_CHECKING:
    from antiphon.runtime.limits import KeyRules
    from antiphon.settings import Settings
    from antiphon.store.base import ApiKey

__all__ = ["TENANT_NAME", "check_tenant", "keys"]

TENANT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
"""What a tenant may be named; the names that the server keeps for itself have a colon."""

_STORE = ["store", "data_dir"]
_MAX_NAME = 64


def check_tenant(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Called by click for the name of a tenant."""
    if not TENANT_NAME.fullmatch(value):
        raise click.BadParameter(
            "1 to 64 letters, digits and any of . _ @ - are expected, the first one a letter or a digit.", ctx, param
        )
    return value


def _check_name(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not (1 <= len(value) <= _MAX_NAME and value.isprintable() and value.strip()):
        raise click.BadParameter(f"1 to {_MAX_NAME} printable characters are expected.", ctx, param)
    return value


def _models(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = tuple(name for part in value.split(",") if (name := part.strip()))
    if not names:
        raise click.BadParameter("the names of models, with commas between them, are expected.", ctx, param)
    return names


@click.group()
def keys() -> None:
    """Make, list and revoke API keys.

    They are kept in the store that --store and --data-dir name, where the server looks for them: it may be running. As
    soon as a store has a key, every request needs one. What a key makes is seen by keys of its tenant and no others.

    \b
    Examples:
      antiphon keys create --name laptop
      antiphon keys create --name ci --tenant acme --models smollm2 --requests-per-minute 60
      antiphon keys list
      antiphon keys revoke KEY_ID
    """  # noqa: D301 - the escape is click's mark for lines to keep


@setting_options(_STORE)
@keys.command(cls=GroupedCommand)
@click.option("--name", required=True, callback=_check_name, help="What the key is for, to tell it from others.")
@click.option(
    "--tenant", default="default", show_default=True, callback=check_tenant, help="Whose rows it sees and makes."
)
@click.option("--models", callback=_models, help="The models that it may use, with commas between; all by default.")
@click.option("--requests-per-minute", type=click.IntRange(min=1), help="The most requests that it may make a minute.")
@click.option("--tokens-per-minute", type=click.IntRange(min=1), help="The most tokens, in and out, a minute.")
def create(
    name: str,
    tenant: str,
    models: tuple[str, ...] | None,
    requests_per_minute: int | None,
    tokens_per_minute: int | None,
    **params: Any,
) -> None:
    """Make a key, and write its secret to standard output.

    The secret is shown this once: the store keeps only its SHA-256 digest.

    \b
    Examples:
      antiphon keys create --name laptop
      KEY=$(antiphon keys create --name ci --tenant acme --tokens-per-minute 100000)
    """  # noqa: D301 - the escape is click's mark for lines to keep
    from antiphon.runtime.limits import KeyRules

    rules = KeyRules(models, requests_per_minute, tokens_per_minute)
    secret, key = run(_create(read_settings(params), name, tenant, rules))
    click.echo(f"Made {key.id} for the tenant {tenant}. Its secret is shown this once:", err=True)
    click.echo(secret)


@setting_options(_STORE)
@keys.command("list", cls=GroupedCommand)
@click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")
def list_keys(as_json: bool, **params: Any) -> None:
    """List all keys, revoked ones included, oldest first; secrets are not known.

    \b
    Examples:
      antiphon keys list
      antiphon keys list --json
    """  # noqa: D301 - the escape is click's mark for lines to keep
    import msgspec

    found = run(_list(read_settings(params)))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode([_plain(key) for key in found])).decode())
    elif not found:
        click.echo("There are no keys. Make one: antiphon keys create --name NAME", err=True)
    else:
        click.echo("\n".join(_table(found)))


@setting_options(_STORE)
@keys.command(cls=GroupedCommand)
@click.argument("key_id")
@click.pass_context
def revoke(ctx: click.Context, key_id: str, **params: Any) -> None:
    """Revoke the key KEY_ID, as 'list' names it; a running server refuses it within two seconds.

    \b
    Examples:
      antiphon keys revoke key_0199c1d2e3f4
    """  # noqa: D301 - the escape is click's mark for lines to keep
    if run(_revoke(read_settings(params), key_id)):
        click.echo(f"Revoked {key_id}.", err=True)
        return
    click.echo(f"Error: There is no key '{printable(key_id)}' that is not revoked yet.", err=True)
    ctx.exit(1)


async def _create(settings: Settings, name: str, tenant: str, rules: KeyRules) -> tuple[str, ApiKey]:
    import time

    from antiphon.runtime.keys import new_key
    from antiphon.store.keyring import open_keyring

    secret, key = new_key(name, tenant, rules, time.time())
    async with open_keyring(settings) as registers:
        await registers.add_key(key)
    return secret, key


async def _list(settings: Settings) -> list[ApiKey]:
    from antiphon.store.keyring import open_keyring

    async with open_keyring(settings) as registers:
        return await registers.keys()


async def _revoke(settings: Settings, key_id: str) -> bool:
    import time

    from antiphon.store.keyring import open_keyring

    async with open_keyring(settings) as registers:
        return await registers.revoke_key(key_id, int(time.time()))


def _plain(key: ApiKey) -> dict[str, Any]:
    import msgspec

    return {
        "id": key.id,
        "name": key.name,
        "tenant": key.tenant,
        "created_at": key.created_at,
        "revoked_at": key.revoked_at,
        "limits": msgspec.Raw(key.limits),
    }


def _table(found: Sequence[ApiKey]) -> list[str]:
    rows = [("ID", "NAME", "TENANT", "CREATED", "REVOKED", "LIMITS")]
    rows += [
        (
            key.id,
            printable(key.name),
            printable(key.tenant),
            _time(key.created_at),
            "-" if key.revoked_at is None else _time(key.revoked_at),
            printable(_limits(key.limits)),
        )
        for key in found
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _limits(encoded: bytes) -> str:
    import msgspec

    from antiphon.runtime.limits import KeyRules

    try:
        rules = msgspec.json.decode(encoded, type=KeyRules)
    except msgspec.MsgspecError:
        return encoded.decode("utf-8", "replace")
    told = [
        f"models {', '.join(rules.models)}" if rules.models is not None else "",
        f"{rules.requests_per_minute} requests/min" if rules.requests_per_minute is not None else "",
        f"{rules.tokens_per_minute} tokens/min" if rules.tokens_per_minute is not None else "",
    ]
    return "; ".join(part for part in told if part) or "-"
