"""What a model wrote, and whether it is what was asked for.

An engine may enforce nothing, or less than it says: llama.cpp answers without a word, and unbound, where it cannot read
a grammar or gives it up; and a grammar may express a part of a schema only. So every output that has to be of a form is
checked against the whole of what was asked (issue 4, 3).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence

from msgspec import Struct

from antiphon.engines.checks.checker import Checker
from antiphon.errors import EngineError
from antiphon.machine.deltas import Delta, Stop, TextDelta, ToolCallDelta, ToolCallStart
from antiphon.prompt.arguments import bare_input, custom_format
from antiphon.prompt.dialects.base import callable_tools
from antiphon.prompt.grammar import has_format
from antiphon.prompt.prompt import Prompt
from antiphon.protocol.json import quoted
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = ["Answer", "Judge"]


class _Call(Struct):
    name: str
    text: list[str]


class Answer:
    """The calls and the text that deltas add up to."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self._text: list[str] = []

    @property
    def text(self) -> str:
        """The text."""
        return "".join(self._text)

    def add(self, deltas: Sequence[Delta]) -> None:
        """More of the answer."""
        for delta in deltas:
            if isinstance(delta, TextDelta):
                self._text.append(delta.text)
            elif isinstance(delta, ToolCallStart):
                self.calls.append(_Call(delta.name, []))
            elif isinstance(delta, ToolCallDelta) and self.calls:
                self.calls[-1].text.append(delta.text)


class Judge:
    """Judges answers by what a turn declares."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker

    async def fault(self, prompt: Prompt, answer: Answer, *, whole: bool) -> EngineError | None:
        """Why the answer is not what was asked for; `whole` says that it is the whole answer of a turn."""
        if answer.calls:
            for call in answer.calls:
                fault = await self._call(prompt, call)
                if fault:
                    return EngineError(
                        f"The model's call of '{quoted(call.name)}' is not valid: {fault}.", code="invalid_tool_call"
                    )
            return None
        if not whole or prompt.choice.mode == "required":
            return EngineError("The model has not made the call that it was held to.", code="invalid_tool_call")
        if not has_format(prompt):
            return None
        schema = prompt.format.schema if prompt.format is not None and prompt.format.type == "json_schema" else None
        fault = await self._checker.instance({"type": "object"} if schema is None else schema, answer.text)
        if fault:
            return EngineError(f"The model's output does not match the schema: {fault}.", code="invalid_output")
        return None

    async def checked(self, prompt: Prompt, stream: AsyncGenerator[Sequence[Delta]]) -> AsyncGenerator[Sequence[Delta]]:
        """The deltas of a turn whose calls nothing has bound; they are judged before its end is told.

        Raises:
            EngineError: a call is not valid.
        """
        answer = Answer()
        async with contextlib.aclosing(stream):
            async for deltas in stream:
                answer.add(deltas)
                stop = deltas[-1] if deltas else None
                # A call that was cut says so by the end of its turn.
                if isinstance(stop, Stop) and not stop.cut and answer.calls:
                    error = await self.fault(prompt, answer, whole=False)
                    if error is not None:
                        raise error
                yield deltas

    async def _call(self, prompt: Prompt, call: _Call) -> str:
        text = "".join(call.text)
        tools: dict[str, FunctionTool | CustomTool] = {tool.name: tool for tool in prompt.tools}
        if call.name not in callable_tools(prompt):
            return "the tool may not be called now"
        tool = tools[call.name]
        if isinstance(tool, FunctionTool):
            # The log closes a call without arguments with an empty object.
            return await self._checker.instance(tool.parameters or {"type": "object"}, text or "{}")
        syntax, definition = custom_format(tool)
        if syntax == "text":
            return ""
        return await self._checker.match(definition if syntax == "lark" else f"start: {bare_input(tool)}\n", text)
