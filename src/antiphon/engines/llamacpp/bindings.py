"""What a turn is held to: its tools and its format, checked before anything is generated, as grammars.

A schema that no draft of JSON Schema knows, a grammar that cannot be read, and anything that takes too much to work
with is a 400 that names its place (issue 4, 3). What a grammar cannot express is left to the check of the output.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.engines.checks.checker import TOO_MUCH, Checker
from antiphon.errors import InvalidRequestError, UnsupportedError
from antiphon.prompt.arguments import bare_input, custom_format, express_arguments
from antiphon.prompt.dialects import Dialect
from antiphon.prompt.dialects.base import callable_tools
from antiphon.prompt.grammar import (
    SCHEMA_PATH,
    Thinking,
    call_grammar,
    format_schema,
    has_format,
    turn_grammar,
)
from antiphon.prompt.keywords import without
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import Prompt
from antiphon.prompt.schema import MAX_BYTES, check_schema
from antiphon.protocol.json import encode, quoted
from antiphon.protocol.request import TextFormat
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = ["Binding", "Bindings"]

_PATTERNS: Final = frozenset({"pattern", "patternProperties"})
_RANGES: Final = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "format", "minProperties"}
)
_LEAVING_OUT: Final = (frozenset[str](), _PATTERNS, _PATTERNS | _RANGES)
"""What is left out of a schema that llguidance refuses, and then of one that it refuses without that."""

_IMPOSSIBLE: Final = "Unsatisfiable"
"""How llguidance begins to say that no value could match."""

_MOST_GRAMMAR: Final = 2**20
"""Characters of a grammar."""

_MOST_KEPT: Final = 128
_MOST_CHARACTERS: Final = 8 * 2**20

_SPECIAL: Final = re.compile(r"<\[\d+\]>")
_ANY_SPECIAL: Final = "<[258]>"
"""A special token of the vocabulary with which grammars are checked."""


class Binding(Struct, frozen=True):
    """What holds for a turn. `given` is what the request declares, without its messages.

    `prompt` has the schemas as grammars take them; `schema` is that of the format.

    `unbound` says that the engine obeys no grammars, so that calls are checked when they are complete.
    `openings` maps each opening of a call to the grammar behind it. `loose` are the tools of which a grammar expresses
    a part only, and `loose_format` says the same of the format: what is written under it is to be checked before it is
    told.
    """

    given: Prompt
    prompt: Prompt
    schema: Mapping[str, Any] | None = None
    openings: Mapping[str, str] = {}
    loose: frozenset[str] = frozenset()
    loose_format: bool = False
    unbound: bool = False


class Bindings:
    """Makes and checks the grammars of one model; what it found is kept for requests that declare the same again.

    `control` are the control tokens of the vocabulary, by their text. `obeyed` says that the engine obeys grammars:
    where it does not, what could be held to by a grammar alone is refused, and calls are bound by nothing.
    """

    def __init__(self, checker: Checker, dialect: Dialect, control: Mapping[str, int], *, obeyed: bool = True) -> None:
        self._checker = checker
        self._dialect = dialect
        self._control = control
        self._obeyed = obeyed
        self._kept: OrderedDict[bytes, Binding] = OrderedDict()
        self._characters = 0

    def where(self, *, obeyed: bool) -> Bindings:
        """The bindings of the same model in an engine that obeys grammars, or does not."""
        return self if obeyed is self._obeyed else Bindings(self._checker, self._dialect, self._control, obeyed=obeyed)

    async def of(self, prompt: Prompt) -> Binding:
        """What holds for the turn, with all that it declares checked.

        Raises:
            UnsupportedError: the engine obeys no grammars, and nothing else could hold to what is asked for.
            InvalidRequestError: a schema or a grammar is malformed, too large, or allows nothing; `param` says which.
        """
        tools = callable_tools(prompt)
        if not tools and not has_format(prompt):
            return Binding(prompt, prompt)
        if not self._obeyed:
            _refuse_unenforced(prompt)
        key = encode((prompt.tools, prompt.choice, prompt.parallel_tool_calls, prompt.format))
        known = self._kept.get(key)
        if known is not None:
            self._kept.move_to_end(key)
            return known
        made = await self._made(msgspec.structs.replace(prompt, messages=()), tools)
        self._keep(key, made)
        return made

    async def whole(self, binding: Binding, thinking: Thinking, room: int | None = None) -> str:
        """The grammar of the whole turn, which may take `room` tokens.

        Raises:
            UnsupportedError: the dialect cannot force a call.
            InvalidRequestError: the tools are too much together.
        """
        found = turn_grammar(binding.prompt, self._dialect, thinking, self._control, binding.schema, room)
        if found is None:
            raise _no_forced_calls()
        return await self._checked(found)

    def _keep(self, key: bytes, made: Binding) -> None:
        size = len(key) + sum(map(len, made.openings.values()))
        if key not in self._kept and size <= _MOST_CHARACTERS:
            self._kept[key] = made
            self._characters += size
        while len(self._kept) > _MOST_KEPT or self._characters > _MOST_CHARACTERS:
            oldest, dropped = self._kept.popitem(last=False)
            self._characters -= len(oldest) + sum(map(len, dropped.openings.values()))

    async def _made(self, given: Prompt, names: Mapping[str, bool]) -> Binding:
        loose: set[str] = set()
        tools: list[FunctionTool | CustomTool] = []
        for tool in given.tools:
            if tool.name in names:
                tool, complete = await self._tool(tool, _place(given, tool.name))
                if not complete:
                    loose.add(tool.name)
            tools.append(tool)
        schema, complete = None, True
        if given.format is not None and has_format(given):
            schema, complete = await self._format(given.format)
        prompt = msgspec.structs.replace(given, tools=tools)
        openings: dict[str, str] = {}
        if self._obeyed and prompt.choice.mode == "auto" and not has_format(prompt):
            for opening in self._dialect.call_openings(prompt):
                found = call_grammar(prompt, self._dialect, opening, self._control)
                if found is not None:
                    openings[opening] = await self._checked(found)
        return Binding(given, prompt, schema, openings, frozenset(loose), not complete, unbound=not self._obeyed)

    async def _checked(self, grammar: str) -> str:
        fault = TOO_MUCH
        if len(grammar) <= _MOST_GRAMMAR:
            fault = await self._checker.grammar(_SPECIAL.sub(_ANY_SPECIAL, grammar))
        if fault:
            raise InvalidRequestError(
                f"The tools and the output format cannot be enforced together: {fault}.", param="tools"
            )
        return grammar

    async def _tool(self, tool: FunctionTool | CustomTool, path: str) -> tuple[FunctionTool | CustomTool, bool]:
        """The tool as grammars take it, and whether they express all of it."""
        if isinstance(tool, CustomTool):
            return tool, await self._custom(tool, f"{path}.format")
        place, code = f"{path}.parameters", "invalid_function_parameters"
        what = f"Invalid schema for function '{quoted(tool.name)}'"
        if tool.parameters is None:
            return tool, True
        check_schema(tool.parameters, place)
        _refuse(what, await self._checker.schema(tool.parameters), place, code)
        for left_out in _LEAVING_OUT:
            tried = msgspec.structs.replace(tool, parameters=without(tool.parameters, left_out))
            expressed = express_arguments(tried, place)
            fault = await self._checker.grammar(_value_grammar(expressed.schema))
            if not fault:
                return tried, expressed.complete and not left_out
            if fault == TOO_MUCH or fault.startswith(_IMPOSSIBLE):
                _refuse(what, fault, place, code)
        return msgspec.structs.replace(tool, parameters={"type": "object"}), False

    async def _custom(self, tool: CustomTool, path: str) -> bool:
        syntax, definition = custom_format(tool)
        what, code = f"Invalid grammar of custom tool '{quoted(tool.name)}'", "invalid_grammar"
        if syntax == "text":
            return True
        if syntax not in ("lark", "regex"):
            _refuse(what, "its syntax must be 'lark' or 'regex'", path, code)
        if len(definition) > MAX_BYTES:
            _refuse(what, f"at most {MAX_BYTES} characters are supported", path, code)
        # By itself first, so that it cannot end the grammar that it becomes a part of.
        alone = definition if syntax == "lark" else f"start: {bare_input(tool)}\n"
        _refuse(what, await self._checker.grammar(alone), path, code)
        if not self._obeyed:
            raise UnsupportedError(
                f"The grammar of custom tool '{quoted(tool.name)}' cannot be enforced on this model, so it is refused. "
                "Use the format 'text'.",
                param=path,
            )
        if syntax == "lark":
            return self._dialect.binds_lark
        return not await self._checker.grammar(_value_grammar(express_arguments(tool).schema))

    async def _format(self, form: TextFormat) -> tuple[Mapping[str, Any], bool]:
        """The expressed schema of an output format, and whether it is all of it."""
        what, code = "Invalid schema for the output format", "invalid_json_schema"
        if form.type != "json_schema" or form.schema is None:
            return format_schema(form).schema, True
        check_schema(form.schema, SCHEMA_PATH)
        _refuse(what, await self._checker.schema(form.schema), SCHEMA_PATH, code)
        for left_out in _LEAVING_OUT:
            tried = msgspec.structs.replace(form, schema=without(form.schema, left_out))
            expressed = format_schema(tried)
            fault = await self._checker.grammar(_value_grammar(expressed.schema))
            if not fault:
                return expressed.schema, expressed.complete and not left_out
            if fault == TOO_MUCH or fault.startswith(_IMPOSSIBLE):
                _refuse(what, fault, SCHEMA_PATH, code)
        return format_schema(msgspec.structs.replace(form, schema={})).schema, False


def _no_forced_calls() -> UnsupportedError:
    return UnsupportedError(
        "A forced tool call cannot be enforced on this model, so it is refused. Use 'auto' or 'none'.",
        param="tool_choice",
    )


def _refuse_unenforced(prompt: Prompt) -> None:
    """Refuse what only a grammar could hold a whole turn to.

    Raises:
        UnsupportedError: it is a forced call, or the form of the answer.
    """
    if prompt.choice.mode == "required":
        raise _no_forced_calls()
    if prompt.format is not None and has_format(prompt):
        raise UnsupportedError(
            f"The output format '{quoted(prompt.format.type)}' cannot be enforced on this model, so it is refused.",
            param="text.format.type",
        )


def _place(prompt: Prompt, name: str) -> str:
    """Where the tool that the model knows by this name stands in the request."""
    entry = prompt.toolbox.entries.get(name)
    for index, tool in enumerate(prompt.toolbox.declared or prompt.tools):
        if not isinstance(tool, dict):
            if tool.name == name or (entry is not None and entry.given is tool):
                return f"tools[{index}]"
        elif entry is not None and entry.namespace and tool.get("name") == entry.namespace:
            return f"tools[{index}].tools"
    return "tools"


def _value_grammar(schema: Mapping[str, Any]) -> str:
    lark = Lark()
    return lark.text(lark.rule("value", lark.json(schema)))


def _refuse(what: str, fault: str, path: str, code: str) -> None:
    if fault:
        raise InvalidRequestError(f"{what}: {fault}.", param=path, code=code)
