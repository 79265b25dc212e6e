"""One life of the child process of a GGUF model, and the supervisor that keeps one alive.

The child is told what to do by one line of JSON, and answers over a socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from antiphon.engines import supervisor
from antiphon.engines.base import RESTART_PATIENCE
from antiphon.engines.llamacpp.client import ChildDiedError, answers
from antiphon.engines.llamacpp.diagnosis import explain_death, explain_failure
from antiphon.engines.llamacpp.folder import PrivateFolder, remove_stale
from antiphon.engines.llamacpp.memory import memory_kills
from antiphon.errors import ConfigurationError, EngineUnavailableError

__all__ = ["Child", "ChildConfig", "LoadError", "Supervisor"]

T = TypeVar("T")


class ChildConfig(Struct, frozen=True):
    """What the child is told. `context_length` in tokens, 0 for the model's own; `chat_template` "" for its own.

    `mmproj` is the projector of media, "" for none, and `media_marker` what stands for one in a prompt: the same for
    every life, and known to nobody else. A child for `embedding` generates nothing; `pooling` is how the vectors of
    tokens become one, "" for its own way. Where `memory` is set, in bytes, the child may take no more, nor more
    processor time than `cpu_seconds`.
    """

    model: str
    socket: str
    context_length: int
    slots: int
    batch_size: int
    threads: int
    gpu_layers: int | None
    chat_template: str
    embedding: bool = False
    mmproj: str = ""
    media_marker: str = ""
    pooling: str = ""
    cpu_seconds: float = 0.0
    memory: int = 0


class LoadError(ConfigurationError):
    """A child did not load; `status` is what it ended with, None where it was given up."""

    def __init__(self, message: str, status: int | None) -> None:
        super().__init__(message)
        self.status = status


class Child(supervisor.OneLife):
    """One life of the child process."""

    def __init__(self, process: asyncio.subprocess.Process, config: ChildConfig) -> None:
        super().__init__(process)
        self._memory_kills = memory_kills()
        self.config = config

    @classmethod
    async def start(cls, config: ChildConfig, timeout: float) -> Child:  # noqa: ASYNC109 - one limit over several waits
        """Start a child and wait, at most `timeout` seconds, until its model is loaded.

        Raises:
            LoadError: it does not load; the message is the reason alone, in plain words.
        """
        # With -P a file of the working directory does not shadow a module.
        command = (sys.executable, "-P", "-m", "antiphon.engines.llamacpp.child")
        child = cls(await supervisor.spawned(command), config)
        try:
            await child._load(timeout)
        except BaseException:
            await child.stop()
            raise
        return child

    @property
    def end(self) -> str:
        """How it ended, in plain words."""
        return explain_death(self.stderr, self.exit_status, stopped=self.stopped, out_of_memory=self._out_of_memory())

    async def stop(self) -> None:
        """End it and free what belongs to it."""
        await super().stop()
        await asyncio.to_thread(Path(self.config.socket).unlink, missing_ok=True)

    async def _load(self, timeout: float) -> None:  # noqa: ASYNC109
        try:
            async with asyncio.timeout(timeout):
                with contextlib.suppress(ConnectionError):
                    self.stdin.write(msgspec.json.encode(self.config) + b"\n")
                    await self.stdin.drain()
                if await _reads_ready(self.stdout):
                    self.tasks.append(asyncio.create_task(_discard(self.stdout)))
                    return
                status = await self.wait()
        except TimeoutError:
            raise LoadError(f"it did not load within {timeout:g} seconds", None) from None
        await self.read_to_the_end()
        raise LoadError(explain_failure(self.stderr, status, out_of_memory=self._out_of_memory()), status)

    def _out_of_memory(self) -> bool:
        before, now = self._memory_kills, memory_kills()
        return before is not None and now is not None and now > before


async def _reads_ready(stream: asyncio.StreamReader) -> bool:
    """Read up to the line that says that the model is loaded; False where the stream ends before it."""
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # a line that is longer than the reader's buffer
            continue
        if not line:
            return False
        if line.strip() == b"ready":
            return True


async def _discard(stream: asyncio.StreamReader) -> None:
    while await stream.read(4096):
        pass


class Supervisor(supervisor.Supervisor[Child]):
    """Keeps one child running.

    `on_child` is given each one that has loaded its model, before anybody else is; a child that it fails over is
    stopped.
    """

    def __init__(
        self,
        config: ChildConfig,
        *,
        load_timeout: float,
        on_child: Callable[[Child], Awaitable[None]],
        on_event: supervisor.OnEvent | None = None,
    ) -> None:
        super().__init__(on_event)
        self._config = config
        self._load_timeout = load_timeout
        self._on_child = on_child
        self._folder: PrivateFolder | None = None

    async def outliving(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of work that can be done again, which is done once more where the child dies over it.

        Raises:
            EngineUnavailableError: no child runs, or another one died over it or was not there in time.
        """
        child = self.require()
        try:
            return await work()
        except ChildDiedError:
            await self.ended(child)
        try:
            if await self.wait(RESTART_PATIENCE) is not None:
                return await work()
        except ChildDiedError:
            pass
        # Nothing has been generated: the caller can simply try again.
        raise EngineUnavailableError("The engine died and is being restarted; try again.")

    async def ended(self, child: Child, seconds: float = 5.0) -> None:
        """Wait for the end of a child that seems to be dead; one that neither ends nor answers is killed."""
        socket = child.config.socket
        # Other turns run in it: one broken connection is no proof.
        if child.exit_status is None and await answers(socket, seconds):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await child.wait()
        if child.exit_status is None and not await answers(socket, seconds):
            child.kill("it did not answer")
            await child.wait()

    async def start(self) -> Child:
        """Start the first child and watch it from then on.

        Raises:
            ConfigurationError: the model does not load.
        """
        if self._folder is None:
            await asyncio.to_thread(remove_stale)
            self._folder = PrivateFolder()
        return await super().start()

    def configure(self, **changes: Any) -> None:
        """Change fields of the configuration that the next child gets."""
        self._config = msgspec.structs.replace(self._config, **changes)

    async def restart(self) -> Child:
        """Stop the child and start another one, with what was configured since."""
        await super().close()
        return await self.start()

    async def close(self) -> None:
        """End the child for good and remove its directory."""
        await super().close()
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    async def begin(self) -> Child:
        """Start a child and wait until it has loaded its model, and `on_child` knows it.

        Raises:
            LoadError: it does not load.
        """
        assert self._folder is not None  # noqa: S101 - start() made it
        # A path of its own for each life: a socket file that a dead child left behind would refuse the bind.
        socket = self._folder.path / f"{os.getpid()}-{self.lives}.sock"
        child = await Child.start(msgspec.structs.replace(self._config, socket=str(socket)), self._load_timeout)
        try:
            await self._on_child(child)
        except BaseException:
            await child.stop()
            raise
        return child
