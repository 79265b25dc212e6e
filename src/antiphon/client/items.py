"""What each item of an answer is: a message, a thought, a call for us, a call that the server made, or its affair.

The rules D4 to D8, item by item. Whether somebody waits for the result of a call is told from its type, and for types
that nobody knew yet from its `call_id`: only a call that is to be answered needs one.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

from antiphon.client.context import ReasoningDetail, ToolCall
from antiphon.client.loose import as_dict, as_dicts, as_list, as_str, dumps, well_formed

__all__ = [
    "CLIENT_CALLS",
    "FUNCTION_CALLS",
    "answered_calls",
    "call_arguments",
    "call_name",
    "content_texts",
    "is_builtin",
    "is_call",
    "is_code_interpreter",
    "join_thinking",
    "part_annotations",
    "part_text",
    "reasoning_detail",
    "summary_texts",
    "tool_call",
    "tool_name",
]

FUNCTION_CALLS = frozenset({"function_call", "custom_tool_call"})
"""Calls whose arguments come in fragments, and are the model's own text."""

CLIENT_CALLS = FUNCTION_CALLS | {"computer_call", "local_shell_call", "apply_patch_call"}
"""Calls that always wait for a result of ours."""

_SERVER_CALLS = frozenset(
    {
        "file_search_call",
        "image_generation_call",
        "mcp_call",
        "web_search_call",
        "web_search_preview_call",
        "x_search_call",
    }
)
_APART = frozenset({"id", "call_id", "type", "status"})
_OWN_FIELDS = frozenset({"type", "call_id", "name", "arguments", "input"})
_TEXT_PARTS = frozenset({"output_text", "text"})
_SEPARATOR = "\n\n"


def is_code_interpreter(item: dict[str, Any]) -> bool:
    """Whether the item is the code interpreter's, which is no tool call of its own (D8)."""
    return (as_str(item.get("type")) or "").startswith("code_interpreter_")


def is_call(item: dict[str, Any]) -> bool:
    """Whether the item is a call of a tool, whoever executes it."""
    return (as_str(item.get("type")) or "").endswith("_call") and not is_code_interpreter(item)


def is_builtin(item: dict[str, Any], answered: Set[str] = frozenset()) -> bool:
    """Whether the server executed the call (D7); `answered` are the calls whose output came in the same answer."""
    kind = as_str(item.get("type")) or ""
    if kind in CLIENT_CALLS:
        return False
    if kind in _SERVER_CALLS:
        return True
    call_id = as_str(item.get("call_id"))
    if kind == "tool_search_call":
        return item.get("execution") == "server" or call_id is None
    if kind == "shell_call":
        environment = as_str(as_dict(item.get("environment")).get("type")) or ""
        return environment.startswith("container") or call_id in answered
    return call_id is None or call_id in answered


def answered_calls(output: Iterable[dict[str, Any]]) -> set[str]:
    """The ids of the calls whose output came in the same answer, because the server executed them."""
    return {
        call_id
        for item in output
        if (as_str(item.get("type")) or "").endswith("_output") and (call_id := as_str(item.get("call_id")))
    }


def tool_name(kind: str) -> str:
    """The name of the hosted tool whose calls are items of that type: what its use is counted under (D13)."""
    name = kind.removesuffix("_call")
    return "web_search" if name == "web_search_preview" else name


def call_name(item: dict[str, Any]) -> str:
    """The name of the tool that the item calls (D6)."""
    kind = as_str(item.get("type")) or ""
    name = as_str(item.get("name"))
    if kind in FUNCTION_CALLS:
        return name or "unknown"
    return name or kind.removesuffix("_call")


def call_arguments(item: dict[str, Any]) -> str:
    """The arguments of a call as text: the model's own (D6), or all that the item says of the call (D7)."""
    kind = item.get("type")
    if kind == "custom_tool_call":
        return well_formed(as_str(item.get("input")) or "")
    if kind == "function_call":
        arguments = item.get("arguments")
        if arguments is None or arguments == "":
            return "{}"
        return well_formed(arguments) if isinstance(arguments, str) else dumps(arguments)
    apart = _APART | {"result"} if kind == "image_generation_call" else _APART
    return dumps({key: value for key, value in item.items() if key not in apart})


def tool_call(item: dict[str, Any], index: int, answered: Set[str] = frozenset()) -> ToolCall:
    """The call that an item is; one without any id is named by its place, so that a result can refer to it."""
    kind = as_str(item.get("type")) or ""
    known = _OWN_FIELDS if kind in FUNCTION_CALLS else frozenset(item) - {"id", "status"}
    return ToolCall(
        id=as_str(item.get("call_id")) or as_str(item.get("id")) or f"call_{index}",
        name=call_name(item),
        arguments=call_arguments(item),
        builtin=is_builtin(item, answered),
        type=kind,
        metadata={key: value for key, value in item.items() if key not in known and value is not None},
    )


def part_text(part: dict[str, Any]) -> tuple[str, bool] | None:
    """The text of a part of a message, and whether it is a refusal (D2, D9); None for a part without text."""
    kind = as_str(part.get("type"))
    if kind == "refusal":
        text = as_str(part.get("refusal")) or as_str(part.get("text"))
        return None if text is None else (well_formed(text), True)
    text = as_str(part.get("text")) if kind in _TEXT_PARTS else None
    return None if text is None else (well_formed(text), False)


def summary_texts(item: dict[str, Any]) -> list[str]:
    """The parts of a reasoning item's summary; a summary that is a string is one part (D5)."""
    return _texts(item.get("summary"))


def content_texts(item: dict[str, Any]) -> list[str]:
    """The parts of a reasoning item's own text."""
    return _texts(item.get("content"))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [well_formed(value)] if value else []
    texts = [part if isinstance(part, str) else as_str(as_dict(part).get("text")) for part in as_list(value)]
    return [well_formed(text) for text in texts if text]


def join_thinking(items: Iterable[dict[str, Any]]) -> str:
    """What the reasoning items say: all summaries, then all content (D4)."""
    reasoning = list(items)
    summaries = [text for item in reasoning for text in summary_texts(item)]
    return _SEPARATOR.join([*summaries, *(text for item in reasoning for text in content_texts(item))])


def reasoning_detail(item: dict[str, Any], index: int, provider: str | None) -> ReasoningDetail:
    """All that it takes to send a reasoning item back (D5)."""
    signature = as_str(item.get("encrypted_content")) or None
    data = {key: item[key] for key in ("id", "type", "summary", "content", "status") if item.get(key) is not None}
    return ReasoningDetail(
        index=index,
        provider=provider,
        text=_SEPARATOR.join(summary_texts(item)) or None,
        signature=signature,
        encrypted=signature is not None,
        provider_data=data,
    )


def part_annotations(part: dict[str, Any]) -> list[dict[str, Any]]:
    """The annotations of a part of a message (D10)."""
    return as_dicts(part.get("annotations"))
