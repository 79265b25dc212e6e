"""The body of `POST /v1/completions` and the objects that answer it: a text goes on where a prompt ends (M7).

The prompt is text, or tokens, or several of either; no chat template is put around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from antiphon.errors import InvalidRequestError, UnsupportedError
from antiphon.protocol.bounds import Count
from antiphon.protocol.chat import MAX_CHOICES, StreamOptions, check_limit
from antiphon.protocol.chat_answer import ChatUsage
from antiphon.protocol.json import decode_body
from antiphon.protocol.request import LOGPROBS, CreateResponse, SharedFields, decode_create_response, shared_values

__all__ = [
    "MAX_TOKEN",
    "CompletionRequest",
    "RawPrompt",
    "TextAnswer",
    "TextChoice",
    "TextLogprobs",
    "TokenId",
    "decode_completion_request",
]

MAX_TOKEN = 2**31 - 1
"""The largest token id that there can be."""

DEFAULT_LIMIT = 16
"""Tokens that are generated where a request sets no limit; OpenAI's."""

TokenId = Annotated[int, Meta(ge=0, le=MAX_TOKEN)]
"""The id of a token."""

RawPrompt = str | Sequence[int]
"""What an engine goes on from: text, or tokens."""


class _Body(SharedFields):
    prompt: str | list[str | TokenId | list[TokenId]] | None = None
    suffix: str | None = None
    max_tokens: Count | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    best_of: Count | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    stream_options: StreamOptions | None = None


class CompletionRequest(Struct):
    """A request for text. `request` holds its sampling and limit; each prompt is gone on from `choices` times."""

    request: CreateResponse
    prompts: Sequence[RawPrompt]
    choices: int
    echo: bool
    include_usage: bool

    @property
    def multiplied(self) -> str:
        """The field that asks for more than one answer."""
        return "n" if self.choices > 1 else "prompt"

    def named(self, error: InvalidRequestError) -> InvalidRequestError:
        """An error about the request for a response, with the names that the fields have here."""
        if error.param == "max_output_tokens":
            error.param = "max_tokens"
            error.message = error.message.replace("'max_output_tokens'", "'max_tokens'")
        return error


class TextLogprobs(Struct):
    """Log probabilities in lists of one entry a token; `text_offset` is where the token begins, in characters."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class TextChoice(Struct):
    """One text, or in a chunk more of it, and why it ended: stop, length or content_filter."""

    text: str
    index: int
    logprobs: TextLogprobs | None = None
    finish_reason: str | None = None


class TextAnswer(Struct):
    """A whole answer."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: ChatUsage


_decoder = msgspec.json.Decoder(_Body)


def decode_completion_request(data: bytes) -> CompletionRequest:
    """The typed request of a JSON body.

    Raises:
        InvalidRequestError: the JSON is malformed, a field has a wrong type, is out of range or cannot be done here, or
            a prompt is blank; `param` is its path.
    """
    body = decode_body(_decoder, data)
    _refuse(body)
    tokens = DEFAULT_LIMIT if body.max_tokens is None else body.max_tokens
    check_limit(tokens, "max_tokens")
    shared = shared_values(body)
    if body.max_tokens is None:
        shared["unset"] |= {"max_output_tokens"}
    request = msgspec.structs.replace(
        decode_create_response(b"{}"),
        **shared,
        max_output_tokens=tokens,
        include=[] if body.logprobs is None else [LOGPROBS],
        top_logprobs=body.logprobs or 0,
    )
    return CompletionRequest(
        request=request,
        prompts=_prompts(body.prompt),
        choices=body.n or 1,
        echo=body.echo is True,
        include_usage=body.stream_options is not None and body.stream_options.include_usage is True,
    )


def _refuse(body: _Body) -> None:
    if body.suffix:
        raise UnsupportedError(
            "'suffix' is not supported: a text is gone on from its end, not filled in.", param="suffix"
        )
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise UnsupportedError("'best_of' other than 'n' is not supported.", param="best_of")
    if body.echo and body.logprobs is not None:
        raise UnsupportedError("'echo' together with 'logprobs' is not supported.", param="echo")


def _prompts(given: str | list[Any] | None) -> list[RawPrompt]:
    """The prompts: none at all is an empty one, from which a model writes what it likes (M7)."""
    if given is None or isinstance(given, str):
        return [_checked(given or "", "prompt")]
    if not given:
        raise _empty("prompt")
    if all(isinstance(part, int) for part in given):
        return [given]
    if any(type(part) is not type(given[0]) or isinstance(part, int) for part in given):
        raise InvalidRequestError(
            "Invalid 'prompt': a text, tokens, an array of texts or an array of arrays of tokens is expected.",
            param="prompt",
            code="invalid_type",
        )
    return [_checked(part, f"prompt[{index}]") for index, part in enumerate(given)]


def _checked(prompt: Any, path: str) -> RawPrompt:
    if prompt == [] or (isinstance(prompt, str) and prompt and not prompt.strip()):
        raise _empty(path)
    return prompt


def _empty(path: str) -> InvalidRequestError:
    return InvalidRequestError(
        "A prompt must not be blank: give text or tokens, or the empty text to begin anew.",
        param=path,
        code="empty_input",
    )
