"""The structured answer: from the text, or from the call of `structured_output`, and held against its schema (D14)."""

from __future__ import annotations

import re
from typing import Any, cast

from antiphon.client.context import ToolCall
from antiphon.client.loose import close_brackets, loads
from antiphon.client.response import ObjectError
from antiphon.client.schema import violations

__all__ = ["STRUCTURED_OUTPUT", "read_object", "repaired"]

STRUCTURED_OUTPUT = "structured_output"
"""The tool by which a model gives its answer where the endpoint knows no formats."""

_FENCE = re.compile(r"```[ \t]*(?:json)?[ \t]*\r?\n(.*?)(?:\r?\n[ \t]*```|\Z)", re.DOTALL | re.IGNORECASE)
_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)


def read_object(
    text: str, calls: list[ToolCall], schema: dict[str, Any], *, repair: bool = False
) -> tuple[Any, ObjectError | None]:
    """The object, or None with the reason why there is none.

    The text counts where it has any, the call otherwise. `repair` mends what models do to JSON: fences and words
    around it, commas before brackets, an end that is cut off.
    """
    source = text
    if not text.strip():
        source = next((call.arguments for call in calls if call.name == STRUCTURED_OUTPUT and not call.builtin), text)
    try:
        value = loads(source)
    except ValueError:
        if not repair:
            return None, "invalid_json"
        try:
            value = loads(repaired(source))
        except ValueError:
            return None, "invalid_json"
    return _validated(value, schema)


def _validated(value: Any, schema: dict[str, Any]) -> tuple[Any, ObjectError | None]:
    if schema.get("type", "object") == "object" and not isinstance(value, dict):
        return None, "not_an_object"
    found = violations(value, schema)
    if found:
        return None, "invalid_keys" if found == {"keys"} else "validation_failed"
    return cast("Any", value), None


def repaired(text: str) -> str:
    """The JSON that the text was meant to be, as far as that can be told."""
    fenced = _FENCE.search(text)
    if fenced:
        text = fenced.group(1)
    starts = [place for place in (text.find("{"), text.find("[")) if place >= 0]
    if starts:
        text = text[min(starts) :]
        text = text[: _end(text)]
    text = close_brackets(text.rstrip().rstrip(","))
    return _TRAILING_COMMA.sub(lambda match: match.group(1) or "", text)


def _end(text: str) -> int:
    depth = 0
    quoted = escaped = False
    for place, character in enumerate(text):
        if quoted:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                quoted = False
        elif character == '"':
            quoted = True
        elif character in "{[":
            depth += 1
        elif character in "}]":
            depth -= 1
            if depth == 0:
                return place + 1
    return len(text)
