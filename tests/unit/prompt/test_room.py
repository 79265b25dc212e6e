"""Schemas narrowed to the room of a turn, which never allow more than before and never less than they ask for."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.prompt.room import LITTLE_ROOM, narrowed
from antiphon.prompt.schema import express


@pytest.mark.requirement("constrain:grammar:forced")
def test_what_has_no_end_is_given_one_and_the_rest_stays_as_it_is() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "open": {"type": "string"},
            "long": {"type": ["string", "null"], "minLength": 500},
            "bound": {"type": "string", "maxLength": 900},
            "fixed": {"type": "string", "enum": ["a"]},
            "many": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
            "most": {"type": "array", "items": {"type": "integer"}, "minItems": 40},
        },
    }
    before = express(schema).schema
    made = narrowed(before, 400)["properties"]
    assert made["open"] == {"type": "string", "maxLength": 266}
    assert made["long"]["maxLength"] == 500
    assert made["many"]["maxItems"] == 6
    assert made["many"]["items"]["anyOf"] == [{"type": "string", "maxLength": 266}, {"type": "integer"}]
    assert made["most"]["maxItems"] == 40
    assert [made[name] == before["properties"][name] for name in ("bound", "fixed")] == [True, True]
    assert narrowed(before, LITTLE_ROOM) == narrowed(before, None) == before


@pytest.mark.requirement("constrain:grammar:forced")
def test_schemas_that_hold_together_are_left_as_they_are() -> None:
    schema = {"allOf": [{"type": "string"}, {"type": "string", "minLength": 500}]}
    assert narrowed(schema, 100) == schema
