"""From calls as a model makes them, by the names that it is told, to calls as they are items. Pure.

A model knows one flat list of functions. What a name stands for, a tool of a namespace or a tool that has items of its
own kind (a shell, patches, a search for tools), is said here, in one place for all engines: between what an engine
yields and what the assembler makes of it. Calls of names that are no target pass as they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from antiphon.errors import EngineError
from antiphon.machine.arguments import ArgumentReader, MalformedError, Piece, StringStart, Value
from antiphon.machine.computer import computer_actions
from antiphon.machine.deltas import (
    CallItemDelta,
    CommandStart,
    Delta,
    PatchStart,
    Routed,
    ShellLimits,
    ShellStart,
    Stop,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)

__all__ = [
    "APPLY_PATCH",
    "COMPUTER_CALL",
    "HOSTED",
    "LOCAL_SHELL",
    "SHELL",
    "TOOL_SEARCH",
    "CallRouter",
    "MadeCall",
    "Target",
]

SHELL: Final = "shell_call"
APPLY_PATCH: Final = "apply_patch_call"
LOCAL_SHELL: Final = "local_shell_call"
COMPUTER_CALL: Final = "computer_call"
TOOL_SEARCH: Final = "tool_search_call"
HOSTED: Final = "hosted"
"""What calls become that the server answers itself: they are held, and nothing is told of them in the turn."""

_OPERATIONS: Final = ("create_file", "update_file", "delete_file")
_OUTSIDE: Final = ((), ("operation",))
"""Where the fields of a patch may stand: models also write them inside an object as the item has it."""


class Target(Struct, frozen=True):
    """What a call of a name becomes: of a function or custom tool, perhaps in a namespace, or an item of type `item`.

    `execution` says who searches for tools: `server` or `client`.
    """

    name: str
    namespace: str | None = None
    item: str | None = None
    execution: str = "client"


class MadeCall(Struct, frozen=True):
    """A call that was held: the tool's own name, the name that the model knows it by, and its arguments as written."""

    name: str
    text: str
    told: str = ""


class _Reader(ABC):
    """Reads the arguments of one call and yields what its item is made of."""

    @abstractmethod
    def feed(self, text: str) -> list[Routed]:
        """What this text adds."""

    @abstractmethod
    def end(self) -> list[Routed]:
        """What is left at the end of a call that was not cut.

        Raises:
            MalformedError: the item cannot be made of what was read.
        """


class _Shell(_Reader):
    def __init__(self) -> None:
        self._arguments = ArgumentReader()
        self._commands = 0
        self._limits: dict[str | int, int] = {}

    def feed(self, text: str) -> list[Routed]:
        deltas: list[Routed] = []
        for found in self._arguments.feed(text):
            path = found.path[1:] if found.path[0] == "action" else found.path
            head = path[0] if path else ""
            # A single command may stand where the list of them is asked for, or under a name of its own.
            command = head in ("commands", "command") and len(path) <= 2
            if isinstance(found, Value):
                if head in ("timeout_ms", "max_output_length") and type(found.value) is int:
                    self._limits[head] = found.value
            elif command and isinstance(found, StringStart):
                self._commands += 1
                deltas.append(CommandStart())
            elif command and isinstance(found, Piece):
                deltas.append(ToolCallDelta(found.text))
        return deltas

    def end(self) -> list[Routed]:
        if not self._arguments.ended or not self._commands:
            raise MalformedError
        if not self._limits:
            return []
        return [ShellLimits(self._limits.get("timeout_ms"), self._limits.get("max_output_length"))]


class _Patch(_Reader):
    def __init__(self) -> None:
        self._arguments = ArgumentReader()
        self._fields: dict[str | int, list[str]] = {}
        self._last: str | int = ""
        self._operation = ""

    def feed(self, text: str) -> list[Routed]:
        deltas: list[Routed] = []
        for found in self._arguments.feed(text):
            name = found.path[-1]
            if found.path[:-1] not in _OUTSIDE or isinstance(found, Value):
                continue
            if isinstance(found, StringStart):
                self._fields[name] = []
                self._last = name
            else:
                self._fields[name].append(found.text)
        self._begin(deltas)
        if self._operation and self._operation != "delete_file":
            pieces = self._fields.get("diff", [])
            if pieces:
                deltas.append(ToolCallDelta("".join(pieces)))
                pieces.clear()
        return deltas

    def _begin(self, deltas: list[Routed]) -> None:
        missing = {"type", "path"} - self._fields.keys()
        if self._operation or missing or (self._arguments.in_string and self._last in ("type", "path")):
            return
        self._operation = "".join(self._fields["type"])
        path = "".join(self._fields["path"])
        if self._operation not in _OPERATIONS or not path:
            raise MalformedError
        deltas.append(PatchStart(self._operation, path))

    def end(self) -> list[Routed]:
        if not self._arguments.ended or not self._operation:
            raise MalformedError
        return []


class _Whole(_Reader):
    """A call whose item is made at its end."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._text: list[str] = []

    def feed(self, text: str) -> list[Routed]:
        self._text.append(text)
        return []

    def end(self) -> list[Routed]:
        try:
            arguments: Any = msgspec.json.decode("".join(self._text) or "{}")
        except msgspec.DecodeError:
            raise MalformedError from None
        if not isinstance(arguments, dict):
            raise MalformedError
        given = cast("dict[str, Any]", arguments)
        if self._target.item == TOOL_SEARCH:
            body: dict[str, Any] = {"execution": self._target.execution, "arguments": given}
        elif self._target.item == COMPUTER_CALL:
            body = {**computer_actions(self._target.name, given), "pending_safety_checks": []}
        else:
            body = {"action": _exec(given)}
        return [CallItemDelta({"type": self._target.item, **body})]


def _exec(arguments: dict[str, Any]) -> dict[str, Any]:
    command: Any = arguments.get("command")
    words = cast("list[Any]", command) if isinstance(command, list) else [command]
    given: Any = arguments.get("env")
    env = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    if not words or not all(isinstance(word, str) for word in [*words, *env.values()]):
        raise MalformedError
    action: dict[str, Any] = {"type": "exec", "command": words, "env": env}
    for name, kind in (("timeout_ms", int), ("user", str), ("working_directory", str)):
        value = arguments.get(name)
        if type(value) is kind:
            action[name] = value
    return action


class CallRouter:
    """Routes the deltas of one turn; `targets` are by the names that the model is told.

    `parallel` False lets only the first call of a turn count (B9): the assembler leaves out those that it sees, and the
    router those after or before a call that is held. With `known`, calls of any other name are held too, so that the
    model can be told that there is no such tool.
    """

    def __init__(
        self, targets: Mapping[str, Target], *, parallel: bool = True, known: Collection[str] | None = None
    ) -> None:
        self._targets = targets
        self._known = known
        self._parallel = parallel
        self._calls = 0
        self._held: list[str] | None = None
        self._dropping = False
        self.made: list[MadeCall] = []
        """The calls that were held, in the order of the model, but for one that was cut."""
        self._reader: _Reader | None = None
        self._name = ""
        self.fault: EngineError | None = None
        """Why the turn cannot go on: the item of a call cannot be made of its arguments."""

    def feed(self, deltas: Sequence[Delta]) -> list[Routed]:
        """The deltas as the assembler takes them, up to a fault."""
        routed: list[Routed] = []
        try:
            for delta in deltas:
                if isinstance(delta, ToolCallDelta) and (self._dropping or self._held is not None):
                    if self._held is not None:
                        self._held.append(delta.text)
                elif self._reader is not None and isinstance(delta, ToolCallDelta):
                    routed += self._reader.feed(delta.text)
                elif not (isinstance(delta, TextDelta) and not delta.text and not delta.logprobs):
                    self._end(routed, cut=isinstance(delta, Stop) and delta.cut)
                    self._begin(delta, routed)
        except MalformedError:
            self.fault = EngineError(f"The model called '{self._name}' with arguments that this tool does not take.")
        return routed

    def _end(self, routed: list[Routed], *, cut: bool) -> None:
        reader, self._reader = self._reader, None
        held, self._held = self._held, None
        self._dropping = False
        if held is not None and not cut:
            target = self._targets.get(self._name)
            name = self._name if target is None else target.name
            self.made.append(MadeCall(name, "".join(held), self._name))
        if reader is not None and not cut:
            routed += reader.end()

    def _begin(self, delta: Delta, routed: list[Routed]) -> None:
        target = self._targets.get(delta.name) if isinstance(delta, ToolCallStart) else None
        if isinstance(delta, ToolCallStart):
            self._calls += 1
            strange = self._known is not None and delta.namespace is None and delta.name not in self._known
            hosted = strange or (target is not None and target.item == HOSTED)
            if not self._parallel and self._calls > 1 and (hosted or self.made):
                self._dropping = True
                return
            if strange:
                self._name, self._held = delta.name, []
                return
        if target is None or not isinstance(delta, ToolCallStart):
            routed.append(delta)
            return
        self._name = delta.name
        if target.item == HOSTED:
            self._held = []
        elif target.item is None:
            routed.append(ToolCallStart(target.name, delta.custom, target.namespace))
        elif target.item == SHELL:
            self._reader = _Shell()
            routed.append(ShellStart())
        elif target.item == APPLY_PATCH:
            self._reader = _Patch()
        else:
            self._reader = _Whole(target)
