"""Ids sort by time, cannot be guessed, and are recognised by their form."""

from __future__ import annotations

import pytest

from antiphon.protocol.ids import is_id, item_prefix, new_id


@pytest.mark.requirement("wire:ids")
def test_ids_are_unique_and_sort_by_the_time_they_were_made():
    made = [new_id("resp") for _ in range(1000)]
    assert len(set(made)) == 1000
    assert [identity[:17] for identity in made] == sorted(identity[:17] for identity in made)
    assert all(is_id("resp", identity) and len(identity) <= 64 for identity in made)


@pytest.mark.requirement("wire:ids")
@pytest.mark.parametrize(
    "value",
    ["", "resp_", "resp_1", new_id("msg"), new_id("resp") + "0", new_id("resp").upper(), "resp_" + "g" * 44],
    ids=["empty", "prefix", "short", "another kind", "long", "upper case", "no digits"],
)
def test_a_value_of_another_form_is_no_id(value):
    assert not is_id("resp", value)


@pytest.mark.requirement("wire:ids")
def test_every_item_type_has_a_prefix():
    assert item_prefix("message") == "msg"
    assert item_prefix("never_heard_of") == "item"
