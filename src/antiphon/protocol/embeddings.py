"""The body of `POST /v1/embeddings` and the object that answers it, and those of `/tokenize` and `/detokenize`."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.errors import InvalidRequestError
from antiphon.protocol.bounds import Count
from antiphon.protocol.completions import RawPrompt, TokenId
from antiphon.protocol.json import decode_body, quoted

__all__ = [
    "MAX_INPUTS",
    "DetokenizeRequest",
    "Embedding",
    "EmbeddingRequest",
    "EmbeddingsAnswer",
    "EmbeddingsUsage",
    "TokenEntry",
    "TokenizeRequest",
    "decode_detokenize_request",
    "decode_embedding_request",
    "decode_tokenize_request",
    "shown_vector",
]

MAX_INPUTS = 2048
"""Texts in one request; OpenAI's bound."""

_FORMATS = ("float", "base64")


class _Body(Struct):
    model: str | None = None
    input: str | list[str | TokenId | list[TokenId]] | None = None
    encoding_format: str | None = None
    dimensions: Count | None = None


class EmbeddingRequest(Struct):
    """A request for the vectors of `inputs`, in base64 or as numbers; `dimensions` is how long they are to be."""

    model: str | None
    inputs: Sequence[RawPrompt]
    base64: bool
    dimensions: int | None


class Embedding(Struct):
    """The vector of one input: its numbers, or its little-endian 32-bit floats in base64."""

    index: int
    embedding: list[float] | str
    object: str = "embedding"


class EmbeddingsUsage(Struct):
    """The tokens that were read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(Struct):
    """The vectors, in the order of the inputs."""

    data: list[Embedding]
    model: str
    usage: EmbeddingsUsage
    object: str = "list"


class TokenizeRequest(Struct):
    """A request for the tokens of a text, in llama.cpp's words."""

    content: str
    model: str | None = None
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeRequest(Struct):
    """A request for the text of tokens."""

    tokens: list[TokenId]
    model: str | None = None


class TokenEntry(Struct):
    """A token with its text; its bytes where they are no whole characters."""

    id: int
    piece: str | list[int]


_decoder = msgspec.json.Decoder(_Body)
_tokenize = msgspec.json.Decoder(TokenizeRequest)
_detokenize = msgspec.json.Decoder(DetokenizeRequest)


def decode_embedding_request(data: bytes) -> EmbeddingRequest:
    """The typed request of a JSON body.

    Raises:
        InvalidRequestError: the JSON is malformed, a field has a wrong type or an unknown value, or an input is empty.
    """
    body = decode_body(_decoder, data)
    if body.encoding_format not in (None, *_FORMATS):
        raise InvalidRequestError(
            f"Invalid value: '{quoted(body.encoding_format or '')}'. Supported values are: 'float' and 'base64'.",
            param="encoding_format",
            code="invalid_value",
        )
    return EmbeddingRequest(
        model=body.model,
        inputs=_inputs(body.input),
        base64=body.encoding_format == "base64",
        dimensions=body.dimensions,
    )


def decode_tokenize_request(data: bytes) -> TokenizeRequest:
    """The typed request of a JSON body; raises InvalidRequestError where it is malformed."""
    return decode_body(_tokenize, data)


def decode_detokenize_request(data: bytes) -> DetokenizeRequest:
    """The same for tokens."""
    return decode_body(_detokenize, data)


def shown_vector(vector: bytes, *, encoded: bool) -> list[float] | str:
    """A vector of little-endian 32-bit floats, as it is sent."""
    if encoded:
        return base64.b64encode(vector).decode()
    numbers = array("f", vector)
    if array("H", [1]).tobytes() == b"\0\1":
        numbers.byteswap()
    return numbers.tolist()


def _inputs(given: str | list[Any] | None) -> list[RawPrompt]:
    if given is None:
        raise InvalidRequestError(
            "Missing required parameter: 'input'.", param="input", code="missing_required_parameter"
        )
    inputs: list[Any] = [given] if isinstance(given, str) else given
    if inputs and all(isinstance(part, int) for part in inputs):
        return [inputs]
    if any(type(part) is not type(inputs[0]) or isinstance(part, int) for part in inputs):
        raise InvalidRequestError(
            "Invalid 'input': a text, tokens, an array of texts or an array of arrays of tokens is expected.",
            param="input",
            code="invalid_type",
        )
    if not 1 <= len(inputs) <= MAX_INPUTS:
        raise InvalidRequestError(
            f"Invalid 'input': 1 to {MAX_INPUTS} inputs are expected, but got {len(inputs)}.",
            param="input",
            code="array_above_max_length" if inputs else "empty_input",
        )
    for index, part in enumerate(inputs):
        if not part:
            path = "input" if isinstance(given, str) else f"input[{index}]"
            raise InvalidRequestError(f"Invalid '{path}': it is empty.", param=path, code="empty_input")
    return inputs
