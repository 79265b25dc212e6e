"""One child process, and the supervisor that keeps one alive.

The child is told what to do by one line of JSON and lives as long as the pipe to it: when this process dies, however
it dies, the child goes too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.engines.llamacpp.diagnosis import explain_failure
from antiphon.errors import ConfigurationError, EngineUnavailableError

__all__ = ["Child", "ChildConfig", "Supervisor"]


_STDERR_TAIL = 16 * 1024
_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 10.0
_HEALTHY_SECONDS = 60.0
_LONGEST_TEMP = 64


class ChildConfig(Struct, frozen=True):
    """What the child is told. `context_length` in tokens, 0 for the model's own; `chat_template` "" for its own."""

    model: str
    socket: str
    context_length: int
    slots: int
    batch_size: int
    threads: int
    gpu_layers: int | None
    chat_template: str


class Child:
    """One life of the child process."""

    def __init__(self, process: asyncio.subprocess.Process, config: ChildConfig) -> None:
        self._process = process
        self._tail = bytearray()
        self.config = config
        self._drains = [asyncio.create_task(self._drain_stderr())]

    @classmethod
    async def start(cls, config: ChildConfig, timeout: float) -> Child:  # noqa: ASYNC109 - one limit over several waits
        """Start a child and wait, at most `timeout` seconds, until its model is loaded.

        Raises:
            ConfigurationError: it does not load; the message is the reason alone, in plain words.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # a file of the working directory must not shadow a module
            "-m",
            "antiphon.engines.llamacpp.child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
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

    async def wait(self) -> int:
        """Wait for its end; the result is the exit status."""
        return await self._process.wait()

    def kill(self) -> None:
        """Kill it at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def stop(self) -> None:
        """End it and free what belongs to it."""
        self.kill()
        await self._process.wait()
        await asyncio.gather(*self._drains, return_exceptions=True)
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
                line = await stdout.readline()
        except TimeoutError:
            raise ConfigurationError(f"it did not load within {timeout:g} seconds") from None
        if line.strip() != b"ready":
            status = await self._process.wait()
            await asyncio.gather(*self._drains, return_exceptions=True)
            raise ConfigurationError(explain_failure(self.stderr, status))
        self._drains.append(asyncio.create_task(_discard(stdout)))

    async def _drain_stderr(self) -> None:
        stream = self._process.stderr
        while stream is not None and (data := await stream.read(4096)):
            self._tail += data
            del self._tail[:-_STDERR_TAIL]


async def _discard(stream: asyncio.StreamReader) -> None:
    while await stream.read(4096):
        pass


def _private_directory() -> Path:
    """A new directory of mode 0700 whose name leaves room for a socket's."""
    # The path of a Unix socket has at most 104 to 108 bytes, and some systems have long names for temporary files.
    usual = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="antiphon-", dir=usual if len(os.fsencode(usual)) <= _LONGEST_TEMP else "/tmp"))  # noqa: S108


class Supervisor:
    """Keeps one child running: it starts the first one, and another with growing pauses when one dies."""

    def __init__(
        self,
        config: ChildConfig,
        *,
        load_timeout: float,
        on_child: Callable[[Child], None],
        on_event: Callable[[str, Mapping[str, Any]], None] | None = None,
    ) -> None:
        self._config = config
        self._load_timeout = load_timeout
        self._on_child = on_child
        self._on_event = on_event
        self._directory: Path | None = None
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
                while self.child is None and self._task is not None:
                    self._started.clear()
                    await self._started.wait()
        return self.child

    async def ended(self, child: Child, timeout: float = 5.0) -> None:  # noqa: ASYNC109
        """Wait for the end of a child that does not answer; one that does not end by itself is killed."""
        try:
            async with asyncio.timeout(timeout):
                await child.wait()
        except TimeoutError:
            child.kill()
            await child.wait()

    async def start(self) -> Child:
        """Start the first child and watch it from then on.

        Raises:
            ConfigurationError: the model does not load.
        """
        if self._directory is None:
            self._directory = _private_directory()
        child = await self._start_child()
        self._task = asyncio.create_task(self._watch(child))
        return child

    def kill_child(self) -> None:
        """Kill the running child; another one is started."""
        if self._child is not None:
            self._child.kill()

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
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

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
        assert self._directory is not None  # noqa: S101 - start() made it
        self._lives += 1
        # A path of its own for each life: a socket file that a dead child left behind would refuse the bind.
        socket = self._directory / f"{os.getpid()}-{self._lives}.sock"
        config = msgspec.structs.replace(self._config, socket=str(socket))
        self._emit("loading", life=self._lives)
        child = await Child.start(config, self._load_timeout)
        self._child = child
        self._on_child(child)
        self._started.set()
        self._emit("ready", pid=child.pid, life=self._lives)
        return child

    async def _watch(self, child: Child) -> None:
        clock = asyncio.get_running_loop().time
        backoff = _FIRST_BACKOFF
        while True:
            began = clock()
            status = await child.wait()
            await child.stop()
            self._emit("died", status=status, reason=explain_failure(child.stderr, status))
            if clock() - began > _HEALTHY_SECONDS:
                backoff = _FIRST_BACKOFF
            while True:
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, _LONGEST_BACKOFF)
                try:
                    child = await self._start_child()
                except (ConfigurationError, OSError) as error:
                    self._emit("restart_failed", reason=str(error))
                else:
                    self.restarts += 1
                    self._emit("restarted", restarts=self.restarts)
                    break

    def _emit(self, name: str, **fields: Any) -> None:
        if self._on_event is not None:
            self._on_event(name, fields)
