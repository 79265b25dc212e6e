"""The documented subset of the Responses API that other local servers have: it runs here as documented there.

The scripted model stands in, under the name that the documentation uses. Where Antiphon does otherwise, the manifest
says so with its reason.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from antiphon.settings import FIELDS, load_settings
from antiphon.store.base import StoreLimits
from antiphon.store.open import store_limits
from clients.conftest import KEY
from clients.strict import Recorder, strict_events, strict_response
from support.fronted import scripted_model
from support.inprocess import InProcess, inprocess_app
from support.server import RunningServer, wait_until

requirement = pytest.mark.requirement

NAME = "qwen3-0.6b-4bit"
PNG = "data:image/png;base64,iVBORw0KGgo="
IMAGE_NOTE = "[Image output attached in the next message]"
FUNCTION: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture(scope="module")
def documented_server() -> Iterator[RunningServer]:
    """A server that answers under the name of the documentation."""
    with scripted_model(["--store", "memory", "--alias", f"{NAME}=scripted"]) as server:
        yield server


@pytest.fixture
async def api() -> AsyncIterator[InProcess]:
    """The scripted model in process."""
    async with inprocess_app(settings=load_settings({"alias": [f"{NAME}=scripted"]}, {})) as app:
        yield app


def echo_of(prompt: str) -> list[tuple[str, str]]:
    """The messages of an echoed prompt, but the `!ECHO` that asked for it, as roles and texts."""
    blocks = re.findall(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>\n", prompt, re.DOTALL)
    assert blocks[-1] == ("user", "!ECHO")
    return blocks[:-1]


@requirement("subset:quickstart")
def test_the_quickstart_runs(documented_server: RunningServer) -> None:
    recorder = Recorder()
    with openai.OpenAI(
        base_url=documented_server.base_url, api_key=KEY, http_client=httpx2.Client(transport=recorder)
    ) as client:
        answer = client.responses.create(model=NAME, input="Answer with: good day", max_output_tokens=64)
        assert answer.status == "completed"
        assert answer.output_text
        assert answer.model == NAME
        seen: list[tuple[str, str]] = []
        with client.responses.stream(model=NAME, input="!COUNT 4", max_output_tokens=64) as stream:
            for event in stream:
                seen.append((event.type, getattr(event, "delta", "")))
            final = stream.get_final_response()
    assert final.usage is not None
    assert "".join(delta for kind, delta in seen if kind == "response.output_text.delta") == "1 2 3 4"
    recorder.verify()


@requirement("subset:routes", "subset:M1")
def test_every_documented_route_stands_with_and_without_its_prefix(documented_server: RunningServer) -> None:
    for prefix in ("/v1", ""):
        with httpx2.Client(base_url=documented_server.root + prefix) as client:
            created = client.post("/responses", json={"model": NAME, "input": "Hi."}).json()
            path = f"/responses/{created['id']}"
            assert client.get(path).json() == created
            assert client.post(f"{path}/cancel").status_code == 400
            assert client.delete(path).json()["deleted"] is True
            assert client.get(path).status_code == 404


FIELDS_TAKEN: list[tuple[str, Any, Any]] = [
    ("instructions", "Be brief.", "Be brief."),
    ("tools", [FUNCTION], [{**FUNCTION, "strict": None, "description": None}]),
    ("parallel_tool_calls", False, False),
    ("text", {"format": {"type": "text"}}, {"format": {"type": "text"}, "verbosity": "medium"}),
    ("reasoning", {"effort": "high"}, {"effort": "high", "summary": None}),
    ("reasoning", {"effort": " None "}, {"effort": " None ", "summary": None}),
    ("reasoning", {"effort": "off", "summary": "auto"}, {"effort": "off", "summary": "auto"}),
    ("store", False, False),
    ("max_output_tokens", 1, 1),
    ("max_tool_calls", 3, 3),
    ("temperature", 0.25, 0.25),
    ("top_p", 0.5, 0.5),
    ("top_logprobs", 4, 4),
    ("metadata", {f"key{n}": "value" for n in range(16)}, {f"key{n}": "value" for n in range(16)}),
    ("prompt_cache_key", "thread-7", "thread-7"),
    ("user", "someone", "someone"),
    ("safety_identifier", "hashed", "hashed"),
    ("background", False, False),
    ("truncation", "disabled", "disabled"),
    ("truncation", "auto", "auto"),
    ("service_tier", "flex", "flex"),
]


@requirement("subset:fields", "subset:M31")
@pytest.mark.parametrize(("field", "value", "echoed"), FIELDS_TAKEN)
async def test_a_documented_field_is_taken_and_echoed(api: InProcess, field: str, value: Any, echoed: Any) -> None:
    response = await api.create("Hi.", **{field: value})
    assert response[field] == echoed
    streamed = await api.stream("Hi.", **{field: value})
    assert streamed[0]["response"][field] == streamed[-1]["response"][field] == echoed


@requirement("subset:fields")
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"truncation": "middle"}, "truncation"),
        ({"metadata": {f"key{n}": "value" for n in range(17)}}, "metadata"),
        ({"conversation": "conv_1", "previous_response_id": "resp_1"}, "previous_response_id"),
    ],
)
async def test_a_documented_refusal_is_a_400_that_names_its_field(
    api: InProcess, fields: dict[str, Any], param: str
) -> None:
    error = await api.refused(400, "Hi.", **fields)
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


@requirement("subset:fields")
async def test_the_model_must_be_one_that_is_served(api: InProcess) -> None:
    assert (await api.create("Hi.", model=NAME))["model"] == NAME
    error = await api.refused(404, "Hi.", model="another")
    assert error["code"] == "model_not_found"
    assert NAME in error["message"]


DOCUMENTED_ITEMS: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": "good day"},
    {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "be kind"}]},
    {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": PNG, "detail": "high"}]},
    {"type": "function_call", "call_id": "call_one", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_one", "output": "fine"},
    {
        "type": "function_call_output",
        "call_id": "call_two",
        "output": [{"type": "input_text", "text": "taken"}, {"type": "input_image", "image_url": PNG}],
    },
    {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
]


@requirement("subset:items")
async def test_the_documented_items_are_taken_together(api: InProcess) -> None:
    assert (await api.create(DOCUMENTED_ITEMS))["status"] == "completed"
    image = '{"type":"image_url","image_url":{"url":"' + PNG + '","detail":"%s"}}'
    assert echo_of(await api.echo(DOCUMENTED_ITEMS)) == [
        ("system", "be kind"),
        ("user", "good day"),
        ("user", image % "high"),
        ("assistant", '<tool_call>{"name":"f","arguments":"{}"}</tool_call>'),
        ("tool", "fine"),
        ("tool", f"taken\n{IMAGE_NOTE}"),
        ("user", image % "auto"),
    ]


@requirement("subset:items")
@pytest.mark.parametrize("item", DOCUMENTED_ITEMS)
async def test_each_documented_item_is_taken_alone_and_listed(api: InProcess, item: dict[str, Any]) -> None:
    created = await api.create([item])
    assert created["status"] == "completed"
    (listed,) = (await api.client.get(f"/responses/{created['id']}/input_items")).json()["data"]
    assert listed["type"] == item["type"]
    assert listed["id"]


@requirement("subset:items")
async def test_developer_is_system(api: InProcess) -> None:
    prompts = [
        echo_of(await api.echo([{"role": role, "content": "Be kind."}, {"role": "user", "content": "Hi."}]))
        for role in ("system", "developer")
    ]
    assert prompts[0] == prompts[1] == [("system", "Be kind."), ("user", "Hi.")]


@requirement("subset:items", "subset:M14")
async def test_thinking_goes_to_the_assistant_turn_that_follows(api: InProcess) -> None:
    thinking = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": text} for text in ("one", "two")]}
    call = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "call_1", "output": "ok"}
    said = {"role": "assistant", "content": "Yes."}
    before = await api.echo([thinking, said])
    assert echo_of(before) == [("assistant", "<think>one\ntwo</think>\nYes.")]
    assert echo_of(await api.echo([thinking, call, output]))[0][1].startswith("<think>one\ntwo</think>\n<tool_call>")
    assert "one" not in await api.echo([thinking, {"role": "user", "content": "Hi."}, said])
    assert "one" not in await api.echo([thinking, output, said])


@requirement("subset:parts")
@pytest.mark.parametrize(
    ("part", "shown"),
    [
        ({"type": "input_text", "text": "words"}, "words"),
        ({"type": "text", "text": "words"}, "words"),
        ({"type": "input_image", "image_url": PNG}, PNG),
        ({"type": "input_image", "image_url": PNG, "detail": "low"}, '"detail":"low"'),
        ({"type": "image_url", "image_url": {"url": PNG}}, PNG),
        ({"type": "image_url", "image_url": PNG}, PNG),
        ({"type": "video_url", "video_url": {"url": "https://example.com/v.mp4"}}, "https://example.com/v.mp4"),
        ({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}, "UklGRg=="),
        ({"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,YQ=="}, "a.txt"),
    ],
)
async def test_each_documented_part_is_taken_in_messages_and_tool_outputs(
    api: InProcess, part: dict[str, Any], shown: str
) -> None:
    message = {"role": "user", "content": [part]}
    output = {"type": "function_call_output", "call_id": "call_1", "output": [part]}
    for item in (message, output):
        assert shown in await api.echo([item])
        assert (await api.create([item]))["status"] == "completed"


@requirement("subset:parts", "subset:M17")
async def test_a_tool_output_of_parts_is_text_and_its_images_follow(api: InProcess) -> None:
    def output(value: Any) -> list[dict[str, Any]]:
        return [{"type": "function_call_output", "call_id": "call_1", "output": value}]

    assert echo_of(await api.echo(output(" as it is\n"))) == [("tool", " as it is\n")]
    audio = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    two = [{"type": "input_text", "text": "one"}, audio, {"type": "text", "text": "two"}]
    (message,) = echo_of(await api.echo(output(two)))
    lines = message[1].split("\n")
    assert [lines[0], lines[2]] == ["one", "two"]
    assert "UklGRg==" in lines[1]
    images = [{"type": "input_image", "image_url": f"https://example.com/{n}.png"} for n in (1, 2)]
    tool, user = echo_of(await api.echo(output([images[0], {"type": "input_text", "text": "both"}, images[1]])))
    assert tool == ("tool", f"both\n{IMAGE_NOTE}")
    assert user[0] == "user"
    assert user[1].index("/1.png") < user[1].index("/2.png")


@requirement("subset:parts", "subset:M17")
@pytest.mark.parametrize("role", ["assistant", "system", "developer", "user"])
async def test_an_image_stays_with_a_user_and_follows_any_other_message(api: InProcess, role: str) -> None:
    parts = [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": PNG}]
    messages = echo_of(await api.echo([{"role": role, "content": parts}]))
    assert [name for name, text in messages if PNG in text] == ["user"]
    assert messages[0][1].startswith("look")
    assert len(messages) == (1 if role == "user" else 2)


@requirement("subset:empty", "subset:M6")
@pytest.mark.parametrize(
    "nothing",
    [
        [],
        "",
        " \n",
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": [{"type": "input_text", "text": "  "}]}],
        [{"role": "user", "content": []}],
    ],
)
async def test_nothing_to_answer_is_refused_unless_something_else_counts(api: InProcess, nothing: Any) -> None:
    error = await api.refused(400, nothing)
    assert error["type"] == "invalid_request_error"
    assert error["message"] == "Request must include at least one non-empty message content or media input."
    assert (await api.create(nothing, instructions="Say something."))["status"] == "completed"
    earlier = await api.create("Hi.")
    assert (await api.create(nothing, previous_response_id=earlier["id"]))["status"] == "completed"


@requirement("subset:shape", "subset:M28")
async def test_an_answer_has_the_documented_shape(api: InProcess) -> None:
    response = await api.create(
        '!REASON well now\n!CALL f {"a": 1}\n!TEXT done it is', tools=[{"type": "function", "name": "f"}]
    )
    assert re.fullmatch(r"resp_[0-9a-f]+", response["id"])
    assert response["object"] == "response"
    assert isinstance(response["created_at"], int)
    assert isinstance(response["completed_at"], int)
    assert response["status"] == "completed"
    reasoning, call, message = response["output"]
    assert [reasoning["type"], call["type"], message["type"]] == ["reasoning", "function_call", "message"]
    assert [item["id"].partition("_")[0] for item in response["output"]] == ["rs", "fc", "msg"]
    assert {item["status"] for item in response["output"]} == {"completed"}
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "well now"}]
    assert re.fullmatch(r"call_[0-9a-f]+", call["call_id"])
    assert (call["name"], call["arguments"]) == ("f", '{"a": 1}')
    assert message["role"] == "assistant"
    assert message["content"] == [{"type": "output_text", "text": "done it is", "annotations": [], "logprobs": []}]
    assert response["output_text"] == "done it is"


@requirement("subset:shape", "subset:M27")
async def test_thinking_is_counted_in_usage(api: InProcess) -> None:
    usage = (await api.create("!REASON one two three\n!TEXT four"))["usage"]
    assert usage["output_tokens_details"]["reasoning_tokens"] == 3
    assert usage["output_tokens"] == 4
    assert usage["total_tokens"] == usage["input_tokens"] + 4
    assert usage["input_tokens_details"]["cached_tokens"] == 0


DOCUMENTED_EVENTS = {
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.reasoning_text.delta",
    "response.reasoning_text.done",
    "response.completed",
}


@requirement("subset:events", "subset:M37")
def test_a_stream_has_the_documented_events(documented_server: RunningServer) -> None:
    def streamed(question: str, **fields: Any) -> list[Any]:
        body = {"model": NAME, "input": question, "stream": True, "tools": [FUNCTION], **fields}
        answer = httpx2.post(f"{documented_server.base_url}/responses", json=body)
        assert answer.headers["content-type"].startswith("text/event-stream")
        return strict_events(answer.content)

    events = streamed("!REASON one two\n!TEXT three\n!CALL f {}")
    types = [event.type for event in events]
    assert set(types) == DOCUMENTED_EVENTS
    added = [event.item.type for event in events if event.type == "response.output_item.added"]
    assert added == ["reasoning", "message", "function_call"]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == "three"
    assert [streamed(question)[-1].type for question in ("!FAIL", "!INCOMPLETE")] == [
        "response.failed",
        "response.incomplete",
    ]
    assert streamed("!STREAMERR")[-2].type == "error"


@requirement("subset:events", "subset:M26")
def test_ids_in_events_are_those_of_the_stored_object(documented_server: RunningServer) -> None:
    with httpx2.Client(base_url=documented_server.base_url) as client:
        body = {"model": NAME, "input": "!REASON one\n!CALL f {}\n!TEXT two", "stream": True, "tools": [FUNCTION]}
        events = strict_events(client.post("/responses", json=body).content)
        stored = strict_response(client.get(f"/responses/{events[0].response.id}").content)
    done = [event.item.to_dict() for event in events if event.type == "response.output_item.done"]
    assert done == [item.to_dict() for item in stored.output] == events[-1].response.to_dict()["output"]


def as_set(flags: dict[str, Any], environment: dict[str, str]) -> AbstractAsyncContextManager[InProcess]:
    """The application with settings of flags or of the environment."""
    settings = load_settings({"store": "memory", "model": ["scripted"], **flags}, environment)
    return inprocess_app(settings=settings, store="as-set")


BOTH_SPELLINGS = pytest.mark.parametrize("source", ["flag", "ours", "theirs"])
THEIRS = {
    "responses_store_max_entries": "LLAMA_ARG_RESPONSES_STORE_MAX_ENTRIES",
    "responses_store_max_bytes": "MLXCEL_RESPONSES_STORE_MAX_BYTES",
    "responses_store_ttl_secs": "LLAMA_ARG_RESPONSES_STORE_TTL_SECS",
    "conversation_store_max_entries": "LLAMA_ARG_CONVERSATION_STORE_MAX_ENTRIES",
    "conversation_store_max_bytes": "MLXCEL_CONVERSATION_STORE_MAX_BYTES",
    "conversation_store_ttl_secs": "LLAMA_ARG_CONVERSATION_STORE_TTL_SECS",
}


def setting(source: str, name: str, value: int) -> AbstractAsyncContextManager[InProcess]:
    """The application with one setting, given as a flag or as a variable of the environment."""
    if source == "flag":
        return as_set({name: value}, {})
    variable = f"ANTIPHON_{name.upper()}" if source == "ours" else THEIRS[name]
    return as_set({}, {variable: str(value)})


@requirement("subset:stores", "subset:conversation-stores", "subset:M41")
def test_the_documented_flags_and_variables_are_known_with_their_defaults() -> None:
    known = {field.name: field for field in FIELDS}
    for name, variable in THEIRS.items():
        assert known[name].flag == "--" + name.replace("_", "-")
        assert known[name].environment == (f"ANTIPHON_{name.upper()}", variable)
    memory = store_limits(load_settings({"store": "memory"}, {}))
    assert memory == StoreLimits(1024, 268_435_456, 3600, None, 256, 67_108_864, 3600)
    assert store_limits(load_settings({}, {})) == StoreLimits(None, None, 30 * 86_400)
    never = {name: 0 for name in THEIRS if name.endswith("ttl_secs")}
    unbounded = store_limits(load_settings({"store": "memory", **never}, {}))
    assert (unbounded.ttl_seconds, unbounded.conversation_ttl_seconds) == (None, None)


@requirement("subset:stores", "subset:M41")
@BOTH_SPELLINGS
async def test_the_least_recently_used_response_gives_way(source: str) -> None:
    async with setting(source, "responses_store_max_entries", 2) as app:
        first, second = [await app.create(f"Number {n}.") for n in (1, 2)]
        assert (await app.client.get(f"/responses/{first['id']}")).status_code == 200
        third = await app.create("Number 3.")
        found = [(await app.client.get(f"/responses/{one['id']}")).status_code for one in (first, second, third)]
        assert found == [200, 404, 200]


@requirement("subset:stores", "subset:M41")
@BOTH_SPELLINGS
async def test_no_entries_turn_persistence_off_with_a_clear_error(source: str) -> None:
    async with setting(source, "responses_store_max_entries", 0) as app:
        created = await app.create("Hi.")
        path = f"/responses/{created['id']}"
        answers = [
            await app.client.get(path),
            await app.client.delete(path),
            await app.client.post(f"{path}/cancel"),
            await app.client.post(
                "/responses", json={"model": "scripted", "input": "Hi.", "previous_response_id": created["id"]}
            ),
        ]
        for answer in answers:
            assert answer.status_code == 400
            assert "--responses-store-max-entries 0" in answer.json()["error"]["message"]


@requirement("subset:stores", "subset:M41")
@BOTH_SPELLINGS
async def test_no_bytes_evict_every_response_at_once(source: str) -> None:
    async with setting(source, "responses_store_max_bytes", 0) as app:
        created = await app.create("Hi.")
        assert (await app.client.get(f"/responses/{created['id']}")).status_code == 404


async def begun_conversation(app: InProcess) -> str:
    items = [{"role": "user", "content": "Hi."}]
    return (await app.client.post("/conversations", json={"items": items})).json()["id"]


@requirement("subset:conversation-stores")
@BOTH_SPELLINGS
async def test_the_least_recently_used_conversation_gives_way(source: str) -> None:
    async with setting(source, "conversation_store_max_entries", 2) as app:
        first, second = [await begun_conversation(app) for _ in (1, 2)]
        await app.create("Hi.", conversation=first)
        third = await begun_conversation(app)
        found = [(await app.client.get(f"/conversations/{one}/items")).status_code for one in (first, second, third)]
        assert found == [200, 404, 200]


@requirement("subset:conversation-stores")
@BOTH_SPELLINGS
async def test_no_entries_turn_conversations_off_with_a_clear_error(source: str) -> None:
    async with setting(source, "conversation_store_max_entries", 0) as app:
        error = await app.refused(400, "Hi.", conversation="thread")
        assert "--conversation-store-max-entries 0" in error["message"]
        assert (await app.create("Hi."))["status"] == "completed"


@requirement("subset:conversation-stores")
@BOTH_SPELLINGS
async def test_no_bytes_keep_the_route_and_evict_every_transcript_at_once(source: str) -> None:
    async with setting(source, "conversation_store_max_bytes", 0) as app:
        identity = await begun_conversation(app)
        assert identity.startswith("conv_")
        assert (await app.client.get(f"/conversations/{identity}")).status_code == 404


@requirement("subset:stores", "subset:M41")
@BOTH_SPELLINGS
def test_a_response_expires_and_zero_seconds_mean_never(source: str) -> None:
    name = "responses_store_ttl_secs"
    variable = {"ours": f"ANTIPHON_{name.upper()}", "theirs": THEIRS[name]}.get(source)
    flag = "--" + name.replace("_", "-")
    for seconds in (1, 0):
        arguments = ["--store", "memory", *([flag, str(seconds)] if variable is None else [])]
        environment = {} if variable is None else {variable: str(seconds)}
        with (
            scripted_model(arguments, environment=environment) as server,
            httpx2.Client(base_url=server.base_url) as client,
        ):
            created = client.post("/responses", json={"model": "scripted", "input": "Hi."}).json()
            path = f"/responses/{created['id']}"
            assert client.get(path).status_code == 200
            if seconds:
                wait_until(lambda client=client, path=path: client.get(path).status_code == 404)
            assert ("for 1 second" in printed_by(server)) == (seconds == 1)


@requirement("subset:stores")
def test_the_server_prints_where_state_lies_and_how_long_it_stays(
    documented_server: RunningServer, tmp_path: Path
) -> None:
    printed = printed_by(documented_server)
    for bound in ("in memory", "1 hour", "1,024", "256 MiB"):
        assert bound in printed
    file = tmp_path / "kept.db"
    with scripted_model(["--store", str(file)]) as server:
        printed = printed_by(server)
    for bound in (str(file), "30 days"):
        assert bound in printed


def printed_by(server: RunningServer) -> str:
    """The line that says where state lies; it may be on its way still."""
    found: list[str] = []

    def look() -> bool:
        found[:] = [line for line in server.lines if line.startswith("Responses are ")]
        return bool(found)

    wait_until(look)
    return found[0]


@requirement("subset:chaining", "subset:M20", "subset:M21")
async def test_a_chain_gives_input_and_output_of_every_turn(api: InProcess) -> None:
    first = await api.create("My name is Ada.", instructions="Rule one.")
    second = await api.create(
        '!REASON hm\n!CALL f {"a":1}', previous_response_id=first["id"], tools=[FUNCTION], instructions="Rule two."
    )
    call_id = second["output"][-1]["call_id"]
    output = {"type": "function_call_output", "call_id": call_id, "output": "ok"}
    third = await api.create([output], previous_response_id=second["id"])
    assert echo_of(await api.echo(previous_response_id=third["id"], instructions="Rule three.")) == [
        ("system", "Rule three."),
        ("user", "My name is Ada."),
        ("assistant", first["output_text"]),
        ("user", '!REASON hm\n!CALL f {"a":1}'),
        ("assistant", '<think>hm</think>\n<tool_call>{"name":"f","arguments":"{\\"a\\":1}"}</tool_call>'),
        ("tool", "ok"),
        ("assistant", third["output_text"]),
    ]


@requirement("subset:chaining", "subset:M20")
async def test_a_response_that_is_not_there_cannot_be_chained_to(api: InProcess) -> None:
    gone = await api.create("Hi.")
    await api.client.delete(f"/responses/{gone['id']}")
    for identity in (gone["id"], "resp_0", "nonsense"):
        error = await api.refused(404, "Hi.", previous_response_id=identity)
        assert (error["code"], error["param"]) == ("previous_response_not_found", "previous_response_id")
        assert identity in error["message"]


@requirement("subset:M22")
async def test_store_false_keeps_nothing(api: InProcess) -> None:
    assert api.service.store is not None
    created = await api.create("Hi.", store=False)
    assert (await api.client.get(f"/responses/{created['id']}")).status_code == 404
    assert (await api.service.store.status()).responses == 0


@requirement("subset:M19")
async def test_a_conversation_excludes_a_previous_response(api: InProcess) -> None:
    earlier = await api.create("Hi.")
    for conversation in ("conv_1", {"id": "conv_1"}):
        error = await api.refused(400, "Hi.", conversation=conversation, previous_response_id=earlier["id"])
        assert error["code"] == "mutually_exclusive_parameters"
        assert (await api.refused(404, "Hi.", conversation=conversation))["param"] == "conversation"


@requirement("subset:tool-choice", "subset:M9")
@pytest.mark.parametrize(
    ("choice", "called"),
    [
        (None, False),
        ("auto", False),
        ("none", False),
        ("required", True),
        ({"type": "function", "function": {"name": "f"}}, True),
        ({"type": "function", "name": "f"}, True),
    ],
)
async def test_a_documented_tool_choice_is_enforced(api: InProcess, choice: Any, called: bool) -> None:
    response = await api.create("Hello.", tools=[FUNCTION], tool_choice=choice)
    assert [item["type"] for item in response["output"]] == ["function_call" if called else "message"]
    if isinstance(choice, dict):
        assert response["tool_choice"] == {"type": "function", "name": "f"}


@requirement("subset:tool-choice", "subset:M9")
@pytest.mark.parametrize(
    ("tools", "choice"),
    [
        (None, "required"),
        ([], "required"),
        ([FUNCTION], {"type": "function", "function": {"name": "g"}}),
        ([FUNCTION], {"type": "function", "function": {"name": "F"}}),
        ([FUNCTION], {"type": "function", "function": {"name": ""}}),
        ([FUNCTION], {"type": "tool", "function": {"name": "f"}}),
        ([FUNCTION], "sometimes"),
    ],
)
async def test_a_documented_refusal_of_a_tool_choice_is_a_400(api: InProcess, tools: Any, choice: Any) -> None:
    error = await api.refused(400, "Hello.", tools=tools, tool_choice=choice)
    assert error["param"].startswith("tool_choice")


@requirement("subset:M10")
async def test_without_parallel_calls_there_is_at_most_one(api: InProcess) -> None:
    two = "!CALL f {}\n!CALL f {}"
    assert len((await api.create(two, tools=[FUNCTION]))["output"]) == 2
    assert len((await api.create(two, tools=[FUNCTION], parallel_tool_calls=False))["output"]) == 1


@requirement("subset:M11")
@pytest.mark.parametrize("nested", [False, True])
async def test_a_schema_comes_flat_or_nested_and_is_kept_to(api: InProcess, nested: bool) -> None:
    inner = {"name": "n", "schema": {"type": "object", "properties": {"a": {"const": 7}}, "required": ["a"]}}
    form = {"type": "json_schema", "json_schema": inner} if nested else {"type": "json_schema", **inner}
    response = await api.create("Hello.", text={"format": form})
    assert response["output_text"] == '{"a":7}'
    assert response["text"]["format"] == {"type": "json_schema", **inner}
    assert (await api.create("In JSON.", text={"format": {"type": "json_object"}}))["output_text"] == "{}"
    error = await api.refused(400, "Hello.", text={"format": {"type": "yaml"}})
    assert error["param"] == "text.format.type"


def _bomb(depth: int) -> dict[str, Any]:
    """A small schema whose smallest instance doubles with every step."""
    definitions: dict[str, Any] = {f"d{depth}": {"type": "string"}}
    for step in range(depth):
        side = {"$ref": f"#/$defs/d{step + 1}"}
        definitions[f"d{step}"] = {"type": "object", "properties": {"l": side, "r": side}, "required": ["l", "r"]}
    return {"$ref": "#/$defs/d0", "$defs": definitions}


@requirement("subset:M12")
@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(_bomb(28), id="doubles"),
        pytest.param({"$ref": "#"}, id="endless"),
        pytest.param({"$ref": "#/$defs/none"}, id="dangling"),
        pytest.param({"type": "array", "items": {"type": "string"}, "minItems": 10**9}, id="long-array"),
        pytest.param({"type": "string", "minLength": 10**10}, id="long-string"),
    ],
)
async def test_a_schema_that_has_no_small_instance_is_a_400(api: InProcess, schema: dict[str, Any]) -> None:
    form = {"format": {"type": "json_schema", "name": "n", "schema": schema}}
    assert (await api.refused(400, "Hello.", text=form))["code"] == "invalid_json_schema"
    tool = {"type": "function", "name": "f", "parameters": schema}
    assert (await api.refused(400, "Hello.", tools=[tool], tool_choice="required"))["code"] == "invalid_json_schema"


@requirement("subset:M25")
async def test_max_tool_calls_never_cuts_function_calls(api: InProcess) -> None:
    asked: dict[str, Any] = {"tools": [FUNCTION], "max_tool_calls": 1}
    whole = await api.create("!CALL f {}\n!CALL f {}", **asked)
    streamed = await api.stream("!CALL f {}\n!CALL f {}", **asked)
    assert len(whole["output"]) == len(streamed[-1]["response"]["output"]) == 2


@requirement("subset:unsupported-tools", "subset:M8")
async def test_tools_of_every_other_type_are_taken_echoed_and_never_called(api: InProcess) -> None:
    hosted = ["web_search", "file_search", "computer_use_preview", "code_interpreter", "image_generation"]
    label = {"type": "mcp", "server_label": "nobody", "extra": {"kept": True}}
    taken = [*({"type": kind, "extra": {"kept": True}} for kind in hosted), label]
    assert (await api.create("Hi.", tools=taken))["tools"] == taken
    tools = [{"type": kind, "extra": {"kept": True}} for kind in ("function_shell", "something_new")]
    response = await api.create("Hi.", tools=tools)
    assert response["tools"] == tools
    assert (await api.client.get(f"/responses/{response['id']}")).json()["tools"] == tools
    await api.refused(400, "Hi.", tools=tools, tool_choice="required")
    for tool in tools:
        await api.refused(400, "Hi.", tools=tools, tool_choice={"type": tool["type"]})
    assert (await api.create("Hi.", tools=[*tools, FUNCTION], tool_choice="required"))["output"][0]["name"] == "f"


@requirement("subset:gaps")
async def test_a_documented_gap_is_filled(api: InProcess) -> None:
    created = await api.create("Hi.")
    assert (await api.client.get(f"/responses/{created['id']}/input_items")).status_code == 200
    for path in ("/responses/compact", "/responses/input_tokens"):
        answer = await api.client.post(path, json={"model": "scripted", "input": "Hi."})
        assert answer.status_code == 200


@requirement("subset:M32")
async def test_a_prompt_cache_key_is_taken_up_to_its_length(api: InProcess) -> None:
    assert (await api.create("Hi.", prompt_cache_key="k" * 64))["prompt_cache_key"] == "k" * 64
    assert (await api.refused(400, "Hi.", prompt_cache_key="k" * 65))["param"] == "prompt_cache_key"
