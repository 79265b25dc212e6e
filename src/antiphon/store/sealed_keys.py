"""The data keys of a sealed store's tenants, and how what does not open is told."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

from antiphon.errors import InternalError
from antiphon.store.registers import Registers
from antiphon.store.sealing import DataKey, MasterKey, UnsealableError

__all__ = ["TenantKeys", "open_sealed", "unreadable"]

_log = logging.getLogger(__name__)
_FRESH_SECONDS = 2.0
_MOST_KEYS = 1024


class TenantKeys:
    """The data keys of tenants, unwrapped: for two seconds, and so many at most."""

    def __init__(self, inner: Registers, master: MasterKey, clock: Callable[[], float]) -> None:
        self._inner = inner
        self._master = master
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, DataKey]] = OrderedDict()

    async def make(self, tenant: str) -> DataKey:
        """The key to seal with, made where there is none."""
        known = self._fresh(tenant)
        if known is not None:
            return known
        asked_at = self._clock()
        wrapped = await self._inner.tenant_key(tenant)
        if wrapped is None:
            wrapped = await self._inner.add_tenant_key(tenant, self._master.new_data_key(tenant))
        return self._keep(tenant, wrapped, asked_at)

    async def find(self, tenant: str) -> DataKey:
        """The key to open with."""
        key = await self.get(tenant)
        if key is None:
            raise unreadable()
        return key

    async def get(self, tenant: str) -> DataKey | None:
        """The key of a tenant; None where it has none, and so nothing sealed."""
        known = self._fresh(tenant)
        if known is not None:
            return known
        asked_at = self._clock()
        wrapped = await self._inner.tenant_key(tenant)
        return None if wrapped is None else self._keep(tenant, wrapped, asked_at)

    def forget(self, tenant: str) -> None:
        """Keep a key no longer."""
        self._known.pop(tenant, None)

    def _fresh(self, tenant: str) -> DataKey | None:
        known = self._known.get(tenant)
        return known[1] if known is not None and self._clock() < known[0] + _FRESH_SECONDS else None

    def _keep(self, tenant: str, wrapped: bytes, asked_at: float) -> DataKey:
        try:
            key = self._master.unwrap(tenant, wrapped)
        except UnsealableError:
            raise unreadable() from None
        self._known[tenant] = (asked_at, key)
        self._known.move_to_end(tenant)
        if len(self._known) > _MOST_KEYS:
            self._known.popitem(last=False)
        return key


def unreadable() -> InternalError:
    """The error for what does not open."""
    return InternalError("What is stored cannot be read: it was changed, or encrypted with another key.")


def open_sealed(key: DataKey, kind: str, identity: str, sealed: bytes) -> bytes:
    """The body of a row.

    Raises:
        InternalError: it does not open; which row that is, is logged.
    """
    try:
        return key.open(kind, identity, sealed)
    except UnsealableError:
        _log.error("a sealed row does not open: %s %s", kind, identity)
        raise unreadable() from None
