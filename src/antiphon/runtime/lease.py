"""The lease of this process: its sign of life, and what it takes over from those that gave none.

Every owner of running responses raises a counter. Whoever's counter stands still on this process's own monotonic clock
for the time of a lease is dead to it, and so is one that the store knows to be gone. What the dead ran is an orphan;
the fence decides who gets it, and keeps out an owner that was only slow.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence, Set

from antiphon.errors import UnavailableError
from antiphon.protocol.ids import new_id
from antiphon.runtime.observer import Observer
from antiphon.store.base import RunningResponse, Store

__all__ = ["Lease"]

BEATS_A_LEASE = 10
LONGEST_BEAT = 1.0
TOGETHER = 32
"""So many are taken over at the same time."""


class Lease:
    """Keeps a process's place among the owners; `take` is given each orphan, the oldest first."""

    def __init__(
        self,
        store: Store,
        observer: Observer,
        seconds: float,
        take: Callable[[RunningResponse], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.owner = new_id("srv")
        self._store = store
        self._observer = observer
        self._seconds = seconds
        self._pause = min(LONGEST_BEAT, seconds / BEATS_A_LEASE)
        self._take = take
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}
        self._due = 0.0
        self._living = {self.owner}
        self._task: asyncio.Task[None] | None = None

    @property
    def living(self) -> Set[str]:
        """The owners that live, as far as this one has seen; it alone where no others can be."""
        return self._living if self._store.shared else {self.owner}

    async def start(self) -> None:
        """Enter, take over what nobody runs, and go on so in the background where others share the store.

        A store that cannot be written now keeps no server from starting: it is tried again until all has been taken.
        """
        await self._store.join(self.owner)
        if not await self._looked() or self._store.shared:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Leave: what this process still runs waits for the next owner."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(Exception):
            await self._store.leave(self.owner)

    async def look(self) -> None:
        """Beat, and take over what the dead left, which may be so much that it takes more than one beat.

        Raises:
            UnavailableError: the store cannot be used now; what was not taken is there at the next look.
        """
        orphans = await self._store.orphans(self._alive(await self._store.beat(self.owner)))
        # Some together, since a store writes them as one.
        for first in range(0, len(orphans), TOGETHER):
            await self._take_together(orphans[first : first + TOGETHER])

    async def _take_together(self, orphans: Sequence[RunningResponse]) -> None:
        taking = [asyncio.create_task(self._take_one(orphan)) for orphan in orphans]
        waiting = set(taking)
        try:
            while waiting:
                _, waiting = await asyncio.wait(waiting, timeout=self._pause, return_when=asyncio.FIRST_COMPLETED)
                if self._clock() >= self._due:
                    self._alive(await self._store.beat(self.owner))
        finally:
            # None, unless the store is away or the server stops; whoever takes makes good what is half done.
            for task in waiting:
                task.cancel()
            failed = [error for error in await asyncio.gather(*taking, return_exceptions=True) if error is not None]
        if failed:
            raise failed[0]

    async def _take_one(self, orphan: RunningResponse) -> None:
        try:
            await self._take(orphan)
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - one that cannot be taken must not keep the others back
            self._observer.fault("a response could not be taken over", error)

    def _alive(self, counters: dict[str, int]) -> set[str]:
        now = self._clock()
        self._due = now + self._pause
        seen: dict[str, tuple[int, float]] = {}
        for owner, counter in counters.items():
            before = self._seen.get(owner)
            seen[owner] = before if before is not None and before[0] == counter else (counter, now)
        self._seen = seen
        self._living = {owner for owner, (_, since) in seen.items() if now - since < self._seconds} | {self.owner}
        return self._living

    async def _looked(self) -> bool:
        try:
            await self.look()
        except Exception as error:  # noqa: BLE001 - the store may be back at the next beat
            self._observer.fault("the lease could not be renewed", error)
            return False
        return True

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause)
            if await self._looked() and not self._store.shared:
                return
