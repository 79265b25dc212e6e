"""`antiphon tenants`: delete a tenant with all that it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from antiphon.cli.access import run
from antiphon.cli.keys import check_tenant
from antiphon.cli.options import GroupedCommand, read_settings, setting_options
from antiphon.errors import ConfigurationError

if TYPE_CHECKING:
    from antiphon.settings import Settings

__all__ = ["tenants"]


@click.group()
def tenants() -> None:
    """Delete tenants.

    A tenant is made with its first API key: see 'antiphon keys'.

    \b
    Examples:
      antiphon tenants delete acme
    """  # noqa: D301 - the escape is click's mark for lines to keep


@setting_options(["store", "data_dir"])
@tenants.command(cls=GroupedCommand)
@click.argument("tenant", callback=check_tenant)
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(tenant: str, yes: bool, **params: Any) -> None:
    """Delete all that TENANT has: its API keys, responses, conversations and, where the store is encrypted, its key.

    A store in a file must not have a server running; one in PostgreSQL may. With its key gone, nothing that is left of
    the tenant anywhere can be read again; a backup that was made before still has the key, until the same command is
    run on it: give the backup as --store. No encryption key is needed.

    \b
    Examples:
      antiphon tenants delete acme
      antiphon tenants delete acme --yes --store backup-2026-11.db
    """  # noqa: D301 - the escape is click's mark for lines to keep
    settings = read_settings(params)
    if settings.store == "memory":
        raise ConfigurationError("A store in memory keeps nothing that a command could delete.")
    if not yes:
        click.confirm(f"Delete all that the tenant {tenant} has? It cannot be undone.", abort=True, err=True)
    run(_delete(settings, tenant))
    click.echo(f"Deleted all that the tenant {tenant} had.", err=True)


async def _delete(settings: Settings, tenant: str) -> None:
    import asyncio
    import time

    from antiphon.runtime.keys import FRESH_SECONDS
    from antiphon.store.open import open_plain

    store = open_plain(settings)
    # Bodies are not looked at, so that none of them need be opened.
    store.sealed = True
    await store.open()
    try:
        revoked = [
            await store.revoke_key(key.id, int(time.time())) for key in await store.keys() if key.tenant == tenant
        ]
        if store.shared and any(revoked):
            # Until every server has seen it: what one of them still let in would be left behind.
            await asyncio.sleep(2 * FRESH_SECONDS)
        await store.delete_tenant(tenant)
    finally:
        await store.close()
