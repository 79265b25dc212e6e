"""Tokens and the use of hosted tools, as an endpoint reported them (D13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

from antiphon.client.items import is_builtin, is_call, tool_name
from antiphon.client.loose import as_dict, as_int, as_str
from antiphon.client.response import ToolUsage, Usage, UsageReported

__all__ = ["count_tools", "decode_usage"]

_DETAILS = (("server_side_tool_usage_details", "_calls"), ("server_tool_use", "_requests"))


def _first(*values: Any) -> int | None:
    for value in values:
        number = as_int(value)
        if number is not None:
            return number
    return None


def decode_usage(usage: Any, counted: Mapping[str, int]) -> Usage:
    """The usage of an answer; `counted` is how often each hosted tool was seen to be used.

    A missing total is the sum of the others; other numbers that are missing are 0.
    """
    given = as_dict(usage)
    inputs = _first(given.get("input_tokens"), given.get("prompt_tokens"))
    outputs = _first(given.get("output_tokens"), given.get("completion_tokens"))
    total = _first(given.get("total_tokens"))
    of_input = (as_dict(given.get("input_tokens_details")), as_dict(given.get("prompt_tokens_details")))
    of_output = (as_dict(given.get("output_tokens_details")), as_dict(given.get("completion_tokens_details")))
    return Usage(
        input_tokens=inputs or 0,
        output_tokens=outputs or 0,
        total_tokens=(inputs or 0) + (outputs or 0) if total is None else total,
        cached_tokens=_first(*(details.get("cached_tokens") for details in of_input)) or 0,
        cache_creation_tokens=_first(*(details.get("cache_write_tokens") for details in of_input)),
        reasoning_tokens=_first(
            given.get("reasoning_tokens"), *(details.get("reasoning_tokens") for details in of_output)
        )
        or 0,
        usage_reported=UsageReported(input=inputs is not None, output=outputs is not None),
        tool_usage=_tool_usage(given, counted),
    )


def _tool_usage(given: dict[str, Any], counted: Mapping[str, int]) -> dict[str, ToolUsage]:
    counts = dict(counted)
    for field, suffix in _DETAILS:
        for key, value in as_dict(given.get(field)).items():
            name = key.removesuffix(suffix)
            if name != key:
                counts[name] = max(counts.get(name, 0), as_int(value) or 0)
    return {name: ToolUsage(count) for name, count in sorted(counts.items()) if count > 0}


def count_tools(items: Iterable[dict[str, Any]], answered: Set[str]) -> dict[str, int]:
    """How often each hosted tool was used, by the items of its calls; each id counts once, no client's call does."""
    seen: dict[str, set[str]] = {}
    for place, item in enumerate(items):
        kind = as_str(item.get("type")) or ""
        hosted = kind == "code_interpreter_call" or (is_call(item) and is_builtin(item, answered))
        if hosted:
            identity = as_str(item.get("id")) or as_str(item.get("call_id")) or f"#{place}"
            seen.setdefault(tool_name(kind), set()).add(identity)
    return {name: len(ids) for name, ids in seen.items()}
