"""The body of `POST /v1/chat/completions`, read as a request for a response and what shapes its answer.

Chat messages become items and the other fields those of `CreateResponse`, so that everything after this is one path
for both (issue 4, section 8). Unknown fields are ignored and an explicit null is the same as an absent field; a field
that would change the answer and that is not done here is a 400 that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from antiphon.errors import InvalidRequestError, UnsupportedError
from antiphon.protocol.bounds import Count
from antiphon.protocol.chat_messages import message_items
from antiphon.protocol.depth import check_value
from antiphon.protocol.items import Item
from antiphon.protocol.json import decode_body, decode_part, encode, quoted
from antiphon.protocol.request import (
    LOGPROBS,
    MAX_INPUT_ITEMS,
    CreateResponse,
    ReasoningConfig,
    SharedFields,
    TextConfig,
    TextFormat,
    check_tools,
    check_verbosity,
    decode_create_response,
    shared_values,
)
from antiphon.protocol.tools import Tool, decode_tool, decode_tool_choice

__all__ = ["MAX_CHOICES", "ChatRequest", "StreamOptions", "check_choices", "decode_chat_request"]

MAX_CHOICES = 128
"""Answers to one request."""

_REPLACED = {"functions": "tools", "function_call": "tool_choice"}
_BEYOND = ("audio", "web_search_options")


class StreamOptions(Struct):
    """`stream_options`: whether the usage comes in a last chunk."""

    include_usage: bool | None = None


class _Body(SharedFields):
    messages: list[Raw] | None = None
    tools: list[Raw] | None = None
    tool_choice: Raw = Raw(b"null")
    response_format: TextFormat | None = None
    reasoning_effort: str | None = None
    reasoning: ReasoningConfig | None = None
    verbosity: str | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    stream_options: StreamOptions | None = None
    modalities: list[str] | None = None
    functions: list[Raw] | None = None
    function_call: Raw = Raw(b"null")
    audio: dict[str, Any] | None = None
    web_search_options: dict[str, Any] | None = None


class ChatRequest(Struct):
    """A chat request. `request` is what is asked of the model, and `places` the message that each of its items is of.

    `limit` is the name under which the limit of output tokens came, and `nests` in what each tool is nested, if it is.
    """

    request: CreateResponse
    places: Sequence[int]
    choices: int
    include_usage: bool
    limit: str
    nests: Sequence[str] = ()

    def named(self, error: InvalidRequestError) -> InvalidRequestError:
        """An error about the request for a response, with the names that the fields have in a chat request."""
        param = error.param
        if param is None:
            return error
        error.param = self._name(param)
        for name in (param, param.partition("[")[0].partition(".")[0], "text.format", "max_output_tokens"):
            error.message = error.message.replace(f"'{name}'", f"'{self._name(name)}'")
        return error

    def _name(self, param: str) -> str:
        for name, renamed in (
            ("text.format.schema", "response_format.json_schema.schema"),
            ("text.format", "response_format"),
            ("max_output_tokens", self.limit),
            ("reasoning.effort", "reasoning_effort"),
        ):
            if param == name or param.startswith(f"{name}."):
                return renamed + param.removeprefix(name)
        head, bracket, rest = param.partition("[")
        index, _, rest = rest.partition("]")
        if head == "tools" and index.isdigit() and rest and self.nests[int(index)]:
            return f"tools[{index}].{self.nests[int(index)]}{rest}"
        if head != "input":
            return param
        if not bracket:
            return "messages" + param.removeprefix("input")
        return f"messages[{self.places[int(index)]}]{rest.replace('.output[', '.content[', 1)}"


class _Tool(Struct):
    type: str
    function: dict[str, Any] | None = None
    custom: dict[str, Any] | None = None


class _Choice(Struct):
    type: str
    allowed_tools: dict[str, Any] | None = None
    custom: dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(_Body)
_tool = msgspec.json.Decoder(_Tool)
_choice = msgspec.json.Decoder(_Choice)


def decode_chat_request(data: bytes) -> ChatRequest:
    """The typed request of a JSON body.

    Raises:
        InvalidRequestError: the JSON is malformed, or a field has a wrong type, is out of range or cannot be done here;
            `param` is its path.
    """
    body = decode_body(_decoder, data)
    _refuse(body)
    items, places = _items(body.messages)
    limit = "max_tokens" if body.max_completion_tokens is None and body.max_tokens is not None else _LIMIT
    tokens = body.max_tokens if limit == "max_tokens" else body.max_completion_tokens
    check_limit(tokens, limit)
    tools, nests = _tools(body.tools or ())
    effort = body.reasoning_effort
    request = msgspec.structs.replace(
        decode_create_response(b"{}"),
        **shared_values(body),
        items=items,
        include=[LOGPROBS] if body.logprobs else [],
        top_logprobs=body.top_logprobs or 0,
        max_output_tokens=tokens,
        tools=tools,
        tool_choice=decode_tool_choice(_flat_choice(body.tool_choice)),
        text=TextConfig(format=body.response_format, verbosity=body.verbosity),
        reasoning=ReasoningConfig(effort=effort) if effort is not None else body.reasoning or ReasoningConfig(),
    )
    options = body.stream_options
    return ChatRequest(
        request=request,
        places=places,
        choices=body.n or 1,
        include_usage=options is not None and options.include_usage is True,
        limit=limit,
        nests=nests,
    )


_LIMIT = "max_completion_tokens"


def check_limit(tokens: int | None, name: str) -> None:
    """Refuse a limit of output tokens that lets nothing be said (M23).

    Raises:
        InvalidRequestError: it is less than one.
    """
    if tokens is not None and tokens < 1:
        raise InvalidRequestError(
            f"Invalid '{name}': {name} must be > 0, but got {tokens}.", param=name, code="integer_below_min_value"
        )


def check_choices(turns: int, most: int | None, param: str = "n") -> None:
    """Refuse more answers to one request than may be generated at the same time.

    Raises:
        InvalidRequestError: there would be more.
    """
    most = MAX_CHOICES if most is None else min(most, MAX_CHOICES)
    if turns > most:
        raise InvalidRequestError(
            f"Invalid '{param}': at most {most} answers to one request are expected, but got {turns}.",
            param=param,
            code="integer_above_max_value",
        )


def _refuse(body: _Body) -> None:
    for old, new in _REPLACED.items():
        value = getattr(body, old)
        if value if isinstance(value, list) else bytes(value or b"null") != b"null":
            raise UnsupportedError(f"'{old}' is not supported: use '{new}' instead.", param=old)
    for name in _BEYOND:
        if getattr(body, name):
            raise UnsupportedError(f"'{name}' is not supported by this server.", param=name)
    if set(body.modalities or ()) - {"text"}:
        raise UnsupportedError(
            "Answers are text: 'modalities' other than 'text' are not supported.", param="modalities"
        )
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidRequestError(
            "'top_logprobs' is only allowed where 'logprobs' is true.", param="top_logprobs", code="invalid_value"
        )
    check_verbosity(body.verbosity, "verbosity")
    check_tools(len(body.tools or ()))
    if body.response_format is not None:
        check_value(body.response_format.schema, "response_format.schema")
        check_value(body.response_format.json_schema, "response_format.json_schema")


def _items(messages: Sequence[Raw] | None) -> tuple[list[Item], list[int]]:
    if messages is None:
        raise InvalidRequestError(
            "Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter"
        )
    if len(messages) > MAX_INPUT_ITEMS:
        raise InvalidRequestError(
            f"Invalid 'messages': at most {MAX_INPUT_ITEMS} messages are expected, but got {len(messages)}.",
            param="messages",
            code="array_above_max_length",
        )
    items: list[Item] = []
    places: list[int] = []
    called: dict[str, str] = {}
    for index, raw in enumerate(messages):
        for item in message_items(raw, f"messages[{index}]", called):
            items.append(item)
            places.append(index)
    return items, places


def _tools(raws: Sequence[Raw]) -> tuple[list[Tool], list[str]]:
    """The tools, and in what each of them is nested, if it is."""
    tools: list[Tool] = []
    nests: list[str] = []
    for index, raw in enumerate(raws):
        path = f"tools[{index}]"
        tool = decode_part(_tool, raw, path)
        if tool.type not in ("function", "custom"):
            raise UnsupportedError(
                f"Invalid value: '{quoted(tool.type)}'. Supported values are: 'function' and 'custom'; "
                "tools of other types are for /v1/responses.",
                param=f"{path}.type",
            )
        inner = tool.function if tool.type == "function" else tool.custom
        nests.append("" if inner is None else tool.type)
        if inner is None:
            tools.append(decode_tool(raw, path))
            continue
        check_value(inner, f"{path}.{tool.type}")
        flat = _flat_format(inner) if tool.type == "custom" else inner
        tools.append(decode_tool(Raw(encode({**flat, "type": tool.type})), f"{path}.{tool.type}"))
    return tools, nests


def _flat_format(custom: dict[str, Any]) -> dict[str, Any]:
    """A custom tool whose grammar, which stands in an object of its own in a chat request, is where others have it."""
    form = custom.get("format")
    if not isinstance(form, Mapping) or not isinstance(form.get("grammar"), Mapping):  # pyright: ignore[reportUnknownMemberType]
        return custom
    return {**custom, "format": {"type": "grammar", **form["grammar"]}}


def _flat_choice(raw: Raw) -> Raw:
    """A tool choice with its parts where a request for a response has them."""
    if not bytes(raw).startswith(b"{"):
        return raw
    choice = decode_part(_choice, raw, "tool_choice")
    inner = choice.allowed_tools if choice.type == "allowed_tools" else choice.custom
    if inner is None:
        return raw
    check_value(inner, "tool_choice")
    return Raw(encode({**inner, "type": choice.type}))
