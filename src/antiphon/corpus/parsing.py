"""Reads uploaded files and cuts them into chunks, each in a process of its own: what it says comes piece by piece."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, Coroutine
from typing import Any, Final, TypeVar

from antiphon.child_process import ChildProcess
from antiphon.corpus.chunking import Chunk, Chunking
from antiphon.protocol.json import encode, loads

__all__ = ["MOST_CHARACTERS", "UnreadableFileError", "read_chunks"]

T = TypeVar("T")

MOST_CHARACTERS: Final = 20_000_000
"""Characters of a document: about the 5,000,000 tokens that OpenAI takes of one."""

_WALL_SECONDS: Final = 180.0
"""Seconds without a word after which a file is given up; what is done with its chunks meanwhile does not count."""

_LONGEST_LINE: Final = 16 * 1024 * 1024
"""Bytes of a line of chunks, which has so many characters and one chunk more."""

_UNSUPPORTED: Final = "unsupported_file"
_INVALID: Final = "invalid_file"
_FAULTS: Final = {
    "unsupported": (
        _UNSUPPORTED,
        "The file is in no supported format. Send text in UTF-8 or UTF-16, HTML, PDF, docx, xlsx or pptx.",
    ),
    "missing": (
        _UNSUPPORTED,
        "This server has no library that reads files of this format. Install its extra 'documents', or send text.",
    ),
    "too_long": (_INVALID, f"The file has more text than the {MOST_CHARACTERS} characters that are allowed. Split it."),
    "archive": (_INVALID, "The file expands to more than is allowed, or declares what no document does."),
    "too_much": (_INVALID, "The file takes more time or memory to read than there is for it. Split it."),
    "no_text": (_INVALID, "The file holds no text. Recognize the text of pages that are pictures before."),
    "unreadable": (_INVALID, "The file cannot be read. Send it whole, undamaged and without a password."),
}


class UnreadableFileError(Exception):
    """A file that cannot be read: OpenAI's code of `last_error`, and a message that says what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


async def read_chunks(
    content: AsyncIterable[bytes], name: str, chunking: Chunking, *, most: int = MOST_CHARACTERS
) -> AsyncGenerator[list[Chunk]]:
    """The chunks of a file of that name, some at a time; no more are made than are taken.

    Raises:
        UnreadableFileError: it cannot be read, holds no text, or more than that; some chunks may have come before.
        OSError: the process cannot be started.
    """
    process = await _started()
    job = {"kind": "chunks", "name": name, "most": most, "size": chunking.size, "overlap": chunking.overlap}
    feeding = asyncio.create_task(_feed(process, encode(job) + b"\n", content))
    try:
        while True:
            answer = await _answer(process, feeding)
            if "chunks" in answer:
                yield [Chunk(text, heading, detail) for text, heading, detail in answer["chunks"]]
            elif "fault" in answer:
                raise UnreadableFileError(*_FAULTS[answer["fault"]])
            else:
                return
    finally:
        feeding.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await feeding
        await _whole(process.end())


async def _started() -> ChildProcess:
    """The process; one that is there when nobody waits for it any more is ended."""
    starting = asyncio.create_task(ChildProcess.start("antiphon.corpus.child", longest_line=_LONGEST_LINE))
    try:
        return await _whole(starting)
    except asyncio.CancelledError:
        # A start that is broken off in the middle would leave a process that belongs to nobody.
        await _whole(starting.result().end())
        raise


async def _whole(work: Coroutine[Any, Any, T] | asyncio.Task[T]) -> T:
    """The result of work that is short and is done to its end, also where whoever waits for it is cancelled."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def _answer(process: ChildProcess, feeding: asyncio.Task[None]) -> dict[str, Any]:
    line = asyncio.ensure_future(process.read_line())
    try:
        async with asyncio.timeout(_WALL_SECONDS):
            await asyncio.wait({line, feeding}, return_when=asyncio.FIRST_COMPLETED)
            if feeding.done():
                # What could not be brought is not the file's fault.
                feeding.result()
            found = await line
    except TimeoutError:
        found = b""
    finally:
        line.cancel()
    return loads(found) if found.endswith(b"\n") else {"fault": "too_much"}


async def _feed(process: ChildProcess, job: bytes, content: AsyncIterable[bytes]) -> None:
    if not await process.feed(job):
        return
    async for piece in content:
        if not await process.feed(piece):
            return
    process.end_input()
