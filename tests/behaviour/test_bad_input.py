"""Whatever is sent, the answer is in OpenAI's envelope, names the field, and nothing is stored."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.settings import Settings
from support.inprocess import InProcess, inprocess_app

LEAKS = re.compile(r"0x[0-9a-f]{6,}|Traceback|/src/|\.py\b|/home/|/usr/")

CROSS_FIELD: list[tuple[dict[str, Any], str, str]] = [
    ({"conversation": {}}, "conversation.id", "missing_required_parameter"),
    (
        {"conversation": "conv_1", "previous_response_id": "resp_unknown"},
        "previous_response_id",
        "mutually_exclusive_parameters",
    ),
    ({"prompt": {"version": "1"}}, "prompt.id", "missing_required_parameter"),
    ({"tool_choice": "required"}, "tool_choice", "invalid_tool_choice"),
    ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice.name", "invalid_tool_choice"),
    (
        {"tool_choice": {"type": "brand_new"}, "tools": [{"type": "brand_new"}]},
        "tool_choice.type",
        "invalid_tool_choice",
    ),
    ({"text": {"format": {"type": "xml"}}}, "text.format.type", "invalid_value"),
    ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema", "missing_required_parameter"),
    ({"input": []}, "input", "empty_input"),
    ({"input": None}, "input", "empty_input"),
    ({"input": " \n"}, "input", "empty_input"),
]


@pytest.mark.requirement("api:bad-input", "subset:M6")
@pytest.mark.parametrize(("fields", "param", "code"), CROSS_FIELD, ids=[repr(row[0])[:50] for row in CROSS_FIELD])
async def test_fields_that_do_not_go_together_are_a_400(api: InProcess, fields, param, code):
    body = {"input": "hi", **fields}
    error = await api.refused(400, body.pop("input"), **body)
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)


@pytest.mark.requirement("subset:M6")
async def test_blank_input_with_instructions_or_with_a_history_passes(api: InProcess):
    assert (await api.create("  ", instructions="say hello"))["status"] == "completed"
    first = await api.create("hi")
    assert (await api.create("", previous_response_id=first["id"]))["status"] == "completed"


@pytest.mark.requirement("api:models:unknown")
async def test_an_unknown_model_is_a_404_that_lists_the_names_and_no_model_a_400(api: InProcess):
    error = await api.refused(404, "hi", model="gpt-9")
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "scripted" in error["message"]
    for model in (None, ""):
        error = await api.refused(400, "hi", model=model)
        assert (error["code"], error["param"]) == ("missing_required_parameter", "model")


@pytest.mark.requirement("api:models:names")
async def test_aliases_a_wildcard_and_a_default_model_answer_under_the_name_that_was_asked_for():
    configured = Settings(model=("scripted",), alias=("gpt-5=scripted", "*=scripted"), default_model="gpt-5")
    async with inprocess_app(settings=configured) as api:
        for name in ("scripted", "gpt-5", "anything/at-all"):
            assert (await api.create("hi", model=name))["model"] == name
        assert (await api.create("hi", model=None))["model"] == "gpt-5"
        listing = (await api.client.get("/models")).json()
        assert [model["id"] for model in listing["data"]] == ["scripted", "gpt-5"]
        assert set(listing["data"][0]) == {"id", "object", "created", "owned_by"}
        assert (await api.client.get("/models/gpt-5")).json()["id"] == "gpt-5"


@pytest.mark.requirement("api:bad-input")
async def test_malformed_json_is_a_400_and_a_large_body_a_413():
    async with inprocess_app(settings=Settings(max_body_bytes=2048)) as api:
        for body in (b"", b"{", b"[]", b'{"x":NaN}', b"\xff"):
            reply = await api.client.post("/responses", content=body)
            assert reply.status_code == 400
            assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
        reply = await api.client.post("/responses", content=b"x" * 2049)
        assert reply.status_code == 413

        async def chunks():
            for _ in range(30):
                yield b"x" * 100

        assert (await api.client.post("/responses", content=chunks())).status_code == 413


@pytest.mark.requirement("api:bad-input:floor")
async def test_openais_floor_of_sixteen_output_tokens_is_a_setting():
    async with inprocess_app(settings=Settings(min_output_tokens=16)) as api:
        error = await api.refused(400, "hi", max_output_tokens=15)
        assert error["code"] == "integer_below_min_value"
        assert (await api.create("hi", max_output_tokens=16))["status"] == "completed"


@pytest.mark.requirement("api:busy", "subset:M40")
async def test_more_requests_than_there_are_places_are_a_503_with_a_hint_when_to_come_back():
    async with inprocess_app(settings=Settings(max_concurrent_requests=1)) as api:
        api.service.admission.enter()
        reply = await api.client.post("/responses", json={"model": "scripted", "input": "hi"})
        assert reply.status_code == 503
        assert reply.json()["error"]["type"] == "server_busy"
        assert reply.json()["error"]["message"] == "All slots are busy. Please try again later."
        assert int(reply.headers["retry-after"]) >= 1
        assert int(reply.headers["retry-after-ms"]) >= 1
        api.service.admission.leave()
        for said in ("hi", "!ERR400", "!FAIL", "hi"):
            await api.client.post("/responses", json={"model": "scripted", "input": said})
        assert api.service.admission.running == 0


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
NAMES = (
    "model input instructions previous_response_id conversation store stream include temperature top_p top_logprobs "
    "max_output_tokens max_tool_calls parallel_tool_calls tools tool_choice text reasoning truncation metadata prompt "
    "prompt_cache_key service_tier safety_identifier user chat_template_kwargs top_k min_p seed stop x_unknown"
).split()
items = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(
            ["message", "reasoning", "function_call", "function_call_output", "item_reference", "x"]
        )
        | json_values,
        "role": st.sampled_from(["user", "assistant", "system", "robot"]) | json_values,
        "content": json_values,
        "id": json_values,
        "call_id": json_values,
        "name": json_values,
        "arguments": json_values,
        "output": json_values,
        "summary": json_values,
    },
)
bodies = st.dictionaries(st.sampled_from(NAMES), json_values | st.lists(items, max_size=3), max_size=5)


@pytest.mark.requirement("api:fuzz")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=bodies)
async def test_no_body_gives_a_5xx_or_leaks_a_path_or_an_address(body):
    async with inprocess_app() as api:
        reply = await api.client.post("/responses", json={"model": "scripted", "input": "hi", **body})
        assert reply.status_code in (200, 400, 404), reply.text
        if reply.status_code != 200:
            assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
            assert not LEAKS.search(reply.json()["error"]["message"])
