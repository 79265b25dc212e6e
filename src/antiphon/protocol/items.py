"""Items of input and output (responses-api 3).

The types that this server acts on are structs; every other type, unknown ones too, is a `RawItem` that keeps the
whole object, so that it is stored and echoed without loss. All are decoded by `decode_item`, which takes an item
without `type` as a message or a reference, as the OpenAI SDKs send them (client-contract 4.4).
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from antiphon.errors import InvalidRequestError
from antiphon.protocol.depth import check_value, too_deep
from antiphon.protocol.ids import item_prefix, new_id
from antiphon.protocol.json import encode, field_error, quoted
from antiphon.protocol.parts import (
    ContentPart,
    ImageUrlPart,
    InputAudio,
    InputFile,
    InputImage,
    InputText,
    OutputText,
    ReasoningText,
    SummaryText,
    TextPart,
    VideoUrlPart,
)

__all__ = [
    "CustomToolCall",
    "CustomToolCallOutput",
    "FunctionCall",
    "FunctionCallOutput",
    "Item",
    "ItemReference",
    "Message",
    "RawItem",
    "Reasoning",
    "decode_item",
    "decode_stored_item",
    "encode_item",
    "normalize_item",
]

ROLES = frozenset({"user", "assistant", "system", "developer"})


class Message(Struct, tag="message"):
    """A message of any role; `content` is always a list of parts once decoded by `decode_item`."""

    role: str
    content: str | list[ContentPart]
    id: str | None = None
    status: str | None = "completed"
    phase: str | None | UnsetType = UNSET


class Reasoning(Struct, tag="reasoning"):
    """A model's thinking; `summary` is always there, `content` where the raw text is known."""

    id: str | None = None
    summary: list[SummaryText] | None = msgspec.field(default_factory=list[SummaryText])
    content: list[ReasoningText | TextPart] | None | UnsetType = UNSET
    encrypted_content: str | None | UnsetType = UNSET
    status: str | None = "completed"


class FunctionCall(Struct, tag="function_call"):
    """A call of a client's function; `arguments` is JSON text."""

    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: str | None = "completed"
    namespace: str | None | UnsetType = UNSET
    caller: dict[str, Any] | None | UnsetType = UNSET


class FunctionCallOutput(Struct, tag="function_call_output"):
    """What a client's function gave: a string, or parts."""

    output: str | list[ContentPart]
    call_id: str | None = None
    id: str | None = None
    status: str | None = "completed"
    name: str | None | UnsetType = UNSET
    namespace: str | None | UnsetType = UNSET
    caller: dict[str, Any] | None | UnsetType = UNSET


class CustomToolCall(Struct, tag="custom_tool_call"):
    """A call of a client's custom tool; `input` is free text."""

    call_id: str
    name: str
    input: str
    id: str | None = None
    status: str | None = "completed"
    namespace: str | None | UnsetType = UNSET
    caller: dict[str, Any] | None | UnsetType = UNSET


class CustomToolCallOutput(Struct, tag="custom_tool_call_output"):
    """What a client's custom tool gave: a string, or parts."""

    call_id: str
    output: str | list[ContentPart]
    id: str | None = None
    status: str | None = "completed"
    caller: dict[str, Any] | None | UnsetType = UNSET


class ItemReference(Struct, tag="item_reference"):
    """A stored item, by its id."""

    id: str


class RawItem(Struct):
    """An item of a type that this server does not act on, whole; encoded by `encode_item` as it came."""

    type: str
    id: str | None
    body: dict[str, Any]


Item = (
    Message
    | Reasoning
    | FunctionCall
    | FunctionCallOutput
    | CustomToolCall
    | CustomToolCallOutput
    | ItemReference
    | RawItem
)
"""Any item, after decoding."""


class _Head(Struct):
    type: str | None = None
    role: str | None = None


_head = msgspec.json.Decoder(_Head)
_raw = msgspec.json.Decoder(dict[str, Any])
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    "message": msgspec.json.Decoder(Message),
    "reasoning": msgspec.json.Decoder(Reasoning),
    "function_call": msgspec.json.Decoder(FunctionCall),
    "function_call_output": msgspec.json.Decoder(FunctionCallOutput),
    "custom_tool_call": msgspec.json.Decoder(CustomToolCall),
    "custom_tool_call_output": msgspec.json.Decoder(CustomToolCallOutput),
    "item_reference": msgspec.json.Decoder(ItemReference),
}


_OPTIONAL_FIELDS: dict[type, tuple[str, ...]] = {
    Message: ("status", "phase"),
    Reasoning: ("status", "content", "encrypted_content"),
    FunctionCall: ("status", "namespace", "caller"),
    FunctionCallOutput: ("status", "name", "namespace", "caller"),
    CustomToolCall: ("status", "namespace", "caller"),
    CustomToolCallOutput: ("status", "caller"),
}


_RAW_DEFAULTS: dict[str, dict[str, str]] = {
    "shell_call": {"status": "completed"},
    "shell_call_output": {"status": "completed"},
    "apply_patch_call": {"status": "completed"},
    "local_shell_call": {"status": "completed"},
    "tool_search_call": {"status": "completed", "execution": "client"},
    "tool_search_output": {"status": "completed", "execution": "client"},
}
"""What clients may leave out of items that are kept as they came, and listings must have."""


class _EasyMessage(Struct):
    role: str
    content: str | list[ContentPart]
    id: str | None = None
    status: str | None = "completed"
    phase: str | None | UnsetType = UNSET


class _BareReference(Struct):
    id: str


_easy = msgspec.json.Decoder(_EasyMessage)
_reference = msgspec.json.Decoder(_BareReference)


def decode_item(raw: Raw | bytes, path: str = "") -> Item:
    """One item of a request, with its content as parts.

    `path` names the place in the request, such as `input[3]`, for error messages.

    Raises:
        InvalidRequestError: a field is missing or of a wrong type, or the item is nested too deeply.
    """
    try:
        item = _decode(raw)
    except msgspec.ValidationError as error:
        raise field_error(error, path) from None
    except RecursionError:
        raise too_deep(path) from None
    if isinstance(item, RawItem):
        check_value(item.body, path)
    else:
        normalize_item(item, path)
    return item


def _decode(raw: Raw | bytes) -> Item:
    head = _head.decode(raw)
    kind = head.type
    if kind is None:
        if head.role is not None:
            easy = _easy.decode(raw)
            return Message(role=easy.role, content=easy.content, id=easy.id, status=easy.status, phase=easy.phase)
        return ItemReference(id=_reference.decode(raw).id)
    decoder = _DECODERS.get(kind)
    if decoder is not None:
        return decoder.decode(raw)
    body = _raw.decode(raw)
    identity = body.get("id")
    if kind == "local_shell_call_output" and identity and not body.get("call_id"):
        # OpenAI's types have the id of the call here, where others have that of the item (hosted-tools A1).
        body["call_id"] = identity
    for field, value in _RAW_DEFAULTS.get(kind, {}).items():
        if body.get(field) is None:
            body[field] = value
    return RawItem(type=kind, id=identity if isinstance(identity, str) else None, body=body)


def normalize_item(item: Item, path: str) -> None:
    """Give content as parts in Responses spelling; an explicit null is an absent field (client-contract 4.4).

    Raises:
        InvalidRequestError: a message has no role that there is, or something is nested too deeply.
    """
    if isinstance(item, Message):
        _normalize_message(item, path)
    elif isinstance(item, FunctionCallOutput | CustomToolCallOutput):
        if not isinstance(item.output, str):
            item.output = [_input_part(part, path) for part in item.output]
    elif isinstance(item, Reasoning):
        item.summary = item.summary or []
        if item.content:
            item.content = [ReasoningText(text=part.text) for part in item.content]
    for field in _OPTIONAL_FIELDS.get(type(item), ()):
        value = getattr(item, field)
        if value is None:
            setattr(item, field, "completed" if field == "status" else UNSET)
        elif field == "caller" and value is not UNSET:
            check_value(value, path)


def _normalize_message(message: Message, path: str) -> None:
    if message.role not in ROLES:
        raise InvalidRequestError(
            f"Invalid value: '{quoted(message.role)}'. "
            "Supported values are: 'assistant', 'system', 'developer', and 'user'.",
            param=f"{path}.role",
            code="invalid_value",
        )
    assistant = message.role == "assistant"
    content = message.content
    if isinstance(content, str):
        message.content = [OutputText(text=content) if assistant else InputText(text=content)]
    elif assistant:
        message.content = [_output_part(part, path) for part in content]
    else:
        message.content = [_input_part(part, path) for part in content]


def _output_part(part: ContentPart, path: str) -> ContentPart:
    if isinstance(part, TextPart | InputText):
        return OutputText(text=part.text)
    return _input_part(part, path)


def _input_part(part: ContentPart, path: str) -> ContentPart:
    """A part in its Responses spelling; what it keeps as it came is checked for its depth."""
    if isinstance(part, InputText | InputImage | InputFile):
        if part.prompt_cache_breakpoint is None:
            part.prompt_cache_breakpoint = UNSET
        elif part.prompt_cache_breakpoint is not UNSET:
            check_value(part.prompt_cache_breakpoint, path)
        if isinstance(part, InputImage) and part.detail is None:
            part.detail = "auto"
    elif isinstance(part, OutputText):
        part.annotations = part.annotations or []
        part.logprobs = part.logprobs or []
        check_value(part.annotations, path)
    elif isinstance(part, TextPart):
        return InputText(text=part.text)
    elif isinstance(part, ImageUrlPart):
        if isinstance(part.image_url, str):
            return InputImage(image_url=part.image_url)
        return InputImage(image_url=part.image_url.get("url"), detail=part.image_url.get("detail") or "auto")
    elif isinstance(part, InputAudio):
        check_value(part.input_audio, path)
    elif isinstance(part, VideoUrlPart):
        check_value(part.video_url, path)
    return part


def encode_item(item: Item) -> bytes:
    """The JSON of an item as it is stored, listed and echoed; an item without an id gets one."""
    if isinstance(item, RawItem):
        if item.id is None:
            item.id = item.body["id"] = new_id(item_prefix(item.type))
        return encode(item.body)
    if item.id is None:
        item.id = new_id(item_prefix(str(item.__struct_config__.tag)))
    return encode(item)


def decode_stored_item(body: bytes) -> Item:
    """An item that `encode_item` wrote."""
    return _decode(body)
