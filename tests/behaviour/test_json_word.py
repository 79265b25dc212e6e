"""`json_object` is for contexts that say so: without the word JSON a model may write spaces for ever."""

from __future__ import annotations

import pytest

from support.inprocess import InProcess

JSON_OBJECT = {"format": {"type": "json_object"}}


@pytest.mark.requirement("api:json-word")
async def test_json_object_needs_the_word_in_the_input_or_the_instructions(api: InProcess):
    error = await api.refused(400, "Give me a list of birds.", text=JSON_OBJECT)
    assert (error["code"], error["type"]) == ("missing_json_word", "invalid_request_error")
    for fields in ({"input": "Give me JSON."}, {"input": "Birds.", "instructions": "Answer in json."}):
        answer = await api.create(fields.pop("input"), text=JSON_OBJECT, **fields)
        assert answer["output_text"] == "{}"
