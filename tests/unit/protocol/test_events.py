"""Every event type of the API is known; those without a struct are kept whole."""

from __future__ import annotations

import typing

import pytest
from openai.types.responses import ResponseStreamEvent

from antiphon.protocol.events import EVENT_FIELDS, Event, RawEvent, decode_event
from antiphon.protocol.json import encode


def openai_event_types() -> dict[str, set[str]]:
    union = typing.get_args(ResponseStreamEvent)[0]
    return {
        typing.get_args(model.model_fields["type"].annotation)[0]: set(model.model_fields) - {"type", "sequence_number"}
        for model in typing.get_args(union)
    }


@pytest.mark.requirement("wire:events:known")
def test_the_table_names_every_event_of_the_official_types_with_their_fields():
    for name, fields in openai_event_types().items():
        assert name in EVENT_FIELDS
        missing = fields - set(EVENT_FIELDS[name])
        optional = {"agent", "obfuscation", "status", "stream_id", "size", "quality", "background", "output_format"}
        assert missing <= optional, (name, missing)


@pytest.mark.requirement("wire:events:known")
def test_structs_have_the_fields_of_the_table():
    for struct in Event.__args__:
        expected = {"sequence_number", *EVENT_FIELDS[struct.TYPE]}
        assert set(struct.__struct_fields__) == expected, struct


@pytest.mark.requirement("wire:events:raw")
def test_an_event_without_a_struct_is_kept_whole():
    body = {"type": "response.mcp_call.completed", "sequence_number": 4, "item_id": "mcp_1", "output_index": 0, "x": 1}
    assert decode_event(encode(body)) == RawEvent("response.mcp_call.completed", 4, body)
