"""Providers that are made when a request first asks for them, so that a server does not load what nobody uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from antiphon.protocol.request import CreateResponse
from antiphon.tools.base import Opened, Provider, Session

__all__ = ["LaterProvider"]


class LaterProvider(Provider):
    """Stands for the provider that `make` gives, of these types; `make` may not fail."""

    def __init__(self, types: frozenset[str], make: Callable[[], Provider], *, waits: bool = False) -> None:
        self.types = types
        self.waits = waits
        self._make = make
        self._made: Provider | None = None

    def check(self, declared: Sequence[dict[str, Any]], request: CreateResponse) -> None:
        """See that the entries can be read; raises what the provider does."""
        self._provider().check(declared, request)

    async def open(self, declared: Sequence[dict[str, Any]], session: Session) -> Opened:
        """The tools of these entries."""
        return await self._provider().open(declared, session)

    async def close(self) -> None:
        """Close the provider, if there is one."""
        if self._made is not None:
            await self._made.close()

    def _provider(self) -> Provider:
        if self._made is None:
            self._made = self._make()
        return self._made
