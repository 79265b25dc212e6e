"""From items to chat messages, one item at a time.

The builder's state after a response can be kept and continued by the next one, so that a chained turn converts only
its own new items, and the messages of a chain are those of the same history sent inline (law 3).

Rules: developer is system (M4); all system text leads, in order, since templates fail on late or repeated system
messages; thinking goes to the next assistant turn and is dropped if a user or tool turn comes first (M14); images of
tool outputs and of assistant and system messages move to a user message that follows, and files of tool outputs stay
parts until it is known whether they are read as text (M17); an incomplete call is not replayed (issue 2); an opened
compaction item replaces what comes before it, but for system text (issue 3). What a tool gave that ran here is told
as a call and its result, in the turn that made the call (B18); a call that waits for approval is told when it was run
or denied.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon.errors import InvalidRequestError
from antiphon.machine.router import APPLY_PATCH, TOOL_SEARCH
from antiphon.prompt.additions import NO_CHANGE, Configuration, read_leniently
from antiphon.prompt.clienttools import client_call, client_output, screenshot
from antiphon.prompt.growing import grown
from antiphon.prompt.hosted import chunk_ids, denied, elsewhere, hosted_call, hosted_result, is_ours, round_of
from antiphon.prompt.names import flat_name
from antiphon.prompt.openturn import EMPTY_TURN, OWN_CALLS, OWN_OUTPUTS, OpenTurn, closed, hosted_item
from antiphon.prompt.parts import Parts, content_of, render_parts, text_of
from antiphon.prompt.prompt import ChatMessage, ToolCall
from antiphon.prompt.toolbox import AddedTool, merge_added
from antiphon.prompt.toolsearch import told_tools
from antiphon.protocol.hosted import HOSTED_ITEMS
from antiphon.protocol.items import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    Item,
    ItemReference,
    Message,
    RawItem,
    Reasoning,
)
from antiphon.protocol.json import encode, quoted
from antiphon.protocol.parts import ContentPart, InputText

__all__ = [
    "EMPTY",
    "IMAGE_NOTE",
    "CompactedContext",
    "Conversation",
    "MessageBuilder",
    "PromptItem",
    "additions",
    "cut_call",
    "join",
    "media_of",
    "settle",
]

IMAGE_NOTE = "[Image output attached in the next message]"
"""What ends a tool message whose images follow in a user message (M17)."""

_ANSWER = "mcp_approval_response"
_NOTHING: frozenset[str] = frozenset()
_MEDIA_OF_PART = {"image_url": "image", "file": "file", "input_audio": "audio", "video_url": "video"}


class Conversation(Struct, frozen=True):
    """The messages of a part of a history, and what it leaves open for the next part.

    `substance` says whether anything in it counts as input (M6); `media` are the kinds of media it holds. `resets`
    says that its messages replace those of all parts before it; `restored` is the system text that it brings back
    where no part before it has any. A part that is `pinned` is never replaced. `tools` and `settings` are what its
    items add to the requests from there on. `hosted` says that there are turns with items of what an upstream ran,
    `prunes` that results of tools are pruned, and `asked` are the calls that still wait for approval. `evidence` are
    the bodies of its hosted items in full, and of the answers to requests for approval.
    """

    system: tuple[str, ...] = ()
    messages: Sequence[ChatMessage] = ()
    open_turn: OpenTurn = EMPTY_TURN
    media: frozenset[str] = _NOTHING
    substance: bool = False
    resets: bool = False
    restored: tuple[str, ...] = ()
    pinned: bool = False
    tools: tuple[AddedTool, ...] = ()
    settings: Configuration = NO_CHANGE
    hosted: bool = False
    prunes: bool = False
    asked: tuple[ToolCall, ...] = ()
    evidence: tuple[dict[str, Any], ...] = ()


EMPTY = Conversation()


class CompactedContext(Struct, frozen=True):
    """What a compaction item opens to; it stands in its place among the items.

    `messages` tell what came before it; `system` is the system text that was there.
    """

    system: tuple[str, ...]
    messages: tuple[ChatMessage, ...]


PromptItem = Item | CompactedContext
"""What a prompt is made from: items as they came, and opened compaction items."""


class MessageBuilder:
    """Converts items; starts from what an earlier part of the history left open."""

    def __init__(self, previous: Conversation = EMPTY) -> None:
        self._system: list[str] = []
        self._messages: list[ChatMessage] = []
        self._turn = previous.open_turn
        self._media: set[str] = set()
        self._substance = False
        self._resets = False
        self._restored: tuple[str, ...] = ()
        self._tools: list[AddedTool] = []
        self._settings = NO_CHANGE
        self._searches: list[str] = []
        self._hosted = False
        self._prunes = False
        self._asked = list(previous.asked)
        self._evidence: list[dict[str, Any]] = []

    def add(self, items: Iterable[PromptItem]) -> None:
        """Take items in, in order.

        Raises:
            InvalidRequestError: an image part holds neither a URL nor a file id.
        """
        for item in items:
            self._add(item)

    def close(self) -> None:
        """Leave no assistant turn open: what comes after is no part of it."""
        self._flush()

    def conversation(self) -> Conversation:
        """What the items so far give; the builder must not be used after."""
        return Conversation(
            tuple(self._system),
            tuple(self._messages),
            self._turn,
            frozenset(self._media),
            self._substance,
            self._resets,
            self._restored,
            tools=tuple(self._tools),
            settings=self._settings,
            hosted=self._hosted,
            prunes=self._prunes,
            asked=tuple(self._asked),
            evidence=tuple(self._evidence),
        )

    def _add(self, item: PromptItem) -> None:
        if isinstance(item, CompactedContext):
            self._reset(item)
        elif isinstance(item, Message):
            self._message(item)
        elif isinstance(item, Reasoning):
            self._reasoning(item)
        elif isinstance(item, FunctionCall):
            if item.status != "incomplete":
                self._call(item, _told_call(item, item.arguments))
        elif isinstance(item, CustomToolCall):
            if item.status != "incomplete":
                self._call(item, _told_call(item, encode({"input": item.input}).decode()))
        elif isinstance(item, FunctionCallOutput | CustomToolCallOutput):
            self._output(item.call_id or "", item.output)
        elif isinstance(item, RawItem):
            self._raw(item)
        else:
            raise unresolved_reference(item)

    def _reset(self, item: CompactedContext) -> None:
        if not self._system and not self._restored:
            self._restored = item.system
        self._messages = list(item.messages)
        self._media = set(media_of(item.messages))
        self._turn = EMPTY_TURN
        self._resets = self._substance = True

    def _message(self, item: Message) -> None:
        content = item.content
        parts: Sequence[ContentPart] = [InputText(content)] if isinstance(content, str) else content
        if item.role == "assistant":
            self._assistant(item, parts)
            return
        rendered = self._rendered(parts)
        if item.role == "user":
            self._flush()
            if rendered:
                self._messages.append(ChatMessage("user", content_of(rendered)))
            return
        text = text_of(rendered)
        if text:
            self._system.append(text)
        media = [part for part in rendered if part["type"] != "text"]
        if media:
            self._flush()
            self._messages.append(ChatMessage("user", media))

    def _assistant(self, item: Message, parts: Sequence[ContentPart]) -> None:
        rendered = self._rendered(parts)
        text = text_of(rendered)
        images = tuple(part for part in rendered if part["type"] != "text")
        turn = self._turn
        if turn.calls or turn.images:
            self._flush()
            turn = self._turn
        if text or images:
            turn = replace(turn, text=(*turn.text, text) if text else turn.text, calls=(), images=images)
            self._turn = turn.with_item(item)

    def _rendered(self, parts: Sequence[ContentPart]) -> Parts:
        rendered, media, substance = render_parts(parts)
        self._media |= media
        self._substance = self._substance or substance
        return rendered

    def _reasoning(self, item: Reasoning) -> None:
        content = item.content
        self._substance = True
        text = "" if content is UNSET or content is None else "\n".join(part.text for part in content)
        sealed = not text and isinstance(item.encrypted_content, str)
        if not text and not sealed:
            return
        if self._turn.begun:
            self._flush()
        turn = self._turn.with_item(item, sealed=sealed)
        before = turn.reasoning
        self._turn = replace(turn, reasoning=f"{before}\n{text}" if before and text else before or text)

    def _call(self, item: Item, call: ToolCall, *, hosted: bool = False) -> None:
        self._substance = True
        turn = self._turn.with_item(item, hosted=hosted)
        self._turn = replace(turn, calls=(*turn.calls, call))

    def _output(self, call_id: str, output: str | Sequence[ContentPart], items: Sequence[Item] = ()) -> None:
        self._substance = True
        self._flush()
        if isinstance(output, str):
            self._messages.append(ChatMessage("tool", output, tool_call_id=call_id, items=items))
            return
        rendered = self._rendered(output)
        images = [part for part in rendered if part["type"] == "image_url"]
        others = [part for part in rendered if part["type"] != "image_url"]
        if images:
            others.append({"type": "text", "text": IMAGE_NOTE})
        self._messages.append(ChatMessage("tool", content_of(others), tool_call_id=call_id))
        if images:
            self._messages.append(ChatMessage("user", images))

    def _raw(self, item: RawItem) -> None:
        """Calls and outputs of tools that others ran are told to the model as calls; other items are left out.

        What an item adds to later requests is noted.
        """
        body = item.body
        tools, settings = read_leniently(item)
        self._tools += tools
        self._settings = self._settings.then(settings)
        if item.type in HOSTED_ITEMS or item.type == _ANSWER:
            self._evidence.append(body)
        if is_ours(item):
            self._ran_here(item.type, body)
            return
        if elsewhere(item):
            self._turn = self._turn.with_item(item, hosted=True)
            self._ran_here(item.type, body, away=True)
            return
        if item.type == _ANSWER and self._answered(item):
            return
        call_id = str(body.get("call_id") or item.id or "")
        if item.type == "tool_search_output":
            if body.get("call_id") is None:
                call_id = self._searches.pop(0) if self._searches else ""
            self._output(call_id, told_tools(body.get("tools") or ()))
        elif item.type.endswith("_output"):
            seen = screenshot(item.type, body)
            text = client_output(item.type, body) if seen is None else IMAGE_NOTE
            self._output(call_id, text, () if item.type in OWN_OUTPUTS else (item,))
            if seen is not None:
                # An upstream that takes the item sees the image in it.
                self._messages.append(ChatMessage("user", self._rendered([seen]), items=(item,)))
        elif item.type.endswith("_call") and not cut_call(item):
            self._substance = True
            if item.type == TOOL_SEARCH and body.get("call_id") is None:
                # Nothing refers to it but its place, so that its id need only be the same wherever it is told.
                call_id = f"search_{hashlib.sha256(encode(body.get('arguments'))).hexdigest()[:16]}"
                self._searches.append(call_id)
            elif "call_id" not in body:
                self._turn = self._turn.with_item(item, hosted=True)
                return
            call = ToolCall(call_id, *client_call(item.type, body))
            self._call(item, call, hosted=item.type not in OWN_CALLS)
        elif hosted_item(item.type):
            self._substance = True
            self._turn = self._turn.with_item(item, hosted=True)

    def _ran_here(self, kind: str, body: Mapping[str, Any], *, away: bool = False) -> None:
        """An item of a tool that ran here, or `away` from here; what a server lists of its tools is told as tools."""
        self._substance = True
        if kind == "mcp_list_tools":
            return
        call = replace(hosted_call(body), elsewhere=away)
        if kind == "mcp_approval_request":
            self._asked.append(call)
            return
        approval = body.get("approval_request_id")
        self._asked = [waiting for waiting in self._asked if waiting.id != approval]
        prunes = kind == "prune_context_call"
        self._prunes = self._prunes or prunes
        made = round_of(body)
        if None not in (made, self._turn.round) and made != self._turn.round:
            self._flush()
        kept = body if prunes or chunk_ids(body) else None
        self._result(call, hosted_result(body), kept)
        self._turn = replace(self._turn, round=made)

    def _answered(self, item: RawItem) -> bool:
        """Whether a call of a tool that runs here was approved or denied by this; one that was denied is told so."""
        body = item.body
        answered = body.get("approval_request_id")
        waiting = next((call for call in self._asked if call.id == answered), None)
        if waiting is None:
            return False
        self._substance = True
        if waiting.elsewhere:
            self._turn = self._turn.with_item(item, hosted=True)
        if not body.get("approve"):
            self._asked.remove(waiting)
            self._result(waiting, denied(body.get("reason")))
        return True

    def _result(self, call: ToolCall, text: str, body: Mapping[str, Any] | None = None) -> None:
        if call.elsewhere:
            self._turn = replace(self._turn, calls=(*self._turn.calls, call))
        else:
            self._call(FunctionCall(call.id, call.name, call.arguments), call)
        result = ChatMessage("tool", text, tool_call_id=call.id, body=body)
        self._turn = replace(self._turn, results=(*self._turn.results, result))

    def _flush(self) -> None:
        """Close the assistant turn; thinking that no assistant turn followed is dropped (M14)."""
        turn = self._turn
        if turn.told:
            self._messages.extend(closed(turn))
            self._hosted = self._hosted or turn.hosted
        self._turn = EMPTY_TURN


def join(parts: Sequence[Conversation]) -> Conversation:
    """Consecutive parts of a history as one; there must be at least one."""
    resets = [index for index, part in enumerate(parts) if part.resets]
    told = parts[resets[-1] :] if resets else parts
    system: list[str] = []
    restored: tuple[str, ...] = ()
    for part in parts:
        if not system and not restored:
            restored = part.restored
        system += part.system
    return Conversation(
        system=tuple(system),
        messages=grown(*(part.messages for part in told)),
        open_turn=parts[-1].open_turn,
        media=_NOTHING.union(*(part.media for part in told)),
        substance=any(part.substance for part in told),
        resets=bool(resets),
        restored=restored,
        tools=merge_added(part.tools for part in parts),
        settings=reduce(Configuration.then, (part.settings for part in parts)),
        hosted=any(part.hosted for part in told),
        prunes=any(part.prunes for part in told),
        asked=parts[-1].asked,
        evidence=tuple(body for part in parts for body in part.evidence),
    )


def settle(parts: Sequence[Conversation]) -> list[Conversation]:
    """The parts that a model is told: without what a later one replaces, and with the system text that it restores."""
    if not any(part.resets for part in parts):
        return list(parts)
    whole = join([part for part in parts if not part.pinned])
    told = Conversation(
        system=(*whole.restored, *whole.system),
        messages=whole.messages,
        open_turn=whole.open_turn,
        media=whole.media,
        substance=whole.substance,
        tools=whole.tools,
        settings=whole.settings,
        hosted=whole.hosted,
        prunes=whole.prunes,
        asked=whole.asked,
        evidence=whole.evidence,
    )
    return [*(part for part in parts if part.pinned), told]


def media_of(messages: Iterable[ChatMessage]) -> frozenset[str]:
    """The kinds of media that messages hold."""
    kinds: set[str] = set()
    for message in messages:
        if not isinstance(message.content, str):
            kinds |= {_MEDIA_OF_PART[kind] for part in message.content if (kind := part.get("type")) in _MEDIA_OF_PART}
    return frozenset(kinds)


def additions(parts: Iterable[Conversation]) -> tuple[tuple[AddedTool, ...], Configuration]:
    """The tools and the settings that the parts of a history add to a request."""
    told = [part for part in parts if part.tools or part.settings is not NO_CHANGE]
    if not told:
        return (), NO_CHANGE
    return merge_added(part.tools for part in told), reduce(
        Configuration.then, (part.settings for part in told), NO_CHANGE
    )


def cut_call(item: RawItem) -> bool:
    """Whether a call was cut; a patch that was says that it is in progress, since it has no other word for it."""
    status = item.body.get("status")
    return status == "incomplete" or (item.type == APPLY_PATCH and status == "in_progress")


def unresolved_reference(item: ItemReference) -> InvalidRequestError:
    """The 400 for a reference to an item that is not stored in this scope."""
    return InvalidRequestError(f"Item with id '{quoted(item.id)}' not found.", param="input", code="item_not_found")


def _told_call(item: FunctionCall | CustomToolCall, arguments: str) -> ToolCall:
    namespace = item.namespace or None
    made = namespace not in (None, item.name)
    return ToolCall(item.call_id, flat_name(namespace, item.name), arguments, made)
