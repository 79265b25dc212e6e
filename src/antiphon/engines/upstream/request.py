"""From a prompt to the body of a chat completion, or of a text completion, as the profile of an upstream has it. Pure.

What an upstream cannot be held to is asked for in words too, and checked afterwards. A request is the same bytes for
the same history, so that the upstream's own cache of prefixes finds it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final

import msgspec

from antiphon.engines.upstream.callform import asked_as_form
from antiphon.engines.upstream.profiles import Profile
from antiphon.engines.upstream.written import parts_of, written
from antiphon.machine.reasoning import CLOSE_MARKER, OPEN_MARKER
from antiphon.prompt.arguments import custom_format
from antiphon.prompt.chat_messages import chat_messages
from antiphon.prompt.dialects.base import callable_tools, function_schema
from antiphon.prompt.grammar import has_format
from antiphon.prompt.instructions import instructed
from antiphon.prompt.prompt import ChatMessage, Prompt
from antiphon.prompt.thoughts import drop_past_thinking, keeps_past_thinking
from antiphon.protocol.completions import RawPrompt
from antiphon.protocol.request import TextFormat
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = ["Hold", "called_by_form", "held_back", "judged", "request_body", "session_headers", "text_body", "vary"]

_OFF: Final = frozenset({"none", "off", "disabled", "false", "0"})
_RETRY_TEMPERATURE: Final = 0.7
"""What a second attempt is drawn with at least: without chance it would be the first again."""

_PLAIN: Final = 2
"""Fields of a message that has but its role and its content."""

_SCHEMA_NAME: Final = "answer"


class Hold(Enum):
    """What is not told before it was checked."""

    NOTHING = "nothing"
    CALLS = "everything from the first call on"
    ALL = "everything"


def held_back(prompt: Prompt, profile: Profile) -> Hold:
    """What of an answer has to be checked before it is told, since the upstream enforces it by nothing."""
    if _loose(prompt, profile):
        return Hold.ALL
    names = callable_tools(prompt)
    if any(tool.name in names and _promises(tool, profile) for tool in prompt.tools):
        return Hold.CALLS
    return Hold.NOTHING


def judged(prompt: Prompt) -> Prompt:
    """What an answer is checked by: of a function that is not strict, only that its arguments are an object."""
    tools = [
        msgspec.structs.replace(tool, parameters=None)
        if isinstance(tool, FunctionTool) and tool.strict is False
        else tool
        for tool in prompt.tools
    ]
    return msgspec.structs.replace(prompt, messages=(), tools=tools)


def called_by_form(prompt: Prompt, profile: Profile) -> bool:
    """Whether a forced call is asked for as a format, so that the text of the answer is the call."""
    return prompt.choice.mode == "required" and profile.calls_as_form


def request_body(prompt: Prompt, profile: Profile, model: str, *, attempt: int = 0) -> dict[str, Any]:
    """The body of the request; `attempt` counts those whose answers were not what was asked for."""
    if called_by_form(prompt, profile):
        prompt = asked_as_form(prompt)
    elif _loose(prompt, profile):
        prompt = instructed(prompt)
    body: dict[str, Any] = {
        "model": model,
        "messages": _messages(prompt, profile),
        "stream": True,
        "stream_options": {"include_usage": True},
        **_tools(prompt, profile),
        **_format(prompt, profile),
        **_sampling(prompt, profile),
        **_thinking(prompt, profile),
        **cache_fields(prompt, profile),
    }
    if prompt.max_output_tokens is not None:
        body[profile.max_tokens] = prompt.max_output_tokens
    if attempt:
        vary(body, attempt)
    return body


def text_body(raw: RawPrompt, prompt: Prompt, profile: Profile, model: str) -> dict[str, Any]:
    """The body of a request to go on with a text, or with tokens; `prompt` says how, and holds no messages."""
    body: dict[str, Any] = {
        "model": model,
        "prompt": raw if isinstance(raw, str) else list(raw),
        "stream": True,
        "stream_options": {"include_usage": True},
        **_drawn(prompt, profile),
        **cache_fields(prompt, profile),
    }
    if prompt.max_output_tokens is not None:
        body["max_tokens"] = prompt.max_output_tokens
    if prompt.sampling.top_logprobs is not None:
        body["logprobs"] = prompt.sampling.top_logprobs
    return body


def cache_fields(prompt: Prompt, profile: Profile) -> dict[str, Any]:
    """What says in the body where the prefix may be cached, and whose it is; nothing of it is the caller's own text."""
    affinity = prompt.affinity
    fields: dict[str, Any] = {}
    if profile.cache_key and affinity.key:
        fields["prompt_cache_key"] = affinity.key
    if profile.cache_salt and affinity.cache_salt:
        fields["cache_salt"] = affinity.cache_salt
    return fields


def session_headers(prompt: Prompt, profile: Profile) -> dict[str, str]:
    """The headers by which routers before an upstream keep a history where its prefix is."""
    key = prompt.affinity.key
    return dict.fromkeys(profile.session_headers, key) if key else {}


def _loose(prompt: Prompt, profile: Profile) -> bool:
    """Whether the upstream does not enforce the call, or else the format, that is asked for."""
    if prompt.choice.mode == "required":
        return ("named" if len(callable_tools(prompt)) == 1 else "required") not in profile.enforces
    return has_format(prompt) and not _enforced_format(prompt, profile)


def _enforced_format(prompt: Prompt, profile: Profile) -> bool:
    form = prompt.format
    if form is None or form.type not in profile.enforces:
        return False
    return profile.beside_tools or not callable_tools(prompt)


def _promises(tool: FunctionTool | CustomTool, profile: Profile) -> bool:
    """Whether the tool was declared with a promise for its arguments that the upstream does not keep."""
    if isinstance(tool, CustomTool):
        return custom_format(tool)[0] != "text"
    return tool.strict is True and not profile.strict


def _messages(prompt: Prompt, profile: Profile) -> list[Any]:
    told = prompt.messages
    if not keeps_past_thinking(prompt):
        told = drop_past_thinking(told, OPEN_MARKER, CLOSE_MARKER)
    messages: list[Any] = []
    for part in parts_of(told):
        known = written.of(part)
        if known is None:
            messages += _told(part, profile)
            continue
        place = len(messages)
        messages += known.json
        for more in known.others:
            messages[place + more] = _told([part[more]], profile)[0]
    return messages


def _told(told: Sequence[ChatMessage], profile: Profile) -> list[dict[str, Any]]:
    messages = chat_messages(told)
    for message in messages:
        if len(message) == _PLAIN:
            continue
        thought = message.pop("reasoning_content", None)
        if thought and profile.reasoning is not None:
            message[profile.reasoning] = thought
        if message["role"] == "tool" and not profile.tool_names:
            message.pop("name", None)
    return messages


def _tools(prompt: Prompt, profile: Profile) -> dict[str, Any]:
    names = callable_tools(prompt)
    allowed = "allowed" in profile.choices
    shown = [tool for tool in prompt.tools if allowed or tool.name in names]
    if not shown or prompt.choice.mode == "none":
        return {}
    body: dict[str, Any] = {"tools": [_tool(tool, profile, forced=prompt.choice.mode == "required") for tool in shown]}
    choice = _choice(prompt, profile, list(names), limited=len(names) < len(shown))
    if choice is not None:
        body["tool_choice"] = choice
    if not prompt.parallel_tool_calls and profile.choices:
        body["parallel_tool_calls"] = False
    return body


def _tool(tool: FunctionTool | CustomTool, profile: Profile, *, forced: bool) -> dict[str, Any]:
    shown = function_schema(tool)
    if not shown["function"]["description"]:
        del shown["function"]["description"]
    strict = tool.strict if isinstance(tool, FunctionTool) else None
    if profile.forced_strict and (forced or strict):
        shown["function"]["strict"] = True
    elif profile.strict and strict is not None:
        shown["function"]["strict"] = strict
    return shown


def _choice(prompt: Prompt, profile: Profile, names: list[str], *, limited: bool) -> Any:
    mode = prompt.choice.mode
    if mode == "required" and len(names) == 1 and "named" in profile.choices:
        return {"type": "function", "function": {"name": names[0]}}
    if limited:
        tools = [{"type": "function", "function": {"name": name}} for name in names]
        return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}
    return mode if mode in profile.choices else None


def _format(prompt: Prompt, profile: Profile) -> dict[str, Any]:
    """The output format; where it would keep the model from calling a tool, it is asked for in words only."""
    form = prompt.format
    if form is None or not has_format(prompt) or prompt.choice.mode == "required":
        return {}
    if callable_tools(prompt) and not profile.beside_tools:
        return {}
    schema = form.schema if form.type == "json_schema" else None
    if profile.formats == "structured_outputs":
        return {"structured_outputs": {"json_object": True} if schema is None else {"json": schema}}
    if schema is None:
        return {"response_format": {"type": "json_object"}}
    if profile.formats == "json_schema":
        return {"json_schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": _named_schema(form)}}


def _named_schema(form: TextFormat) -> dict[str, Any]:
    named: dict[str, Any] = {"name": form.name or _SCHEMA_NAME, "schema": form.schema}
    if form.description:
        named["description"] = form.description
    if form.strict is not None:
        named["strict"] = form.strict
    return named


def _sampling(prompt: Prompt, profile: Profile) -> dict[str, Any]:
    sampling = prompt.sampling
    body = _drawn(prompt, profile)
    if sampling.top_logprobs is not None and profile.logprobs:
        body["logprobs"] = True
        if sampling.top_logprobs:
            body["top_logprobs"] = sampling.top_logprobs
    return body


def _drawn(prompt: Prompt, profile: Profile) -> dict[str, Any]:
    """How tokens are drawn, by the upstream's names."""
    given = prompt.sampling.named()
    biases = given.get("logit_bias")
    if biases is not None:
        given["logit_bias"] = {str(token): bias for token, bias in biases}
    return {profile.fields[name]: value for name, value in given.items() if name in profile.fields}


def _thinking(prompt: Prompt, profile: Profile) -> dict[str, Any]:
    """The effort, natively and as variables of the chat template (M13), and the variables of the request."""
    body: dict[str, Any] = {}
    variables = dict(prompt.template_defaults)
    effort = None if prompt.reasoning_effort is None else prompt.reasoning_effort.strip()
    if effort is not None:
        if profile.efforts is None or effort in profile.efforts:
            body["reasoning_effort"] = effort
        variables["enable_thinking"] = effort.lower() not in _OFF
        variables.pop("reasoning_effort", None)
        if variables["enable_thinking"]:
            variables["reasoning_effort"] = effort
    variables.update(prompt.template_kwargs)
    if variables and profile.template_kwargs:
        body["chat_template_kwargs"] = variables
    return body


def vary(body: dict[str, Any], attempt: int) -> None:
    """Have a further attempt drawn otherwise than those before it."""
    if "seed" in body:
        body["seed"] = (body["seed"] + attempt) % 2**31
    if "temperature" in body:
        body["temperature"] = max(_RETRY_TEMPERATURE, body["temperature"])
