"""What is generated beside responses: a place for it, and its end when the server stops.

Counts, compactions, completions and embeddings keep nothing and have no row, but they take places, count against a
key's limits and end with the server as responses do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol

from antiphon.errors import UnavailableError
from antiphon.runtime.admission import Admission
from antiphon.runtime.limits import KeyLimits
from antiphon.store.base import Scope

__all__ = ["Beside", "Guest"]


class Guest(Protocol):
    """Something that runs, in so many places, until it ends or its client leaves."""

    places: int

    async def run(self) -> None:
        """Run to the end."""
        ...

    def leave(self) -> None:
        """Stop; nobody waits for it any more."""
        ...


class Beside:
    """Lets requests in that are for no response, until the server is `draining`."""

    def __init__(self, admission: Admission, limits: KeyLimits, draining: Callable[[], bool]) -> None:
        self._admission = admission
        self._limits = limits
        self._guests: dict[asyncio.Task[None], Guest] = {}
        self._draining = draining
        self._ended = False

    def enter(self, scope: Scope, places: int = 1) -> None:
        """Take places, which `launch` or `leave` gives back.

        Raises:
            UnavailableError: the server is shutting down, or has not so many places now.
            RateLimitError: the key has no requests or no tokens left now.
        """
        if self._draining():
            raise UnavailableError("The server is shutting down. Please try again later.", retry_after=5.0)
        self._limits.admit(scope)
        self._admission.enter(places)

    def leave(self, places: int = 1) -> None:
        """Give places back."""
        self._admission.leave(places)

    @contextmanager
    def place(self, scope: Scope) -> Generator[None]:
        """A place for as long as the block takes; raises what `enter` does."""
        self.enter(scope)
        try:
            yield
        finally:
            self.leave()

    def launch(self, guest: Guest) -> asyncio.Task[None]:
        """Run something that has its places, and give them back when it has ended."""
        if self._ended:
            guest.leave()
        task = asyncio.create_task(self._drive(guest))
        self._guests[task] = guest
        task.add_done_callback(self._guests.pop)
        return task

    async def end(self) -> None:
        """End all that runs, and what is launched later."""
        self._ended = True
        for guest in list(self._guests.values()):
            guest.leave()
        while self._guests:
            await asyncio.wait(list(self._guests))

    async def _drive(self, guest: Guest) -> None:
        try:
            await guest.run()
        finally:
            self.leave(guest.places)
