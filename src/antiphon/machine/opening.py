"""The response object as a request opens it: every field echoed, with the effective values (responses-api 2.2, 8.4)."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from antiphon.protocol.context import prunes
from antiphon.protocol.credentials import shown_tool
from antiphon.protocol.hosted import stands_beside
from antiphon.protocol.items import Item
from antiphon.protocol.request import CreateResponse, TextConfig, TextFormat
from antiphon.protocol.response import Response, wire_item
from antiphon.protocol.tools import encode_choice

__all__ = ["effective_format", "open_response"]


_SCHEMA_NAME = "response"
_SERVICE_TIERS = frozenset({"default", "flex", "scale", "priority", "fast", "ultrafast"})
"""What is echoed; there is one tier here, so that `auto` and unknown ones are it."""


def open_response(
    request: CreateResponse,
    *,
    stored: bool,
    response_id: str,
    model: str,
    created_at: int,
    conversation: str | None = None,
    title: str | None = None,
) -> Response:
    """The response in progress, without output.

    `stored` says whether it can be looked up later, whatever was asked for; `model` is the name that was asked for;
    `created_at` in seconds.
    """
    return Response(
        id=response_id,
        created_at=created_at,
        model=model,
        status="queued" if request.background else "in_progress",
        background=request.background,
        instructions=_instructions(request.instructions, request.instruction_items),
        max_output_tokens=request.max_output_tokens,
        max_tool_calls=request.max_tool_calls,
        parallel_tool_calls=request.parallel_tool_calls,
        previous_response_id=request.previous_response_id,
        conversation=UNSET if conversation is None else {"id": conversation},
        prompt=UNSET if request.prompt is None else request.prompt,
        prompt_cache_key=request.prompt_cache_key,
        reasoning=_reasoning(request),
        safety_identifier=request.safety_identifier,
        service_tier=request.service_tier if request.service_tier in _SERVICE_TIERS else "default",
        store=stored,
        temperature=1.0 if request.temperature is None else request.temperature,
        text=_text(request.text),
        tool_choice=encode_choice(request.tool_choice),
        tools=[shown_tool(tool) for tool in request.tools],
        top_logprobs=request.top_logprobs,
        top_p=1.0 if request.top_p is None else request.top_p,
        truncation=request.truncation,
        user=request.user,
        metadata=request.metadata,
        title=UNSET if title is None else title,
        hosted_tool_calls=[] if stands_beside(request.tools) or prunes(request.context_management) else UNSET,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
    )


def effective_format(config: TextConfig) -> TextFormat | None:
    """The output format in OpenAI's flat shape; the nested `json_schema` of chat-completions is flattened (M11)."""
    given = config.format
    if given is None:
        return None
    if given.json_schema is None:
        if given.type == "json_schema" and given.name is None:
            given.name = _SCHEMA_NAME
        return given
    inner = given.json_schema
    schema = inner.get("schema")
    return TextFormat(
        type=given.type,
        name=given.name or inner.get("name") or _SCHEMA_NAME,
        schema=given.schema or (schema if isinstance(schema, dict) else None),  # pyright: ignore[reportUnknownArgumentType]
        description=given.description or inner.get("description"),
        strict=inner.get("strict") if given.strict is None else given.strict,
    )


def _instructions(text: str | None, items: list[Item] | None) -> Any:
    return text if items is None else [wire_item(item) for item in items]


def _reasoning(request: CreateResponse) -> dict[str, Any]:
    config = request.reasoning
    echoed: dict[str, Any] = {"effort": config.effort, "summary": config.summary}
    for name in ("generate_summary", "context", "mode"):
        value = getattr(config, name)
        if value is not None:
            echoed[name] = value
    return echoed


def _text(config: TextConfig) -> dict[str, Any]:
    return {"format": effective_format(config) or {"type": "text"}, "verbosity": config.verbosity or "medium"}
