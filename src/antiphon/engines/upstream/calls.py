"""Which call each piece of a tool call belongs to, and what of a call can be told. Pure.

Servers disagree. Some give an index, some the same index to every call, some none; an id comes once, in each piece, or
a new one in each piece; a name comes in parts, or whole in each piece; arguments come as text, as an object, as null,
or first as `{}` and then as what they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from antiphon.engines.upstream.wire import CallPiece, CustomPiece, FunctionPiece
from antiphon.engines.upstream.words import INVALID
from antiphon.errors import EngineError
from antiphon.machine.arguments import ArgumentReader, MalformedError, Piece
from antiphon.machine.deltas import Delta, ToolCallDelta, ToolCallStart
from antiphon.protocol.json import encode, quoted

__all__ = ["LEGACY_INDEX", "Call", "Calls"]

LEGACY_INDEX: Final = -1
"""The index of a call that came as `function_call`."""

_INPUT: Final = ("input",)
_NOTHING: Final = "{}"


class Call:
    """One call. `tools` are those that were declared, each with whether it is a custom tool."""

    def __init__(self, tools: Mapping[str, bool], id: str) -> None:  # noqa: A002 - the wire's name
        self.id = id
        self.name = ""
        self._tools = tools
        self._text: list[str] = []
        self._told = 0
        self._reader: ArgumentReader | None = ArgumentReader()
        self._read = 0
        self._input: _Input | None = None
        self._plain = False
        self._started = False
        self._closed = False

    @property
    def arguments(self) -> str:
        """All that has come of the arguments."""
        return "".join(self._text)

    @property
    def placeholder(self) -> bool:
        """Whether the arguments are an empty object so far, which may stand for what is to come."""
        return not self._plain and len(self._text) == 1 and self._text[0].strip() == _NOTHING

    @property
    def whole(self) -> bool:
        """Whether the arguments are complete JSON; plain input may always go on."""
        if self._plain:
            return False
        if self._reader is not None and self._read < len(self._text):
            text = "".join(self._text[self._read :])
            self._read = len(self._text)
            try:
                self._reader.feed(text)
            except MalformedError:
                self._reader = None
        return self._reader is not None and self._reader.ended

    def add(self, piece: FunctionPiece, *, plain: bool = False) -> None:
        """More of the call; what is `plain` is the input of a custom tool as it stands.

        Raises:
            EngineError: it has ended already.
        """
        self._add_name(piece.name or "")
        self._plain = self._plain or plain
        text = _argument_text(piece.arguments)
        if not text:
            return
        if self._closed:
            if not text.strip() or text == self.arguments:
                return
            raise EngineError("The upstream went on with a call that had ended.", code="invalid_tool_call")
        if self.placeholder and text.lstrip().startswith("{"):
            self._text.clear()
            self._reader, self._read = ArgumentReader(), 0
        self._text.append(text)

    def take(self) -> list[Delta]:
        """What can be told of it that was not told yet."""
        if not self._text or self.placeholder:
            return []
        new = "".join(self._text[self._told :])
        self._told = len(self._text)
        return [*self._start(), *self._pieces(new)]

    def close(self, *, cut: bool = False) -> list[Delta]:
        """The rest, at the end of the call; `cut` says that it need not be complete.

        Raises:
            EngineError: it is a call of nothing, or of a custom tool whose input cannot be read.
        """
        deltas = self._start()
        deltas += self._pieces("".join(self._text[self._told :]))
        self._told = len(self._text)
        self._closed = True
        if cut:
            return deltas
        if self._input is not None:
            self._input.end()
        elif not (self._plain or self.arguments.strip()):
            deltas.append(ToolCallDelta(_NOTHING))
        return deltas

    def _add_name(self, piece: str) -> None:
        joined = self.name + piece
        if not piece or self._started:
            return
        if joined in self._tools or not self.name:
            self.name = joined
        elif self.name not in self._tools and piece != self.name:
            # A name that grows from piece to piece, or one that comes in parts.
            self.name = piece if piece.startswith(self.name) else joined

    def _start(self) -> list[Delta]:
        if self._started:
            return []
        if not self.name:
            raise EngineError("The upstream made a call that names no tool.", code="invalid_tool_call")
        self._started = True
        custom = self._tools.get(self.name, False)
        if custom and not self._plain:
            self._input = _Input(self.name)
        return [ToolCallStart(self.name, custom=custom)]

    def _pieces(self, text: str) -> list[Delta]:
        if self._input is not None:
            text = self._input.feed(text)
        return [ToolCallDelta(text)] if text else []


class _Input:
    """The input of a custom tool out of the arguments of the function that it was shown as; also as it stands."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._held = ""
        self._reader: ArgumentReader | None = None
        self._raw = False
        self._found = False

    def feed(self, text: str) -> str:
        if self._raw:
            return text
        if self._reader is None:
            self._held += text
            visible = self._held.lstrip()
            if not visible:
                return ""
            text, self._held = self._held, ""
            if visible[0] != "{":
                self._raw = True
                return text
            self._reader = ArgumentReader()
        try:
            found = [piece for piece in self._reader.feed(text) if piece.path == _INPUT]
        except MalformedError:
            raise self._fault() from None
        self._found = self._found or bool(found)
        return "".join(piece.text for piece in found if isinstance(piece, Piece))

    def end(self) -> None:
        if self._reader is not None and not (self._reader.ended and self._found):
            raise self._fault()

    def _fault(self) -> EngineError:
        return EngineError(
            f"The model's call of '{quoted(self._name)}' is not valid: its input cannot be read.",
            code="invalid_tool_call",
        )


class Calls:
    """The calls of one turn, in the order in which they began."""

    def __init__(self, tools: Mapping[str, bool]) -> None:
        self._tools = tools
        self._last: Call | None = None
        self._by_index: dict[int, Call] = {}
        self._by_id: dict[str, Call] = {}

    def add(self, pieces: Sequence[CallPiece]) -> list[Call]:
        """Take pieces in; the calls that begin with them.

        Raises:
            EngineError: a call goes on that had ended.
        """
        begun: list[Call] = []
        touched: list[Call] = []
        for piece in pieces:
            function = piece.function or _as_function(piece.custom)
            call = self._of(piece, function, touched)
            if call is None:
                call = Call(self._tools, piece.id or "")
                begun.append(call)
            touched.append(call)
            self._last = call
            if piece.index is not None:
                self._by_index[piece.index] = call
            if piece.id:
                call.id = call.id or piece.id
                self._by_id.setdefault(piece.id, call)
            call.add(function, plain=piece.custom is not None)
        return begun

    def _of(self, piece: CallPiece, function: FunctionPiece, touched: Sequence[Call]) -> Call | None:
        """The call that a piece belongs to; None where it begins one. `touched` are those of its own list."""
        name = function.name or ""
        if piece.index is not None:
            last = self._by_index.get(piece.index)
            if last is None or not name:
                return last
            if piece.id and last.id:
                return last if piece.id == last.id else None
            return None if last in touched or _is_another(last, function) else last
        if piece.id:
            found = self._by_id.get(piece.id)
            return found if found is not None or name else self._last
        last = self._last
        if last is None or not name:
            return last
        if last in touched or _is_another(last, function):
            return None
        if last.name == name or last.name + name in self._tools:
            return last
        in_parts = not last.arguments and last.name not in self._tools and name not in self._tools
        return last if in_parts else None


def _as_function(custom: CustomPiece | None) -> FunctionPiece:
    return FunctionPiece() if custom is None else FunctionPiece(custom.name, custom.input)


def _is_another(last: Call, function: FunctionPiece) -> bool:
    """Whether arguments with a name beside them are those of a further call."""
    return last.whole and not last.placeholder and bool(_argument_text(function.arguments))


def _argument_text(arguments: Any) -> str:
    if arguments is None:
        return ""
    if isinstance(arguments, str):
        return arguments
    try:
        return encode(arguments).decode()
    except RecursionError:
        raise EngineError("The upstream made a call whose arguments are nested too deeply.", code=INVALID) from None
