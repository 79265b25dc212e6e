"""A whole answer to one normalized `Response` (D1 to D15); a streamed one ends here too, so that both are the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.client.context import (
    APPROVAL_REQUEST,
    Message,
    MessageMetadata,
    Part,
    PhaseItem,
    ProviderBlock,
    ResponsesReplay,
    TextPart,
    ThinkingPart,
    ToolCall,
)
from antiphon.client.errors import BodyError, EndpointError
from antiphon.client.items import (
    answered_calls,
    is_call,
    is_code_interpreter,
    join_thinking,
    part_annotations,
    part_text,
    reasoning_detail,
    tool_call,
)
from antiphon.client.loose import as_dict, as_dicts, as_str, loads, well_formed
from antiphon.client.response import FinishReason, Problem, Response
from antiphon.client.structured import read_object
from antiphon.client.usage import count_tools, decode_usage

__all__ = ["DecodeOptions", "decode", "normalize", "read_problem"]

_LENGTH = frozenset({"stop", "length", "max_tokens", "max_output_tokens", "max_tool_calls", "context_window"})
_AS_THEY_ARE: dict[str, FinishReason] = {"tool_calls": "tool_calls", "content_filter": "content_filter"}
_NOT_META = frozenset({"id", "model", "output_text", "output", "usage"})
_EVENTS = frozenset({"error", "response.error", "response.failed"})
_OF_A_RESPONSE = frozenset({"output", "output_text", "status", "error", "id"})


class DecodeOptions(Struct, frozen=True):
    """How answers are read.

    `provider` is what reasoning and compactions are marked with, so that they go back to no other (E21). `schema` is
    that of the structured answer, where one was asked for; `repair_json` mends its JSON first (D14).
    """

    provider: str = "openai"
    schema: dict[str, Any] | None = None
    repair_json: bool = False


class _Said(Struct):
    texts: list[tuple[str, bool]]
    annotations: list[dict[str, Any]]
    phase: str | None = None
    id: str | None = None
    place: int = 0

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.texts)


def decode(
    body: bytes | str | Mapping[str, Any],
    *,
    status: int = 200,
    provider: str = "openai",
    schema: dict[str, Any] | None = None,
    repair_json: bool = False,
) -> Response:
    """The answer in the body of an HTTP response; the options are those of `DecodeOptions`.

    An answer that failed is a `Response` with its `problem`, as it is in a stream.

    Raises:
        EndpointError: the status says that the request was refused (D1).
        BodyError: the body is no answer.
    """
    refused = not 200 <= status < 300
    if isinstance(body, Mapping):
        value: Any = dict(body)
    else:
        try:
            value = loads(body)
        except ValueError:
            if not refused:
                raise BodyError("The endpoint's answer is not JSON.") from None
            value = body if isinstance(body, str) else body.decode(errors="replace")
    if refused:
        problem = read_problem(as_dict(value), "") if isinstance(value, dict) else Problem("")
        raise EndpointError(
            status,
            value,
            message=problem.message or None,
            code=problem.code,
            type=problem.type,
            param=problem.param,
        )
    if not _OF_A_RESPONSE & as_dict(value).keys():
        raise BodyError("The endpoint's answer is JSON, but not a response.")
    return normalize(as_dict(value), DecodeOptions(provider, schema, repair_json))


def normalize(body: dict[str, Any], options: DecodeOptions, seen_tools: Mapping[str, int] | None = None) -> Response:
    """The normalized answer of a response object.

    `seen_tools` is how often a stream showed each hosted tool at work.
    """
    output = as_dicts(body.get("output"))
    said = _without_twin(_said(output, body))
    refusals = [text for message in said for text, refusal in message.texts if refusal]
    annotations = [annotation for message in said for annotation in message.annotations]
    calls, counted = _calls(output, body)
    for name, count in (seen_tools or {}).items():
        counted[name] = max(counted.get(name, 0), count)
    reasoning = [(place, item) for place, item in enumerate(output) if item.get("type") == "reasoning"]
    thinking = join_thinking(item for _, item in reasoning)
    text = "".join(message.text for message in said)
    problem = _problem(body)
    finish, raw = _finish(body, problem, bool(refusals), any(not call.builtin for call in calls))
    phase = _phase(said)
    metadata = MessageMetadata(
        response_id=as_str(body.get("id")),
        phase=phase,
        phase_items=_phase_items(said),
        responses_replay=_replay(output, options.provider),
    )
    message = Message(
        "assistant",
        content=_content(output, said, thinking, options.provider),
        tool_calls=calls,
        reasoning_details=[reasoning_detail(item, place, options.provider) for place, item in reasoning],
        metadata=metadata,
    )
    meta = _provider_meta(body, output, annotations, refusals)
    answer = Response(
        message=message,
        text=text,
        thinking=thinking,
        tool_calls=calls,
        refusals=refusals,
        annotations=annotations,
        usage=decode_usage(body.get("usage"), counted),
        finish_reason=finish,
        raw_finish_reason=raw,
        provider_meta=meta,
        response_id=metadata.response_id,
        model=as_str(body.get("model")),
        status=as_str(body.get("status")),
        phase=phase,
        problem=problem,
        output=output,
    )
    if options.schema is not None and not refusals and problem is None:
        answer.object, answer.object_error = read_object(text, calls, options.schema, repair=options.repair_json)
        if answer.object_error is not None:
            meta["object_parse_error"] = answer.object_error
    return answer


def _said(output: list[dict[str, Any]], body: dict[str, Any]) -> list[_Said]:
    found: list[_Said] = []
    for place, item in enumerate(output):
        kind = as_str(item.get("type"))
        if kind == "message" or (kind is None and "content" in item):
            content = item.get("content")
            parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else as_dicts(content)
        elif kind in ("output_text", "text", "refusal"):
            parts = [item]
        else:
            continue
        texts = [text for text in map(part_text, parts) if text is not None and text[0]]
        annotations = [annotation for part in parts for annotation in part_annotations(part)]
        found.append(_Said(texts, annotations, as_str(item.get("phase")), as_str(item.get("id")), place))
    beside = well_formed(as_str(body.get("output_text")) or "")
    spoken = "".join(text for message in found for text, refusal in message.texts if not refusal)
    if beside and beside not in spoken and beside not in "".join(message.text for message in found):
        found.insert(0, _Said([(beside, False)], [], place=-1))
    return found


def _without_twin(said: list[_Said]) -> list[_Said]:
    if len(said) < 2:
        return said
    first, second = said[0], said[1]
    if (first.phase, second.phase) != ("commentary", "final_answer") or first.text != second.text:
        return said
    second.annotations = second.annotations or first.annotations
    return said[1:]


def _phase(said: list[_Said]) -> str | None:
    phases = [message.phase for message in said if message.phase is not None]
    if "final_answer" in phases:
        return "final_answer"
    return phases[-1] if phases else None


def _phase_items(said: list[_Said]) -> list[PhaseItem]:
    if len(said) < 2 or all(message.phase is None for message in said):
        return []
    return [PhaseItem(message.text, message.phase, message.id) for message in said]


def _content(output: list[dict[str, Any]], said: list[_Said], thinking: str, provider: str) -> list[Part]:
    placed: list[tuple[int, Part]] = []
    for message in said:
        metadata = {} if message.phase is None else {"phase": message.phase}
        joined: list[tuple[str, bool]] = []
        for text, refusal in message.texts:
            if joined and joined[-1][1] == refusal:
                joined[-1] = (joined[-1][0] + text, refusal)
            else:
                joined.append((text, refusal))
        placed += [(message.place, TextPart(text, refusal, metadata)) for text, refusal in joined]
    placed += [
        (place, ProviderBlock("compaction", item, provider))
        for place, item in enumerate(output)
        if item.get("type") == "compaction"
    ]
    parts = [part for _, part in sorted(placed, key=lambda pair: pair[0])]
    return [ThinkingPart(thinking), *parts] if thinking else parts


def _calls(output: list[dict[str, Any]], body: dict[str, Any]) -> tuple[list[ToolCall], dict[str, int]]:
    answered = answered_calls(output)
    calls = [tool_call(item, place, answered) for place, item in enumerate(output) if is_call(item)]
    known = {identity for item in output if (identity := as_str(item.get("id")))}
    beside = [
        item
        for item in as_dicts(body.get("hosted_tool_calls"))
        if is_call(item) and as_str(item.get("id")) not in known
    ]
    for place, item in enumerate(beside, len(output)):
        calls.append(msgspec.structs.replace(tool_call(item, place), builtin=True))
        if call_id := as_str(item.get("call_id")):
            answered.add(call_id)
    return calls, count_tools([*output, *beside], answered)


def _replay(output: list[dict[str, Any]], provider: str) -> ResponsesReplay | None:
    # A call that waits for our word stands among the items that it came with.
    if any(item.get("type") in ("compaction", APPROVAL_REQUEST) for item in output):
        return ResponsesReplay(output, provider)
    return None


def _provider_meta(
    body: dict[str, Any], output: list[dict[str, Any]], annotations: list[dict[str, Any]], refusals: list[str]
) -> dict[str, Any]:
    meta: dict[str, Any] = {key: value for key, value in body.items() if key not in _NOT_META}
    meta["api_type"] = "responses"
    interpreted = [item for item in output if is_code_interpreter(item)]
    if interpreted:
        meta["code_interpreter"] = {"items": interpreted}
    if refusals:
        meta["refusals"] = refusals
    if annotations:
        meta["annotations"] = annotations
    return meta


def _finish(
    body: dict[str, Any], problem: Problem | None, refused: bool, called: bool
) -> tuple[FinishReason, str | None]:
    status = as_str(body.get("status"))
    if problem is not None:
        return "error", problem.code or status or "error"
    if status == "incomplete":
        reason = as_str(as_dict(body.get("incomplete_details")).get("reason"))
        if reason is None or reason in _LENGTH:
            return "length", reason or status
        return _AS_THEY_ARE.get(reason, "error"), reason
    if status in ("completed", None):
        if refused:
            return "content_filter", status
        if called:
            return "tool_calls", status
    return "stop", status


def _problem(body: dict[str, Any]) -> Problem | None:
    status = body.get("status")
    error = body.get("error")
    if status == "failed" or (error and status is None):
        return read_problem(body, "response failed")
    return None


def read_problem(holder: dict[str, Any], fallback: str) -> Problem:
    """What went wrong: by the `error` object of a body or an event, or by the event's own fields (S12, S13)."""
    error = holder.get("error")
    inner = as_dict(error)
    places = (inner, holder)
    messages = [error] if isinstance(error, str) else [place.get("message") for place in places]
    codes = [_word(place.get("code")) for place in places]
    kinds = [inner.get("type"), holder.get("type"), inner.get("status")]
    code = next((code for code in codes if code), None)
    return Problem(
        message=next((message for message in messages if isinstance(message, str) and message), code or fallback),
        code=code,
        type=next((kind for kind in kinds if isinstance(kind, str) and kind and kind not in _EVENTS), None),
        param=next((param for place in places if (param := as_str(place.get("param")))), None),
    )


def _word(value: Any) -> str | None:
    if isinstance(value, bool) or value is None:
        return None
    return str(value) if isinstance(value, str | int) else None
