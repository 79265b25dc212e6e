"""The dialect of gpt-oss, harmony: messages in channels, of thinking, of text and of calls. Pure.

Thinking is a message in the channel `analysis`, an answer one in `final`, and a call one to its tool:
`<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from antiphon.machine.deltas import ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart
from antiphon.prompt.arguments import bare_input
from antiphon.prompt.dialects.arguments import ArgumentsReader
from antiphon.prompt.dialects.base import callable_tools
from antiphon.prompt.dialects.harmony_messages import (
    CALL,
    CHANNEL,
    CONSTRAIN,
    END,
    MARKERS,
    MESSAGE,
    RETURN,
    START,
    Body,
    Ended,
    Event,
    Header,
    Messages,
)
from antiphon.prompt.dialects.history import one_call_each
from antiphon.prompt.dialects.json_calls import apart_tools
from antiphon.prompt.dialects.json_rules import arguments_of, in_row, tools_to_call
from antiphon.prompt.dialects.native import NativeDialect
from antiphon.prompt.dialects.parser import Form, FormParser, json_call
from antiphon.prompt.dialects.pieces import Piece, joined
from antiphon.prompt.lark import Lark
from antiphon.prompt.prompt import ChatMessage, Prompt
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = ["Harmony", "HarmonyParser", "HarmonySplitter"]

_ANALYSIS: Final = "analysis"
_TEXT: Final = "text"
_CALL: Final = "call"
_PREFIX: Final = "functions."
_OPENING: Final = f"to={_PREFIX}"
_GAP: Final = "\n\n"
_NEXT: Final = f"{START}assistant"
_MARKER_REGEX: Final = "|".join(marker.replace("|", "\\|") for marker in MARKERS)
_APART: Final = "\nWrite the input as it is, not as JSON."


class Harmony(NativeDialect):
    """Channels are always told apart, also where no tool may be called."""

    name = "harmony"
    markers = ()
    always = MARKERS
    openings = (_OPENING,)
    binds_lark = True

    @staticmethod
    def fits(template: str, caps: Mapping[str, bool]) -> bool:
        """Whether the template writes messages in channels."""
        return all(marker in template for marker in (START, CHANNEL, MESSAGE))

    def arrange(self, prompt: Prompt) -> tuple[list[ChatMessage], list[dict[str, Any]]]:
        """The messages with one call in each, and the tools to show.

        Thinking that led to a call is its text: the template shows the text beside a call in the channel of thinking,
        it takes no two of them, and llama.cpp hands it no message's `thinking`.
        """
        _, tools = super().arrange(prompt)
        apart = apart_tools(prompt)
        for tool in tools:
            if tool["function"]["name"] in apart:
                tool["function"]["description"] += _APART
                tool["function"]["parameters"] = {"type": "object", "properties": {}}
        messages = one_call_each(prompt.messages, text_apart=False)
        return [_with_one_text(message) for message in messages], tools

    def parser(self, prompt: Prompt) -> HarmonyParser:
        """A parser of the answer without thinking."""
        return HarmonyParser(callable_tools(prompt), apart_tools(prompt))

    def splitter(self, markers: tuple[str, str], *, primed: bool) -> HarmonySplitter:
        """A splitter of one answer; thinking has a channel here, whatever the template may say of markers."""
        return HarmonySplitter()

    def closing(self, markers: tuple[str, str], *, again: bool) -> str:
        """The end of the message of thinking and the beginning of the next one; the second time, of the answer."""
        return f"{END}{_NEXT}{CHANNEL}final{MESSAGE}" if again else f"{END}{_NEXT}"

    def thought(self, lark: Lark, budget: int | None = None) -> str | None:
        """The name of a rule for a message of thinking and the beginning of the next one."""
        begin = lark.marked(f"{CHANNEL}{_ANALYSIS}{MESSAGE}")
        text = f"/(?s:.*)/ & ~/(?s:.*)({_MARKER_REGEX})(?s:.*)/"
        if lark.has_token(END):
            thought = f"{lark.bounded('thinking', lark.rule('ANALYSIS', text), budget)} {lark.marked(END)}"
        else:
            thought = lark.rule("ANALYSIS", f"({text}) {lark.literal(END)}")
        return lark.rule("analysis", f"{begin} {thought} {lark.marked(_NEXT)}")

    def framed(self, lark: Lark, body: str) -> str:
        """The body of a rule for an answer in the channel for it."""
        # What ends a turn for llguidance is not what ends one for llama.cpp here, so it is written out.
        last = f" {lark.marked(RETURN)}" if lark.has_token(RETURN) else ""
        return f"{lark.marked(f'{CHANNEL}final{MESSAGE}')} {body}{last}"

    def calls(self, prompt: Prompt, lark: Lark, *, opened: str = "") -> str | None:
        """The rule for one turn of calls; see `Dialect.calls`."""
        tools = tools_to_call(prompt)
        if not tools:
            return None
        heads = (f"{CHANNEL}commentary {_OPENING}", f" {CONSTRAIN}json{MESSAGE}")
        apart = apart_tools(prompt)
        contents = [_content(tool, place, lark, apart) for place, tool in enumerate(tools)]
        call = lark.rule("call", _calls_of(tools, contents, lark, apart, *heads))
        first = call
        if opened:
            # The model may have named the tool before the channel.
            later = _calls_of(tools, contents, lark, apart, "", f"{CHANNEL}commentary {CONSTRAIN}json{MESSAGE}")
            first = lark.rule("opened", f"{_calls_of(tools, contents, lark, apart, '', heads[1])} | {later}")
        row = in_row(prompt, lark, first, call, lark.marked(END + _NEXT))
        return lark.rule("calls", f"{row} {lark.marked(CALL)}")


def _content(tool: FunctionTool | CustomTool, place: int, lark: Lark, apart: Collection[str]) -> str:
    if isinstance(tool, CustomTool) and tool.name in apart:
        return lark.rule(f"input{place}", bare_input(tool))
    return arguments_of(tool, place, lark)


def _calls_of(
    tools: Sequence[FunctionTool | CustomTool],
    contents: Sequence[str],
    lark: Lark,
    apart: Collection[str],
    before: str,
    behind: str,
) -> str:
    calls: list[str] = []
    for tool, content in zip(tools, contents, strict=True):
        end = behind.replace("json", "code").replace(CONSTRAIN, "") if tool.name in apart else behind
        calls.append(f"{lark.marked(f'{before}{tool.name}{end}')} {content}")
    return lark.any_of(calls)


def _with_one_text(message: ChatMessage) -> ChatMessage:
    if not (message.tool_calls and message.reasoning):
        return message
    texts = [text for text in (message.reasoning, message.text()) if text]
    return msgspec.structs.replace(message, content=_GAP.join(texts), reasoning="")


class HarmonySplitter:
    """Takes the messages of thinking out of an answer; the others go on as they are written.

    Thinking is trimmed, and an empty line parts what was thought at two times. So it does with two texts.
    """

    def __init__(self) -> None:
        self._messages = Messages()
        self._kind = _TEXT
        self._last = ""
        self._gap = ""
        self._fresh: bool = False
        self._ended: bool = False
        self._passed: bool = False

    @property
    def thinking(self) -> bool:
        """Whether the answer is in thinking now."""
        return self._kind == _ANALYSIS

    def feed(self, text: str) -> list[ReasoningDelta | TextDelta]:
        """The deltas that can be told apart with this text."""
        return [delta for event in self._messages.feed(text) for delta in self._deltas(event)]

    def finish(self) -> list[ReasoningDelta | TextDelta]:
        """What was held back, at the end of the answer."""
        return [delta for event in self._messages.finish() for delta in self._deltas(event)]

    def _deltas(self, event: Event) -> list[ReasoningDelta | TextDelta]:
        if isinstance(event, Header):
            return self._header(event)
        if isinstance(event, Ended):
            kind, self._kind = self._kind, _TEXT
            self._ended = True
            self._passed = False
            return [] if kind == _ANALYSIS else [TextDelta(event.marker)]
        if self._kind == _ANALYSIS:
            return self._thought(event.text)
        return self._said(event.text)

    def _header(self, header: Header) -> list[ReasoningDelta | TextDelta]:
        if header.channel == _ANALYSIS and not header.recipient.startswith(_PREFIX):
            self._kind = _ANALYSIS
        else:
            self._kind = _CALL if header.recipient else _TEXT
        self._gap = _GAP if self._kind == self._last else ""
        # Whitespace around thinking, and between messages, is nobody's.
        self._fresh = self._kind == _ANALYSIS or (self._ended and not header.text)
        if self._kind == _CALL:
            self._last = ""
        was_passed = self._passed
        self._passed = bool(header.text) and self._kind != _ANALYSIS
        if self._passed:
            return [TextDelta(header.text)]
        # A message that goes on to the parser ends where one begins of which it is told nothing.
        return [TextDelta(END)] if was_passed else []

    def _said(self, text: str) -> list[ReasoningDelta | TextDelta]:
        text = text.lstrip() if self._fresh else text
        if not text:
            return []
        self._fresh = False
        if self._kind == _TEXT and not text.isspace():
            self._last = _TEXT
        gap, self._gap = self._gap, ""
        return [TextDelta(gap + text)]

    def _thought(self, text: str) -> list[ReasoningDelta | TextDelta]:
        text = text.lstrip() if self._fresh else text
        kept = text.rstrip()
        if not kept:
            self._gap += text
            return []
        said = self._gap + kept
        self._gap = text[len(kept) :]
        self._fresh = False
        self._last = _ANALYSIS
        return [ReasoningDelta(said)]


class HarmonyParser:
    """The messages of one answer but those of thinking. `tools` maps each declared name to whether it is a custom tool.

    The input of the tools in `apart` stands as it is; so may that of any custom tool.
    """

    def __init__(self, tools: Mapping[str, bool], apart: Collection[str]) -> None:
        self._tools = tools
        self._apart = apart
        self._messages = Messages()
        self._text = self._new_text()
        self._behind_call = False
        self._tool: str | None = None
        self._arguments: ArgumentsReader | None = None
        self._lead: list[str] | None = None
        self._complete = False
        self._calls = 0

    @property
    def calls(self) -> int:
        """Calls that are complete."""
        return self._calls + self._text.calls

    @property
    def in_text(self) -> bool:
        """Whether the answer is in text now, not in a call, a header or what may become one."""
        return self._messages.in_content and self._tool is None and self._text.in_text

    def feed(self, text: str) -> list[Piece]:
        """The pieces that can be told apart with this text."""
        return joined([piece for event in self._messages.feed(text) for piece in self._pieces(event)])

    def finish(self) -> list[Piece]:
        """What was held back, at the end of the answer."""
        pieces = [piece for event in self._messages.finish() for piece in self._pieces(event)]
        if self._tool is None:
            pieces += self._text.finish()
        return joined(pieces)

    def _new_text(self) -> FormParser:
        bare = json_call(self._tools)
        return FormParser(self._tools, Form(opens=(), others=MARKERS, call=bare, bare=bare))

    def _pieces(self, event: Event) -> list[Piece]:
        if isinstance(event, Body):
            return self._said(event.text) if self._tool is None else self._argued(event.text)
        if self._tool is not None:
            self._complete_call()
            self._tool = None
            self._behind_call = True
        if isinstance(event, Ended):
            return []
        name = event.recipient.removeprefix(_PREFIX)
        if name not in self._tools:
            return []
        pieces = self._end_text()
        custom = self._tools[name]
        self._tool = name
        self._complete = False
        self._arguments = None if custom else ArgumentsReader(custom=False)
        # The input of a custom tool stands in an object or as it is, which its first character tells.
        self._lead = [] if custom and name not in self._apart else None
        return [*pieces, ToolCallStart(name=name, custom=custom)]

    def _said(self, text: str) -> list[Piece]:
        if self._behind_call:
            text = text.lstrip()
            self._behind_call = not text
        return self._text.feed(text) if text else []

    def _end_text(self) -> list[Piece]:
        """The text before a call, without the whitespace at its end."""
        pieces = self._text.finish()
        last = pieces[-1] if pieces else None
        if isinstance(last, TextDelta):
            text = last.text.rstrip()
            pieces[-1:] = [TextDelta(text)] if text else []
        self._calls += self._text.calls
        self._text = self._new_text()
        return pieces

    def _argued(self, text: str) -> list[Piece]:
        if self._lead is not None:
            self._lead.append(text)
            if not text.strip():
                return []
            text = "".join(self._lead)
            self._lead = None
            if text.lstrip().startswith("{"):
                self._arguments = ArgumentsReader(custom=True)
        if self._arguments is None:
            return [ToolCallDelta(text)]
        if self._arguments.ended:
            return []
        self._arguments.feed(text)
        more = self._arguments.take()
        if self._arguments.ended and not self._arguments.broken:
            self._complete_call()
        return [ToolCallDelta(more)] if more else []

    def _complete_call(self) -> None:
        if not self._complete:
            self._complete = True
            self._calls += 1
