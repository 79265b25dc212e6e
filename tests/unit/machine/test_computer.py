"""Actions on a computer, as a model writes them."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.machine.arguments import MalformedError
from antiphon.machine.computer import MOST_ACTIONS, computer_actions

pytestmark = pytest.mark.requirement("computer:returned")

POINTS = [{"x": 1, "y": 2}, {"x": 3, "y": 4}]


@pytest.mark.parametrize(
    "action",
    [
        {"type": "click", "button": "right", "x": 1, "y": 2, "keys": ["SHIFT"]},
        {"type": "double_click", "x": 1, "y": 2},
        {"type": "drag", "path": POINTS},
        {"type": "keypress", "keys": ["CTRL", "C"]},
        {"type": "move", "x": 1, "y": 2},
        {"type": "screenshot"},
        {"type": "scroll", "x": 1, "y": 2, "scroll_x": 0, "scroll_y": -300},
        {"type": "type", "text": "hi"},
        {"type": "wait"},
    ],
)
def test_each_action_is_what_items_hold_and_may_stand_alone(action: dict[str, Any]):
    assert computer_actions("computer", {"actions": [{**action, "more": 1}]}) == {"actions": [action]}
    assert computer_actions("computer", action) == {"actions": [action]}
    assert computer_actions("computer_use_preview", {"action": action}) == {"action": action}


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "click", "button": "middle", "x": 1, "y": 2},
        {"type": "move", "x": True, "y": 2},
        {"type": "move", "x": 1e300, "y": 2},
        {"type": "drag", "path": []},
        {"type": "drag", "path": [[1, 2]]},
        {"type": "keypress", "keys": "CTRL"},
        {"type": "type", "text": 1},
        {"type": ["type"]},
        {"actions": [{"type": "wait"}] * (MOST_ACTIONS + 1)},
    ],
)
def test_what_lacks_something_is_none(fields: dict[str, Any]):
    with pytest.raises(MalformedError):
        computer_actions("computer", fields)
    with pytest.raises(MalformedError):
        computer_actions("computer_use_preview", {"actions": [{"type": "wait"}] * 2})
