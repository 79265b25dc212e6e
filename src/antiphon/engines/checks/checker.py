"""The checking process as its users see it: a question in, a fault or nothing out, whatever the question does to it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, Final

from antiphon.child_process import ChildProcess
from antiphon.errors import EngineUnavailableError
from antiphon.protocol.json import encode, loads

__all__ = ["TOO_MUCH", "Checker"]

TOO_MUCH: Final = "it takes more time or memory to work with than there is for it"
"""The fault of what the process died of."""

_WALL_SECONDS: Final = 15.0
"""Seconds after which a job is given up: on a busy machine processor time passes slowly."""

_START_SECONDS: Final = 60.0
_MOST_FAULT: Final = 64 * 1024
_MOST_KNOWN: Final = 512
_MOST_CHARACTERS: Final = 8 * 2**20
"""How many answers are kept, and characters of their questions."""


class Checker:
    """One checking process, started when it is first needed and again after it died.

    Jobs are done one after the other. Answers are kept for questions that are asked again, except about texts.
    """

    def __init__(self) -> None:
        self._process: ChildProcess | None = None
        self._turn = asyncio.Lock()
        self._known: OrderedDict[bytes, str] = OrderedDict()
        self._characters = 0
        self.starts = 0
        """How often the process was started."""

    @property
    def pid(self) -> int | None:
        """The id of the process, if it runs."""
        return self._process.pid if self._process is not None else None

    async def schema(self, schema: dict[str, Any]) -> str:
        """What is wrong with a JSON Schema; "" where it can be worked with."""
        return await self._asked({"schema": schema})

    async def grammar(self, grammar: str) -> str:
        """What is wrong with a grammar in llguidance's Lark form; "" where it allows something."""
        return await self._asked({"grammar": grammar})

    async def instance(self, schema: dict[str, Any], text: str) -> str:
        """Why the text is no JSON that matches the schema; "" where it is."""
        return await self._done(encode({"schema": schema, "text": text}))

    async def match(self, grammar: str, text: str) -> str:
        """Why the whole text does not match the grammar; "" where it does."""
        return await self._done(encode({"grammar": grammar, "text": text}))

    async def close(self) -> None:
        """End the process."""
        async with self._turn:
            await self._end()

    async def _asked(self, job: dict[str, Any]) -> str:
        data = encode(job)
        known = self._known.get(data)
        if known is not None:
            self._known.move_to_end(data)
            return known
        fault = await self._done(data)
        if data not in self._known:
            self._known[data] = fault
            self._characters += len(data)
        while len(self._known) > _MOST_KNOWN or self._characters > _MOST_CHARACTERS:
            self._characters -= len(self._known.popitem(last=False)[0])
        return fault

    async def _done(self, job: bytes) -> str:
        async with self._turn:
            process = self._process
            if process is None or process.ended:
                process = await self._start()
            try:
                async with asyncio.timeout(_WALL_SECONDS):
                    answer = await process.ask_line(job + b"\n")
            except TimeoutError:
                answer = b""
            except BaseException:
                # Its answer would be taken for that of the next job.
                await self._end()
                raise
            if answer.endswith(b"\n"):
                return loads(answer)
            await self._end()
            return TOO_MUCH

    async def _start(self) -> ChildProcess:
        """Start it and wait until it has done an easy job, so that only its work counts as the time of the next."""
        self.starts += 1
        self._process = process = await ChildProcess.start("antiphon.engines.checks.child", longest_line=_MOST_FAULT)
        answer = b""
        try:
            async with asyncio.timeout(_START_SECONDS):
                answer = await process.ask_line(encode({"schema": {}}) + b"\n")
        except TimeoutError:
            pass
        except BaseException:
            # As above: each answer would be taken for that of the job after its own.
            await self._end()
            raise
        if not answer.endswith(b"\n"):
            await self._end()
            raise EngineUnavailableError("What checks schemas and grammars could not be started; try again.")
        return process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.end()
