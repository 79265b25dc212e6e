"""From a prompt to the body of a request to a Responses endpoint, as the profile of an upstream has it. Pure.

A request brings the whole history: the upstream need not keep anything. The same history is the same bytes, so that the
upstream's own cache of prefixes finds it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from antiphon.engines.responses.history import call_item, known_ids, native_items, raw_item, thought_item
from antiphon.engines.responses.profiles import Profile
from antiphon.engines.upstream.request import Hold, held_back, vary
from antiphon.machine.reasoning import CLOSE_MARKER, OPEN_MARKER
from antiphon.prompt.arguments import custom_format
from antiphon.prompt.dialects.base import callable_tools, function_schema
from antiphon.prompt.grammar import has_format
from antiphon.prompt.instructions import instructed
from antiphon.prompt.prompt import ChatMessage, Prompt
from antiphon.prompt.thoughts import drop_past_thinking, keeps_past_thinking
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = ["request_body"]

_SCHEMA_NAME: Final = "answer"
_MOST_KEY: Final = 64
_LOGPROBS: Final = "message.output_text.logprobs"
_SEALED: Final = "reasoning.encrypted_content"


def request_body(
    prompt: Prompt, profile: Profile, model: str, *, attempt: int = 0, kept: bool = False
) -> dict[str, Any]:
    """The body of the request; `attempt` counts those whose answers were not what was asked for.

    A response that is to be `kept` goes on there without us, and can be looked up.
    """
    if held_back(prompt, profile.trust) is Hold.ALL:
        prompt = instructed(prompt)
    body: dict[str, Any] = {
        "model": model,
        **_input(prompt, profile),
        **_tools(prompt, profile),
        **_text(prompt, profile),
        **_sampling(prompt, profile, model),
        **_thinking(prompt, profile),
        **_caching(prompt, profile),
        "store": kept,
        "stream": True,
    }
    if kept:
        body["background"] = True
    body.update(prompt.hosted.fields)
    include = _include(prompt, profile, model)
    if include:
        body["include"] = include
    if prompt.max_output_tokens is not None:
        body["max_output_tokens"] = max(prompt.max_output_tokens, profile.wire.minimum_output_tokens)
    if attempt:
        vary(body, attempt)
    return _fitted(body, profile)


def _fitted(body: Mapping[str, Any], profile: Profile) -> dict[str, Any]:
    """The body with the fields that the upstream takes, under the names that it has for them."""
    wire, names = profile.wire, dict(profile.wire.renamed)
    return {
        names.get(name, name): value
        for name, value in body.items()
        if name not in wire.dropped and (wire.fields is None or name in wire.fields)
    }


def _input(prompt: Prompt, profile: Profile) -> dict[str, Any]:
    """The conversation: the text that leads it as instructions, and the rest as items."""
    told = list(prompt.messages)
    if not keeps_past_thinking(prompt):
        told = drop_past_thinking(told, OPEN_MARKER, CLOSE_MARKER)
    body: dict[str, Any] = {}
    if told and told[0].role == "system" and isinstance(told[0].content, str):
        body["instructions"] = told.pop(0).content
    custom = {tool.name for tool in prompt.tools if isinstance(tool, CustomTool)} if profile.custom else set[str]()
    called: dict[str, bool] = {}
    known = known_ids(told)
    items: list[dict[str, Any]] = []
    for message in told:
        if message.role == "assistant":
            called.update((call.id, call.name in custom) for call in message.tool_calls)
            if message.items:
                items += native_items(message, profile, called, known)
            else:
                items += _assistant(message, profile, called)
        elif message.role == "tool" and message.items:
            items += (raw_item(item, known) for item in message.items)
        elif message.role == "tool":
            kind = "custom_tool_call_output" if called.get(message.tool_call_id) else "function_call_output"
            items.append({"type": kind, "call_id": message.tool_call_id, "output": _content(message)})
        else:
            items.append({"type": "message", "role": message.role, "content": _content(message)})
    body["input"] = items
    return body


def _assistant(message: ChatMessage, profile: Profile, custom: Mapping[str, bool]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if message.reasoning and profile.thoughts == "text":
        items.append(thought_item(message.reasoning))
    text = _content(message)
    if text:
        items.append({"type": "message", "role": "assistant", "content": text})
    return [*items, *(call_item(call, custom=custom[call.id]) for call in message.tool_calls)]


def _content(message: ChatMessage) -> str | list[dict[str, Any]]:
    """The content of a message: a text, or parts in the spelling of the Responses API."""
    if isinstance(message.content, str):
        return message.content
    return [_part(part) for part in message.content]


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = part["type"]
    if kind == "text":
        return {"type": "input_text", "text": part["text"]}
    if kind == "image_url":
        image: Any = part["image_url"]
        fields = cast("dict[str, Any]", image) if isinstance(image, dict) else {"url": image}
        named = {"url": "image_url"}
        return {"type": "input_image", **{named.get(name, name): value for name, value in fields.items()}}
    if kind == "file":
        return {"type": "input_file", **part["file"]}
    return dict(part)


def _tools(prompt: Prompt, profile: Profile) -> dict[str, Any]:
    names = callable_tools(prompt)
    allowed = "allowed" in profile.trust.choices
    shown = [tool for tool in prompt.tools if allowed or tool.name in names]
    hosted = prompt.hosted.tools
    if not (shown or hosted) or prompt.choice.mode == "none":
        return {}
    body: dict[str, Any] = {"tools": [*(_tool(tool, profile) for tool in shown), *hosted]}
    choice = prompt.choice.hosted or _choice(prompt, profile, names, limited=len(names) < len(shown))
    if choice is not None:
        body["tool_choice"] = choice
    if not prompt.parallel_tool_calls:
        body["parallel_tool_calls"] = False
    return body


def _tool(tool: FunctionTool | CustomTool, profile: Profile) -> dict[str, Any]:
    shown: dict[str, Any]
    if isinstance(tool, CustomTool) and profile.custom:
        shown = {"type": "custom", "name": tool.name, "description": tool.description or ""}
        if custom_format(tool)[0] != "text":
            shown["format"] = tool.format
    else:
        # Some servers want to be told that there is nothing to be told of it.
        strict = tool.strict if isinstance(tool, FunctionTool) else None
        shown = {"type": "function", **function_schema(tool)["function"], "strict": strict}
    if not shown["description"]:
        del shown["description"]
    return shown


def _choice(prompt: Prompt, profile: Profile, names: Mapping[str, bool], *, limited: bool) -> Any:
    mode, choices = prompt.choice.mode, profile.trust.choices
    named = [
        {"type": "custom" if custom and profile.custom else "function", "name": name} for name, custom in names.items()
    ]
    if mode == "required" and len(named) == 1 and "named" in choices:
        return named[0]
    if limited:
        return {"type": "allowed_tools", "mode": mode, "tools": named}
    return mode if mode in choices else None


def _text(prompt: Prompt, profile: Profile) -> dict[str, Any]:
    """The output format, and how long the answer is to be."""
    told = _format(prompt, profile)
    if prompt.hosted.verbosity is not None:
        told["verbosity"] = prompt.hosted.verbosity
    return {"text": told} if told else {}


def _format(prompt: Prompt, profile: Profile) -> dict[str, Any]:
    """The output format; where it would keep the model from calling a tool, it is asked for in words only."""
    form = prompt.format
    if form is None or not has_format(prompt) or prompt.choice.mode == "required" or not profile.wire.formats:
        return {}
    if callable_tools(prompt) and not profile.trust.beside_tools:
        return {}
    if form.type != "json_schema":
        return {"format": {"type": form.type}}
    told: dict[str, Any] = {"type": "json_schema", "name": form.name or _SCHEMA_NAME, "schema": form.schema}
    if form.description:
        told["description"] = form.description
    if form.strict is not None:
        told["strict"] = form.strict
    return {"format": told}


def _sampling(prompt: Prompt, profile: Profile, model: str) -> dict[str, Any]:
    given, fields = prompt.sampling.named(), profile.trust.fields
    biases = given.get("logit_bias")
    if biases is not None:
        given["logit_bias"] = {str(token): bias for token, bias in biases}
    rule = profile.wire.family(model).sampling
    if rule == "dropped" or (rule == "sent_without_effort" and prompt.reasoning_effort != "none"):
        given = {name: value for name, value in given.items() if name not in ("temperature", "top_p")}
    body = {fields[name]: value for name, value in given.items() if name in fields}
    if prompt.sampling.top_logprobs:
        body["top_logprobs"] = prompt.sampling.top_logprobs
    return body


def _thinking(prompt: Prompt, profile: Profile) -> dict[str, Any]:
    """The effort, and what else is said of thinking where the upstream reads it."""
    body: dict[str, Any] = {}
    effort = None if prompt.reasoning_effort is None else prompt.reasoning_effort.strip()
    efforts = profile.trust.efforts
    reasoning: dict[str, Any] = {}
    if effort and (efforts is None or effort in efforts):
        reasoning["effort"] = effort
    if prompt.hosted.summary is not None and profile.summaries:
        reasoning["summary"] = prompt.hosted.summary
    if reasoning:
        body["reasoning"] = reasoning
    if profile.trust.template_kwargs:
        variables = {**prompt.template_defaults, **prompt.template_kwargs}
        if variables:
            body["chat_template_kwargs"] = variables
        if prompt.thinking_budget is not None:
            body["thinking_budget"] = prompt.thinking_budget
    return body


def _caching(prompt: Prompt, profile: Profile) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if profile.keyed and prompt.affinity.key:
        body["prompt_cache_key"] = prompt.affinity.key[:_MOST_KEY]
    if profile.salted and prompt.affinity.cache_salt:
        body["cache_salt"] = prompt.affinity.cache_salt
    return body


def _include(prompt: Prompt, profile: Profile, model: str) -> list[str]:
    include = list(prompt.hosted.include)
    if prompt.sampling.top_logprobs is not None:
        include.append(_LOGPROBS)
    if profile.thoughts == "sealed" and profile.wire.family(model).reasoning:
        include.append(_SEALED)
    return include
