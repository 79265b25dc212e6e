"""What an upstream's chat completion looks like, in every shape that servers send it. Unknown fields are ignored.

Each field may be missing or null. Where servers disagree about a type, it is read by hand.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.protocol.json import encode

__all__ = [
    "DONE_EVENT",
    "CallPiece",
    "ChoicePiece",
    "Chunk",
    "CustomPiece",
    "FunctionPiece",
    "Models",
    "Piece",
    "Texts",
    "Timings",
    "TokenDetails",
    "UsagePiece",
    "decode_chunk",
    "decode_models",
]

DONE_EVENT: Final = "[DONE]"
"""The data of the last event of a stream."""


class FunctionPiece(Struct):
    """A part of a call; `arguments` is text, or an object where a server does not write it as text."""

    name: str | None = None
    arguments: Any = None


class CustomPiece(Struct):
    """A part of a call of a custom tool; `input` is text as it stands."""

    name: str | None = None
    input: str | None = None


class CallPiece(Struct):
    """A part of one of several calls."""

    index: int | None = None
    id: str | None = None
    function: FunctionPiece | None = None
    custom: CustomPiece | None = None


class LogprobPieces(Struct):
    """The tokens of a piece of text; see `logprobs`. A text completion has them in lists of one entry a token."""

    content: Any = None
    tokens: Any = None
    token_logprobs: Any = None
    top_logprobs: Any = None


class Piece(Struct, gc=False):
    """A part of an answer, or the whole of it: text, or a list of typed parts."""

    content: str | list[Any] | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: str | None = None
    tool_calls: list[CallPiece] | None = None
    function_call: FunctionPiece | None = None


class ChoicePiece(Struct, gc=False):
    """A part of one of the answers; that of a text completion is its `text`."""

    index: int | None = None
    delta: Piece | None = None
    message: Piece | None = None
    text: Any = None
    finish_reason: str | None = None
    logprobs: LogprobPieces | None = None


class TokenDetails(Struct):
    """Tokens among those that a usage counts."""

    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class UsagePiece(Struct):
    """Tokens so far. DeepSeek and SGLang have names of their own for two of them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: TokenDetails | None = None
    completion_tokens_details: TokenDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    reasoning_tokens: int | None = None


class Timings(Struct):
    """llama.cpp's count of tokens: those of the prompt that were cached, those that were read, and those drawn."""

    cache_n: int | None = None
    prompt_n: int | None = None
    predicted_n: int | None = None


class Chunk(Struct, gc=False):
    """One event of a stream, or a whole completion; an error may stand in its place."""

    choices: list[ChoicePiece] | None = None
    usage: UsagePiece | None = None
    timings: Timings | None = None
    object: str | None = None
    error: Any = None
    message: Any = None
    code: Any = None
    type: Any = None


class ModelMeta(Struct):
    """What llama.cpp says of a model."""

    n_ctx: int | None = None
    n_ctx_train: int | None = None


class ListedModel(Struct):
    """A model of `/v1/models`, with the names that servers have for the length of its context."""

    id: str = ""
    max_model_len: int | None = None
    context_length: int | None = None
    context_window: int | None = None
    max_context_length: int | None = None
    meta: ModelMeta | None = None

    @property
    def context(self) -> int | None:
        """Its context in tokens, where it is told."""
        told = [self.max_model_len, self.context_length, self.context_window, self.max_context_length]
        if self.meta is not None:
            told += [self.meta.n_ctx, self.meta.n_ctx_train]
        return next((length for length in told if length is not None and length > 0), None)


class Models(Struct):
    """The answer of `/v1/models`."""

    data: list[ListedModel] | None = None


_chunk = msgspec.json.Decoder(Chunk, strict=False)
_decode = _chunk.decode
_decode_text = msgspec.json.Decoder(str).decode
_PROBED: Final = "\x00\u2028 \x01"
_PROBE: Final = encode(_PROBED).decode()
_MOST_PLACES: Final = 64
"""How often in a stream the place of its text is looked for, since some tell the time in each chunk."""

_models = msgspec.json.Decoder(Models, strict=False)


def decode_chunk(data: str | bytes) -> Chunk | None:
    """The chunk that an event holds; None where it is none."""
    try:
        return _chunk.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class Texts:
    """Reads the texts of events that hold a chunk of text and nothing else, as most of them do.

    Such chunks of one stream are the same but for the text, so that what stands around it needs no decoding again: the
    place of the text is known where another text, put there, is read as the chunk's.
    """

    def __init__(self) -> None:
        self._before = self._after = ""
        self._around = 0
        self._left = _MOST_PLACES

    def read(self, data: str) -> str | None:
        """The text of such an event; None of any other."""
        if self._around and data.startswith(self._before) and data.endswith(self._after):
            try:
                return _decode_text(data[len(self._before) : len(data) - len(self._after)])
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass
        text = _only_text(data)
        if text and self._left:
            self._left -= 1
            self._find(data, text)
        return text

    def _find(self, data: str, text: str) -> None:
        token = encode(text).decode()
        place = data.rfind(token)
        if place < 0:
            return
        before, after = data[:place], data[place + len(token) :]
        if _only_text(f"{before}{_PROBE}{after}") == _PROBED:
            self._before, self._after = before, after
            self._around = len(before) + len(after)


def _only_text(data: str) -> str | None:
    try:
        chunk = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    choices = chunk.choices
    if choices is None or len(choices) != 1 or chunk.usage is not None or chunk.timings is not None:
        return None
    choice = choices[0]
    if choice.index or choice.finish_reason or chunk.error or chunk.object == "error":
        return None
    piece = choice.delta or choice.message
    if piece is None:
        return choice.text if isinstance(choice.text, str) else None
    if piece.tool_calls or piece.function_call or piece.refusal or piece.reasoning_content or piece.reasoning:
        return None
    return piece.content if isinstance(piece.content, str) else None


def decode_models(data: bytes) -> Models:
    """The list of models; an empty one where it cannot be read."""
    try:
        return _models.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Models()
