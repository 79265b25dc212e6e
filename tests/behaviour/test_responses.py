"""`/v1/responses` and what is under it, on every store."""

from __future__ import annotations

import pytest

from antiphon.http.app import create_app
from antiphon.settings import Settings
from support.inprocess import InProcess, inprocess_app, sse_events

REQUIRED = set(
    "id object created_at completed_at status incomplete_details model previous_response_id instructions output error "
    "tools tool_choice truncation parallel_tool_calls text top_p presence_penalty frequency_penalty top_logprobs "
    "temperature reasoning usage max_output_tokens max_tool_calls store background service_tier metadata "
    "safety_identifier prompt_cache_key".split()
)


@pytest.mark.requirement("api:create:object")
async def test_an_answer_has_every_field_that_openai_and_open_responses_require(api: InProcess):
    answer = await api.create("hi")
    assert set(answer) >= REQUIRED
    assert answer["status"] == "completed"
    assert isinstance(answer["created_at"], int)
    assert isinstance(answer["completed_at"], int)
    assert answer["usage"]["total_tokens"] == answer["usage"]["input_tokens"] + answer["usage"]["output_tokens"]
    assert set(answer["usage"]["input_tokens_details"]) == {"cached_tokens", "cache_write_tokens"}
    assert answer["output_text"] == answer["output"][0]["content"][0]["text"]


@pytest.mark.requirement("api:create:echo")
async def test_fields_of_the_request_are_echoed(api: InProcess):
    fields = {
        "instructions": "be brief",
        "metadata": {"a": "b"},
        "temperature": 0.25,
        "top_p": 0.5,
        "max_output_tokens": 50,
        "max_tool_calls": 3,
        "parallel_tool_calls": False,
        "truncation": "auto",
        "user": "u",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "service_tier": "flex",
        "reasoning": {"effort": "low", "summary": "auto"},
        "tools": [
            {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True, "description": "d"},
            {"type": "web_search", "external_web_access": True},
        ],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
        "store": False,
    }
    answer = await api.create("Some JSON.", **fields)
    for name, value in fields.items():
        assert answer[name] == value, name


@pytest.mark.requirement("api:create:defaults")
async def test_effective_values_are_echoed_where_the_request_names_none(api: InProcess):
    answer = await api.create("hi")
    assert (answer["temperature"], answer["top_p"], answer["service_tier"]) == (1.0, 1.0, "default")
    assert answer["text"] == {"format": {"type": "text"}, "verbosity": "medium"}
    assert (answer["tools"], answer["tool_choice"], answer["truncation"]) == ([], "auto", "disabled")
    assert answer["store"] is True


@pytest.mark.requirement("api:stream:object", "law:2:live")
async def test_a_stream_ends_with_the_object_that_a_look_up_gives_and_replays_byte_for_byte(api: InProcess):
    live = await api.client.post(
        "/responses", json={"model": "scripted", "input": "!REASON\n!TEXT a b", "stream": True}
    )
    events = sse_events(live.content)
    final = events[-1]["response"]
    stored = await api.client.get(f"/responses/{final['id']}")
    assert stored.json() == final
    replay = await api.client.get(f"/responses/{final['id']}", params={"stream": "true"})
    assert replay.content == live.content
    for number in range(len(events)):
        part = await api.client.get(
            f"/responses/{final['id']}", params={"stream": "true", "starting_after": str(number)}
        )
        assert live.content.endswith(part.content)
        rest = [event["sequence_number"] for event in sse_events(part.content)] if number < len(events) - 1 else []
        assert rest == list(range(number + 1, len(events)))
    assert live.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert live.headers["cache-control"] == "no-cache"
    assert live.headers["x-accel-buffering"] == "no"


@pytest.mark.requirement("api:replay:whole")
async def test_a_response_that_was_not_streamed_replays_too(api: InProcess):
    answer = await api.create("!COUNT 3")
    replay = await api.client.get(f"/responses/{answer['id']}?stream=true")
    assert sse_events(replay.content)[-1]["response"] == answer


@pytest.mark.requirement("api:replay:starting-after")
@pytest.mark.parametrize("value", ["x", "1.5", "", "-2", "1e3", "9" * 40])
async def test_a_malformed_starting_after_is_a_400(api: InProcess, value: str):
    answer = await api.create("hi")
    reply = await api.client.get(f"/responses/{answer['id']}", params={"stream": "true", "starting_after": value})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "starting_after"


@pytest.mark.requirement("api:retrieve", "subset:M33")
async def test_a_stored_response_is_found_by_id_and_one_that_is_not_stored_is_not(api: InProcess):
    answer = await api.create("hi")
    assert (await api.client.get(f"/responses/{answer['id']}")).json() == answer
    kept = await api.create("hi", store=False)
    assert kept["store"] is False
    assert (await api.client.get(f"/responses/{kept['id']}")).status_code == 404


@pytest.mark.requirement("api:ids:not-found", "subset:M33")
@pytest.mark.parametrize("response_id", ["resp_nope", "x", "resp_" + "0" * 44, "%00", "a" * 3000, "' OR 1=1 --"])
async def test_missing_and_malformed_ids_give_the_same_404_on_every_path(api: InProcess, response_id: str):
    replies = [
        await api.client.get(f"/responses/{response_id}"),
        await api.client.get(f"/responses/{response_id}", params={"stream": "true"}),
        await api.client.delete(f"/responses/{response_id}"),
        await api.client.post(f"/responses/{response_id}/cancel"),
        await api.client.get(f"/responses/{response_id}/input_items"),
    ]
    for reply in replies:
        assert reply.status_code == 404
        assert reply.json()["error"]["code"] == "response_not_found"
        assert reply.json()["error"]["type"] == "invalid_request_error"
    error = await api.refused(404, "hi", previous_response_id=response_id)
    assert (error["code"], error["param"]) == ("previous_response_not_found", "previous_response_id")


@pytest.mark.requirement("api:delete", "subset:M34")
async def test_a_deleted_response_is_gone_everywhere_and_its_descendants_live(api: InProcess):
    first = await api.create("remember one")
    second = await api.create("and two", previous_response_id=first["id"])
    reply = await api.client.delete(f"/responses/{first['id']}")
    assert reply.json() == {"id": first["id"], "object": "response", "deleted": True}
    for again in (
        await api.client.delete(f"/responses/{first['id']}"),
        await api.client.get(f"/responses/{first['id']}"),
        await api.client.get(f"/responses/{first['id']}/input_items"),
    ):
        assert again.status_code == 404
    await api.refused(404, "hi", previous_response_id=first["id"])
    assert "remember one" in await api.echo("go on", previous_response_id=second["id"])


@pytest.mark.requirement("api:cancel", "subset:M35")
async def test_a_synchronous_response_cannot_be_cancelled(api: InProcess):
    answer = await api.create("hi")
    reply = await api.client.post(f"/responses/{answer['id']}/cancel")
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == "Cannot cancel a synchronous response."


@pytest.mark.requirement("api:input-items")
async def test_input_items_are_history_and_input_with_content_parts_newest_first(api: InProcess):
    first = await api.create("one")
    second = await api.create(
        [{"role": "user", "content": "two"}, {"role": "user", "content": "three"}], previous_response_id=first["id"]
    )
    listing = (await api.client.get(f"/responses/{second['id']}/input_items")).json()
    texts = [item["content"][0]["text"] for item in listing["data"]]
    assert texts == ["three", "two", "Hello from scripted.", "one"]
    assert listing["object"] == "list"
    assert listing["has_more"] is False
    assert (listing["first_id"], listing["last_id"]) == (listing["data"][0]["id"], listing["data"][-1]["id"])
    assert listing["data"][2]["id"] == first["output"][0]["id"]
    assert all(item["content"][0]["type"] in ("input_text", "output_text") for item in listing["data"])


@pytest.mark.requirement("api:input-items:paging")
async def test_input_items_page_by_id_in_both_orders(api: InProcess):
    answer = await api.create([{"role": "user", "content": str(n)} for n in range(5)])
    for order in ("asc", "desc"):
        seen: list[str] = []
        after = ""
        for _ in range(3):
            query = {"limit": "2", "order": order, "after": after}
            page = (await api.client.get(f"/responses/{answer['id']}/input_items", params=query)).json()
            seen += [item["content"][0]["text"] for item in page["data"]]
            after = page["last_id"]
        assert page["has_more"] is False
        assert seen == sorted("01234", reverse=order == "desc")


@pytest.mark.requirement("api:input-items:paging")
@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=-1", "limit=x", "order=up", "after=msg_none"])
async def test_a_bad_page_is_a_400_that_names_its_parameter(api: InProcess, query: str):
    answer = await api.create("hi")
    reply = await api.client.get(f"/responses/{answer['id']}/input_items?{query}")
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == query.partition("=")[0]


@pytest.mark.requirement("api:items:ids")
async def test_an_item_that_is_sent_back_unchanged_keeps_its_id_and_any_other_gets_a_new_one(api: InProcess):
    first = await api.create("!REASON\n!TEXT one")
    reasoning, message = first["output"]
    changed = {**message, "content": [{"type": "output_text", "text": "forged", "annotations": []}]}
    foreign = {"type": "message", "role": "user", "content": "x", "id": "msg_from_the_client"}
    second = await api.create([reasoning, {**message, "phase": None}, changed, foreign])
    listing = (await api.client.get(f"/responses/{second['id']}/input_items?order=asc")).json()
    ids = [item["id"] for item in listing["data"]]
    assert ids[:2] == [reasoning["id"], message["id"]]
    assert message["id"] not in ids[2:]
    assert "msg_from_the_client" not in ids
    assert len(set(ids)) == 4


@pytest.mark.requirement("api:items:reference")
async def test_an_item_reference_is_resolved_from_the_store(api: InProcess):
    first = await api.create("!TEXT the secret is 42")
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    assert "the secret is 42" in await api.echo([reference, {"role": "user", "content": "go"}])
    error = await api.refused(404, [{"id": "msg_" + "0" * 44}, {"role": "user", "content": "go"}])
    assert error["param"] == "input[0].id"


@pytest.mark.requirement("api:items:reference")
async def test_references_are_bounded_by_what_they_stand_for():
    async with inprocess_app(settings=Settings(max_body_bytes=20_000)) as api:
        first = await api.create([{"role": "user", "content": "x" * 3_000}])
        (item,) = (await api.client.get(f"/responses/{first['id']}/input_items")).json()["data"]
        reference = {"type": "item_reference", "id": item["id"]}
        assert (await api.create([reference] * 3))["status"] == "completed"
        error = await api.refused(400, [reference] * 10)
        assert error["code"] == "request_too_large"


@pytest.mark.requirement("api:instructions:items")
async def test_instructions_may_be_items_and_none_of_them_is_lost(api: InProcess):
    first = await api.create("!TEXT stored text")
    instructions = [
        {"role": "developer", "content": "system text"},
        {"role": "user", "content": "an example"},
        {"role": "assistant", "content": "an answer"},
        {"type": "item_reference", "id": first["output"][0]["id"]},
    ]
    prompt = await api.echo("go", instructions=instructions)
    for text in ("system text", "an example", "an answer", "stored text"):
        assert text in prompt


@pytest.mark.requirement("api:input-items:once")
async def test_an_item_that_was_sent_again_is_listed_once_and_pages_end(api: InProcess):
    first = await api.create("hello")
    item = first["output"][0]
    second = await api.create([item, item, {"role": "user", "content": "x"}], previous_response_id=first["id"])
    seen: list[str] = []
    after = ""
    for _ in range(10):
        query = {"limit": "1", "order": "asc", "after": after}
        page = (await api.client.get(f"/responses/{second['id']}/input_items", params=query)).json()
        seen += [entry["id"] for entry in page["data"]]
        after = page["last_id"]
        if not page["has_more"]:
            break
    assert len(seen) == 3
    assert seen[1] == item["id"]


@pytest.mark.requirement("api:items:lossless")
async def test_items_of_types_that_are_not_acted_on_are_stored_and_listed_whole(api: InProcess):
    items = [
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"], "x": [1, None]}, "status": "completed"},
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "exec"}]},
        {"type": "compaction", "encrypted_content": "gAAA"},
        {"role": "user", "content": "hi"},
    ]
    answer = await api.create(items)
    listing = (await api.client.get(f"/responses/{answer['id']}/input_items?order=asc")).json()["data"]
    for sent, kept in zip(items[:3], listing, strict=False):
        assert {name: kept[name] for name in sent} == sent
        assert kept["id"]


@pytest.mark.requirement("api:chain:missing-output")
async def test_a_chain_that_leaves_a_call_without_an_output_is_a_400(api: InProcess):
    tools = [{"type": "function", "name": "f"}]
    first = await api.create("!CALL f {}\n!CALL f {}", tools=tools)
    calls = [item["call_id"] for item in first["output"]]
    outputs = [{"type": "function_call_output", "call_id": call_id, "output": "ok"} for call_id in calls]
    error = await api.refused(400, outputs[:1], previous_response_id=first["id"])
    assert error["message"] == f"No tool output found for function call {calls[1]}."
    assert (await api.create(outputs, previous_response_id=first["id"]))["output_text"] == "FINAL: ok"


@pytest.mark.requirement("api:chain:incomplete")
async def test_an_incomplete_response_can_be_chained_and_its_cut_call_is_not_replayed(api: InProcess):
    tools = [{"type": "function", "name": "f"}]
    cut = await api.create('!TEXT half\n!CALL f {"a":"long enough to be cut"}', tools=tools, max_output_tokens=3)
    assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert [item["status"] for item in cut["output"]] == ["completed", "incomplete"]
    prompt = await api.echo("go on", previous_response_id=cut["id"])
    assert "half" in prompt
    assert "tool_call" not in prompt


@pytest.mark.requirement("api:failed", "subset:M39")
@pytest.mark.parametrize("said", ["!FAIL", "!CUT", "!STREAMERR"])
async def test_a_fault_after_generation_began_ends_the_response_as_failed_and_stored(api: InProcess, said: str):
    answer = await api.create(said)
    assert answer["status"] == "failed"
    assert set(answer["error"]) == {"code", "message", "type"}
    assert (await api.client.get(f"/responses/{answer['id']}")).json() == answer
    events = await api.stream(said)
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert events[-2]["error"]["message"] == events[-2]["message"]
    partial = "" if said == "!STREAMERR" else answer["output_text"]
    assert events[-1]["response"]["output_text"] == partial


@pytest.mark.requirement("api:http-error")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 429, 500, 503])
async def test_a_fault_before_generation_is_an_http_error_and_nothing_is_stored(api: InProcess, status: int):
    for stream in (False, True):
        error = await api.refused(status, f"!ERR{status}", stream=stream)
        assert error["message"]
        assert error["type"]


@pytest.mark.requirement("api:aliases", "subset:M1")
async def test_the_same_routes_stand_without_v1(api: InProcess):
    root = "http://127.0.0.1"
    created = (await api.client.post(f"{root}/responses", json={"model": "scripted", "input": "hi"})).json()
    assert (await api.client.get(f"{root}/responses/{created['id']}")).json() == created
    assert (await api.client.get(f"{root}/responses/{created['id']}/input_items")).status_code == 200
    assert (await api.client.post(f"{root}/responses/{created['id']}/cancel")).status_code == 400
    assert (await api.client.get(f"{root}/models")).status_code == 200
    assert (await api.client.delete(f"{root}/responses/{created['id']}")).json()["deleted"] is True


@pytest.mark.requirement("api:not-yet")
@pytest.mark.parametrize("path", ["/assistants", "/nothing"])
async def test_endpoints_that_are_not_there_are_a_404_in_the_envelope(api: InProcess, path: str):
    reply = await api.client.post(path, json={"model": "scripted", "input": "hi"})
    assert reply.status_code == 404
    assert reply.json()["error"]["code"] == "unknown_url"


@pytest.mark.requirement("api:methods")
async def test_a_wrong_method_is_a_405_in_the_envelope(api: InProcess):
    reply = await api.client.put("/responses", json={})
    assert reply.status_code == 405
    assert reply.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.requirement("api:headers")
async def test_every_reply_has_a_request_id_and_the_time_it_took(api: InProcess):
    replies = [
        await api.client.post("/responses", json={"model": "scripted", "input": "hi"}),
        await api.client.post("/responses", json={"model": "scripted", "input": "hi", "stream": True}),
        await api.client.post("/responses", json={"model": "none", "input": "hi"}),
        await api.client.get("/nothing"),
        await api.client.get("/models"),
    ]
    ids = [reply.headers["x-request-id"] for reply in replies]
    assert len(set(ids)) == len(ids)
    assert all(int(reply.headers["openai-processing-ms"]) >= 0 for reply in replies)


@pytest.mark.requirement("api:json:compact")
async def test_json_on_the_wire_is_compact(api: InProcess):
    reply = await api.client.post("/responses", json={"model": "scripted", "input": "hi"})
    assert b'": ' not in reply.content
    assert b', "' not in reply.content


@pytest.mark.requirement("api:persistence-off", "subset:M33", "subset:M41")
async def test_without_persistence_look_ups_and_chains_say_so():
    async with inprocess_app(settings=Settings(responses_store_max_entries=0), store="memory") as api:
        answer = await api.create("hi")
        assert answer["status"] == "completed"
        assert answer["store"] is False
        for reply in (
            await api.client.get(f"/responses/{answer['id']}"),
            await api.client.delete(f"/responses/{answer['id']}"),
            await api.client.post(f"/responses/{answer['id']}/cancel"),
            await api.client.get(f"/responses/{answer['id']}/input_items"),
        ):
            assert reply.status_code == 400
            assert "--responses-store-max-entries" in reply.json()["error"]["message"]
        error = await api.refused(400, "hi", previous_response_id=answer["id"])
        assert error["param"] == "previous_response_id"


@pytest.mark.requirement("api:truncation")
async def test_truncation_auto_drops_from_the_beginning_and_disabled_is_a_400():
    async with inprocess_app(settings=Settings(scripted_context_length=200), store="memory") as api:
        turns = [{"role": "user", "content": f"turn {n} " + "x" * 80} for n in range(20)]
        error = await api.refused(400, [*turns, {"role": "user", "content": "!ECHO"}])
        assert error["code"] == "context_length_exceeded"
        assert "200" in error["message"]
        kept = await api.echo(turns, truncation="auto", instructions="stay")
        assert "stay" in kept
        assert "turn 0 " not in kept
        await api.refused(400, "x" * 5000, truncation="auto")


@pytest.mark.requirement("api:application")
async def test_the_application_refuses_what_is_not_http(api: InProcess):
    with pytest.raises(NotImplementedError):
        await create_app(api.service)({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
