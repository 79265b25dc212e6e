"""The child of a Florence-2 model, spoken to in frames, and the supervisor that keeps one alive.

A frame is four bytes that say how long it is, then a JSON object; `child` says which there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.engines import supervisor
from antiphon.errors import ConfigurationError
from antiphon.protocol.json import encode

__all__ = ["COMMAND", "About", "Child", "ChildConfig", "ChildDiedError", "ChildFaultError", "Supervisor"]

COMMAND: Final[Sequence[str]] = (sys.executable, "-P", "-m", "antiphon.engines.florence.child")
"""What is run; `-P` keeps a file of the working directory from shadowing a module."""

MOST_ANSWER: Final = 2**22
"""Bytes of a frame of the child's."""

_frame = msgspec.json.Decoder(dict[str, Any])
_PREFIX: Final = 4
_LAST_SECONDS: Final = 5.0


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


class Child(supervisor.OneLife):
    """One life of the process. What it answers goes to whoever asked; what nobody waits for any more is dropped."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__(process)
        self._sending = asyncio.Lock()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last = 0
        self._gone = False
        self.about = About(0)
        """What it has told of its model."""

    @classmethod
    async def start(cls, config: ChildConfig, command: Sequence[str], seconds: float) -> Child:
        """Start one and wait, at most so many seconds, until its model is loaded.

        Raises:
            ConfigurationError: it does not load; the message is the reason alone.
        """
        child = cls(await supervisor.spawned(command))
        try:
            await child._load(config, seconds)
        except BaseException:
            await child.stop()
            raise
        return child

    @property
    def alive(self) -> bool:
        """Whether it runs and answers."""
        return super().alive and not self._gone

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

    async def _load(self, config: ChildConfig, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                self._post(msgspec.to_builtins(config))
                found = await self._frame()
        except TimeoutError:
            raise ConfigurationError(f"it did not load within {seconds:g} seconds") from None
        except ChildDiedError as error:
            await self._ended(error)
            await self.wait()
            await self.read_to_the_end()
            raise ConfigurationError(f"its process ended: {self.end}") from None
        if "fault" in found:
            raise ConfigurationError(str(found["fault"]))
        try:
            self.about = msgspec.convert(found.get("ready"), About)
        except msgspec.ValidationError:
            raise ConfigurationError("its process says nothing of the model") from None
        self.tasks.append(asyncio.create_task(self._answers()))

    async def _send(self, message: Mapping[str, Any]) -> None:
        # A frame is written as a whole, so that one who leaves in the middle leaves none that is cut.
        self._post(message)
        async with self._sending:
            try:
                await self.stdin.drain()
            except ConnectionError:
                raise ChildDiedError("it takes nothing any more") from None

    def _post(self, message: Mapping[str, Any]) -> None:
        data = encode(message)
        if self.alive and not self.stdin.is_closing():
            self.stdin.write(len(data).to_bytes(_PREFIX, "big") + data)

    async def _answers(self) -> None:
        """Hand out answers until there are no more."""
        try:
            while True:
                answer = await self._frame()
                identity = answer.get("id")
                waiting = self._waiting.get(identity) if isinstance(identity, int) else None
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        except ChildDiedError as error:
            self._gone = True
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(ChildDiedError())
            await self._ended(error)

    async def _ended(self, error: ChildDiedError) -> None:
        """See that a child that says nothing more ends: one that has ended by itself keeps its exit status."""
        if not error.args:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_SECONDS):
                    await self.wait()
        self.kill(str(error))

    async def _frame(self) -> dict[str, Any]:
        try:
            length = int.from_bytes(await self.stdout.readexactly(_PREFIX), "big")
            if length > MOST_ANSWER:
                raise ChildDiedError("its frame is too long")
            return _frame.decode(await self.stdout.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise ChildDiedError from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ChildDiedError("its frame is no JSON object") from None


class Supervisor(supervisor.Supervisor[Child]):
    """Keeps one child running."""

    def __init__(
        self,
        config: ChildConfig,
        command: Sequence[str],
        *,
        load_timeout: float,
        on_event: supervisor.OnEvent | None = None,
    ) -> None:
        super().__init__(on_event)
        self._config = config
        self._command = command
        self._load_timeout = load_timeout

    async def begin(self) -> Child:
        """Start a child and wait until it has loaded its model.

        Raises:
            ConfigurationError: it does not load.
        """
        return await Child.start(self._config, self._command, self._load_timeout)
