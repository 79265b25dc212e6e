"""Which replica of a model a turn goes to, so that it finds what its history left in a cache. Pure (upstreams.md, 6).

A history has a home: first the replica that comes first by rendezvous hashing, then wherever its last turn went. A
replica takes no turn that would give it more than a quarter above the mean of what is in flight; that turn goes
elsewhere, and its history has moved. A replica that is lost gives its histories away, and gets none of them back when
it returns, since its cache is gone and theirs is elsewhere by then.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final

from msgspec import Struct

__all__ = ["MOST_KEPT", "Placement", "bound"]

MOST_KEPT: Final = 32_768
"""Histories whose homes are remembered, the least recently used forgotten first."""

KEPT_SECONDS: Final = 3_600.0
"""Seconds after its last turn for which the home of a history is remembered; no cache keeps a prefix for so long."""


class _Home(Struct):
    """The replicas that a history has been on, the last one first, and until when that is remembered."""

    replicas: list[int]
    until: float


class Placement:
    """The homes of histories, and how many turns each replica has in flight.

    `identities` tell the replicas apart in the hash: a replica keeps its histories over a restart, and when others come
    or go. `clock` is in seconds.
    """

    def __init__(
        self,
        identities: Sequence[str],
        *,
        most: int = MOST_KEPT,
        seconds: float = KEPT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._salts = [blake2b(identity.encode(), digest_size=16).digest() for identity in identities]
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._homes: OrderedDict[str, _Home] = OrderedDict()
        self._turn = 0
        self.in_flight = [0] * len(self._salts)
        """Turns that run, by the number of the replica."""
        self.moves = 0
        """How often a history has been given another home."""

    def preferred(self, key: str, able: Sequence[int]) -> list[int]:
        """Those of the able replicas, in the order in which a turn with that key wants them.

        An empty key wants the one with the least to do.
        """
        if not key:
            return sorted(able, key=lambda number: (self.in_flight[number], (number - self._turn) % len(self._salts)))
        home = self._homes.get(key)
        known = [] if home is None or home.until < self._clock() else [n for n in home.replicas if n in able]
        return [*known, *sorted((n for n in able if n not in known), key=lambda n: self._weight(key, n), reverse=True)]

    def take(self, key: str, able: Sequence[int], again: str = "") -> int:
        """The replica for a turn that begins now; it is counted until `free`. There must be one that is able.

        The next turn of the same history may come with the key `again` too.
        """
        limit = bound(sum(self.in_flight[number] for number in able), len(able))
        wanted = self.preferred(key, able)
        number = next(number for number in wanted if self.in_flight[number] < limit)
        self.in_flight[number] += 1
        if key:
            self.moves += self._keep(key, number, able)
            if again:
                self._keep(again, number, able)
        else:
            self._turn = number + 1
        return number

    def inherit(self, former: Placement) -> None:
        """Leave histories on those of their replicas that are here too."""
        here = {salt: number for number, salt in enumerate(self._salts)}
        numbers = {old: here[salt] for old, salt in enumerate(former._salts) if salt in here}
        for key, home in former._homes.items():
            known = [numbers[number] for number in home.replicas if number in numbers]
            if known:
                self._homes[key] = _Home(known, home.until)

    def free(self, number: int) -> None:
        """A turn on that replica has ended."""
        self.in_flight[number] -= 1

    def _weight(self, key: str, number: int) -> bytes:
        return blake2b(key.encode(), digest_size=8, key=self._salts[number]).digest()

    def _keep(self, key: str, number: int, able: Sequence[int]) -> bool:
        """Remember where a history is; whether it was elsewhere before."""
        now = self._clock()
        home = self._homes.get(key)
        moved = False
        if home is None or home.until < now:
            home = self._homes[key] = _Home([number], now)
            while len(self._homes) > self._most:
                self._homes.popitem(last=False)
        elif home.replicas[0] != number:
            moved = True
            # What a replica kept before it was lost is gone.
            home.replicas = [number, *(n for n in home.replicas if n != number and n in able)]
        home.until = now + self._seconds
        self._homes.move_to_end(key)
        return moved


def bound(in_flight: int, replicas: int) -> int:
    """The most turns that one of so many replicas may have once one more is begun: 1.25 times the mean, rounded up."""
    return -(-5 * (in_flight + 1) // (4 * replicas))
