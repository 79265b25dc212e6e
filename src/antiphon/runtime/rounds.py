"""Rounds of a response: the turns after the first one, made of what the tools that run here have given.

What a round needs is in the items of the response and in the rows of its calls, so that another process can go on in
the middle of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from antiphon.engines.base import Engine, PreparedTurn
from antiphon.machine.turn import all_calls_here, progress
from antiphon.prompt.messages import Conversation
from antiphon.prompt.prompt import Prompt
from antiphon.prompt.toolbox import Toolbox
from antiphon.prompt.toolsearch import find_tools, output_tools
from antiphon.protocol.context import COMPACTION_TYPES
from antiphon.protocol.ids import new_id
from antiphon.protocol.items import Item, RawItem
from antiphon.protocol.request import CreateResponse
from antiphon.runtime.history import convert
from antiphon.runtime.hosted import HostedTools
from antiphon.runtime.planning import build_prompt, prepare

__all__ = ["MOST_ROUNDS", "MOST_TURNS", "Rounds"]

MOST_ROUNDS = 4
"""Turns of a response after which the server searches for tools no more."""

MOST_TURNS = 128
"""Turns of a response after which the model is told to answer, whatever its budget of calls."""


class Rounds:
    """The rounds of one response; `prompt` is that of its first turn, and `hosted` the tools that run here."""

    def __init__(
        self, engine: Engine, request: CreateResponse, prompt: Prompt, hosted: HostedTools | None = None
    ) -> None:
        self._engine = engine
        self._request = request
        self._prompt = prompt
        self._most_calls = request.max_tool_calls
        self._hosted = hosted

    def run(self, toolbox: Toolbox, calls: Sequence[dict[str, Any]], output: Sequence[Any]) -> list[dict[str, Any]]:
        """The items that the searches for tools at the end of this output give.

        Those beyond `max_tool_calls` find nothing (responses-api 6.4).
        """
        before = len(all_calls_here(output)) - len(calls)
        outputs: list[dict[str, Any]] = []
        for number, call in enumerate(calls, before + 1):
            arguments: Any = call.get("arguments")
            allowed = self._most_calls is None or number <= self._most_calls
            given = cast("dict[str, Any]", arguments) if allowed and isinstance(arguments, dict) else {}
            outputs.append(
                {
                    "id": new_id("tso"),
                    "type": "tool_search_output",
                    "status": "completed",
                    "call_id": None,
                    "execution": "server",
                    "tools": output_tools(find_tools(given, toolbox.hidden)),
                }
            )
        return outputs

    async def turn(
        self, parts: Sequence[Conversation], output: Sequence[Item], spent: int, *, answer: bool = False
    ) -> PreparedTurn | None:
        """The turn after this output of a response over these parts of a history; `spent` output tokens are gone.

        With `answer` the model is told to answer in text, and is given no tools. None where no token is left.

        Raises:
            ContextOverflowError: the conversation does not fit into the context any more.
            APIError: the engine cannot be asked.
        """
        limit = self._prompt.max_output_tokens
        if limit is not None and spent >= limit:
            return None
        told = [item for item in output if not (isinstance(item, RawItem) and item.type in COMPACTION_TYPES)]
        allowed = self._most_calls is None or len(all_calls_here(output)) < self._most_calls
        prompt = build_prompt(
            self._request,
            [*parts, convert(told, parts[-1])],
            self._engine,
            may_search=allowed and progress(output).rounds < MOST_ROUNDS,
            first=False,
            hosted=self._hosted,
            answer=answer,
        )
        prompt = msgspec.structs.replace(
            prompt,
            sampling=self._prompt.sampling,
            max_output_tokens=None if limit is None else limit - spent,
            affinity=self._prompt.affinity,
        )
        return await prepare(self._engine, prompt, self._request.truncation)
