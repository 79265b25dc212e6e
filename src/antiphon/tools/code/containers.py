"""The containers of one server: made, found, expired and removed, and their files (hosted-tools A3).

A container is a live thing: its variables and its folder are in processes of this server. So all of it is held here and
ends with the server; afterwards its id is one that is not found. For a day an expired one is still shown as expired.
Everything is by tenant: another's container is one that is not there.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol
from weakref import WeakValueDictionary

from antiphon.errors import InvalidRequestError, NotFoundError
from antiphon.protocol.containers import CreateContainer, is_container_file_id, is_container_id, memory_bytes, safe_path
from antiphon.protocol.ids import new_id
from antiphon.protocol.json import quoted
from antiphon.settings import Settings
from antiphon.store.base import Scope
from antiphon.tools.code.choose import Sandboxes
from antiphon.tools.code.contents import Content
from antiphon.tools.code.record import MOST_FILE_BYTES, MOST_FILES, Container, KeptFile, room_for_files
from antiphon.tools.code.running import Done, Running
from antiphon.tools.code.sandbox import Ran

__all__ = ["Containers", "FileReader", "ReadFile"]

_SWEEP_SECONDS = 15.0
_SHOWN_SECONDS = 24 * 3600.0
_MOST_OF_ALL = 1_000
_MOST_EXPIRED = 1_000


class ReadFile(Protocol):
    """An uploaded file that was read."""

    @property
    def filename(self) -> str:
        """Its name, which is safe to write."""
        ...

    @property
    def data(self) -> bytes:
        """Its content."""
        ...


FileReader = Callable[[Scope, str, int], Awaitable[ReadFile]]
"""Reads an uploaded file of a tenant, of at most so many bytes.

Raises:
    NotFoundError: there is none by that id.
    InvalidRequestError: it is too large.
"""


class Containers:
    """The containers of one server; `read_file` reads what was uploaded to it, where it keeps files."""

    def __init__(
        self,
        settings: Settings,
        read_file: FileReader | None = None,
        sandboxes: Sandboxes | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.sandboxes = sandboxes or Sandboxes(settings)
        self.seconds = settings.sandbox_seconds
        self._settings = settings
        self._read_file = read_file
        self._clock = clock
        self._of: dict[str, dict[str, Container]] = {}
        self._making: set[Container] = set()
        self._running = Running(settings, self.sandboxes, self._all)
        self._sweeper: asyncio.Task[None] | None = None
        self._ensuring: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def create(self, scope: Scope, asked: CreateContainer) -> Container:
        """A new container with the uploaded files that are named.

        Raises:
            NotFoundError: one of them is not there.
            InvalidRequestError: there is no room for one more container, or for the files.
        """
        minutes = {} if asked.expires_after is None else {"minutes": asked.expires_after.minutes}
        return await self._create(scope, asked.name, asked.file_ids or (), asked.memory_limit, **minutes)

    async def ensure(
        self, scope: Scope, container_id: str, *, name: str, file_ids: Sequence[str], memory_limit: str | None
    ) -> Container:
        """The container by an id that a response has given out, made now where it was not needed until now.

        Uploaded files that it has not been given yet are put in.

        Raises:
            NotFoundError: a file of it is not there.
            InvalidRequestError: there is no room for one more container, or for the files.
        """
        # Calls of one turn run side by side, and all of them are the first.
        lock = self._ensuring.setdefault(container_id, asyncio.Lock())
        async with lock:
            found = self.find(scope, container_id)
            if found is not None:
                for file_id in file_ids:
                    if file_id not in found.uploads:
                        await self.add_uploaded(scope, found, file_id)
                return found
            return await self._create(scope, name, file_ids, memory_limit, container_id=container_id, auto=True)

    def find(self, scope: Scope, container_id: object) -> Container | None:
        """A container that runs, by its id; None for any other."""
        if not isinstance(container_id, str):
            return None
        found = self._of.get(scope.tenant, {}).get(container_id)
        return found if found is not None and not self._check(found) else None

    def get(self, scope: Scope, container_id: str) -> Container:
        """A container by its id, expired or not.

        Raises:
            NotFoundError: there is none in this scope.
        """
        found = self._of.get(scope.tenant, {}).get(container_id) if is_container_id(container_id) else None
        if found is None:
            raise NotFoundError(
                f"Container with id '{quoted(container_id)}' not found. "
                "Only the server that made a container knows it, and it ends with that.",
                param="container_id",
            )
        self._check(found)
        return found

    def get_running(self, scope: Scope, container_id: str) -> Container:
        """The same, of one that has not expired; it counts as a use of it.

        Raises:
            NotFoundError: there is none in this scope, or it has expired.
        """
        found = self.get(scope, container_id)
        if found.expired_at is not None:
            raise NotFoundError(
                f"Container with id '{container_id}' has expired. Create another one.",
                param="container_id",
                code="container_expired",
            )
        found.last_active_at = self._clock()
        return found

    def list(self, scope: Scope) -> Sequence[Container]:
        """The containers of a tenant, oldest first."""
        found = [*self._of.get(scope.tenant, {}).values()]
        for container in found:
            self._check(container)
        return found

    async def delete(self, scope: Scope, container_id: str) -> None:
        """Remove a container and end what runs in it.

        Raises:
            NotFoundError: there is none in this scope.
        """
        found = self.get(scope, container_id)
        self._of[scope.tenant].pop(found.id, None)
        self._expire(found)
        await self._running.end(found)

    def add_file(self, container: Container, name: str, data: bytes, source: str = "user") -> KeptFile:
        """Put a file in, in the place of one at the same path.

        Raises:
            InvalidRequestError: there is no room for it, or its name cannot be kept.
        """
        path = safe_path(name)
        if path is None:
            raise InvalidRequestError("The name of the file cannot be used.", param="file", code="invalid_value")
        self._check_room(container, path, len(data))
        before = container.by_path(path)
        if before is not None:
            del container.files[before.id]
        file = KeptFile(new_id("cfile"), path, int(self._clock()), source, Content(data))
        container.files[file.id] = file
        return file

    async def add_uploaded(self, scope: Scope, container: Container, file_id: str) -> KeptFile:
        """Put a file in that was uploaded to this server.

        Raises:
            NotFoundError: there is none by that id in this scope.
            InvalidRequestError: there is no room for it.
        """
        if self._read_file is None:
            raise NotFoundError(f"No such File object: {quoted(file_id)}", param="file_id")
        read = await self._read_file(scope, file_id, MOST_FILE_BYTES)
        added = self.add_file(container, read.filename, read.data)
        container.uploads.add(file_id)
        return added

    def file(self, container: Container, file_id: str) -> KeptFile:
        """A file of a container.

        Raises:
            NotFoundError: there is none by that id.
        """
        found = container.files.get(file_id) if is_container_file_id(file_id) else None
        if found is None:
            raise NotFoundError(f"No such container file: {quoted(file_id)}", param="file_id")
        return found

    async def run(self, container: Container, code: str, seconds: float | None = None) -> Done:
        """Run a cell of Python; cells of one container run one after another.

        Raises:
            APIError: there is no sandbox, no place for it now, or it ended over the cell.
        """
        try:
            return await self._running.run(container, code, min(seconds or self.seconds, self.seconds))
        finally:
            container.last_active_at = self._clock()

    async def shell(
        self, container: Container, commands: Iterable[str], seconds: float, most: int
    ) -> tuple[list[Ran], Done]:
        """Run commands of the shell one after another; each may take so many seconds.

        Raises:
            APIError: there is no sandbox with a shell, no place for it now, or it ended over a command.
        """
        try:
            return await self._running.shell(container, commands, min(seconds, self.seconds), most)
        finally:
            container.last_active_at = self._clock()

    async def close(self) -> None:
        """End everything; the server stops."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        await asyncio.gather(*(self._running.end(container) for container in self._all()))
        self._of.clear()
        await self.sandboxes.close()

    async def sweep(self) -> None:
        """Expire what nobody uses, and forget what expired a day ago."""
        now = self._clock()
        for tenant, containers in list(self._of.items()):
            for container in list(containers.values()):
                if self._check(container) and container.expired_at is not None:
                    await self._running.end(container)
                    if now - container.expired_at > _SHOWN_SECONDS:
                        containers.pop(container.id, None)
            expired = [container for container in containers.values() if container.expired_at is not None]
            for container in expired[: max(0, len(expired) - _MOST_EXPIRED)]:
                containers.pop(container.id, None)
            if not containers:
                self._of.pop(tenant, None)

    async def _create(
        self, scope: Scope, name: str, file_ids: Sequence[str], memory_limit: str | None, **more: Any
    ) -> Container:
        now = self._clock()
        memory = min(memory_bytes(memory_limit, "memory_limit"), self._settings.sandbox_memory)
        identity = more.pop("container_id", None) or new_id("cntr")
        made = Container(identity, scope.tenant, name, int(now), now, memory=memory, **more)
        # Several that are made at once have no more room for their files than one after the other.
        self._making.add(made)
        try:
            for file_id in file_ids:
                await self.add_uploaded(scope, made, file_id)
            await self._make_room(scope)
            self._of.setdefault(scope.tenant, {})[made.id] = made
        finally:
            self._making.discard(made)
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep_for_ever())
        return made

    async def _make_room(self, scope: Scope) -> None:
        """Have room for one more container: one that a response made by itself goes, if it is not in use."""
        while True:
            own = [container for container in self.list(scope) if container.expired_at is None]
            of_all = [container for container in self._all() if container.expired_at is None]
            most = self._settings.max_containers
            crowded = own if len(own) >= most else of_all if len(of_all) >= _MOST_OF_ALL else []
            if not crowded:
                return
            idle = [container for container in crowded if container.auto and not container.waiting]
            if not idle:
                raise InvalidRequestError(
                    f"There are {len(own)} containers already, which is the most that this server keeps. Delete some.",
                    code="container_limit_reached",
                )
            oldest = min(idle, key=lambda container: container.last_active_at)
            self._expire(oldest)
            # Meanwhile another may have taken its place.
            await self._running.end(oldest)

    def _check_room(self, container: Container, path: str, size: int) -> None:
        before = container.by_path(path)
        disk = self._settings.sandbox_disk
        room = room_for_files(container, [*self._all(), *self._making], disk) + (
            before.content.size if before is not None else 0
        )
        if size > MOST_FILE_BYTES:
            raise InvalidRequestError(
                f"The file has {size} bytes; in a container it may have {MOST_FILE_BYTES}.", code="file_too_large"
            )
        if (before is None and len(container.files) >= MOST_FILES) or size > room:
            raise InvalidRequestError(
                f"There is no room for the file: a container may have {MOST_FILES} files and {disk} bytes of them, and "
                f"there is room for {room} bytes.",
                code="container_full",
            )

    def _all(self) -> list[Container]:
        return [container for containers in self._of.values() for container in containers.values()]

    def _check(self, container: Container) -> bool:
        """Whether a container has expired, by now or before."""
        late = self._clock() - container.last_active_at > container.minutes * 60
        if container.expired_at is None and late and not container.waiting:
            self._expire(container)
        return container.expired_at is not None

    def _expire(self, container: Container) -> None:
        if container.expired_at is None:
            container.expired_at = self._clock()
        container.files.clear()

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            # Whatever a box does when it is ended, the others have to expire too.
            with contextlib.suppress(OSError):
                await self.sweep()
