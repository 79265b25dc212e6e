"""Places are shared fairly: whoever holds the fewest is next, and one who gives up leaves nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.corpus.places import Places

requirement = pytest.mark.requirement


class Work:
    """Takes places, tells who has got one, and gives them back when told."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self.began: list[str] = []
        self._over: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, *names: str) -> None:
        """Ask for a place by name; the first letter is the tenant."""
        for name in names:
            self._over[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._work(name))
        await self._settle()

    async def end(self, name: str) -> None:
        """Give one back."""
        self._over[name].set()
        await self._settle()

    async def leave(self, name: str) -> None:
        """Give up, with a place or without."""
        self._tasks[name].cancel()
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def _work(self, name: str) -> None:
        async with self._places.taken(name[0]):
            self.began.append(name)
            await self._over[name].wait()


@requirement("corpus:fair")
async def test_one_tenant_never_holds_all_places() -> None:
    work = Work(Places(3, 2))
    await work.ask("a1", "a2", "a3", "a4")
    assert work.began == ["a1", "a2"]
    await work.ask("b1")
    assert work.began == ["a1", "a2", "b1"]
    await work.end("a1")
    assert work.began == ["a1", "a2", "b1", "a3"]


@requirement("corpus:fair")
async def test_who_holds_the_fewest_is_next_and_then_who_has_waited_longest_for_a_turn() -> None:
    work = Work(Places(2, 2))
    await work.ask("a1", "a2", "a3", "a4", "b1", "b2", "c1", "c2")
    order = ["a1", "a2"]
    # When the first ends, 'a' has one and the others none: 'b' comes, then 'c', and 'a' only after them.
    for name in ("a1", "a2", "b1", "c1", "b2"):
        await work.end(name)
    order += ["b1", "c1", "a3", "b2", "c2"]
    assert work.began == order


@requirement("corpus:fair")
async def test_who_gives_up_leaves_no_place_taken_and_nobody_behind() -> None:
    places = Places(1, 1)
    work = Work(places)
    await work.ask("a1", "a2", "b1")
    await work.leave("a2")
    await work.leave("a1")
    assert work.began == ["a1", "b1"]
    # A place becomes free in the moment in which the next in the queue gives up.
    await work.ask("a3", "a4")
    work._over["b1"].set()
    work._tasks["a3"].cancel()
    await work.end("b1")
    assert work.began == ["a1", "b1", "a4"]
    await work.end("a4")
    await work.ask("b1")
    # Given a place and cancelled in the same moment.
    await work.ask("c1")
    work._over["b1"].set()
    while "c" in places._waiting:
        await asyncio.sleep(0)
    await work.leave("c1")
    await work.ask("d1")
    assert work.began[-1] == "d1"
    await work.end("d1")
    assert (places._free, dict(places._held), places._waiting, places._last) == (1, {}, {}, {})
