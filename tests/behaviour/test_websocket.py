"""The WebSocket mode: exact frames, lanes, what is kept without a store, errors and the end of a connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.http.app import Application, create_app
from antiphon.http.turns import ConnectionTurns
from antiphon.runtime import keys
from antiphon.runtime.keys import new_key
from antiphon.runtime.limits import KeyRules
from antiphon.settings import Settings
from antiphon.store.base import Scope
from support.inprocess import InProcess, inprocess_app, sse_events
from support.sockets import TERMINAL, ManualSocket, manual_socket

ENDLESS = "!SLOW 5\n!COUNT 100000"
CALL = '!CALL look {"at": "it"}'
TOOLS = [{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}]


@pytest.fixture
def app(api: InProcess) -> Application:
    """The application over the service."""
    return create_app(api.service)


@pytest.fixture
async def socket(app: Application) -> AsyncIterator[ManualSocket]:
    """A connection to it."""
    async with manual_socket(app) as connected:
        yield connected


def code(frame: dict[str, Any]) -> str:
    """The code of an error or a failed steer."""
    return frame["error"]["code"]


async def begun(socket: ManualSocket, said: str = ENDLESS, **fields: Any) -> str:
    """The id of a response that has said something and goes on."""
    socket.create(said, **fields)
    own: list[dict[str, Any]] = []
    while not own or own[-1]["type"] != "response.output_text.delta":
        frame = await socket.frame()
        assert frame["type"] != "error", frame
        if frame.get("stream_id") == fields.get("stream_id"):
            own.append(frame)
    return own[0]["response"]["id"]


@pytest.mark.requirement("websocket:event:bytes", "websocket:message:create", "api:websocket")
async def test_the_frames_are_the_events_of_the_stream(api: InProcess, socket: ManualSocket):
    socket.create("!REASON so\n!TEXT hi there", stream=False, stream_options={"include_obfuscation": False})
    texts = [await socket.text()]
    while json.loads(texts[-1])["type"] not in TERMINAL:
        texts.append(await socket.text())
    response = json.loads(texts[0])["response"]
    replay = await api.client.get(f"/responses/{response['id']}?stream=true")
    frames = [line.removeprefix("data: ") for line in replay.text.split("\n") if line.startswith("data: ")]
    assert [*texts, "[DONE]"] == frames
    assert sse_events(replay.content)[-1]["response"] == json.loads(texts[-1])["response"]


@pytest.mark.requirement("websocket:stream-id:echo")
async def test_a_named_lane_is_named_by_every_event_and_by_no_stored_one(api: InProcess, socket: ManualSocket):
    socket.create("hi", stream_id="a.b-C_1")
    frames = await socket.until(*TERMINAL)
    assert {frame.pop("stream_id") for frame in frames} == {"a.b-C_1"}
    replay = await api.client.get(f"/responses/{frames[0]['response']['id']}?stream=true")
    assert sse_events(replay.content) == frames
    refused = await socket.refused("hi", stream_id="a.b-C_1", temperature=9)
    assert (refused["status"], refused["stream_id"]) == (400, "a.b-C_1")
    assert (code(refused), refused["error"]["param"]) == ("invalid_value", "temperature")


@pytest.mark.requirement("websocket:error:frame", "websocket:error:invalid-json")
async def test_errors_are_frames_and_the_connection_goes_on(socket: ManualSocket):
    socket.send_text("{")
    assert json.loads(await socket.text()) == {
        "type": "error",
        "status": 400,
        "error": {
            "type": "invalid_request_error",
            "code": "invalid_json",
            "message": "We could not parse the JSON body of your request.",
            "param": None,
        },
    }
    socket.send(type="session.update")
    assert code(await socket.frame()) == "unsupported_event_type"
    assert code(await socket.refused("hi", stream_id="")) == "invalid_stream_id"
    assert code(await socket.refused("!ERR429"))
    assert (await socket.refused("hi", model=None))["error"]["param"] == "model"
    unknown = await socket.refused("hi", conversation="conv_" + "0" * 44)
    assert unknown["status"] == 404
    assert (await socket.response("hi"))["status"] == "completed"


@pytest.mark.requirement("websocket:error:frame")
async def test_a_fault_of_the_engine_ends_the_response_and_not_the_connection(socket: ManualSocket):
    socket.create("!FAIL")
    frames = await socket.until(*TERMINAL, "error")
    assert [frame["type"] for frame in [*frames, await socket.frame()]][-2:] == ["error", "response.failed"]
    assert (await socket.response("hi"))["status"] == "completed"


@pytest.mark.requirement("websocket:background")
async def test_background_is_refused(socket: ManualSocket):
    refused = await socket.refused("hi", background=True)
    assert (refused["status"], code(refused), refused["error"]["param"]) == (400, "unsupported_parameter", "background")


@pytest.mark.requirement("websocket:lanes:fifo", "websocket:lanes:parallel")
async def test_one_lane_waits_while_another_runs(socket: ManualSocket):
    first = await begun(socket, stream_id="a")
    socket.create("!TEXT second", stream_id="a")
    socket.create("!TEXT other", stream_id="b")
    frames = await socket.until(*TERMINAL)
    assert frames[-1]["stream_id"] == "b"
    assert [frame["stream_id"] for frame in frames if frame["type"] == "response.created"] == ["b"]
    socket.send(type="response.steer", previous_response_id=first, input="!TEXT first")
    said = [frame["response"] for frame in [(await socket.until(*TERMINAL))[-1] for _ in range(3)]]
    assert [response["output_text"] for response in said[1:]] == ["first", "second"]
    assert said[0]["incomplete_details"] == {"reason": "steered"}


@pytest.mark.requirement("websocket:lanes:active")
async def test_sixteen_run_and_the_seventeenth_follows_the_first_that_ends(socket: ManualSocket):
    for number in range(17):
        socket.create("!SLOW 20\n!COUNT 10" if number < 16 else "!TEXT last", stream_id=f"s{number}")
    seen: list[tuple[str, str]] = []
    while len([kind for kind, _ in seen if kind in TERMINAL]) < 17:
        frame = await socket.frame()
        seen.append((frame["type"], frame["stream_id"]))
    first_end = min(index for index, (kind, _) in enumerate(seen) if kind in TERMINAL)
    assert len({lane for _, lane in seen[:first_end]}) == 16
    assert seen.index(("response.created", "s16")) > first_end


@pytest.mark.requirement("websocket:cache:latest", "websocket:warmup")
@pytest.mark.parametrize("store", [True, False])
async def test_a_client_without_a_store_warms_up_and_sends_only_what_is_new(store: bool):
    settings = Settings() if store else Settings(responses_store_max_entries=0)
    async with inprocess_app(settings=settings) as api, manual_socket(create_app(api.service)) as socket:
        await follow_codex(socket)
        assert api.service.store is None or (await api.service.store.status()).responses == 0


async def follow_codex(socket: ManualSocket) -> None:
    """Warm up with the developer's message, then go on by `previous_response_id` although nothing is stored."""
    common = {"store": False, "tools": TOOLS}
    developer = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]}
    socket.create([developer], generate=False, **common)
    frames = await socket.until(*TERMINAL)
    assert [frame["type"] for frame in frames] == ["response.created", "response.in_progress", "response.completed"]
    warm = frames[-1]["response"]
    assert (warm["output"], warm["output_text"], warm["usage"]["output_tokens"]) == ([], "", 0)
    asked = [{"type": "message", "role": "user", "content": CALL}]
    called = await socket.response(asked, previous_response_id=warm["id"], **common)
    (call,) = called["output"]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "12C"}
    told = await socket.response([output], previous_response_id=called["id"], **common)
    assert told["output_text"] == "FINAL: 12C"
    said = await socket.response("!ECHO", previous_response_id=told["id"], **common)
    for words in ("Be brief.", "!CALL look", "12C", "FINAL: 12C"):
        assert said["output_text"].count(words) >= 1


@pytest.mark.requirement("websocket:warmup")
async def test_a_warm_up_needs_no_question(socket: ManualSocket):
    warm = await socket.response([], generate=False, tools=TOOLS, store=False)
    assert (warm["status"], warm["output"]) == ("completed", [])
    said = await socket.response("hi", previous_response_id=warm["id"], store=False)
    assert said["output_text"] == "Hello from scripted."
    assert code(await socket.refused([], previous_response_id=None)) == "empty_input"


TEMPLATE = (
    "{% if 'brief' in messages[-1].content %}{{ raise_exception('No user query found.') }}{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{{ '<|im_start|>assistant\n' }}"
)


@pytest.mark.requirement("websocket:warmup")
async def test_a_warm_up_may_be_what_a_template_refuses(tiny: Callable[..., Path]):
    path = str(tiny(script=["Fine."], template=TEMPLATE))
    settings = Settings(model=(path,), alias=(f"scripted={path}",), threads=1)
    async with inprocess_app(settings=settings) as api, manual_socket(create_app(api.service)) as socket:
        developer = [{"role": "developer", "content": "Be brief."}]
        assert "No user query" in (await socket.refused(developer))["error"]["message"]
        warm = await socket.response(developer, generate=False, store=False)
        assert warm["usage"]["total_tokens"] == 0
        said = await socket.response("hi", previous_response_id=warm["id"], store=False)
        assert said["output_text"] == "Fine."


@pytest.mark.requirement("websocket:cache:latest")
async def test_a_history_without_a_store_is_the_prompt_of_the_same_history_inline(socket: ManualSocket):
    one = await socket.response("!TEXT one", store=False)
    two = await socket.response("!TEXT two", store=False, previous_response_id=one["id"])
    chained = await socket.response("!ECHO", store=False, previous_response_id=two["id"])
    inline = [
        {"role": "user", "content": "!TEXT one"},
        *one["output"],
        {"role": "user", "content": "!TEXT two"},
        *two["output"],
        {"role": "user", "content": "!ECHO"},
    ]
    assert chained["output_text"] == (await socket.response(inline, store=False))["output_text"]
    assert chained["usage"]["input_tokens"] > one["usage"]["input_tokens"]


@pytest.mark.requirement("websocket:cache:latest")
async def test_open_calls_of_a_kept_response_want_their_outputs(socket: ManualSocket):
    called = await socket.response(CALL, store=False, tools=TOOLS)
    refused = await socket.refused("hi", store=False, previous_response_id=called["id"])
    assert code(refused) == "missing_tool_output"


@pytest.mark.requirement("websocket:cache:uncached")
async def test_what_is_neither_kept_nor_stored_is_not_found(app: Application, socket: ManualSocket):
    one = await socket.response("hi", store=False)
    two = await socket.response("hi", store=False, previous_response_id=one["id"])
    refused = await socket.refused("hi", store=False, previous_response_id=one["id"])
    assert (refused["status"], code(refused)) == (400, "previous_response_not_found")
    assert refused["error"]["param"] == "previous_response_id"
    async with manual_socket(app) as another:
        assert code(await another.refused("hi", previous_response_id=two["id"])) == "previous_response_not_found"
    assert (await socket.response("hi", previous_response_id=two["id"]))["status"] == "completed"
    for strange in ("resp_1", "", "x" * 10_000, "msg_" + "0" * 44):
        assert code(await socket.refused("hi", previous_response_id=strange)) == "previous_response_not_found"


@pytest.mark.requirement("websocket:cache:hydrate")
async def test_a_stored_response_is_gone_on_from_over_any_connection(
    api: InProcess, app: Application, socket: ManualSocket
):
    one = await socket.response("!TEXT one")
    two = await api.create("!TEXT two", previous_response_id=one["id"])
    async with manual_socket(app, path="/responses") as another:
        three = await another.response("!ECHO", previous_response_id=two["id"], store=False)
        assert three["output_text"].index("one") < three["output_text"].index("two")
    assert (await socket.response("hi", previous_response_id=one["id"]))["previous_response_id"] == one["id"]
    assert (await api.client.delete(f"/responses/{one['id']}")).status_code == 200
    assert code(await socket.refused("hi", previous_response_id=one["id"])) == "previous_response_not_found"


@pytest.mark.requirement("websocket:cache:evict")
async def test_a_refused_continuation_evicts_what_it_named_in_its_lane_only(socket: ManualSocket):
    one = await socket.response("!TEXT one", store=False, stream_id="a")
    fork = {"store": False, "previous_response_id": one["id"]}
    assert code(await socket.refused("hi", temperature=9, stream_id="b", **fork)) == "invalid_value"
    assert (await socket.response("!ECHO", stream_id="b", **fork))["output_text"].count("one") == 2
    assert code(await socket.refused("hi", temperature=9, stream_id="a", **fork)) == "invalid_value"
    assert code(await socket.refused("hi", stream_id="a", **fork)) == "previous_response_not_found"


@pytest.mark.requirement("websocket:cache:evict", "websocket:cache:hydrate")
async def test_a_stored_response_can_be_gone_on_from_after_its_eviction(socket: ManualSocket):
    one = await socket.response("hi")
    assert code(await socket.refused("hi", temperature=9, previous_response_id=one["id"])) == "invalid_value"
    assert (await socket.response("hi", previous_response_id=one["id"]))["status"] == "completed"


@pytest.mark.requirement("websocket:cache:fork")
@pytest.mark.parametrize("store", [True, False])
async def test_a_fork_of_a_running_response_waits_for_its_end(socket: ManualSocket, store: bool):
    socket.create("!SLOW 10\n!COUNT 20", stream_id="a", store=store)
    running = (await socket.until("response.output_text.delta"))[0]["response"]["id"]
    socket.create("!ECHO", stream_id="b", previous_response_id=running, store=store)
    frames = await socket.until(*TERMINAL)
    assert {frame["stream_id"] for frame in frames} == {"a"}
    forked = (await socket.until(*TERMINAL))[-1]
    assert forked["stream_id"] == "b"
    assert forked["response"]["output_text"].endswith("<|im_start|>assistant\n")
    assert "19 20" in forked["response"]["output_text"]


@pytest.mark.requirement("websocket:cache:stored-child")
async def test_a_stored_response_after_unstored_ones_has_their_items(api: InProcess, socket: ManualSocket):
    one = await socket.response("!TEXT one", instructions="Not stored.")
    two = await socket.response("!TEXT two", store=False, previous_response_id=one["id"])
    three = await socket.response("!TEXT three", store=False, previous_response_id=two["id"])
    four = await socket.response("!TEXT four", previous_response_id=three["id"])
    assert (four["previous_response_id"], four["title"]) == (three["id"], "!TEXT two")
    listed = (await api.client.get(f"/responses/{four['id']}/input_items?order=asc")).json()["data"]
    said = ["!TEXT one", "one", "!TEXT two", "two", "!TEXT three", "three", "!TEXT four"]
    assert [item["content"][0]["text"] for item in listed] == said
    later = await api.create("!ECHO", previous_response_id=four["id"])
    words = [line for line in later["output_text"].split("\n") if line.endswith("<|im_end|>")]
    assert words == [f"{text}<|im_end|>" for text in [*said, "four", "!ECHO"]]
    assert (await api.client.get(f"/responses/{four['id']}")).json() == four
    assert (await api.client.get(f"/responses/{two['id']}")).status_code == 404
    # The history is asked for a second time, now from what is kept of it.
    assert (await api.create("!ECHO", previous_response_id=four["id"]))["output_text"] == later["output_text"]


@pytest.mark.requirement("websocket:cache:stored-child")
async def test_what_was_deleted_is_not_gone_on_from_by_way_of_an_unstored_response(
    api: InProcess, socket: ManualSocket
):
    one = await socket.response("!TEXT one")
    two = await socket.response("!TEXT two", store=False, previous_response_id=one["id"])
    assert (await api.client.delete(f"/responses/{one['id']}")).status_code == 200
    refused = await socket.refused("hi", previous_response_id=two["id"])
    assert code(refused) == "previous_response_not_found"


@pytest.mark.requirement("websocket:cache:bound")
async def test_histories_are_bounded_together(app: Application):
    app.sockets.turns = ConnectionTurns(200_000)
    async with manual_socket(app) as first, manual_socket(app) as second:
        kept = await first.response("x" * 120_000, store=False)
        assert (await first.response("hi", store=False, previous_response_id=kept["id"]))["status"] == "completed"
        latest = await first.response("x" * 120_000, store=False)
        other = await second.response("x" * 120_000, store=False)
        refused = await first.refused("hi", store=False, previous_response_id=latest["id"])
        assert code(refused) == "previous_response_not_found"
        assert (await second.response("hi", store=False, previous_response_id=other["id"]))["status"] == "completed"


@pytest.mark.requirement("websocket:steer:successor")
@pytest.mark.parametrize("store", [True, False])
async def test_a_steered_response_is_followed_by_one_that_has_the_input(
    api: InProcess, socket: ManualSocket, store: bool
):
    first = await begun(socket, store=store, instructions="Obey.", metadata={"a": "b"}, stream_id="one")
    socket.send(type="response.steer", previous_response_id=first, input=[{"role": "user", "content": "!ECHO"}])
    frames = await socket.until("response.created")
    kinds = [frame["type"] for frame in frames]
    accepted = frames[kinds.index("response.steer.accepted")]
    assert accepted["steer"]["previous_response_id"] == first
    before = socket.seen[socket.seen.index(accepted) - 1]
    assert accepted["sequence_number"] == before["sequence_number"] >= 4
    ended = frames[kinds.index("response.incomplete")]["response"]
    assert (ended["id"], ended["incomplete_details"]) == (first, {"reason": "steered"})
    successor = frames[-1]["response"]
    assert (successor["previous_response_id"], successor["instructions"]) == (first, "Obey.")
    assert (successor["metadata"], successor["store"]) == ({"a": "b"}, store)
    final = (await socket.until(*TERMINAL))[-1]
    assert final["stream_id"] == "one"
    text = final["response"]["output_text"]
    assert text.startswith("<|im_start|>system\nObey.<|im_end|>\n<|im_start|>user\n!SLOW 5")
    assert text.endswith("!ECHO<|im_end|>\n<|im_start|>assistant\n")
    assert " 2 3" in ended["output_text"] or ended["output_text"] in text
    stored = await api.client.get(f"/responses/{first}")
    assert stored.status_code == (200 if store else 404)
    if store:
        assert stored.json() == ended


@pytest.mark.requirement("websocket:steer:pending")
async def test_a_steer_waits_for_the_outputs_of_calls(socket: ManualSocket):
    socket.create(f"!SLOW 20\n{CALL}\n!CALL look {json.dumps({'at': 'it ' * 1000})}", tools=TOOLS, store=False)
    frames = await socket.until("response.output_item.done")
    first = frames[0]["response"]["id"]
    socket.send(type="response.steer", previous_response_id=first, input="too")
    done, cut = (await socket.until(*TERMINAL))[-1]["response"]["output"]
    assert (done["status"], cut["status"]) == ("completed", "incomplete")
    pending = await socket.frame()
    assert pending["type"] == "response.steer.pending"
    assert pending["required_input"] == [{"type": "function_call_output", "call_id": done["call_id"], "name": "look"}]
    output = {**pending["required_input"][0], "output": "12C"}
    final = await socket.response([output], previous_response_id=first, store=False)
    assert final["output_text"] == "FINAL: 12C"
    echo = await socket.response("!ECHO", previous_response_id=final["id"], store=False)
    assert "<|im_start|>user\ntoo<|im_end|>" in echo["output_text"]


@pytest.mark.requirement("websocket:steer:failed")
async def test_a_steer_that_cannot_be_taken_gets_its_input_back(socket: ManualSocket):
    socket.send(type="response.steer", previous_response_id="resp_1", input=[{"role": "user", "content": "x"}])
    failed = await socket.frame()
    assert (failed["type"], code(failed)) == ("response.steer.failed", "response_not_found")
    assert failed["steer"]["input"] == [{"role": "user", "content": "x"}]
    done = await socket.response("hi")
    socket.send(type="response.steer", previous_response_id=done["id"], input="x")
    assert code(await socket.frame()) == "response_already_completed"


@pytest.mark.requirement("websocket:steer:failed")
@pytest.mark.parametrize("field", ["conversation", "context_management"])
async def test_a_response_in_a_conversation_or_that_compacts_cannot_be_steered(
    api: InProcess, socket: ManualSocket, field: str
):
    conversation = (await api.client.post("/conversations", json={})).json()
    values = {
        "conversation": conversation["id"],
        "context_management": [{"type": "compaction", "compact_threshold": 100_000}],
    }
    running = await begun(socket, **{field: values[field]})
    socket.send(type="response.steer", previous_response_id=running, input="x")
    frames = await socket.until("response.steer.failed")
    assert code(frames[-1]) == "steering_not_supported"


@pytest.mark.requirement("websocket:steer:failed")
async def test_a_successor_that_cannot_be_created_gives_the_input_back(socket: ManualSocket):
    running = await begun(socket)
    socket.send(type="response.steer", previous_response_id=running, input="!ERR500")
    frames = await socket.until("response.steer.failed")
    assert frames[-2]["type"] == "response.incomplete"
    assert (code(frames[-1]), frames[-1]["steer"]["input"]) == ("successor_creation_failed", "!ERR500")
    assert frames[-1]["steer"]["id"].startswith("steer_")


@pytest.mark.requirement("websocket:leave")
@pytest.mark.parametrize("store", [True, False])
async def test_a_client_that_leaves_frees_what_runs(api: InProcess, app: Application, store: bool):
    async with manual_socket(app) as socket:
        running = await begun(socket, store=store)
        await begun(socket, store=store, stream_id="b")
        socket.create("hi", stream_id="b")
        assert api.service.admission.running == 2
    await api.service.admission.empty(10)
    assert api.service.admission.running == 0
    stored = await api.client.get(f"/responses/{running}")
    assert stored.status_code == (200 if store else 404)
    if store:
        assert stored.json()["status"] == "cancelled"
    assert app.bodies.held == 0


@pytest.mark.requirement("websocket:leave")
async def test_a_client_that_does_not_read_holds_nothing_but_its_own_responses(
    api: InProcess, app: Application, socket: ManualSocket
):
    socket.create("!COUNT 2000")
    await socket.frame()
    socket.gate.clear()
    async with manual_socket(app) as other:
        assert (await other.response("hi"))["status"] == "completed"
    socket.gate.set()
    assert (await socket.until(*TERMINAL))[-1]["response"]["status"] == "completed"


@pytest.mark.requirement("websocket:lifetime")
async def test_a_connection_ends_with_its_time():
    async with inprocess_app(settings=Settings(websocket_lifetime=0.2)) as api:
        socket = ManualSocket(create_app(api.service), {}, "/v1/responses")
        assert (await socket.message())["type"] == "websocket.accept"
        told = await socket.frame()
        assert (told["status"], code(told)) == (400, "websocket_connection_limit_reached")
        assert await socket.message() == {"type": "websocket.close", "code": 1000}
        await asyncio.wait_for(socket.task, 10)


@pytest.mark.requirement("websocket:lifetime")
async def test_what_runs_at_the_end_of_the_time_may_go_on_for_a_while():
    settings = Settings(websocket_lifetime=0.3, drain_timeout=0.3)
    async with inprocess_app(settings=settings) as api, manual_socket(create_app(api.service)) as socket:
        await begun(socket)
        socket.create("hi")
        assert code((await socket.until("error"))[-1]) == "websocket_connection_limit_reached"
        ended = (await socket.until(*TERMINAL))[-1]
        assert ended["response"]["status"] == "cancelled"
        assert code(await socket.frame()) == "websocket_connection_limit_reached"
        assert await socket.message() == {"type": "websocket.close", "code": 1000}


@pytest.mark.requirement("websocket:stop")
async def test_a_stop_closes_idle_connections_and_lets_others_finish(app: Application, socket: ManualSocket):
    socket.create("!SLOW 10\n!COUNT 20")
    await socket.until("response.output_text.delta")
    async with manual_socket(app) as idle:
        app.sockets.stop()
        assert await idle.message() == {"type": "websocket.close", "code": 1012}
    socket.create("hi", stream_id="b")
    frames = await socket.until(*TERMINAL, "error")
    assert (frames[-1]["status"], frames[-1]["stream_id"]) == (503, "b")
    assert (await socket.until(*TERMINAL))[-1]["type"] == "response.completed"
    assert await socket.message() == {"type": "websocket.close", "code": 1012}


@pytest.mark.requirement("websocket:access")
@pytest.mark.parametrize(
    ("settings", "headers", "status", "expected"),
    [
        (Settings(api_key=("sk-one",)), {}, 401, "missing_api_key"),
        (Settings(api_key=("sk-one",)), {"Authorization": "Bearer sk-two"}, 401, "invalid_api_key"),
        (Settings(), {"Origin": "https://evil.example"}, 403, "origin_not_allowed"),
        (Settings(), {"Origin": "null"}, 403, "origin_not_allowed"),
    ],
)
async def test_who_may_not_ask_gets_the_answer_of_http(
    settings: Settings, headers: dict[str, str], status: int, expected: str
):
    async with inprocess_app(settings=settings) as api:
        socket = ManualSocket(create_app(api.service), headers, "/v1/responses")
        start, body = await socket.message(), await socket.message()
        assert (start["type"], start["status"]) == ("websocket.http.response.start", status)
        answer = await api.client.get("/models", headers=headers)
        assert body["body"] == answer.content
        assert json.loads(body["body"])["error"]["code"] == expected
        names = {name for name, _ in start["headers"]}
        assert names >= {b"x-request-id", b"content-type", b"content-length"}
        await asyncio.wait_for(socket.task, 10)


@pytest.mark.requirement("websocket:access")
async def test_a_key_works_for_its_tenant_and_stops_working_when_it_is_revoked(
    api: InProcess, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(keys, "FRESH_SECONDS", 0.0)
    store = api.service.store
    assert store is not None
    mine, other = (new_key("test", tenant, KeyRules(), 1000) for tenant in ("acme", "umbra"))
    for _, row in (mine, other):
        await store.add_key(row)
    app = create_app(api.service)
    async with (
        manual_socket(app, {"Authorization": f"Bearer {mine[0]}"}) as socket,
        manual_socket(app, {"Authorization": f"Bearer {other[0]}"}) as foreign,
    ):
        one = await socket.response("hi")
        assert code(await foreign.refused("hi", previous_response_id=one["id"])) == "previous_response_not_found"
        foreign.send(type="response.steer", previous_response_id=one["id"], input="x")
        assert code(await foreign.frame()) == "response_not_found"
        assert await store.revoke_key(mine[1].id, 2000)
        refused = await socket.refused("hi")
        assert (refused["status"], code(refused)) == (401, "invalid_api_key")


@pytest.mark.requirement("websocket:access")
async def test_each_request_counts_for_the_limits_of_its_key(api: InProcess, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(keys, "FRESH_SECONDS", 0.0)
    store = api.service.store
    assert store is not None
    secret, row = new_key("test", "acme", KeyRules(requests_per_minute=2), 1000)
    await store.add_key(row)
    async with manual_socket(create_app(api.service), {"Authorization": f"Bearer {secret}"}) as socket:
        await socket.response("hi")
        await socket.response("hi")
        refused = await socket.refused("hi")
        assert (refused["status"], code(refused)) == (429, "rate_limit_exceeded")
        assert int(refused["error"]["headers"]["retry-after"]) >= 1


@pytest.mark.requirement("websocket:cache:uncached")
async def test_what_ran_in_a_conversation_without_being_stored_is_gone_on_from_by_that(
    api: InProcess, socket: ManualSocket
):
    conversation = (await api.client.post("/conversations", json={})).json()["id"]
    one = await socket.response("!TEXT one", store=False, conversation=conversation)
    refused = await socket.refused("hi", previous_response_id=one["id"])
    assert code(refused) == "previous_response_not_found"
    assert (await socket.response("hi", conversation=conversation))["status"] == "completed"


@pytest.mark.requirement("websocket:error:frame")
async def test_a_response_that_another_server_took_ends_with_an_error(api: InProcess, socket: ManualSocket):
    running = await begun(socket)
    run = api.service.live_run(Scope("default"), running)
    assert run is not None
    run.lose()
    frames = await socket.until("error", "response.failed")
    failed = (await socket.until("response.failed"))[-1]
    assert frames[-1]["code"] == failed["response"]["error"]["code"] == "server_restarted"
    assert (await socket.response("hi"))["status"] == "completed"
