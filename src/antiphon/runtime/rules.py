"""Rules that tie fields of a request to each other, to the settings and to the engine.

All are checked before a response exists, so that each is a plain HTTP error and nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from antiphon.corpus.documents import documents_readable
from antiphon.engines.base import Capabilities
from antiphon.errors import InvalidRequestError, UnsupportedError
from antiphon.machine.opening import effective_format
from antiphon.prompt.messages import Conversation
from antiphon.prompt.prompt import ChatMessage, ResolvedChoice
from antiphon.prompt.schema import check_schema
from antiphon.protocol.items import Item, Message
from antiphon.protocol.json import quoted
from antiphon.protocol.parts import ContentPart, InputAudio, InputFile, InputImage, InputVideo, VideoUrlPart
from antiphon.protocol.request import LOGPROBS, CreateResponse, TextFormat
from antiphon.settings import Settings

__all__ = [
    "ENCRYPTED_REASONING",
    "LOGPROBS",
    "PATCH_DIFFS",
    "check_choice",
    "check_format",
    "check_media",
    "check_request",
    "check_substance",
    "check_word",
    "persistence_off",
    "place_of",
]

_PARTS_OF_KIND: dict[str, type | tuple[type, ...]] = {
    "image": InputImage,
    "file": InputFile,
    "audio": InputAudio,
    "video": (InputVideo, VideoUrlPart),
}
_FORMATS = ("text", "json_object", "json_schema")
ENCRYPTED_REASONING = "reasoning.encrypted_content"
"""The `include` value that gives reasoning items their sealed text."""

PATCH_DIFFS = "apply_patch_call.operation_diff"
"""The `include` value, one of ours, that asks for the events of the diffs of patches (ADR 10)."""


def check_request(request: CreateResponse, settings: Settings) -> None:
    """Fields that exclude each other, and fields that this version does not have.

    Raises:
        InvalidRequestError: which one, in `param`.
    """
    if request.previous_response_id is not None and request.conversation is not None:
        raise InvalidRequestError(
            "Mutually exclusive parameters. Ensure you are only providing one of: "
            "'previous_response_id' or 'conversation'.",
            param="previous_response_id",
            code="mutually_exclusive_parameters",
        )
    limit = request.max_output_tokens
    if limit is not None and limit < settings.min_output_tokens:
        raise InvalidRequestError(
            f"Invalid 'max_output_tokens': integer below minimum value. "
            f"Expected a value >= {settings.min_output_tokens}, but got {limit} instead.",
            param="max_output_tokens",
            code="integer_below_min_value",
        )


def check_format(request: CreateResponse, capabilities: Capabilities) -> TextFormat | None:
    """The output format, if the engine can hold to it; prose is never given where JSON was asked for.

    Raises:
        InvalidRequestError: an unknown format, a schema that is missing or too large (M12), or a format that the engine
            cannot enforce.
    """
    form = effective_format(request.text)
    if form is None:
        return None
    if form.type not in _FORMATS:
        raise InvalidRequestError(
            f"Invalid value: '{quoted(form.type)}'. Supported values are: 'text', 'json_object', and 'json_schema'.",
            param="text.format.type",
            code="invalid_value",
        )
    if form.type == "json_schema" and form.schema is None:
        raise InvalidRequestError(
            "Missing required parameter: 'text.format.schema'.",
            param="text.format.schema",
            code="missing_required_parameter",
        )
    if form.schema is not None:
        check_schema(form.schema, "text.format.schema")
    if form.type not in capabilities.formats:
        raise UnsupportedError(
            f"The output format '{form.type}' cannot be enforced on this model, so it is refused.",
            param="text.format.type",
        )
    return form


def check_word(form: TextFormat | None, messages: Sequence[ChatMessage]) -> None:
    """Refuse `json_object` where nothing in the conversation speaks of JSON, as OpenAI does (responses-api 6.4).

    Raises:
        InvalidRequestError: the word is nowhere.
    """
    if form is None or form.type != "json_object":
        return
    if not any("json" in message.text().lower() for message in messages):
        raise InvalidRequestError(
            "The input must contain the word 'json' in some form to use 'text.format' of type 'json_object'.",
            param="input",
            code="missing_json_word",
        )


def check_choice(choice: ResolvedChoice, capabilities: Capabilities) -> None:
    """Refuse a choice that the engine cannot enforce.

    Raises:
        UnsupportedError: a call is forced, or limited to some tools, and the engine cannot hold to it.
    """
    if choice.mode == "required" and not capabilities.forced_tools:
        raise UnsupportedError(
            "A forced tool call cannot be enforced on this model, so it is refused. Use 'auto' or 'none'.",
            param="tool_choice",
        )


def check_substance(parts: list[Conversation], instructions: str | None) -> None:
    """Refuse a request with nothing to answer (M6).

    Raises:
        InvalidRequestError: neither the input, nor the history, nor the instructions hold anything.
    """
    if any(part.substance for part in parts) or (instructions and instructions.strip()):
        return
    raise InvalidRequestError(
        "Request must include at least one non-empty message content or media input.",
        param="input",
        code="empty_input",
    )


def check_media(request: CreateResponse, parts: list[Conversation], capabilities: Capabilities) -> None:
    """Refuse media that the model cannot read, before anything is fetched (M18).

    Raises:
        InvalidRequestError: `<kind> input is not supported`.
    """
    kinds = frozenset[str]().union(*(part.media for part in parts))
    # A document is text to a model.
    read = capabilities.media | {"file"} if capabilities.inline_media and documents_readable() else capabilities.media
    for kind in sorted(kinds - read):
        what = "input_file" if kind == "file" else kind
        form = _PARTS_OF_KIND[kind]
        place = place_of(request.items, lambda part, form=form: isinstance(part, form))
        raise UnsupportedError(f"{what} input is not supported by this model.", param=place)


def persistence_off(param: str | None = None) -> InvalidRequestError:
    """The error for whatever needs a store where there is none."""
    return InvalidRequestError(
        "Response storage is disabled on this server (--responses-store-max-entries 0), "
        "so responses cannot be looked up, chained or run in the background.",
        param=param,
        code="response_storage_disabled",
    )


def place_of(items: Sequence[Item], found: Callable[[ContentPart], bool]) -> str:
    """The path of the first such part in the input; the input itself where it is in the history."""
    for index, item in enumerate(items):
        parts = item.content if isinstance(item, Message) else getattr(item, "output", None)
        if not isinstance(parts, list):
            continue
        field = "content" if isinstance(item, Message) else "output"
        for position, part in enumerate(cast("list[ContentPart]", parts)):
            if found(part):
                return f"input[{index}].{field}[{position}]"
    return "input"
