"""What a model can do with a computer that its client has: actions, as it writes them and as items have them. Pure.

The tool `computer` does several actions in a call, and `computer_use_preview` one (hosted-tools A1). A field that is
missing or of another type makes no action: clients read these by their type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from antiphon.machine.arguments import MalformedError

__all__ = ["ACTIONS", "COMPUTER", "MOST_ACTIONS", "PREVIEW", "computer_actions"]

COMPUTER: Final = "computer"
"""The tool whose calls have several actions."""

PREVIEW: Final = "computer_use_preview"
"""The older tool, whose calls have one."""

MOST_ACTIONS: Final = 32
"""Actions in one call."""

_NUMBER: Final = {"type": "integer"}
_TEXT: Final = {"type": "string"}
_KEYS: Final = {"type": "array", "items": _TEXT, "minItems": 1}
_BUTTON: Final = {"type": "string", "enum": ["left", "right", "wheel", "back", "forward"]}
_POINT: Final = {
    "type": "object",
    "properties": {"x": _NUMBER, "y": _NUMBER},
    "required": ["x", "y"],
    "additionalProperties": False,
}
_AT: Final[Mapping[str, Any]] = {"x": _NUMBER, "y": _NUMBER}

ACTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "click": {"button": _BUTTON, **_AT},
    "double_click": _AT,
    "drag": {"path": {"type": "array", "items": _POINT, "minItems": 2}},
    "keypress": {"keys": _KEYS},
    "move": _AT,
    "screenshot": {},
    "scroll": {**_AT, "scroll_x": _NUMBER, "scroll_y": _NUMBER},
    "type": {"text": _TEXT},
    "wait": {},
}
"""The type of each action, with the schemas of its fields, all of which it needs."""


def computer_actions(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the item of a call: `actions`, or the one `action` of the older tool.

    Raises:
        MalformedError: there is no action, there are too many, or a field of one is missing or of another type.
    """
    given: Any = arguments.get("actions", arguments.get("action", arguments))
    actions = cast("list[Any]", given) if isinstance(given, list) else [given]
    if not 1 <= len(actions) <= (1 if tool == PREVIEW else MOST_ACTIONS):
        raise MalformedError("so many actions")
    made = [_action(each) for each in actions]
    return {"action": made[0]} if tool == PREVIEW else {"actions": made}


def _action(given: Any) -> dict[str, Any]:
    said = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    kind = said.get("type")
    fields = ACTIONS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise MalformedError("no action")
    if kind == "click":
        said = {"button": "left", **said}
    action = {"type": kind, **{name: _READERS[name](said.get(name)) for name in fields}}
    if "keys" in said and "x" in fields:
        # Held while something is done with the mouse.
        action["keys"] = _keys(said["keys"])
    return action


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e9 or value != value:
        raise MalformedError("no number")
    return round(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise MalformedError("no text")
    return value


def _keys(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise MalformedError("no keys")
    return [_text(key) for key in cast("list[Any]", value)]


def _button(value: Any) -> str:
    if value not in _BUTTON["enum"]:
        raise MalformedError("no button")
    return str(value)


def _path(value: Any) -> list[dict[str, int]]:
    points = cast("list[Any]", value) if isinstance(value, list) else []
    if not points or not all(isinstance(point, dict) for point in points):
        raise MalformedError("no path")
    return [{"x": _number(point.get("x")), "y": _number(point.get("y"))} for point in points]


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("x", "y", "scroll_x", "scroll_y"), _number),
    "text": _text,
    "keys": _keys,
    "button": _button,
    "path": _path,
}
