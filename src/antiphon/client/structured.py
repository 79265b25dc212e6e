"""The structured answer: from the text, or from the call of `structured_output`, and held against its schema (D14)."""

from __future__ import annotations

from typing import Any, cast

from antiphon.client.context import ToolCall
from antiphon.client.loose import loads
from antiphon.client.repair import repair as mended
from antiphon.client.response import ObjectError
from antiphon.client.schema import violations

__all__ = ["STRUCTURED_OUTPUT", "read_object"]

STRUCTURED_OUTPUT = "structured_output"
"""The tool by which a model gives its answer where the endpoint knows no formats."""


def read_object(
    text: str, calls: list[ToolCall], schema: dict[str, Any], *, repair: bool = False
) -> tuple[Any, ObjectError | None]:
    """The object, or None with the reason why there is none.

    The text counts where it has any, the call otherwise. `repair` mends what models do to JSON first.
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
            value = mended(source)
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
