"""One call of a local function: its arguments held against the schema, its result, and its errors as data."""

from __future__ import annotations

import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeAlias, cast, get_type_hints

import anyio
import anyio.to_thread
import msgspec
from msgspec import UNSET, Struct

from antiphon.client.context import (
    APPROVAL_REQUEST,
    FilePart,
    ImagePart,
    Message,
    Part,
    TextPart,
    Tool,
    ToolCall,
    approval,
    tool_result,
)
from antiphon.client.errors import DriverError
from antiphon.client.loose import loads
from antiphon.client.schema import violations
from antiphon.client.tools import as_tool

__all__ = ["Outcome", "OutcomeError", "PlannedCall", "Toolbox"]

Function: TypeAlias = Callable[..., Any]
"""What runs when the model calls a tool."""

OutcomeError: TypeAlias = Literal["unknown_tool", "invalid_arguments", "too_slow", "failed"]
"""Why a call has no result."""

MAX_MESSAGE: Final = 1000
"""Characters of an error that the model is told."""

_FUNCTIONS: Final = ("function_call", "custom_tool_call")


class Outcome(Struct, frozen=True):
    """What came of one call.

    `output` is what the model is told. Where `error` is set, that is a mapping with the `code`, the `type` of the
    exception where there was one, and the `message`; `exception` is the exception itself, for the caller.
    """

    call: ToolCall
    output: Any
    error: OutcomeError | None = None
    exception: Exception | None = None

    @property
    def message(self) -> Message:
        """The result as a message of the conversation; parts of text, images and files go as such."""
        if self.call.type == APPROVAL_REQUEST:
            said = None if self.exception is None else str(self.exception)[:MAX_MESSAGE]
            return approval(self.call.id, self.output is True, said)
        parts = _parts(self.output)
        return tool_result(self.call.id, self.output) if parts is None else tool_result(self.call.id, UNSET, *parts)


class _TooSlowError(Exception):
    pass


class PlannedCall(Struct, frozen=True):
    """A call that can be made: a function with its arguments, or `refused` where it is answered without one."""

    call: ToolCall
    function: Function | None = None
    refused: Outcome | None = None

    def run(self, seconds: float | None) -> Outcome:
        """Call it; with a limit of seconds in a thread of its own, which is left behind when they are over.

        Raises:
            DriverError: it is asynchronous.
        """
        if self.function is None or self.refused is not None:
            return cast("Outcome", self.refused)
        try:
            value = self.function() if seconds is None else _within(self.function, seconds)
        except _TooSlowError:
            return _too_slow(self.call, seconds)
        except Exception as error:  # noqa: BLE001 - whatever a function raises is told to the model
            return _failed(self.call, error)
        if inspect.isawaitable(value):
            getattr(value, "close", lambda: None)()
            raise DriverError(f"'{self.call.name}' is asynchronous: use run_tools_async.")
        return Outcome(self.call, value)

    async def run_async(self, seconds: float | None) -> Outcome:
        """Call it; an ordinary function in a thread of its own, which is left behind when the seconds are over."""
        if self.function is None or self.refused is not None:
            return cast("Outcome", self.refused)
        with anyio.move_on_after(seconds) as scope:
            try:
                value = await self._value(self.function)
            except Exception as error:  # noqa: BLE001 - whatever a function raises is told to the model
                return _failed(self.call, error)
            return Outcome(self.call, value)
        assert scope.cancelled_caught  # noqa: S101 - nothing else leads here
        return _too_slow(self.call, seconds)

    async def _value(self, function: Function) -> Any:
        if is_asynchronous(function):
            return await cast("Awaitable[Any]", function())
        # A thread that hangs keeps its place in a limiter: each has its own.
        value = await anyio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
        return await value if inspect.isawaitable(value) else value


class Toolbox:
    """The tools of a run: which there are, and what runs when one is called.

    `functions` are more of these by the names of their tools: a function's is called with the arguments by name, a
    custom tool's with its text, any other's with its arguments as a mapping. A member of a namespace is `ns::name`, or
    by its name alone where no other has it.

    Raises:
        DriverError: two tools have the same name, or one is no tool.
    """

    def __init__(self, tools: Sequence[Any], functions: Mapping[str, Function] | None = None) -> None:
        self._schemas: dict[str, dict[str, Any] | None] = {}
        self.functions: dict[str, Function] = {}
        for source in tools:
            for name, tool in _named(source):
                if name in self._schemas and (tool is not None or name != kind_of(source)):
                    raise DriverError(f"There are two tools of the name '{name}'.")
                self._schemas[name] = tool.parameters if tool is not None else None
                if tool is not None and tool.function is not None:
                    self.functions[name] = tool.function
        self.functions.update(functions or {})

    def plan(self, call: ToolCall) -> PlannedCall | None:
        """How the call is to be made; None where nobody here can."""
        name = f"{call.metadata.get('namespace')}::{call.name}"
        function = self.functions.get(name, self.functions.get(call.name))
        if function is None:
            if not {name, call.name}.isdisjoint(self._schemas) or call.type not in _FUNCTIONS:
                return None
            known = ", ".join(self._schemas) or "none"
            return _refusal(call, "unknown_tool", f"There is no tool '{call.name}'. There are: {known}.")
        if call.type == "custom_tool_call":
            return PlannedCall(call, partial(function, call.arguments))
        try:
            arguments = _arguments(call)
            if call.type != "function_call":
                return PlannedCall(call, partial(function, arguments))
            schema = self._schemas.get(name, self._schemas.get(call.name))
            return PlannedCall(call, partial(function, **_checked(function, arguments, schema)))
        except (msgspec.MsgspecError, ValueError, TypeError) as error:
            return _refusal(call, "invalid_arguments", str(error))


def _checked(function: Function, arguments: dict[str, Any], schema: dict[str, Any] | None) -> dict[str, Any]:
    """The arguments in the types of the function's parameters."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        # Some that are written in C have none.
        signature = None
    if signature is not None:
        # What is missing or not known is told by its name.
        signature.bind(**arguments)
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError):
        hints = {}
    checked = {key: _converted(key, value, hints.get(key, Any)) for key, value in arguments.items()}
    if schema is not None and violations(arguments, schema):
        raise ValueError("The arguments are not what the schema of the tool describes.")
    return checked


def is_asynchronous(function: Function) -> bool:
    """Whether calling it gives a coroutine."""
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - whether that is asynchronous, not whether it is there
    )


def kind_of(source: Any) -> str | None:
    """The type of a tool that is given as a mapping and is no function."""
    if not isinstance(source, Mapping):
        return None
    mapping = cast("Mapping[str, Any]", source)
    kind = str(mapping.get("type", "function"))
    return kind if "function" not in mapping and kind not in ("function", "object") else None


def _named(source: Any) -> Iterator[tuple[str, Tool | None]]:
    """The names that calls of this tool have; those of a namespace are its members'."""
    kind = kind_of(source)
    if kind is None:
        tool = as_tool(source)
        yield tool.name, tool
        return
    mapping = cast("Mapping[str, Any]", source)
    if kind != "namespace":
        yield str(mapping.get("name") or kind), None
        return
    for member in cast("Sequence[Any]", mapping.get("tools") or ()):
        for name, tool in _named(member):
            yield f"{mapping.get('name')}::{name}", tool


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        value: Any = loads(call.arguments) if call.arguments.strip() else {}
    except ValueError:
        raise ValueError("The arguments are not JSON.") from None
    if not isinstance(value, dict):
        raise ValueError("The arguments are not a JSON object.")  # noqa: TRY004 - the model's fault, and not ours
    return cast("dict[str, Any]", value)


def _converted(name: str, value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind, dec_hook=_own_type)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise ValueError(f"Argument '{name}': {error}") from None


def _own_type(kind: type, value: Any) -> Any:
    own = getattr(kind, "model_validate", None)
    return own(value) if callable(own) else value


def _within(function: Function, seconds: float) -> Any:
    values: list[Any] = []
    errors: list[BaseException] = []
    context = contextvars.copy_context()

    def work() -> None:
        try:
            values.append(context.run(function))
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True, name="antiphon-tool")
    thread.start()
    thread.join(seconds)
    if values:
        return values[0]
    if errors:
        raise errors[0]
    raise _TooSlowError


def _parts(output: Any) -> list[Part] | None:
    found = cast("list[Any]", output if isinstance(output, list | tuple) else [output])
    if found and all(isinstance(part, TextPart | ImagePart | FilePart) for part in found):
        return cast("list[Part]", list(found))
    return None


def _refusal(call: ToolCall, code: OutcomeError, message: str) -> PlannedCall:
    return PlannedCall(call, refused=_error(call, code, message))


def _too_slow(call: ToolCall, seconds: float | None) -> Outcome:
    return _error(call, "too_slow", f"It took longer than {seconds:g} seconds.")


def _failed(call: ToolCall, error: Exception) -> Outcome:
    return _error(call, "failed", str(error), error)


def _error(call: ToolCall, code: OutcomeError, message: str, exception: Exception | None = None) -> Outcome:
    told: dict[str, Any] = {"code": code, "message": message[:MAX_MESSAGE]}
    if exception is not None:
        told["type"] = type(exception).__name__
    return Outcome(call, {"error": told}, code, exception)
