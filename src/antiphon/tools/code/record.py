"""What the server knows of a container: its times, its bounds, its files and the box that runs its code."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import Struct

from antiphon.protocol.containers import MAX_MINUTES, MEMORY_LIMITS, ContainerFileObject, ContainerObject, ExpiresAfter
from antiphon.tools.code.contents import Content
from antiphon.tools.code.sandbox import WORK_FOLDER, Box

__all__ = ["MOST_FILES", "MOST_FILE_BYTES", "Container", "KeptFile", "room_for_files"]

MOST_FILES = 100
"""Files of one container."""

MOST_FILE_BYTES = 50 * 1024 * 1024
"""Bytes of one file of a container."""

_SHARES, _SHARES_OF_TENANT = 16, 8
"""Bytes of the files of all containers, and of those of a tenant, in those that one container may have."""


class KeptFile(Struct, frozen=True):
    """A file of a container; `path` is the one below the work folder that is safe to write."""

    id: str
    path: str
    created_at: int
    source: str
    content: Content

    @property
    def name(self) -> str:
        """Its name without folders."""
        return self.path.rpartition("/")[2]

    @property
    def place(self) -> str:
        """Where the code sees it."""
        return f"{WORK_FOLDER}/{self.path}"

    def shown(self, container_id: str) -> ContainerFileObject:
        """The file as the API shows it."""
        return ContainerFileObject(self.id, self.content.size, container_id, self.created_at, self.place, self.source)


@dataclass(eq=False)
class Container:
    """A container of a tenant; `lock` is held while its code runs.

    `auto` says that a response made it by itself. `uploads` are the ids of the uploaded files that were put in.
    `placed` are the ids of the files that its box has, by the path that they have there, and `versions` what the box
    last said of that path. `cells` counts what its box has run, and `lost` says that an earlier box took its variables
    with it.
    """

    id: str
    tenant: str
    name: str
    created_at: int
    last_active_at: float
    minutes: int = MAX_MINUTES
    memory: int = MEMORY_LIMITS["1g"]
    auto: bool = False
    expired_at: float | None = None
    files: dict[str, KeptFile] = field(default_factory=dict[str, KeptFile])
    uploads: set[str] = field(default_factory=set[str])
    box: Box | None = None
    placed: dict[str, str] = field(default_factory=dict[str, str])
    versions: dict[str, str] = field(default_factory=dict[str, str])
    cells: int = 0
    lost: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.content.size for file in self.files.values())

    def by_path(self, path: str) -> KeptFile | None:
        """The file at a path."""
        return next((file for file in self.files.values() if file.path == path), None)

    def shown(self) -> ContainerObject:
        """The container as the API shows it."""
        return ContainerObject(
            id=self.id,
            created_at=self.created_at,
            status="running" if self.expired_at is None else "expired",
            name=self.name,
            last_active_at=int(self.last_active_at),
            expires_after=ExpiresAfter(self.minutes),
            memory_limit=_memory(self.memory),
            network_policy={"type": "disabled"},
        )


def room_for_files(container: Container, every: Iterable[Container], disk: int) -> int:
    """Bytes that the files of a container may still grow by, where one container may have `disk` of them."""
    total = of_tenant = 0
    for other in every:
        total += other.size
        of_tenant += other.size if other.tenant == container.tenant else 0
    most = (disk - container.size, _SHARES_OF_TENANT * disk - of_tenant, _SHARES * disk - total)
    return max(0, min(most))


def _memory(size: int) -> str:
    for unit, letter in ((1024**3, "g"), (1024**2, "m"), (1024, "k")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)
