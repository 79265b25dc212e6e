"""What an assistant has said and done, as items for the upstream, those that it ran itself as it knows them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from antiphon.engines.responses.profiles import Profile
from antiphon.prompt.hosted import SENT_ID
from antiphon.prompt.openturn import OWN_CALLS
from antiphon.prompt.prompt import ChatMessage, ToolCall
from antiphon.protocol.hosted import UPSTREAM_ID
from antiphon.protocol.items import CustomToolCall, FunctionCall, Item, Message, RawItem, Reasoning
from antiphon.protocol.json import loads
from antiphon.protocol.parts import OutputText, Refusal

__all__ = ["call_item", "known_ids", "native_items", "raw_item", "thought_item"]

_REFERENCE: Final = "approval_request_id"


def call_item(call: ToolCall, *, custom: bool) -> dict[str, Any]:
    """A call by the name that the upstream was told, as an item."""
    if custom:
        given: Any = loads(call.arguments)
        text = cast("dict[str, Any]", given).get("input", "") if isinstance(given, dict) else call.arguments
        return {"type": "custom_tool_call", "call_id": call.id, "name": call.name, "input": text}
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}


def thought_item(text: str) -> dict[str, Any]:
    """Thinking whose words are known."""
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def native_items(
    message: ChatMessage, profile: Profile, custom: Mapping[str, bool], known: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The items that a turn was made of, in their order; `custom` says of each call whether it is one."""
    calls = {call.id: call for call in message.tool_calls}
    items: list[dict[str, Any]] = []
    given: list[Item] = list(message.items)
    for item in given:
        if isinstance(item, Message):
            text = _text(item)
            if text:
                items.append({"type": "message", "role": "assistant", "content": text})
        elif isinstance(item, Reasoning):
            items += _thought(item, profile, forgotten=not message.reasoning)
        elif isinstance(item, FunctionCall | CustomToolCall):
            items.append(call_item(calls[item.call_id], custom=custom[item.call_id]))
        elif isinstance(item, RawItem):
            call = calls.get(str(item.body.get("call_id") or item.id or ""))
            if call is None or item.type not in OWN_CALLS:
                items.append(raw_item(item, known))
            else:
                items.append(call_item(call, custom=False))
    return items


def raw_item(item: RawItem, known: Mapping[str, str]) -> dict[str, Any]:
    """An item of the upstream's own, under the id that it has there; `known` leads from ids of ours to such.

    What is the server's own is not sent on; an id by which the client knows the item is the upstream's.
    """
    body = {name: value for name, value in item.body.items() if not name.startswith("_")}
    if isinstance(item.body.get(SENT_ID), str):
        body["id"] = item.body[SENT_ID]
    identity = body.pop(UPSTREAM_ID, None)
    if isinstance(identity, str):
        body["id"], _, further = identity.partition(" ")
        if further:
            body[UPSTREAM_ID] = further
    asked = body.get(_REFERENCE)
    if isinstance(asked, str):
        body[_REFERENCE] = known.get(asked, asked)
    return body


def known_ids(messages: Sequence[ChatMessage]) -> dict[str, str]:
    """The ids that an upstream has for items of ours, by ours."""
    found: dict[str, str] = {}
    for message in messages:
        for item in message.items:
            identity: Any = item.body.get(UPSTREAM_ID) if isinstance(item, RawItem) else None
            if isinstance(identity, str) and item.id is not None:
                found[item.id] = identity.partition(" ")[0]
    return found


def _thought(item: Reasoning, profile: Profile, *, forgotten: bool) -> list[dict[str, Any]]:
    """What goes back of a thought; one whose words are not told any more goes back sealed only."""
    sealed = item.encrypted_content
    words = "".join(part.text for part in item.content or ())
    if profile.thoughts == "sealed" and isinstance(sealed, str) and not words:
        summary = [{"type": "summary_text", "text": part.text} for part in item.summary or ()]
        return [{"type": "reasoning", "summary": summary, "encrypted_content": sealed}]
    return [thought_item(words)] if words and profile.thoughts == "text" and not forgotten else []


def _text(item: Message) -> str:
    if isinstance(item.content, str):
        return item.content
    texts = [
        part.refusal if isinstance(part, Refusal) else part.text
        for part in item.content
        if isinstance(part, OutputText | Refusal)
    ]
    return "\n".join(text for text in texts if text)
