"""The messages of a conversation as the input items of a request (E4 to E11, E19, E21 to E23)."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET

from antiphon.client.context import (
    APPROVAL_REQUEST,
    ApprovalPart,
    Context,
    FilePart,
    ImagePart,
    Message,
    Part,
    ProviderBlock,
    ReasoningDetail,
    TextPart,
    ThinkingPart,
    ToolCall,
)
from antiphon.client.errors import ContextError
from antiphon.client.loose import as_str
from antiphon.client.profiles import Profile

__all__ = ["after_response", "encode_messages", "encode_tool_outputs", "last_response_id", "output_text"]

Item = dict[str, Any]

_PHASES: Final = ("commentary", "final_answer")
_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


def last_response_id(context: Context) -> str | None:
    """The id of the last answer in the conversation: what the next request may go on from (E19)."""
    for message in reversed(context.messages):
        if message.role == "assistant" and message.metadata.response_id:
            return message.metadata.response_id
    return None


def after_response(context: Context, response_id: str | None) -> list[Message]:
    """The messages after that answer: what is before it, the endpoint has. All of them where it is not there."""
    for place in range(len(context.messages) - 1, -1, -1):
        message = context.messages[place]
        if response_id and message.role == "assistant" and message.metadata.response_id == response_id:
            return context.messages[place + 1 :]
    return context.messages


def encode_messages(
    messages: Sequence[Message], profile: Profile, *, replay: bool, calls: Mapping[str, str] | None = None
) -> list[Item]:
    """The items of the messages; `replay` sends reasoning and compactions back too (E19, E21, E22).

    `calls` are the types of calls by their ids, where the messages that made them are not among these.

    Raises:
        ContextError: a file is of a kind that the endpoint does not take, or nobody knows what kind it is.
    """
    known = {**(calls or {}), **call_types(messages)}
    items: list[Item] = []
    for message in messages:
        if message.role == "tool":
            items += _tool_result(message, profile, known)
        elif message.role == "assistant":
            items += _assistant(message, profile, replay=replay)
        elif content := _content(message.content, profile, "input_text"):
            items.append({"role": message.role, "content": content})
    return items


def call_types(messages: Iterable[Message]) -> dict[str, str]:
    """The type of each call that the messages make, by its id."""
    return {call.id: call.type for message in messages for call in message.tool_calls}


def encode_tool_outputs(outputs: Iterable[Mapping[str, Any]] | None, calls: Mapping[str, str]) -> list[Item]:
    """Results that are given beside the context: mappings with `call_id` and `output` (E11)."""
    return [
        _output(str(output["call_id"]), output.get("output"), calls)
        for output in outputs or ()
        if output.get("call_id")
    ]


def output_text(value: Any) -> str:
    """The result of a call as text: a string as it is, anything else as JSON, and what is not JSON in its own words."""
    if isinstance(value, str):
        return value
    own = getattr(value, "model_dump", None)
    try:
        return msgspec.json.encode(own(mode="json") if callable(own) else value).decode()
    except (TypeError, ValueError):
        return str(value)


def _tool_result(message: Message, profile: Profile, calls: Mapping[str, str]) -> list[Item]:
    if message.tool_call_id is None:
        return [_approval(part) for part in message.content if isinstance(part, ApprovalPart)]
    if any(isinstance(part, ImagePart | FilePart) for part in message.content):
        content = _content(message.content, profile, "input_text")
        if message.output is not UNSET:
            content.insert(0, {"type": "input_text", "text": output_text(message.output)})
        return [_output(message.tool_call_id, content, calls, parts=True)]
    value = message.text if message.output is UNSET else message.output
    return [_output(message.tool_call_id, value, calls)]


def _approval(part: ApprovalPart) -> Item:
    item: Item = {
        "type": "mcp_approval_response",
        "approval_request_id": part.request_id,
        "approve": part.approve,
    }
    if part.reason is not None:
        item["reason"] = part.reason
    return item


def _output(call_id: str, value: Any, calls: Mapping[str, str], *, parts: bool = False) -> Item:
    """The item of a result. Results of shells and the like have a shape of their own, and go as they are."""
    kind = calls.get(call_id, "function_call")
    as_it_is = parts or kind not in ("function_call", "custom_tool_call")
    return {"type": f"{kind}_output", "call_id": call_id, "output": value if as_it_is else output_text(value)}


def _assistant(message: Message, profile: Profile, *, replay: bool) -> list[Item]:
    kept = message.metadata.responses_replay
    if replay and kept is not None and _is_own(kept.provider, profile):
        return [dict(item) for item in kept.items]
    items = _said(message, profile, replay=replay)
    calls = [_call(call) for call in message.tool_calls if not call.builtin]
    if kept is not None:
        # What we approve has to be there, whoever is told.
        calls += [dict(item) for item in kept.items if item.get("type") == APPROVAL_REQUEST]
    if not replay:
        return items + calls
    # A compaction stands for all that was before it, reasoning too (E22).
    leading = next((place for place, item in enumerate(items) if item.get("type") != "compaction"), len(items))
    return items[:leading] + _reasoning(message.reasoning_details, profile) + items[leading:] + calls


def _said(message: Message, profile: Profile, *, replay: bool) -> list[Item]:
    """What an assistant said, as messages with their phases (E23), and compactions in their places."""
    metadata = message.metadata
    blocks = any(isinstance(part, ProviderBlock) for part in message.content)
    if not blocks and any(item.phase in _PHASES for item in metadata.phase_items):
        said = [item for item in metadata.phase_items if item.text]
        return [_message([_text(item.text, "output_text")], profile, item.phase) for item in said]
    items: list[Item] = []
    for (is_block, phase), group in groupby(message.content, key=_group):
        parts = list(group)
        if is_block:
            items += [block for part in parts if replay and (block := _block(part, profile)) is not None]
        elif content := _content(parts, profile, "output_text"):
            items.append(_message(content, profile, phase or (metadata.phase if not blocks else None)))
    return items


def _group(part: Part) -> tuple[bool, str | None]:
    phase = as_str(part.metadata.get("phase")) if isinstance(part, TextPart) else None
    return isinstance(part, ProviderBlock), phase if phase in _PHASES else None


def _message(content: list[Item], profile: Profile, phase: str | None) -> Item:
    plain = profile.plain_assistant_text and all(part["type"] == "output_text" for part in content)
    item: Item = {
        "role": "assistant",
        "content": "".join(str(part["text"]) for part in content) if plain else content,
    }
    if phase in _PHASES:
        item["phase"] = phase
    return item


def _block(part: Part, profile: Profile) -> Item | None:
    if isinstance(part, ProviderBlock) and part.block_type == "compaction" and _is_own(part.provider, profile):
        return dict(part.data)
    return None


def _is_own(provider: str | None, profile: Profile) -> bool:
    return profile.replays and provider == profile.name


def _reasoning(details: Iterable[ReasoningDetail], profile: Profile) -> list[Item]:
    """The reasoning items of this provider (E21); `summary` is always there."""
    items: list[Item] = []
    for detail in sorted(details, key=lambda detail: detail.index):
        if not _is_own(detail.provider, profile):
            continue
        item: Item = {"type": "reasoning"}
        if detail.provider_data.get("id"):
            item["id"] = detail.provider_data["id"]
        if detail.signature is not None:
            item["encrypted_content"] = detail.signature
        summary = detail.provider_data.get("summary")
        if not isinstance(summary, list):
            summary = [{"type": "summary_text", "text": detail.text}] if detail.text else []
        item["summary"] = cast("list[Any]", summary)
        items.append(item)
    return items


def _call(call: ToolCall) -> Item:
    item: Item = {"type": call.type, "call_id": call.id}
    if call.type == "function_call":
        item |= {"name": call.name, "arguments": call.arguments}
    elif call.type == "custom_tool_call":
        item |= {"name": call.name, "input": call.arguments}
    else:
        try:
            item |= msgspec.json.decode(call.arguments, type=dict[str, Any])
        except msgspec.DecodeError:
            raise ContextError(f"The arguments of the call '{call.id}' of type '{call.type}' are not JSON.") from None
        if "status" in call.metadata:
            item["status"] = call.metadata["status"]
    for field in ("namespace", "caller"):
        if call.metadata.get(field) is not None:
            item[field] = call.metadata[field]
    return item


def _content(parts: Iterable[Part], profile: Profile, text_type: str) -> list[Item]:
    return [item for part in parts if (item := _part(part, profile, text_type)) is not None]


def _part(part: Part, profile: Profile, text_type: str) -> Item | None:
    if isinstance(part, ThinkingPart | ProviderBlock | ApprovalPart):
        return None
    if isinstance(part, TextPart):
        item = _text(part.text, text_type)
    elif isinstance(part, ImagePart):
        item = _image(part)
    else:
        item = _file(part, profile)
    marker = part.metadata.get("prompt_cache_breakpoint")
    if marker is not None and item["type"] != "output_text":
        item["prompt_cache_breakpoint"] = marker
    return item


def _text(text: str, kind: str) -> Item:
    return {"type": kind, "text": text}


def _image(part: ImagePart) -> Item:
    item: Item = {"type": "input_image"}
    if part.data is not None:
        kind = part.media_type or _sniffed(part.data)
        if kind is None:
            raise ContextError("An image is given as bytes, and of no known kind: say its `media_type`.")
        item["image_url"] = _data_url(kind, part.data)
    elif part.url is not None:
        item["image_url"] = part.url
    elif part.file_id is not None:
        item["file_id"] = part.file_id
    else:
        raise ContextError("An image needs a `url`, `data` or a `file_id`.")
    if part.detail is not None:
        item["detail"] = part.detail
    return item


def _file(part: FilePart, profile: Profile) -> Item:
    item: Item = {"type": "input_file"}
    file_id = part.provider_file_ids.get(profile.name) or part.file_id
    if file_id:
        item["file_id"] = file_id
    elif part.data is not None:
        named = mimetypes.guess_type(part.filename)[0] if part.filename else None
        kind = part.media_type or named or _sniffed(part.data)
        if kind is None:
            raise ContextError("A file is given as bytes, and of no known kind: say its `media_type`.")
        if profile.file_types is not None and kind not in profile.file_types:
            raise ContextError(f"Files of type '{kind}' cannot be sent; {', '.join(sorted(profile.file_types))} can.")
        item["file_data"] = _data_url(kind, part.data)
    elif part.url is not None:
        item["file_url"] = part.url
    else:
        raise ContextError("A file needs a `file_id`, `data` or a `url`.")
    if part.filename is not None:
        item["filename"] = part.filename
    return item


def _data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _sniffed(data: bytes) -> str | None:
    """The media type that the first bytes tell."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES if data.startswith(signature)), None)
