"""A child process that holds a model, and the supervisor that keeps one alive.

The child lives as long as the pipe to it: when this process dies, however it dies, the child goes too.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from antiphon.child_process import engine_environment
from antiphon.errors import EngineUnavailableError

__all__ = ["OnEvent", "OneLife", "Supervisor", "spawned"]

OnEvent = Callable[[str, Mapping[str, Any]], None]
"""Is told of loading, deaths and restarts: a name, and its fields."""

_STDERR_TAIL: Final = 16 * 1024
_FIRST_BACKOFF: Final = 0.1
_LONGEST_BACKOFF: Final = 10.0
_HEALTHY_SECONDS: Final = 60.0
_LAST_WORDS_SECONDS: Final = 5.0


async def spawned(command: Sequence[str]) -> asyncio.subprocess.Process:
    """A process with pipes to it, and none of the server's keys in its environment.

    Raises:
        OSError: it cannot be started.
    """
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=engine_environment(),
        start_new_session=True,  # Ctrl-C is for the server, which then closes the child
    )


class OneLife:
    """One life of a child process. Whoever derives from it adds to `tasks` what else reads its pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the child has no pipes")
        self.stdin = stdin
        self.stdout = stdout
        self.tasks = [asyncio.create_task(self._drain_stderr(process.stderr))]
        self.stopped: str | None = None
        """Why this process ended it, where it did."""
        self._process = process
        self._tail = bytearray()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._process.returncode

    @property
    def alive(self) -> bool:
        """Whether it runs, as far as is known."""
        return self.exit_status is None

    @property
    def stderr(self) -> str:
        """The last that it wrote to standard error."""
        return self._tail.decode(errors="replace")

    @property
    def end(self) -> str:
        """How it ended, in plain words."""
        if self.stopped:
            return f"stopped by the server: {self.stopped}"
        status = self.exit_status
        last = self.stderr.strip().rpartition("\n")[2]
        how = f"killed by signal {-status}" if status is not None and status < 0 else f"exit status {status}"
        return f"{how}; its last line: {last[:200]}" if last else how

    async def wait(self) -> int:
        """Wait for its end; the result is the exit status."""
        return await self._process.wait()

    def kill(self, reason: str) -> None:
        """Kill it at once; the reason is for the log."""
        if self.exit_status is None:
            self.stopped = self.stopped or reason
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def stop(self) -> None:
        """End it and free what belongs to it."""
        self.kill("it was closed")
        await self.wait()
        await self.read_to_the_end()
        self.stdin.close()

    async def read_to_the_end(self) -> None:
        """Read what is left in the pipes of a child that has ended."""
        # They end with it, unless a process that it started has them too.
        _, unfinished = await asyncio.wait(self.tasks, timeout=_LAST_WORDS_SECONDS)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _drain_stderr(self, stream: asyncio.StreamReader | None) -> None:
        while stream is not None and (data := await stream.read(4096)):
            self._tail += data
            del self._tail[:-_STDERR_TAIL]


AnyChild = TypeVar("AnyChild", bound=OneLife)


class Supervisor(ABC, Generic[AnyChild]):
    """Keeps one child running: it starts the first one, and another with growing pauses when one dies."""

    def __init__(self, on_event: OnEvent | None = None) -> None:
        self._on_event = on_event
        self._child: AnyChild | None = None
        self._started = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.lives = 0
        """How many children were started."""
        self.restarts = 0
        """How many of them came after one that died."""

    @abstractmethod
    async def begin(self) -> AnyChild:
        """Start a child, the one of number `lives`, and wait until it can work.

        Raises:
            ConfigurationError: it does not load; the message is the reason alone.
        """

    @property
    def child(self) -> AnyChild | None:
        """The child that runs now, if one does."""
        child = self._child
        return child if child is not None and child.alive else None

    def require(self) -> AnyChild:
        """The running child.

        Raises:
            EngineUnavailableError: none runs; another one is being started.
        """
        child = self.child
        if child is None:
            raise EngineUnavailableError("The model is being loaded; try again shortly.", retry_after=1.0)
        return child

    async def wait(self, timeout: float) -> AnyChild | None:  # noqa: ASYNC109 - the caller has nothing else to bound
        """The running child, after waiting for a restart for at most `timeout` seconds; None when there is none."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.child is None and self._task is not None and not self._task.done():
                    self._started.clear()
                    await self._started.wait()
        return self.child

    async def start(self) -> AnyChild:
        """Start the first child and watch it from then on.

        Raises:
            ConfigurationError: the model does not load.
        """
        child = await self._start_child()
        self._task = asyncio.create_task(self._watch(child))
        return child

    def kill_child(self, reason: str) -> None:
        """Kill the running child; another one is started."""
        if self._child is not None:
            self._child.kill(reason)

    async def close(self) -> None:
        """End the child; none is started until `start`."""
        task, self._task = self._task, None
        self._started.set()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        child, self._child = self._child, None
        if child is not None:
            await child.stop()

    async def _start_child(self) -> AnyChild:
        self.lives += 1
        life = self.lives
        self._emit("loading", life=life)
        child = self._child = await self.begin()
        self._started.set()
        self._emit("ready", pid=child.pid, life=life)
        return child

    async def _watch(self, child: AnyChild) -> None:
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
