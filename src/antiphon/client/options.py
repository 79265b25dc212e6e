"""What a caller may say of one request, beside the conversation: by OpenAI's names, and a few that others use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

__all__ = ["KNOWN_OPTIONS", "Options", "RequestWarning"]


class RequestWarning(UserWarning):
    """A request was changed, or something was left out of it, because the endpoint or the model does not take it."""


class Options(TypedDict, total=False):
    """The options of one request; None is the same as not there.

    `max_completion_tokens` and `max_tokens` are other names of `max_output_tokens` (E2). `tools` are functions, types,
    `Tool`s or mappings (E12, E13), `tool_outputs` results to be sent after the context (E11). `text_format` is a type,
    a JSON Schema, or a format of either API, `response_format` another name of it (E18). The three `reasoning_…` are
    the fields of `reasoning` one by one (E16); `reasoning_token_budget` is not sent to anyone. `chain` False sends the
    whole context although an answer in it could be referred to (E19). `extra_body` is added to the body as it is.
    """

    background: bool | None
    chain: bool | None
    context_management: Sequence[Mapping[str, Any]] | None
    conversation: str | Mapping[str, Any] | None
    extra_body: Mapping[str, Any] | None
    frequency_penalty: float | None
    include: Sequence[str] | None
    instructions: str | None
    max_completion_tokens: int | None
    max_output_tokens: int | None
    max_tokens: int | None
    max_tool_calls: int | None
    metadata: Mapping[str, str] | None
    min_p: float | None
    parallel_tool_calls: bool | None
    presence_penalty: float | None
    previous_response_id: str | None
    prompt: Mapping[str, Any] | None
    prompt_cache_key: str | None
    prompt_cache_options: Mapping[str, Any] | None
    prompt_cache_retention: str | None
    reasoning: Mapping[str, Any] | None
    reasoning_context: str | None
    reasoning_effort: str | None
    reasoning_summary: str | None
    reasoning_token_budget: int | None
    repeat_penalty: float | None
    response_format: Any
    safety_identifier: str | None
    seed: int | None
    service_tier: str | None
    stop: str | Sequence[str] | None
    store: bool | None
    stream: bool | None
    stream_options: Mapping[str, Any] | None
    temperature: float | None
    text_format: Any
    tool_choice: Any
    tool_outputs: Sequence[Mapping[str, Any]] | None
    tools: Sequence[Any] | None
    top_k: int | None
    top_logprobs: int | None
    top_p: float | None
    truncation: str | None
    user: str | None
    verbosity: str | None


KNOWN_OPTIONS: Final = frozenset(Options.__annotations__)
"""The names of all options."""
