"""One child process, and the supervisor that keeps one alive.

The child is told what to do by one line of JSON and lives as long as the pipe to it: when this process dies, however
it dies, the child goes too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from antiphon.child_process import engine_environment
from antiphon.engines.base import RESTART_PATIENCE
from antiphon.engines.llamacpp.client import ChildDiedError, answers
from antiphon.engines.llamacpp.diagnosis import explain_death, explain_failure
from antiphon.engines.llamacpp.folder import PrivateFolder, remove_stale
from antiphon.engines.llamacpp.memory import memory_kills
from antiphon.errors import ConfigurationError, EngineUnavailableError

__all__ = ["Child", "ChildConfig", "LoadError", "Supervisor"]

T = TypeVar("T")

_STDERR_TAIL = 16 * 1024
_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 10.0
_HEALTHY_SECONDS = 60.0
_LAST_WORDS_SECONDS = 5.0


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


class Child:
    """One life of the child process."""

    def __init__(self, process: asyncio.subprocess.Process, config: ChildConfig) -> None:
        self._process = process
        self._tail = bytearray()
        self._memory_kills = memory_kills()
        self._stopped: str | None = None
        self.config = config
        self._drains = [asyncio.create_task(self._drain_stderr())]

    @classmethod
    async def start(cls, config: ChildConfig, timeout: float) -> Child:  # noqa: ASYNC109 - one limit over several waits
        """Start a child and wait, at most `timeout` seconds, until its model is loaded.

        Raises:
            LoadError: it does not load; the message is the reason alone, in plain words.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # a file of the working directory must not shadow a module
            "-m",
            "antiphon.engines.llamacpp.child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=engine_environment(),
            start_new_session=True,  # Ctrl-C is for the server, which then closes the child
        )
        child = cls(process, config)
        try:
            await child._load(timeout)
        except BaseException:
            await child.stop()
            raise
        return child

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._process.returncode

    @property
    def stderr(self) -> str:
        """The last that it wrote to standard error."""
        return self._tail.decode(errors="replace")

    @property
    def end(self) -> str:
        """How it ended, in plain words."""
        return explain_death(self.stderr, self.exit_status, stopped=self._stopped, out_of_memory=self._out_of_memory())

    async def wait(self) -> int:
        """Wait for its end; the result is the exit status."""
        return await self._process.wait()

    def kill(self, reason: str) -> None:
        """Kill it at once; the reason is for the log."""
        if self.exit_status is None:
            self._stopped = self._stopped or reason
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def stop(self) -> None:
        """End it and free what belongs to it."""
        self.kill("it was closed")
        await self._process.wait()
        await self._read_to_the_end()
        if self._process.stdin is not None:
            self._process.stdin.close()
        await asyncio.to_thread(Path(self.config.socket).unlink, missing_ok=True)

    async def _load(self, timeout: float) -> None:  # noqa: ASYNC109
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the child has no pipes")
        try:
            async with asyncio.timeout(timeout):
                with contextlib.suppress(ConnectionError):
                    stdin.write(msgspec.json.encode(self.config) + b"\n")
                    await stdin.drain()
                if await _reads_ready(stdout):
                    self._drains.append(asyncio.create_task(_discard(stdout)))
                    return
                status = await self._process.wait()
        except TimeoutError:
            raise LoadError(f"it did not load within {timeout:g} seconds", None) from None
        await self._read_to_the_end()
        raise LoadError(explain_failure(self.stderr, status, out_of_memory=self._out_of_memory()), status)

    def _out_of_memory(self) -> bool:
        before, now = self._memory_kills, memory_kills()
        return before is not None and now is not None and now > before

    async def _read_to_the_end(self) -> None:
        # Its pipes end with it, unless a process that it started has them too.
        _, unfinished = await asyncio.wait(self._drains, timeout=_LAST_WORDS_SECONDS)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*self._drains, return_exceptions=True)

    async def _drain_stderr(self) -> None:
        stream = self._process.stderr
        while stream is not None and (data := await stream.read(4096)):
            self._tail += data
            del self._tail[:-_STDERR_TAIL]


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


class Supervisor:
    """Keeps one child running: it starts the first one, and another with growing pauses when one dies.

    `on_child` is given each one that has loaded its model, before anybody else is; a child that it fails over is
    stopped.
    """

    def __init__(
        self,
        config: ChildConfig,
        *,
        load_timeout: float,
        on_child: Callable[[Child], Awaitable[None]],
        on_event: Callable[[str, Mapping[str, Any]], None] | None = None,
    ) -> None:
        self._config = config
        self._load_timeout = load_timeout
        self._on_child = on_child
        self._on_event = on_event
        self._folder: PrivateFolder | None = None
        self._child: Child | None = None
        self._lives = 0
        self._started = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.restarts = 0

    @property
    def child(self) -> Child | None:
        """The child that runs now, if one does."""
        child = self._child
        return child if child is not None and child.exit_status is None else None

    def require(self) -> Child:
        """The running child.

        Raises:
            EngineUnavailableError: none runs; another one is being started.
        """
        child = self.child
        if child is None:
            raise EngineUnavailableError("The model is being loaded; try again shortly.", retry_after=1.0)
        return child

    async def wait(self, timeout: float) -> Child | None:  # noqa: ASYNC109 - the caller has nothing else to bound
        """The running child, after waiting for a restart for at most `timeout` seconds; None when there is none."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.child is None and self._task is not None and not self._task.done():
                    self._started.clear()
                    await self._started.wait()
        return self.child

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
        child = await self._start_child()
        self._task = asyncio.create_task(self._watch(child))
        return child

    def kill_child(self, reason: str) -> None:
        """Kill the running child; another one is started."""
        if self._child is not None:
            self._child.kill(reason)

    def configure(self, **changes: Any) -> None:
        """Change fields of the configuration that the next child gets."""
        self._config = msgspec.structs.replace(self._config, **changes)

    async def restart(self) -> Child:
        """Stop the child and start another one, with what was configured since."""
        await self._end()
        return await self.start()

    async def close(self) -> None:
        """End the child for good and remove its directory."""
        await self._end()
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    async def _end(self) -> None:
        task, self._task = self._task, None
        self._started.set()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        child, self._child = self._child, None
        if child is not None:
            await child.stop()

    async def _start_child(self) -> Child:
        assert self._folder is not None  # noqa: S101 - start() made it
        self._lives += 1
        # A path of its own for each life: a socket file that a dead child left behind would refuse the bind.
        socket = self._folder.path / f"{os.getpid()}-{self._lives}.sock"
        config = msgspec.structs.replace(self._config, socket=str(socket))
        self._emit("loading", life=self._lives)
        child = await Child.start(config, self._load_timeout)
        try:
            await self._on_child(child)
        except BaseException:
            await child.stop()
            raise
        self._child = child
        self._started.set()
        self._emit("ready", pid=child.pid, life=self._lives)
        return child

    async def _watch(self, child: Child) -> None:
        clock = asyncio.get_running_loop().time
        backoff = _FIRST_BACKOFF
        while True:
            began = clock()
            status = await child.wait()
            try:
                await child.stop()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next child is started
                _report("a dead child could not be tidied away", error)
            self._emit("died", status=status, reason=child.end)
            if clock() - began > _HEALTHY_SECONDS:
                backoff = _FIRST_BACKOFF
            while True:
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, _LONGEST_BACKOFF)
                try:
                    child = await self._start_child()
                except Exception as error:  # noqa: BLE001 - without this task no child would ever be started again
                    self._emit("restart_failed", reason=str(error) or type(error).__name__)
                else:
                    self.restarts += 1
                    self._emit("restarted", restarts=self.restarts)
                    break

    def _emit(self, name: str, **fields: Any) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(name, fields)
        except Exception as error:  # noqa: BLE001 - an observer must not end what it observes
            _report(f"an observer of '{name}' failed", error)


def _report(message: str, error: Exception) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})
