"""A conversation and its options as the body of a request, in the terms of one provider (rules E1 to E28). Pure."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias, cast

from antiphon.client.context import Context, Message, user
from antiphon.client.errors import DriverError
from antiphon.client.formats import encode_format
from antiphon.client.inputs import (
    after_response,
    call_types,
    encode_messages,
    encode_tool_outputs,
    last_response_id,
)
from antiphon.client.loose import as_str
from antiphon.client.options import KNOWN_OPTIONS, Options, RequestWarning
from antiphon.client.profiles import GENERIC, ModelFamily, Profile
from antiphon.client.structured import STRUCTURED_OUTPUT
from antiphon.client.tools import encode_tools, tool_name

__all__ = ["Conversation", "as_context", "encode", "encode_compact", "socket_frame"]

Conversation: TypeAlias = Context | Message | Sequence[Message] | str
"""What a request may be asked with: a context, messages, or the words of a user."""

_EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_MODES: Final = ("auto", "none", "required")
_CHOICES: Final = frozenset(
    {
        "allowed_tools",
        "apply_patch",
        "code_interpreter",
        "computer",
        "computer_use",
        "computer_use_preview",
        "custom",
        "file_search",
        "image_generation",
        "mcp",
        "programmatic_tool_calling",
        "search_corpus",
        "shell",
        "web_search",
        "web_search_preview",
        "web_search_preview_2025_03_11",
    }
)
"""Choices of tools that are not functions (responses-api 4)."""

_AS_THEY_ARE: Final = (
    "max_tool_calls",
    "top_logprobs",
    "top_k",
    "min_p",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "truncation",
    "metadata",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "user",
    "service_tier",
    "background",
    "stream",
    "stream_options",
)
_NOT_ON_A_SOCKET: Final = frozenset({"stream", "stream_options", "background"})


def as_context(conversation: Conversation) -> Context:
    """What a request is asked with, as a context."""
    if isinstance(conversation, Context):
        return conversation
    if isinstance(conversation, str):
        return Context([user(conversation)])
    return Context([conversation] if isinstance(conversation, Message) else list(conversation))


def encode(
    conversation: Conversation,
    options: Options | Mapping[str, Any] | None = None,
    profile: Profile = GENERIC,
    model: str | None = None,
    *,
    websocket: bool = False,
) -> dict[str, Any]:
    """The body of `POST /responses`; over a WebSocket it is put into a frame by `socket_frame`.

    What the endpoint or the model does not take is left out or raised to what it takes, with a `RequestWarning`.

    Raises:
        ContextError: a part of the conversation cannot be sent.
        DriverError: an option is not known, or has a value that nobody takes.
    """
    context = as_context(conversation)
    said = _checked(options or {})
    family = profile.family(model)
    if family.api != "responses":
        _warn(f"'{model}' is not known to answer at /responses.")
    store, previous = _chain(context, said, profile, family, websocket=websocket)
    body: dict[str, Any] = {"model": model, "input": _input(context, said, profile, previous)}
    _put(body, "instructions", said.get("instructions"))
    _put(body, "previous_response_id", previous)
    _put(body, "conversation", said.get("conversation"))
    tools = encode_tools(said.get("tools"), research=family.research)
    _put(body, "tools", tools or None)
    _put(body, "tool_choice", _choice(said.get("tool_choice")))
    _put(body, "parallel_tool_calls", said.get("parallel_tool_calls"))
    _put(body, "max_output_tokens", _output_tokens(said, profile))
    reasoning = _reasoning(said)
    _put_sampling(body, said, family, model, reasoning)
    _put(body, "reasoning", reasoning)
    _put(body, "include", _include(said, profile, family))
    _put_text(body, said, profile)
    _put(body, "context_management", [dict(entry) for entry in said.get("context_management") or ()] or None)
    for name in _AS_THEY_ARE:
        _put(body, name, said.get(name))
    _put(body, "store", store)
    return _fitted(body, profile) | dict(said.get("extra_body") or {})


def encode_compact(
    conversation: Conversation,
    options: Options | Mapping[str, Any] | None = None,
    profile: Profile = GENERIC,
    model: str | None = None,
) -> dict[str, Any]:
    """The body of `POST /responses/compact`: the answer that is referred to, or all of the conversation (E25).

    Raises:
        ContextError: a part of the conversation cannot be sent.
        DriverError: an option is not known.
    """
    said = _checked(options or {})
    previous = said.get("previous_response_id")
    if previous:
        return {"model": model, "previous_response_id": previous}
    return {"model": model, "input": encode_messages(as_context(conversation).messages, profile, replay=True)}


def socket_frame(body: Mapping[str, Any]) -> dict[str, Any]:
    """The first frame of a WebSocket that asks for that body (E28)."""
    return {"type": "response.create", **{key: body[key] for key in body if key not in _NOT_ON_A_SOCKET}}


def _checked(options: Options | Mapping[str, Any]) -> dict[str, Any]:
    said = dict(cast("Mapping[str, Any]", options))
    unknown = sorted(said.keys() - KNOWN_OPTIONS)
    if unknown:
        raise DriverError(f"There is no option '{unknown[0]}'. What only one endpoint knows goes into `extra_body`.")
    return {name: value for name, value in said.items() if value is not None}


def _warn(message: str) -> None:
    warnings.warn(message, RequestWarning, stacklevel=4)


def _put(body: dict[str, Any], name: str, value: Any) -> None:
    if value is not None:
        body[name] = value


def _chain(
    context: Context, said: dict[str, Any], profile: Profile, family: ModelFamily, *, websocket: bool
) -> tuple[bool | None, str | None]:
    """Whether to store, and the answer to go on from (E19, E20).

    A socket remembers its last answer, stored or not. Who names a conversation goes on from that.
    """
    store: bool | None = said.get("store", family.store)
    given: str | None = said.get("previous_response_id")
    if store is False and not websocket:
        if given is not None:
            _warn("`previous_response_id` is not sent: with `store` false the endpoint would not know it.")
        return store, None
    previous = given
    if previous is None and profile.chains and said.get("chain", True) and "conversation" not in said:
        previous = last_response_id(context)
    return (True if previous is not None and store is None else store), previous


def _input(context: Context, said: dict[str, Any], profile: Profile, previous: str | None) -> list[dict[str, Any]]:
    held = previous or (last_response_id(context) if "conversation" in said else None)
    calls = call_types(context.messages)
    items = encode_messages(after_response(context, held), profile, replay=held is None, calls=calls)
    return items + encode_tool_outputs(said.get("tool_outputs"), calls)


def _output_tokens(said: dict[str, Any], profile: Profile) -> int | None:
    names = ("max_output_tokens", "max_completion_tokens", "max_tokens")
    wanted: int | None = next((said[name] for name in names if name in said), None)
    if wanted is not None and wanted < profile.minimum_output_tokens:
        _warn(f"`max_output_tokens` is {profile.minimum_output_tokens} instead of {wanted}: fewer are not taken.")
        return profile.minimum_output_tokens
    return wanted


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _reasoning(said: dict[str, Any]) -> dict[str, Any] | None:
    """The `reasoning` of a request (E16): its fields one by one, or as a mapping."""
    given = dict(cast("Mapping[str, Any]", said.get("reasoning") or {}))
    found = {name: said.get(f"reasoning_{name}", given.pop(name, None)) for name in ("effort", "summary", "context")}
    found = {name: _plain(value) for name, value in (found | given).items() if value is not None}
    if "reasoning_token_budget" in said:
        _warn("`reasoning_token_budget` is not sent: say `reasoning_effort` instead.")
    effort = found.get("effort")
    if effort == "default":
        del found["effort"]
    elif effort is not None and effort not in _EFFORTS:
        raise DriverError(f"'{effort}' is not an effort; there are: {', '.join(_EFFORTS)}, and 'default'.")
    return found or None


def _put_sampling(
    body: dict[str, Any], said: dict[str, Any], family: ModelFamily, model: str | None, reasoning: dict[str, Any] | None
) -> None:
    """Temperature and top_p, for models that take them (E3)."""
    without = (reasoning or {}).get("effort") == "none"
    sent = family.sampling == "sent" or (family.sampling == "sent_without_effort" and without)
    for name in ("temperature", "top_p"):
        if sent:
            _put(body, name, said.get(name))
        elif name in said:
            _warn(f"`{name}` is not sent: '{model}' does not take it.")


def _include(said: dict[str, Any], profile: Profile, family: ModelFamily) -> list[str] | None:
    if "include" in said:
        return list(said["include"])
    return ["reasoning.encrypted_content"] if family.reasoning and profile.encrypted_reasoning else None


def _choice(choice: Any) -> Any:
    """The `tool_choice` of a request (E15); what is none is left out."""
    if choice is None or (isinstance(choice, str) and choice in _MODES):
        return choice
    if isinstance(choice, Mapping):
        given = cast("Mapping[str, Any]", choice)
        nested = given.get("function")
        name = cast("Mapping[str, Any]", nested).get("name") if isinstance(nested, Mapping) else given.get("name")
        if given.get("type") in ("function", "tool") and isinstance(name, str):
            return {"type": "function", "name": name}
        if as_str(given.get("type")) in _CHOICES:
            return dict(given)
    elif isinstance(named := tool_name(choice), str):
        return {"type": "function", "name": named}
    _warn("`tool_choice` is not sent: it is none of 'auto', 'none', 'required' and the name of a tool.")
    return None


def _put_text(body: dict[str, Any], said: dict[str, Any], profile: Profile) -> None:
    """The form of the answer (E18), by a tool of that form where the endpoint knows no formats (D14)."""
    form = encode_format(said.get("text_format", said.get("response_format")))
    if form is not None and form["type"] == "json_schema" and not profile.formats:
        tool = {"type": "function", "name": STRUCTURED_OUTPUT, "description": "Give the answer, in this form."}
        others: list[Any] = body.get("tools", [])
        body["tools"] = [*others, {**tool, "parameters": form["schema"], "strict": form.get("strict", False)}]
        body["tool_choice"] = "required" if others else {"type": "function", "name": STRUCTURED_OUTPUT}
        form = None
    text = {"format": form, "verbosity": _plain(said.get("verbosity"))}
    _put(body, "text", {name: value for name, value in text.items() if value is not None} or None)


def _fitted(body: dict[str, Any], profile: Profile) -> dict[str, Any]:
    """The body in the provider's own terms."""
    fitted: dict[str, Any] = {}
    names = dict(profile.renamed)
    required = dict(profile.required)
    for name, value in body.items():
        if value is None:
            continue
        if name in profile.dropped or (profile.fields is not None and name not in profile.fields):
            _warn(f"`{name}` is not sent: {profile.name} does not take it.")
        else:
            fitted[names.get(name, name)] = value
    return required | fitted if required else fitted
