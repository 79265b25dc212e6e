"""A program of the operator's that speaks MCP over its standard input and output, in lines of bounded length.

It runs in a session of its own, which is ended with it, and has of this server's environment only what says where it
is, and what its table names.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from antiphon.tools.mcp.servers import Server
from antiphon.tools.mcp.transport import MOST_BYTES, trouble

__all__ = ["bound", "program"]

ENDING_SECONDS: Final = 2.0
"""How long a program may take to end by itself once its input is closed."""

Messages = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def program(server: Server, ended: Callable[[], None]) -> AsyncGenerator[Messages]:
    """A running program, as the streams of its messages; `ended` is called when it says no more.

    Raises:
        OSError: it cannot be started.
    """
    environment = {**get_default_environment(), **server.environment}
    if shutil.which(server.command[0], path=environment.get("PATH")) is None:
        raise FileNotFoundError(server.command[0])
    process = await asyncio.create_subprocess_exec(
        *bound(),
        *server.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment,
        start_new_session=True,
        limit=MOST_BYTES,
    )
    told, heard = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    said, asked = anyio.create_memory_object_stream[SessionMessage](0)
    reading = asyncio.create_task(_read(process, told))
    reading.add_done_callback(lambda _: ended())
    writing = asyncio.create_task(_write(process, asked))
    try:
        yield heard, said
    finally:
        reading.cancel()
        writing.cancel()
        await asyncio.gather(reading, writing, return_exceptions=True)
        for stream in (told, heard, said, asked):
            stream.close()
        await asyncio.shield(_end(process))


@cache
def bound() -> tuple[str, ...]:
    """What lets a program end with this server, also where that is killed: some do not heed the end of their input."""
    found = shutil.which("setpriv") if sys.platform == "linux" else None
    return () if found is None else (found, "--pdeathsig", "TERM", "--")


async def _read(process: asyncio.subprocess.Process, told: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    output: Any = process.stdout
    noted = trouble.get()
    with told:
        while True:
            try:
                line = await output.readline()
            except ValueError:
                if noted is not None:
                    noted.note(None, f"The server sent a message of more than {MOST_BYTES} bytes.")
                return
            if not line:
                return
            try:
                message: SessionMessage | Exception = SessionMessage(
                    jsonrpc_message_adapter.validate_json(line, by_name=False)
                )
            except ValueError as error:
                message = error
            try:
                await told.send(message)
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                return


async def _write(process: asyncio.subprocess.Process, asked: MemoryObjectReceiveStream[SessionMessage]) -> None:
    pipe: Any = process.stdin
    with suppress(OSError):
        async for message in asked:
            pipe.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await pipe.drain()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close its input, and end it and all that it began where it does not end by itself."""
    pipe: Any = process.stdin
    pipe.close()
    for sign in (None, signal.SIGTERM, signal.SIGKILL):
        if sign is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, sign)
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_SECONDS):
                await process.wait()
            break
    with suppress(ProcessLookupError):
        # What it left behind in its session.
        os.killpg(process.pid, signal.SIGKILL)
    # Output that nobody reads holds its pipe open, and nothing public closes that.
    transport: Any = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()
