"""What a model is told of the hosted items of a history: a call, and the text of what it gave. Pure.

The text is a matter of the item alone, so that a conversation has the same bytes whenever it is told (B18), and its
beginning is found in the prefix cache. Scores are rounded for the same reason (hosted-search 3.3).

What `prune_context` named is left out (B14): an item that is pruned keeps its place and what identifies it, and loses
its text. Only `get_chunks` brings the text of a chunk back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from antiphon.prompt.prompt import ToolCall
from antiphon.protocol.hosted import BESIDE, HOSTED_ITEMS, PRUNE_CONTEXT, UPSTREAM_ID
from antiphon.protocol.items import RawItem
from antiphon.protocol.json import encode

__all__ = [
    "NOT_KEPT",
    "PRUNED",
    "SENT_ID",
    "chunk_ids",
    "denied",
    "elsewhere",
    "hosted_call",
    "hosted_result",
    "is_ours",
    "round_of",
]

NOT_KEPT: Final = "[The results of this call were not kept.]"
"""What stands for results that a client sent back without, because it did not include them."""

PRUNED: Final = "[Pruned: get_chunks brings it back.]"
"""What stands for the text of a chunk that was pruned."""

SENT_ID: Final = "_sent_id"
"""The id by which a client knows an item that got another one here."""

_NO_ARGUMENTS: Final = frozenset(
    {
        "id",
        "type",
        "status",
        "error",
        "results",
        "note",
        "facets",
        "rankable_fields",
        "stores",
        "has_more",
        "next_cursor",
    }
)
_RESULT_KEYS: Final = ("results", "facets", "stores", "output", "outputs", "result")
_BESIDE_TEXT: Final = ("context", "summary", "ocr_text", "transcription", "metadata")
_MOST_NOTE: Final = 1_000
_MOST_SCORE: Final = 1e9
_NO_OUTPUT: Final = "[No output]"
_NOTHING: Final = "Nothing was found."


def is_ours(item: RawItem) -> bool:
    """Whether an item is of a hosted tool that ran here, which shows in what is kept of it for this server alone.

    Corpus calls are always ours. Items of a shell are told as those of the client's.
    """
    if item.type not in HOSTED_ITEMS or UPSTREAM_ID in item.body or item.type.startswith("shell_call"):
        return False
    return item.type in BESIDE or _is_kept(item.body)


def elsewhere(item: RawItem) -> bool:
    """Whether an item that a client sends is of a hosted tool, of whoever ran it, and says anything of its call.

    An upstream with such tools is sent it as it is; other models are told of it as of ours.
    """
    body = item.body
    if item.type not in HOSTED_ITEMS or UPSTREAM_ID in body or "call_id" in body or item.type == "mcp_list_tools":
        return False
    named = item.type.startswith("mcp_")
    return named or _arguments(item.type, body) != "{}" or any(body.get(name) for name in _RESULT_KEYS)


def _is_kept(body: Mapping[str, Any]) -> bool:
    return any(name.startswith("_") and name != SENT_ID for name in body)


def round_of(body: Mapping[str, Any]) -> Any:
    """The turn that made a call, where it is known: calls of one turn stand together."""
    return body.get("_turn")


def hosted_call(body: Mapping[str, Any]) -> ToolCall:
    """The call as the model made it."""
    kind = str(body["type"])
    identity = str(body.get("_call_id") or body.get(SENT_ID) or (body.get("id") if _is_kept(body) else "") or "")
    if not identity:
        # Its id is another one once it is stored; what it says stays.
        said = {name: value for name, value in body.items() if name != "id"}
        identity = f"call_{hashlib.sha256(encode(said)).hexdigest()[:16]}"
    name = body.get("_name") or (body.get("name") if kind in ("mcp_call", "mcp_approval_request") else None)
    origin = str(body.get("server_label") or "") if kind.startswith("mcp_") else ""
    written = body.get("_arguments")
    arguments = written if isinstance(written, str) else _arguments(kind, body)
    return ToolCall(identity, str(name or kind.removesuffix("_call")), arguments or "{}", made=True, origin=origin)


def denied(reason: Any) -> str:
    """What the model is told of a call that its user did not approve."""
    told = "The user did not approve this call, so that it was not run."
    return f"{told} Reason: {reason}" if isinstance(reason, str) and reason.strip() else told


def hosted_result(body: Mapping[str, Any], hidden: Callable[[str], bool] | None = None, *, chunks: bool = False) -> str:
    """What the call gave, as text.

    `hidden` says of a chunk whether it was pruned. `chunks` names the chunks of `file_search` too, so that they can be.
    """
    told = body.get("_told")
    if isinstance(told, str):
        return told
    kind = str(body["type"])
    fault = _fault(body.get("error"))
    if body.get("status") in ("failed", "incomplete", "in_progress") or fault:
        return f"Error: {fault or 'The call did not come to its end.'}"
    if kind == f"{PRUNE_CONTEXT}_call":
        return "Done."
    found: Any = next((body[name] for name in _RESULT_KEYS if body.get(name) is not None), None)
    if kind == "mcp_call":
        return (found if isinstance(found, str) else _json(found)) if found else _NO_OUTPUT
    if found is None:
        return _NOTHING if kind == "web_search_call" and "results" in body else NOT_KEPT
    if kind == "code_interpreter_call":
        return _logs(found)
    if kind == "image_generation_call":
        return "The image was made, and the user sees it."
    if kind == "web_search_call":
        return _joined(_web_entries(found))
    if isinstance(body.get("results"), list):
        text = _joined(_chunk_entries(found, hidden or _shown, named=chunks or kind in BESIDE))
        note = body.get("note")
        return f"{text}\n\nNote: {note[:_MOST_NOTE]}" if isinstance(note, str) and note else text
    told_fields = {name: body[name] for name in _RESULT_KEYS if body.get(name) is not None}
    for name in ("rankable_fields", "has_more", "next_cursor"):
        if body.get(name):
            told_fields[name] = body[name]
    return _json(told_fields)


def chunk_ids(body: Mapping[str, Any]) -> list[str]:
    """The chunks whose texts the results of a call hold, in their order."""
    return [identity for result in _entries(body.get("results")) if "text" in result and (identity := _chunk(result))]


def _arguments(kind: str, body: Mapping[str, Any]) -> str:
    """The arguments as far as the item says them."""
    if kind.startswith("mcp_"):
        return str(body.get("arguments") or "{}")
    if kind == "web_search_call":
        action: Any = body.get("action")
        fields = cast("dict[str, Any]", action) if isinstance(action, dict) else {}
        said = {name: value for name, value in fields.items() if name not in ("type", "sources")}
    elif kind == "code_interpreter_call":
        said = {"code": body.get("code") or ""}
    elif kind == "image_generation_call":
        said = {"prompt": body.get("revised_prompt") or ""}
    else:
        said = {name: value for name, value in body.items() if name not in _NO_ARGUMENTS and not name.startswith("_")}
    return _json({name: value for name, value in said.items() if value is not None})


def _fault(error: Any) -> str:
    """The text of an error: a string, an object with a message, or what a tool said of its own failure."""
    if not error:
        return ""
    if not isinstance(error, dict):
        return str(error)
    fields = cast("dict[str, Any]", error)
    if fields.get("message"):
        return str(fields["message"])
    texts = [str(part["text"]) for part in _entries(fields.get("content")) if part.get("text")]
    return "\n".join(texts) or _json(fields)


def _chunk_entries(results: Any, hidden: Callable[[str], bool], *, named: bool) -> Iterator[str]:
    for result in _entries(results):
        identity = _chunk(result)
        text = result.get("text")
        if result.get("error"):
            yield f"{identity}: error: {_fault(result['error'])}"
            continue
        head = _head(result, identity if named else "")
        if hidden(identity):
            yield f"{head}\n{PRUNED}"
        elif result.get("seen") or text is None:
            yield f"{head}\n[Given before.]"
        else:
            extra = [f"{name}: {_text(result[name])}" for name in _BESIDE_TEXT if result.get(name)]
            yield "\n".join([head, *extra, str(text)])


def _head(result: Mapping[str, Any], identity: str) -> str:
    """What identifies a result: its number, its chunk, its file and how well it fits."""
    number = result.get("_number")
    title = result.get("file_title")
    filename = str(result.get("filename") or result.get("file_id") or "")
    parts = [identity, filename, str(title) if title and title != filename else ""]
    score = result.get("search_score", result.get("score"))
    if isinstance(score, int | float) and score and abs(score) < _MOST_SCORE:
        parts.append(f"score {score:.2g}")
    told = ", ".join(part for part in parts if part)
    return f"[{number}] {told}" if number is not None else f"- {told}"


def _web_entries(results: Any) -> Iterator[str]:
    for result in _entries(results):
        number = result.get("_number")
        mark = f"[{number}]" if number is not None else "-"
        told = [f"{mark} {result.get('title') or ''}".rstrip(), str(result.get("url") or "")]
        body = result.get("text") or result.get("snippet") or result.get("content")
        yield "\n".join(part for part in [*told, str(body or "")] if part)


def _logs(outputs: Any) -> str:
    """What code printed; what it drew the user sees."""
    lines: list[str] = []
    for output in _entries(outputs):
        if output.get("type") == "logs":
            lines.append(str(output.get("logs") or ""))
        elif output.get("type") == "image":
            lines.append("[An image, which the user sees]")
        else:
            lines.append(_json(output))
    return "\n".join(line for line in lines if line) or _NO_OUTPUT


def _chunk(result: Mapping[str, Any]) -> str:
    given = result.get("chunk_id")
    if given:
        return str(given)
    return f"{result['file_id']}:{result['_chunk']}" if "file_id" in result and "_chunk" in result else ""


def _shown(_: str) -> bool:
    return False


def _joined(entries: Iterator[str]) -> str:
    return "\n\n".join(entries) or _NOTHING


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return encode(value).decode()


def _entries(values: Any) -> Sequence[dict[str, Any]]:
    """The objects of a list; what clients send back may be anything."""
    given = cast("list[Any]", values) if isinstance(values, list) else []
    return [cast("dict[str, Any]", value) for value in given if isinstance(value, dict)]
