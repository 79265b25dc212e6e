"""The child of a Florence-2 model, spoken to in frames, and the supervisor that keeps one alive.

A frame is four bytes that say how long it is, then a JSON object; `child` says which there are. The child lives as long
as the pipe to it: when this process dies, however it dies, the child goes too.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.child_process import engine_environment
from antiphon.errors import ConfigurationError, EngineUnavailableError
from antiphon.protocol.json import encode

__all__ = ["COMMAND", "About", "Child", "ChildConfig", "ChildDiedError", "ChildFaultError", "Supervisor"]

COMMAND: Final[Sequence[str]] = (sys.executable, "-P", "-m", "antiphon.engines.florence.child")
"""What is run; `-P` keeps a file of the working directory from shadowing a module."""

MOST_ANSWER: Final = 2**22
"""Bytes of a frame of the child's."""

_frame = msgspec.json.Decoder(dict[str, Any])
_PREFIX: Final = 4
_STDERR_TAIL: Final = 4096
_LAST_SECONDS: Final = 5.0
_FIRST_BACKOFF: Final = 0.1
_LONGEST_BACKOFF: Final = 10.0
_HEALTHY_SECONDS: Final = 60.0


class ChildConfig(Struct, frozen=True):
    """What the child is told: the model's folder, threads, whether it may take a GPU, and the most pixels it reads."""

    folder: str
    threads: int
    gpu: bool
    max_pixels: int


class About(Struct, frozen=True):
    """What the child tells of its model: tokens of a prompt, phrases that a caption's grounding leaves out, device."""

    context_length: int
    banned: frozenset[str] = frozenset()
    device: str = "cpu"


class ChildDiedError(Exception):
    """The child is gone, or says what no child says."""


class ChildFaultError(Exception):
    """The child does not do what it was asked; `code` is one of those in `child`."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Child:
    """One life of the process. What it answers goes to whoever asked; what nobody waits for any more is dropped."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the child has no pipes")
        self._process = process
        self._stdin = stdin
        self._stdout = stdout
        self._sending = asyncio.Lock()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last = 0
        self._tail = bytearray()
        self._stopped = ""
        self._gone = False
        self._tasks = [asyncio.create_task(self._drain_stderr())]
        self.about = About(0)
        """What it has told of its model."""

    @classmethod
    async def start(cls, config: ChildConfig, command: Sequence[str], seconds: float) -> Child:
        """Start one and wait, at most so many seconds, until its model is loaded.

        Raises:
            ConfigurationError: it does not load; the message is the reason alone.
        """
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=engine_environment(),
            start_new_session=True,  # Ctrl-C is for the server, which then closes the child
        )
        child = cls(process)
        try:
            await child._load(config, seconds)
        except BaseException:
            await child.stop()
            raise
        return child

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs and answers."""
        return self._process.returncode is None and not self._gone

    @property
    def end(self) -> str:
        """How it ended, in plain words."""
        if self._stopped:
            return f"stopped by the server: {self._stopped}"
        status = self._process.returncode
        last = self._tail.decode(errors="replace").strip().rpartition("\n")[2]
        how = f"killed by signal {-status}" if status is not None and status < 0 else f"exit status {status}"
        return f"{how}; its last line: {last[:200]}" if last else how

    async def ask(self, message: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Its answer. One that does not come within so many seconds is its end; leaving before it comes cancels it.

        Raises:
            ChildFaultError: it says that it does not do this.
            ChildDiedError: it ended over it, or was ended.
        """
        if not self.alive:
            raise ChildDiedError
        self._last += 1
        identity = self._last
        waiting = self._waiting[identity] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._send({"id": identity, **message})
                answer = await waiting
        except TimeoutError:
            self.kill(f"it did not answer within {seconds:g} seconds")
            raise ChildDiedError("it did not answer in time") from None
        except asyncio.CancelledError:
            # Not waited for: the pipe has room for it, or the child reads nothing more.
            self._post({"cancel": identity})
            raise
        finally:
            self._waiting.pop(identity, None)
        fault = answer.get("fault")
        if fault is not None:
            raise ChildFaultError(str(fault))
        return answer

    def kill(self, reason: str) -> None:
        """Kill it at once; the reason is for the log."""
        if self._process.returncode is None:
            self._stopped = self._stopped or reason
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def wait(self) -> int:
        """Wait for its end; the result is the exit status."""
        return await self._process.wait()

    async def stop(self) -> None:
        """End it and free what belongs to it."""
        self.kill("it was closed")
        await self._process.wait()
        await self._read_to_the_end()
        self._stdin.close()

    async def _load(self, config: ChildConfig, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                self._post(msgspec.to_builtins(config))
                found = await self._frame()
        except TimeoutError:
            raise ConfigurationError(f"it did not load within {seconds:g} seconds") from None
        except ChildDiedError as error:
            await self._ended(error)
            await self._process.wait()
            await self._read_to_the_end()
            raise ConfigurationError(f"its process ended: {self.end}") from None
        if "fault" in found:
            raise ConfigurationError(str(found["fault"]))
        try:
            self.about = msgspec.convert(found.get("ready"), About)
        except msgspec.ValidationError:
            raise ConfigurationError("its process says nothing of the model") from None
        self._tasks.append(asyncio.create_task(self._answers()))

    async def _send(self, message: Mapping[str, Any]) -> None:
        # A frame is written as a whole, so that one who leaves in the middle leaves none that is cut.
        self._post(message)
        async with self._sending:
            try:
                await self._stdin.drain()
            except ConnectionError:
                raise ChildDiedError("it takes nothing any more") from None

    def _post(self, message: Mapping[str, Any]) -> None:
        data = encode(message)
        if self.alive and not self._stdin.is_closing():
            self._stdin.write(len(data).to_bytes(_PREFIX, "big") + data)

    async def _answers(self) -> None:
        """Hand out answers until there are no more."""
        try:
            while True:
                answer = await self._frame()
                waiting = self._waiting.get(answer.get("id", 0))
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        except ChildDiedError as error:
            self._gone = True
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(ChildDiedError())
            await self._ended(error)

    async def _read_to_the_end(self) -> None:
        # Its pipes end with it, unless a process that it started has them too.
        _, unfinished = await asyncio.wait(self._tasks, timeout=_LAST_SECONDS)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ended(self, error: ChildDiedError) -> None:
        """See that a child that says nothing more ends: one that has ended by itself keeps its exit status."""
        if not error.args:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_SECONDS):
                    await self._process.wait()
        self.kill(str(error))

    async def _frame(self) -> dict[str, Any]:
        try:
            length = int.from_bytes(await self._stdout.readexactly(_PREFIX), "big")
            if length > MOST_ANSWER:
                raise ChildDiedError("its frame is too long")
            return _frame.decode(await self._stdout.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise ChildDiedError from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ChildDiedError("its frame is no JSON object") from None

    async def _drain_stderr(self) -> None:
        stream = self._process.stderr
        while stream is not None and (data := await stream.read(4096)):
            self._tail += data
            del self._tail[:-_STDERR_TAIL]


class Supervisor:
    """Keeps one child running: it starts the first one, and another with growing pauses when one dies.

    `on_event` is told of loading, deaths and restarts.
    """

    def __init__(
        self,
        config: ChildConfig,
        command: Sequence[str],
        *,
        load_timeout: float,
        on_event: Callable[[str, Mapping[str, Any]], None] | None = None,
    ) -> None:
        self._config = config
        self._command = command
        self._load_timeout = load_timeout
        self._on_event = on_event
        self._child: Child | None = None
        self._started = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.restarts = 0
        """How often a child was started after one that died."""

    @property
    def child(self) -> Child | None:
        """The child that runs now, if one does."""
        return self._child if self._child is not None and self._child.alive else None

    def require(self) -> Child:
        """The running child.

        Raises:
            EngineUnavailableError: none runs; another one is being started.
        """
        child = self.child
        if child is None:
            raise EngineUnavailableError("The model is being loaded; try again shortly.")
        return child

    async def wait(self, seconds: float) -> Child | None:
        """The running child, after waiting at most so long for a restart; None when there is none."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.child is None and self._task is not None and not self._task.done():
                    self._started.clear()
                    await self._started.wait()
        return self.child

    async def start(self) -> Child:
        """Start the first child and watch it from then on.

        Raises:
            ConfigurationError: the model does not load.
        """
        child = await self._start_child()
        self._task = asyncio.create_task(self._watch(child))
        return child

    async def close(self) -> None:
        """End the child for good."""
        task, self._task = self._task, None
        self._started.set()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        child, self._child = self._child, None
        if child is not None:
            await child.stop()

    async def _start_child(self) -> Child:
        self._emit("loading")
        child = await Child.start(self._config, self._command, self._load_timeout)
        self._child = child
        self._started.set()
        self._emit("ready", pid=child.pid)
        return child

    async def _watch(self, child: Child) -> None:
        clock = asyncio.get_running_loop().time
        backoff = _FIRST_BACKOFF
        while True:
            began = clock()
            await child.wait()
            await child.stop()
            self._emit("died", reason=child.end)
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
            loop = asyncio.get_running_loop()
            loop.call_exception_handler({"message": f"an observer of '{name}' failed", "exception": error})
