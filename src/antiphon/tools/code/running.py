"""Runs code in the boxes of containers: which of them have a box, and their files before and after (issue 6, 6).

A box is started when its container first runs something, and the one that was idle longest makes room for it. Its files
are put in, and those that the code made or changed are taken out after each cell; so they outlive the box, which the
variables do not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct

from antiphon.errors import InvalidRequestError, ServerBusyError
from antiphon.protocol.containers import safe_path
from antiphon.protocol.ids import new_id
from antiphon.settings import Settings
from antiphon.tools.code.choose import Sandboxes
from antiphon.tools.code.contents import Content
from antiphon.tools.code.record import MOST_FILE_BYTES, MOST_FILES, Container, KeptFile, room_for_files
from antiphon.tools.code.sandbox import (
    WORK_FOLDER,
    Backend,
    Box,
    BoxEndedError,
    BoxLimits,
    Cell,
    Listed,
    NoSandboxError,
    Ran,
)

__all__ = ["Done", "Running", "SandboxEndedError", "SandboxMissingError"]

_MOST_WAITING = 16
_PLACE_SECONDS = 60.0
_MOST_LEFT_OUT = 20


class SandboxMissingError(InvalidRequestError):
    """There is nothing that code could be run in."""

    default_code = "sandbox_unavailable"


class SandboxEndedError(InvalidRequestError):
    """The sandbox ended, or was ended, over what it was given to run."""

    default_code = "sandbox_ended"


class Done(Struct, frozen=True):
    """What running something gave, beside what it printed.

    `made` are the files that it made or changed, `images` those of them that it showed, and `left_out` what could not
    be kept. `fresh` says that the variables of earlier cells were lost before.
    """

    cell: Cell
    made: Sequence[KeptFile]
    images: Sequence[KeptFile]
    left_out: Sequence[str]
    fresh: bool


class Running:
    """The boxes of one server; `containers` gives all containers that there are."""

    def __init__(self, settings: Settings, sandboxes: Sandboxes, containers: Callable[[], Sequence[Container]]) -> None:
        self._settings = settings
        self._sandboxes = sandboxes
        self._containers = containers
        self._starting = 0
        self._freed = asyncio.Condition()

    async def run(self, container: Container, code: str, seconds: float) -> Done:
        """Run a cell.

        Raises:
            APIError: it could not be run, or ended its box.
        """
        async with self._box(container) as (box, fresh):
            cell = await box.run(code, seconds)
            container.cells += 1
            if cell.timed_out and not (await self.backend()).files:
                # Monty vouches for nothing once its time was over.
                await self.end(container)
            made, left_out = await self._take(container, box, cell.files)
            images = [file for path in cell.images if (file := container.by_path(_below(path))) is not None]
        return Done(cell, made, images, left_out, fresh)

    async def shell(
        self, container: Container, commands: Iterable[str], seconds: float, most: int
    ) -> tuple[list[Ran], Done]:
        """Run commands.

        Raises:
            APIError: they could not be run, or ended their box.
        """
        if not (await self.backend()).shell:
            raise SandboxMissingError("The sandbox of this server runs Python only and has no shell.")
        async with self._box(container) as (box, fresh):
            ran = [await box.shell(command, seconds, most) for command in commands]
            made, left_out = await self._take(container, box, await box.list_files())
        return ran, Done(Cell(), made, (), left_out, fresh)

    async def end(self, container: Container) -> None:
        """End the box of a container, if it has one."""
        box, container.box = container.box, None
        container.placed.clear()
        container.versions.clear()
        container.lost = container.lost or container.cells > 0
        container.cells = 0
        if box is not None:
            await box.close()
            async with self._freed:
                self._freed.notify_all()

    async def backend(self) -> Backend:
        """What runs code here.

        Raises:
            SandboxMissingError: nothing does.
        """
        try:
            return await self._sandboxes.backend()
        except NoSandboxError as error:
            raise SandboxMissingError(str(error)) from error

    @asynccontextmanager
    async def _box(self, container: Container) -> AsyncGenerator[tuple[Box, bool]]:
        """The box of a container, with its files in it, while nobody else uses it."""
        if container.waiting >= _MOST_WAITING:
            raise ServerBusyError("Too much is waiting to be run in this container. Please try again later.")
        container.waiting += 1
        try:
            async with container.lock:
                try:
                    box = await self._started(container)
                    fresh, container.lost = container.lost, False
                    await self._put(container, box)
                    yield box, fresh
                except BoxEndedError as error:
                    await self.end(container)
                    raise SandboxEndedError(
                        f"The sandbox ended. {error} Variables are lost; files that were there before remain."
                    ) from error
        finally:
            container.waiting -= 1
            async with self._freed:
                self._freed.notify_all()

    async def _started(self, container: Container) -> Box:
        box = container.box
        if box is not None and box.alive:
            return box
        await self.end(container)
        if container.expired_at is not None:
            raise _expired()
        backend = await self.backend()
        await self._place()
        try:
            settings = self._settings
            limits = BoxLimits(container.memory, settings.sandbox_disk, settings.sandbox_processes, self._seconds)
            box = container.box = await backend.start(limits)
        finally:
            self._starting -= 1
        if container.expired_at is not None:
            # It was deleted meanwhile, and nobody else would end what was started for it.
            await self.end(container)
            raise _expired()
        return box

    @property
    def _seconds(self) -> float:
        return self._settings.sandbox_seconds

    async def _place(self) -> None:
        """Take the place of one more box; one that is idle makes room."""
        until = time.monotonic() + _PLACE_SECONDS
        while True:
            live = [one for one in self._containers() if one.box is not None]
            if len(live) + self._starting < self._settings.max_sandboxes:
                self._starting += 1
                return
            idle = [one for one in live if not one.waiting]
            if idle:
                await self.end(min(idle, key=lambda one: one.last_active_at))
                continue
            try:
                async with asyncio.timeout(until - time.monotonic()), self._freed:
                    await self._freed.wait()
            except TimeoutError:
                raise ServerBusyError("All sandboxes are in use. Please try again later.") from None

    async def _put(self, container: Container, box: Box) -> None:
        """Have the box hold the files that the container has."""
        if not (await self.backend()).files:
            return
        wanted = {file.path: file for file in container.files.values()}
        changed = False
        for path, file_id in list(container.placed.items()):
            if file_id not in container.files:
                if (safe_path(path) or path) not in wanted:
                    await box.remove(path)
                del container.placed[path]
                changed = True
        known = set(container.placed.values())
        for file in wanted.values():
            if file.id not in known and await box.put(file.path, await asyncio.to_thread(file.content.whole)):
                container.placed[file.path] = file.id
                changed = True
        if changed:
            container.versions = {listed.path: listed.version for listed in await box.list_files()}

    async def _take(self, container: Container, box: Box, files: Sequence[Listed]) -> tuple[list[KeptFile], list[str]]:
        """Take out the files that are new or were changed, and forget those that are gone."""
        made: list[KeptFile] = []
        left_out: list[str] = []
        seen = {listed.path for listed in files}
        for path in [path for path in container.placed if path not in seen]:
            container.files.pop(container.placed.pop(path), None)
        for listed in files:
            if container.versions.get(listed.path) == listed.version:
                continue
            kept = await self._keep(container, box, listed)
            if kept is None:
                left_out.append((safe_path(listed.path) or "?")[:200])
            else:
                made.append(kept)
        container.versions = {listed.path: listed.version for listed in files}
        return made, left_out[:_MOST_LEFT_OUT]

    async def _keep(self, container: Container, box: Box, listed: Listed) -> KeptFile | None:
        path = safe_path(listed.path)
        if path is None or listed.size > MOST_FILE_BYTES:
            return None
        before = container.files.get(container.placed.get(listed.path, ""))
        there = container.by_path(path)
        if there is not None and there is not before:
            # Two names of which the same is kept: the first has it.
            return None
        if before is None and len(container.files) >= MOST_FILES:
            return None
        room = room_for_files(container, self._containers(), self._settings.sandbox_disk)
        room += before.content.size if before is not None else 0
        data = await box.read(listed.path, min(MOST_FILE_BYTES, room))
        if data is None:
            return None
        made_at = int(time.time()) if before is None else before.created_at
        source = "assistant" if before is None else before.source
        identity = new_id("cfile") if before is None else before.id
        kept = KeptFile(identity, path, made_at, source, await asyncio.to_thread(Content, data))
        container.files[kept.id] = kept
        container.placed[listed.path] = kept.id
        return kept


def _expired() -> InvalidRequestError:
    return InvalidRequestError("The container has expired.", code="container_expired")


def _below(path: str) -> str:
    return safe_path(path.removeprefix(WORK_FOLDER)) or ""
