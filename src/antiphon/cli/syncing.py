"""Brings a folder into a vector store: what is new is added, what has changed replaced, and the rest left as it is."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from antiphon.cli.connection import ServerError
from antiphon.cli.documents_api import DIGEST, PATH, DocumentsApi, Known
from antiphon.cli.folder import Candidate, NotTakenError, Skipped, candidates, read_document

__all__ = ["Outcome", "bring"]

_LOOK_SECONDS: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
_OF_THE_FILE: Final = (400, 413)
_FULL: Final = frozenset({"file_limit_reached", "vector_store_limit_reached"})


class Outcome(Struct):
    """What became of the files of a folder, by their names."""

    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    failed: list[Skipped] = field(default_factory=list)


class _Waiting(Struct, frozen=True):
    name: str
    old: list[Known]


async def bring(
    api: DocumentsApi,
    store_id: str,
    roots: Sequence[Path],
    *,
    most: int,
    prune: bool = False,
    chunking: Mapping[str, Any] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Bring files and folders in, and wait until all of it has been read.

    A file that is replaced stays until the new one can be found. With `prune` what is no longer in one of the folders
    is removed. `tell` is given how far it is.

    Raises:
        ServerError: the server refuses more than a file.
        UnreachableError: the connection broke; what was added by then is there.
    """
    known: dict[str, list[Known]] = {}
    async for file in api.files(store_id):
        if file.path:
            known.setdefault(file.path, []).append(file)
    work = _Work(api, store_id, most, chunking, known)
    for count, found in enumerate(candidates(roots), 1):
        if isinstance(found, Skipped):
            work.outcome.skipped.append(found)
        else:
            tell(f"{count} looked at, {len(work.waiting)} to be read: {found.name}")
            await work.take(found)
    if prune:
        await work.prune([f"{root.resolve().name}/" for root in roots if root.is_dir()])
    await work.wait(tell)
    return work.outcome


class _Work:
    """One run: what is there, and what is on its way."""

    def __init__(
        self,
        api: DocumentsApi,
        store_id: str,
        most: int,
        chunking: Mapping[str, Any] | None,
        known: Mapping[str, list[Known]],
    ) -> None:
        self._api = api
        self._store_id = store_id
        self._most = most
        self._chunking = chunking
        self._known = known
        self._seen: set[str] = set()
        self.waiting: dict[str, _Waiting] = {}
        self.outcome = Outcome()

    async def take(self, candidate: Candidate) -> None:
        """Add a file, or leave it as it is."""
        if candidate.name in self._seen:
            return
        try:
            data = await asyncio.to_thread(read_document, candidate, self._most)
        except NotTakenError as error:
            self.outcome.skipped.append(Skipped(candidate.name, str(error)))
            return
        self._seen.add(candidate.name)
        digest = hashlib.sha256(data).hexdigest()
        there = self._known.get(candidate.name, [])
        same = next((file for file in there if file.digest == digest and not _again(file)), None)
        if same is None:
            await self._add(candidate.name, data, digest, there)
        elif same.status == "in_progress":
            # An earlier run was broken off: this one waits for what it has begun.
            self.waiting[same.id] = _Waiting(candidate.name, [file for file in there if file is not same])
        elif same.error is not None:
            self.outcome.skipped.append(Skipped(candidate.name, f"unchanged since it failed: {same.error[1]}"))
        else:
            self.outcome.unchanged.append(candidate.name)
            await self._remove(file for file in there if file is not same)

    async def prune(self, folders: Sequence[str]) -> None:
        """Remove what came from these folders and was not seen in them."""
        for path, files in self._known.items():
            if path.startswith(tuple(folders)) and path not in self._seen:
                await self._remove(files)
                self.outcome.removed.append(path)

    async def wait(self, tell: Callable[[str], None]) -> None:
        """Wait for what was added, and remove what it replaces."""
        turn = 0
        left = len(self.waiting)
        while left:
            under_way = {file.id async for file in self._api.files(self._store_id, "in_progress")}
            left = len(under_way.intersection(self.waiting))
            tell(f"{len(self.waiting) - left} of {len(self.waiting)} files read")
            if left:
                await asyncio.sleep(_LOOK_SECONDS[min(turn, len(_LOOK_SECONDS) - 1)])
            turn += 1
        ended = {file.id: file async for file in self._api.files(self._store_id)} if self.waiting else {}
        for file_id, waiting in self.waiting.items():
            file = ended.get(file_id)
            if file is None or file.status != "completed":
                why = file.error[1] if file is not None and file.error is not None else "it was taken away meanwhile."
                self.outcome.failed.append(Skipped(waiting.name, why))
                continue
            (self.outcome.replaced if waiting.old else self.outcome.added).append(waiting.name)
            await self._remove(waiting.old)

    async def _add(self, name: str, data: bytes, digest: str, there: list[Known]) -> None:
        try:
            file_id = await self._api.upload(name, data)
        except ServerError as error:
            if error.status not in _OF_THE_FILE or error.code in _FULL:
                raise
            self.outcome.failed.append(Skipped(name, str(error)))
            return
        try:
            await self._api.attach(self._store_id, file_id, {PATH: name, DIGEST: digest}, self._chunking)
        except BaseException:
            # Shielded: it would take the room of the tenant, and nobody would know what it is.
            await asyncio.shield(self._api.delete(file_id))
            raise
        self.waiting[file_id] = _Waiting(name, there)

    async def _remove(self, files: Any) -> None:
        for file in files:
            await self._api.remove(self._store_id, file.id)


def _again(file: Known) -> bool:
    """Whether a file is worth another attempt though it has not changed."""
    return file.status == "cancelled" or (file.error is not None and file.error[0] == "server_error")
