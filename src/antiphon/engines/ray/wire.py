"""What travels between a server and an engine on another node: prompts, deltas, what was drawn, and errors. Pure.

All of it is bytes of msgspec's msgpack, so that nothing of ours is pickled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar, cast, get_args, get_type_hints

import msgspec
from msgspec import Struct

from antiphon.engines.base import Capabilities, Sampled
from antiphon.errors import (
    APIError,
    ConfigurationError,
    ContextOverflowError,
    EngineError,
    EngineUnavailableError,
    InvalidRequestError,
    UnsupportedError,
)
from antiphon.machine.deltas import Delta
from antiphon.prompt.prompt import Prompt
from antiphon.prompt.toolbox import Entry, Toolbox
from antiphon.protocol.completions import RawPrompt
from antiphon.protocol.tools import CustomTool, FunctionTool, Tool

__all__ = [
    "Asked",
    "Batch",
    "Drawn",
    "EngineOptions",
    "Facts",
    "Prepared",
    "Refused",
    "answer",
    "answered",
    "decode",
    "decode_prompt",
    "deltas_of",
    "encode",
    "encode_prompt",
    "packed",
    "refusal",
]

T = TypeVar("T")


class EngineOptions(Struct, frozen=True):
    """What an engine on a node is made of: the model, whose `path` is one of that node, and the settings of llama.cpp.

    `seconds` is how long it stays where no server asks for it any more.
    """

    path: str
    name: str
    dialect: str | None = None
    chat_template: str = ""
    mmproj: str | None = None
    threads: int | None = None
    context_length: int | None = None
    slots: int = 4
    batch_size: int = 256
    gpu_layers: int | None = None
    reasoning_budget: int = -1
    load_timeout: float = 600.0
    render_timeout: float = 10.0
    seconds: float = 600.0


class Facts(Struct, frozen=True):
    """What is known of an engine; nothing but that it is not ready, while its model is loaded for the first time."""

    ready: bool
    fingerprint: str = ""
    capabilities: Capabilities = Capabilities(0)


class Asked(Struct):
    """A turn to prepare or to generate. `prompt` is encoded; a `raw` text has no chat template around it."""

    turn: str
    server: str
    prompt: msgspec.Raw
    raw: RawPrompt | None = None
    max_tokens: int = 0
    sampled: Sampled = msgspec.field(default_factory=Sampled)


class Prepared(Struct):
    """What an engine counted."""

    input_tokens: int
    constrained: bool


class Drawn(Struct):
    """What was drawn since the batch before; `anew` says that what was told of it before counts no more."""

    tokens: list[int]
    text: list[str]
    generated: int
    thinking: int
    anew: bool = False


class Batch(Struct):
    """Deltas that came together, each with its kind, and what of the turn was drawn by then."""

    deltas: list[tuple[str, dict[str, Any]]]
    drawn: Drawn


class Refused(Struct):
    """An error, by the name of its class."""

    kind: str
    message: str
    param: str | None = None
    code: str | None = None
    type: str = "server_error"
    http_status: int = 500
    retry_after: float | None = None
    retry: bool | None = None
    tokens: tuple[int, int, bool] | None = None


class _Toolbox(Struct, frozen=True):
    """A toolbox whose declared tools are told apart by hand: their union has dicts in it."""

    entries: dict[str, Entry] = {}
    renames: dict[str, str] = {}
    declared: list[dict[str, Any]] = []


_HINTS: Final = {**get_type_hints(Prompt), "toolbox": _Toolbox}
_Prompt: Final = msgspec.defstruct("_Prompt", [(name, _HINTS[name]) for name in Prompt.__struct_fields__])
"""A prompt whose toolbox can be decoded."""


def _plain(value: object) -> Any:
    """Sequences and mappings of any kind, as histories are made of."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    if isinstance(value, Sequence):
        return list(cast("Sequence[Any]", value))
    raise TypeError(f"{type(value).__name__} cannot travel")


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_plain)
_prompt: Final = msgspec.msgpack.Decoder(_Prompt)
_answer: Final = msgspec.msgpack.Decoder(tuple[Refused | None, msgspec.Raw])
_DELTAS: Final[Mapping[str, type[Delta]]] = {kind.__name__: kind for kind in get_args(Delta)}
_INVALID: Final = {kind.__name__: kind for kind in (InvalidRequestError, UnsupportedError)}
_KNOWN: Final = (*_INVALID, ContextOverflowError.__name__, EngineError.__name__, EngineUnavailableError.__name__)


def encode(value: Any) -> bytes:
    """A value as bytes."""
    return _encoder.encode(value)


def decode(data: bytes, kind: type[T]) -> T:
    """A value of that type."""
    return msgspec.msgpack.decode(data, type=kind)


def answer(value: Any) -> bytes:
    """What a call gives back."""
    return _encoder.encode((None, value))


def answered(data: bytes, kind: type[T]) -> T:
    """What a call gave back.

    Raises:
        APIError: it was refused.
        ConfigurationError: the engine cannot be started there.
    """
    refused, value = _answer.decode(data)
    if refused is not None:
        raise _error_of(refused)
    return msgspec.msgpack.decode(value, type=kind)


def refusal(error: Exception) -> bytes:
    """An error, in the place of what a call gives back."""
    return _encoder.encode((_refused(error), None))


def encode_prompt(prompt: Prompt) -> msgspec.Raw:
    """A prompt, ready to be put into another value."""
    return msgspec.Raw(_encoder.encode(prompt))


def decode_prompt(data: msgspec.Raw) -> Prompt:
    """A prompt."""
    read = _prompt.decode(data)
    fields = {name: getattr(read, name) for name in _HINTS}
    box: _Toolbox = fields["toolbox"]
    fields["toolbox"] = Toolbox(box.entries, box.renames, [_tool(tool) for tool in box.declared])
    return Prompt(**fields)


def packed(deltas: Sequence[Delta]) -> list[tuple[str, dict[str, Any]]]:
    """Deltas, each with the name of its kind."""
    return [(type(delta).__name__, cast("dict[str, Any]", msgspec.to_builtins(delta))) for delta in deltas]


def deltas_of(batch: Batch) -> list[Delta]:
    """The deltas of a batch."""
    return [msgspec.convert(fields, _DELTAS[kind]) for kind, fields in batch.deltas]


def _refused(error: Exception) -> Refused:
    """An error as it travels; of a kind that is not known elsewhere it is an error of the engine."""
    if isinstance(error, ConfigurationError):
        return Refused(ConfigurationError.__name__, str(error))
    if not isinstance(error, APIError):
        return Refused(EngineError.__name__, "The engine had an error while it worked on the request.")
    kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _KNOWN]
    tokens = None
    if isinstance(error, ContextOverflowError):
        tokens = (error.input_tokens, error.context_length, error.estimated)
    return Refused(
        kinds[0] if kinds else EngineError.__name__,
        error.message,
        error.param,
        error.code,
        error.type,
        error.http_status,
        error.retry_after,
        error.retry,
        tokens,
    )


def _error_of(refused: Refused) -> APIError | ConfigurationError:
    """The error that was raised elsewhere."""
    if refused.kind == ConfigurationError.__name__:
        return ConfigurationError(refused.message)
    if refused.tokens is not None:
        return ContextOverflowError(*refused.tokens[:2], estimated=refused.tokens[2])
    if refused.kind == EngineUnavailableError.__name__:
        return EngineUnavailableError(refused.message, retry_after=refused.retry_after or 1.0, code=refused.code)
    error = EngineError(refused.message)
    if refused.kind in _INVALID:
        error = _INVALID[refused.kind](refused.message)
    error.param, error.code, error.type = refused.param, refused.code, refused.type
    error.http_status, error.retry_after, error.retry = refused.http_status, refused.retry_after, refused.retry
    return error


def _tool(body: dict[str, Any]) -> Tool:
    kind = body.get("type")
    if kind == "function":
        return msgspec.convert(body, FunctionTool)
    return msgspec.convert(body, CustomTool) if kind == "custom" else body
