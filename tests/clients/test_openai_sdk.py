"""The official `openai` package on the scripted model and on the default one.

Each test's fixtures hold every object and every event that went over the wire strictly against the package's types.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from pydantic import BaseModel

from clients.conftest import Target
from clients.strict import Recorder, strict_events
from support.fronted import UPSTREAM, scripted_model
from support.server import RunningServer

requirement = pytest.mark.requirement

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
NOTE: Any = {"type": "custom", "name": "note", "description": "Writes a note down."}
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
CALL_WEATHER = '!CALL get_weather {"city": "Oslo"}'


class Person(BaseModel):
    """What is parsed out of an answer."""

    name: str
    age: int
    tags: list[str]


@requirement("client:openai:create")
def test_create_gives_a_whole_answer(target: Target) -> None:
    response = target.responses.create(
        model=target.model,
        input="Say hello.",
        instructions="Be brief.",
        max_output_tokens=target.tokens,
        temperature=0.0,
        metadata={"purpose": "test"},
    )
    assert response.output_text
    assert response.model == target.model
    assert response.instructions == "Be brief."
    assert response.metadata == {"purpose": "test"}
    assert response.temperature == 0.0
    assert response.max_output_tokens == target.tokens
    assert response.usage is not None
    assert response.usage.input_tokens > 0
    assert 0 < response.usage.output_tokens <= target.tokens


@requirement("client:openai:create")
def test_every_form_of_input_is_answered(target: Target) -> None:
    forms: list[Any] = [
        "Hi.",
        [{"role": "user", "content": "Hi."}],
        [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi."}]}],
        [
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": "Hi."},
            {"role": "assistant", "content": "Hello!"},
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "And now?"},
        ],
    ]
    for form in forms:
        response = target.responses.create(model=target.model, input=form, max_output_tokens=2)
        assert response.status in ("completed", "incomplete")


@requirement("client:openai:stream")
def test_stream_gives_the_same_answer_as_its_events(target: Target) -> None:
    events = list(
        target.responses.create(
            model=target.model, input="Count to three.", max_output_tokens=target.tokens, stream=True
        )
    )
    final = events[-1].response  # type: ignore[union-attr]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert events[0].type == "response.created"
    assert text == final.output_text != ""
    assert final.usage is not None
    assert 0 < final.usage.output_tokens <= target.tokens
    stored = target.responses.retrieve(final.id)
    assert stored.to_dict() == final.to_dict()


@requirement("client:openai:keep-alive")
def test_comments_on_a_silent_stream_do_not_reach_the_caller() -> None:
    arguments = ["--store", "memory", "--keep-alive-seconds", "0.02"]
    recorder = Recorder()
    with (
        scripted_model(arguments) as server,
        openai.OpenAI(base_url=server.base_url, api_key="any", http_client=httpx2.Client(transport=recorder)) as client,
    ):
        with client.responses.stream(model="scripted", input="!SLOW 100\n!COUNT 4") as stream:
            text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        assert text == "1 2 3 4"
    assert b": keep-alive\n\n" in recorder.exchanges[0].body
    recorder.verify()


@requirement("client:openai:stream-helper")
def test_stream_helper_gathers_text(target: Target) -> None:
    # A very small model may write without end, so that its answer ends with the first word.
    end: Any = None if target.model == "scripted" else {"stop": [" ", "\n", "."]}
    with target.responses.stream(model=target.model, input="!COUNT 5", extra_body=end) as stream:
        deltas = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert deltas == final.output_text
    assert final.status == "completed"
    assert final.usage is not None


@requirement("client:openai:stream-helper")
def test_stream_helper_parses_a_call(scripted: Target) -> None:
    with scripted.responses.stream(model="scripted", input=CALL_WEATHER, tools=[WEATHER]) as stream:
        kinds = Counter(event.type for event in stream)
        final = stream.get_final_response()
    (call,) = final.output
    assert call.type == "function_call"
    assert call.parsed_arguments == {"city": "Oslo"}
    assert kinds["response.function_call_arguments.delta"] > 1
    assert kinds["response.function_call_arguments.done"] == 1


@requirement("client:openai:parse")
def test_answer_is_parsed_into_a_model(scripted: Target) -> None:
    whole = scripted.responses.parse(model="scripted", input="Who?", text_format=Person)
    with scripted.responses.stream(model="scripted", input="Who?", text_format=Person) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_response()
    assert whole.output_parsed == streamed.output_parsed == Person(name="", age=0, tags=[])


@requirement("client:openai:refusal")
def test_refusal_is_a_part_of_its_own(scripted: Target) -> None:
    with scripted.responses.stream(model="scripted", input="!REFUSE I will not do that.") as stream:
        deltas = "".join(event.delta for event in stream if event.type == "response.refusal.delta")
        final = stream.get_final_response()
    (message,) = final.output
    assert message.type == "message"
    assert [part.type for part in message.content] == ["refusal"]
    assert deltas == "I will not do that."
    assert final.output_text == ""
    parsed = scripted.responses.parse(model="scripted", input="!REFUSE", text_format=Person)
    assert parsed.output_parsed is None


@requirement("client:openai:reasoning")
def test_reasoning_comes_as_an_item_before_the_message(scripted: Target) -> None:
    with scripted.responses.stream(model="scripted", input="!REASON Two and two.\n!TEXT Four.") as stream:
        thoughts = "".join(event.delta for event in stream if event.type == "response.reasoning_text.delta")
        final = stream.get_final_response()
    reasoning, message = final.output
    assert reasoning.type == "reasoning"
    assert reasoning.summary == []
    assert reasoning.content is not None
    assert reasoning.content[0].text == thoughts == "Two and two."
    assert message.type == "message"
    assert final.output_text == "Four."
    assert final.usage is not None
    assert final.usage.output_tokens_details.reasoning_tokens == 3


@requirement("client:openai:retrieve")
def test_a_retrieved_response_is_the_one_that_was_created(target: Target) -> None:
    created = target.responses.create(model=target.model, input="Hi.", max_output_tokens=2)
    assert target.responses.retrieve(created.id).to_dict() == created.to_dict()


@requirement("client:openai:retrieve")
def test_the_events_of_an_ended_response_are_replayed(scripted: Target) -> None:
    live = list(scripted.responses.create(model="scripted", input="!COUNT 6", stream=True))
    response_id = live[0].response.id  # type: ignore[union-attr]
    for after in (0, 4, len(live) - 1):
        again = list(scripted.responses.retrieve(response_id, stream=True, starting_after=after))
        assert [event.to_dict() for event in again] == [event.to_dict() for event in live[after + 1 :]]
    with scripted.responses.stream(response_id=response_id, starting_after=4) as stream:
        numbers = [event.sequence_number for event in stream]
        assert numbers == list(range(5, len(live)))
        assert stream.get_final_response().output_text == "1 2 3 4 5 6"


@requirement("client:openai:running")
def test_a_running_response_is_seen_as_it_stands(scripted: Target) -> None:
    stream = scripted.responses.create(model="scripted", input="!SLOW 100\n!REASON well\n!COUNT 20", stream=True)
    seen: list[Any] = []
    for event in stream:
        seen.append(event)
        if event.type == "response.output_text.delta" and event.delta == "2 ":
            break
    response_id = seen[0].response.id
    running = scripted.responses.retrieve(response_id)
    assert running.status == "in_progress"
    assert running.usage is None
    assert [item.to_dict()["status"] for item in running.output] == ["completed", "in_progress"]
    assert running.output_text.startswith("1 2")
    assert "20" not in running.output_text
    for call, message in (
        (scripted.responses.cancel, "Cannot cancel a synchronous response."),
        (scripted.responses.delete, "Cannot delete an in-flight response."),
    ):
        with pytest.raises(openai.BadRequestError, match=message):
            call(response_id)
    with pytest.raises(openai.BadRequestError) as caught:
        scripted.responses.create(model="scripted", input="And?", previous_response_id=response_id)
    assert (caught.value.code, caught.value.param) == ("response_in_progress", "previous_response_id")
    follower = scripted.responses.retrieve(response_id, stream=True, starting_after=3)
    followed = [event.to_dict() for event in follower]
    seen += stream
    assert followed == [event.to_dict() for event in seen[4:]]
    assert followed[-1]["type"] == "response.completed"
    assert scripted.responses.retrieve(response_id).output_text.endswith("19 20")


@requirement("client:openai:delete")
def test_a_deleted_response_is_gone(target: Target) -> None:
    created = target.responses.create(model=target.model, input="Hi.", max_output_tokens=2)
    target.responses.delete(created.id)
    for call in (target.responses.retrieve, target.responses.delete, target.responses.cancel):
        with pytest.raises(openai.NotFoundError):
            call(created.id)
    with pytest.raises(openai.NotFoundError):
        target.responses.input_items.list(created.id)
    with pytest.raises(openai.NotFoundError) as caught:
        target.responses.create(model=target.model, input="And?", previous_response_id=created.id)
    assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")


@requirement("client:openai:store-false")
def test_a_response_that_is_not_stored_cannot_be_found(target: Target) -> None:
    created = target.responses.create(model=target.model, input="Hi.", max_output_tokens=2, store=False)
    assert created.to_dict()["store"] is False
    with pytest.raises(openai.NotFoundError):
        target.responses.retrieve(created.id)
    with pytest.raises(openai.NotFoundError):
        target.responses.create(model=target.model, input="And?", previous_response_id=created.id)


@requirement("client:openai:cancel")
def test_only_a_background_response_can_be_cancelled(target: Target) -> None:
    created = target.responses.create(model=target.model, input="Hi.", max_output_tokens=2)
    with pytest.raises(openai.BadRequestError) as caught:
        target.responses.cancel(created.id)
    assert caught.value.body["message"] == "Cannot cancel a synchronous response."  # type: ignore[index]
    with pytest.raises(openai.NotFoundError):
        target.responses.cancel("resp_unknown")
    assert target.responses.retrieve(created.id).status == created.status


@requirement("client:openai:input-items")
def test_input_items_come_in_pages_over_the_whole_chain(target: Target) -> None:
    first = target.responses.create(
        model=target.model,
        input=[{"role": "user", "content": "One."}, {"role": "user", "content": "Two."}],
        max_output_tokens=2,
    )
    second = target.responses.create(
        model=target.model, input="Three.", previous_response_id=first.id, max_output_tokens=2
    )
    oldest_first = list(target.responses.input_items.list(second.id, order="asc"))
    assert [_text_of(item) for item in oldest_first] == ["One.", "Two.", first.output_text, "Three."]
    assert oldest_first[2].id == first.output[0].id
    assert [item.id for item in target.responses.input_items.list(second.id)] == [
        item.id for item in reversed(oldest_first)
    ]
    for limit in (1, 2, 3, 4):
        pages = list(target.responses.input_items.list(second.id, order="asc", limit=limit).iter_pages())
        assert [len(page.data) for page in pages] == [min(limit, 4 - start) for start in range(0, 4, limit)]
        assert [item.id for page in pages for item in page.data] == [item.id for item in oldest_first]
        assert [page.has_more for page in pages] == [True] * (len(pages) - 1) + [False]
    rest = target.responses.input_items.list(second.id, order="asc", after=oldest_first[1].id)
    assert [item.id for item in rest.data] == [item.id for item in oldest_first[2:]]


@requirement("client:openai:input-items")
@pytest.mark.parametrize(
    ("parameters", "param"),
    [({"limit": 0}, "limit"), ({"limit": 101}, "limit"), ({"limit": -1}, "limit"), ({"order": "up"}, "order")],
)
def test_a_page_that_cannot_be_is_refused(scripted: Target, parameters: Any, param: str) -> None:
    created = scripted.responses.create(model="scripted", input="Hi.")
    with pytest.raises(openai.BadRequestError) as caught:
        scripted.responses.input_items.list(created.id, **parameters)
    assert caught.value.param == param


@requirement("client:openai:tool-loop")
def test_a_tool_loop_by_previous_response_id(scripted: Target) -> None:
    asked = scripted.responses.create(model="scripted", input=CALL_WEATHER, tools=[WEATHER])
    (call,) = asked.output
    assert call.type == "function_call"
    assert json.loads(call.arguments) == {"city": "Oslo"}
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "12 C"}
    answered = scripted.responses.create(
        model="scripted", input=[output], tools=[WEATHER], previous_response_id=asked.id
    )
    assert answered.output_text == "FINAL: 12 C"
    assert answered.previous_response_id == asked.id
    listed = list(scripted.responses.input_items.list(answered.id, order="asc"))
    assert [item.type for item in listed] == ["message", "function_call", "function_call_output"]
    with pytest.raises(openai.BadRequestError, match="No tool output found for function call"):
        scripted.responses.create(model="scripted", input="Well?", previous_response_id=asked.id)


@requirement("client:openai:tool-loop")
def test_a_tool_loop_that_sends_everything_again(scripted: Target) -> None:
    history: list[Any] = [{"role": "user", "content": "!REASON Which city?\n" + CALL_WEATHER + "\n!CUSTOM note sunny"}]
    asked = scripted.responses.create(
        model="scripted",
        input=history,
        tools=[WEATHER, NOTE],
        store=False,
        include=["reasoning.encrypted_content"],
    )
    history += asked.output
    assert [item.type for item in asked.output] == ["reasoning", "function_call", "custom_tool_call"]
    for item in asked.output:
        if item.type == "function_call":
            history.append({"type": "function_call_output", "call_id": item.call_id, "output": "12 C"})
        elif item.type == "custom_tool_call":
            history.append({"type": "custom_tool_call_output", "call_id": item.call_id, "output": "noted"})
    answered = scripted.responses.create(model="scripted", input=history, tools=[WEATHER, NOTE], store=False)
    assert answered.output_text == "FINAL: noted"


@requirement("client:openai:replay-ids")
def test_items_that_the_sdk_sends_again_keep_their_ids(scripted: Target) -> None:
    question: Any = "!REASON Which city?\n!TEXT So\n" + CALL_WEATHER + "\n!CUSTOM note sunny"
    asked: Any = {"model": "scripted", "tools": [WEATHER, NOTE]}
    whole = scripted.responses.create(**asked, input=question)
    with scripted.responses.stream(**asked, input=question) as stream:
        helped = stream.get_final_response()
    for response in (whole, helped):
        outputs: list[Any] = []
        for item in response.output:
            if item.type in ("function_call", "custom_tool_call"):
                outputs.append({"type": item.type + "_output", "call_id": item.call_id, "output": "ok"})  # type: ignore[union-attr]
        again = scripted.responses.create(**asked, input=[*response.output, *outputs])  # type: ignore[list-item]
        listed = list(scripted.responses.input_items.list(again.id, order="asc"))
        assert [item.id for item in listed[:4]] == [item.id for item in response.output]
        third = scripted.responses.create(**asked, input=[*listed, {"role": "user", "content": "And?"}])  # type: ignore[list-item]
        relisted = list(scripted.responses.input_items.list(third.id, order="asc"))
        assert [item.to_dict() for item in relisted[:-1]] == [item.to_dict() for item in listed]


@requirement("client:openai:items")
def test_every_kind_of_item_is_listed_as_the_type_that_the_package_has_for_it(scripted: Target) -> None:
    image: Any = {"type": "input_image", "image_url": PIXEL, "detail": "auto"}
    text: Any = {"type": "input_text", "text": "words"}
    document: Any = {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,YQ=="}
    items: list[Any] = [
        {"role": "user", "content": "Hi."},
        {"role": "developer", "content": [text]},
        {"role": "system", "content": "Be kind."},
        {
            "role": "user",
            "content": [text, {"type": "input_image", "image_url": "https://example.com/a.png"}, document],
        },
        {"role": "assistant", "content": "Hello.", "phase": "commentary"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Hello.", "annotations": []}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"type": "reasoning", "id": "rs_foreign", "summary": [], "encrypted_content": "opaque"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}], "content": None},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}", "id": "fc_foreign"},
        {"type": "function_call_output", "call_id": "call_1", "output": [text, image, document], "status": None},
        {"type": "function_call", "call_id": "call_2", "name": "f", "arguments": "{}", "namespace": "ns"},
        {"type": "function_call_output", "call_id": "call_2", "output": "ok"},
        {"type": "custom_tool_call", "call_id": "call_3", "name": "note", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "call_3", "output": [text]},
        {
            "type": "shell_call",
            "call_id": "call_4",
            "action": {"commands": ["ls"], "timeout_ms": None, "max_output_length": None},
            "environment": None,
            "status": "completed",
        },
        {
            "type": "shell_call_output",
            "call_id": "call_4",
            "max_output_length": None,
            "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
            "status": "completed",
        },
        {
            "type": "apply_patch_call",
            "call_id": "call_5",
            "operation": {"type": "delete_file", "path": "a"},
            "status": "completed",
        },
        {"type": "apply_patch_call_output", "call_id": "call_5", "status": "completed", "output": "ok"},
        {
            "type": "web_search_call",
            "id": "ws_foreign",
            "status": "completed",
            "action": {"type": "search", "query": "q", "queries": ["q"]},
        },
        {"type": "compaction", "encrypted_content": "opaque"},
    ]
    created = scripted.responses.create(model="scripted", input=items)
    listed = list(scripted.responses.input_items.list(created.id, order="asc", limit=100))
    assert [item.type for item in listed] == [item.get("type", "message") for item in items]
    assert len({item.id for item in listed}) == len(items)
    assert not any("foreign" in str(item.id) for item in listed)
    assert listed[4].to_dict()["phase"] == "commentary"


@requirement("client:openai:tool-loop")
def test_calls_in_parallel_and_one_at_a_time(scripted: Target) -> None:
    two = CALL_WEATHER + "\n" + CALL_WEATHER.replace("Oslo", "Rome")
    both = scripted.responses.create(model="scripted", input=two, tools=[WEATHER], stream=True)
    final = list(both)[-1].response  # type: ignore[union-attr]
    cities = [json.loads(item.arguments)["city"] for item in final.output if item.type == "function_call"]
    assert cities == ["Oslo", "Rome"]
    one = scripted.responses.create(model="scripted", input=two, tools=[WEATHER], parallel_tool_calls=False)
    assert [item.type for item in one.output] == ["function_call"]


@requirement("client:openai:tool-choice")
@pytest.mark.parametrize(
    ("choice", "called"),
    [
        ("none", None),
        ("auto", None),
        ("required", "get_weather"),
        ({"type": "function", "name": "get_weather"}, "get_weather"),
        ({"type": "custom", "name": "note"}, "note"),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "note"}]}, "note"),
    ],
)
def test_every_tool_choice_is_kept(scripted: Target, choice: Any, called: str | None) -> None:
    response = scripted.responses.create(model="scripted", input="Hi.", tools=[WEATHER, NOTE], tool_choice=choice)
    (item,) = response.output
    assert getattr(item, "name", None) == called
    echoed = response.to_dict()["tool_choice"]
    assert echoed == choice


@requirement("client:openai:errors")
@pytest.mark.parametrize(
    ("directive", "kind", "type_", "code"),
    [
        ("!ERR400", openai.BadRequestError, "invalid_request_error", None),
        ("!ERR401", openai.AuthenticationError, "authentication_error", None),
        ("!ERR403", openai.PermissionDeniedError, "permission_error", None),
        ("!ERR404", openai.NotFoundError, "invalid_request_error", "not_found"),
        ("!ERR409", openai.ConflictError, "conflict_error", None),
        ("!ERR429", openai.RateLimitError, "rate_limit_error", "rate_limit_exceeded"),
        ("!ERR500", openai.InternalServerError, "server_error", "server_error"),
        ("!ERR503", openai.InternalServerError, "server_error", "service_unavailable"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_each_error_is_the_class_that_the_package_has_for_it(
    scripted: Target, directive: str, kind: type[openai.APIStatusError], type_: str, code: str | None, stream: bool
) -> None:
    with pytest.raises(kind) as caught:
        scripted.responses.create(model="scripted", input=directive, stream=stream)
    assert type(caught.value) is kind
    assert caught.value.type == type_
    # Of a model that runs elsewhere the code says that it is another server's word.
    assert caught.value.code == code or (UPSTREAM is not None and str(caught.value.code).startswith("upstream_"))
    assert caught.value.request_id


@requirement("client:openai:errors")
def test_a_request_that_cannot_be_names_its_field(target: Target) -> None:
    cases: list[tuple[dict[str, Any], type[openai.APIStatusError], str, str | None]] = [
        ({"model": "no-such-model"}, openai.NotFoundError, "model", "model_not_found"),
        ({"temperature": 3}, openai.BadRequestError, "temperature", None),
        ({"max_output_tokens": 0}, openai.BadRequestError, "max_output_tokens", None),
        ({"input": ""}, openai.BadRequestError, "input", None),
        ({"input": [{"role": "nobody", "content": "Hi."}]}, openai.BadRequestError, "input[0].role", None),
        ({"input": [{"role": "user", "content": 7}]}, openai.BadRequestError, "input[0].content", None),
        ({"background": "yes"}, openai.BadRequestError, "background", None),
        ({"metadata": {"k": "v" * 513}}, openai.BadRequestError, "metadata.k", None),
        ({"previous_response_id": "resp_1"}, openai.NotFoundError, "previous_response_id", None),
    ]
    for fields, kind, param, code in cases:
        with pytest.raises(kind) as caught:
            target.responses.create(**{"model": target.model, "input": "Hi.", **fields})
        assert caught.value.param == param, fields
        assert caught.value.type == "invalid_request_error"
        assert code is None or caught.value.code == code


@requirement("client:openai:errors")
def test_a_retry_after_is_obeyed_by_the_package(scripted: Target) -> None:
    patient = scripted.client.with_options(max_retries=1)
    with pytest.raises(openai.RateLimitError) as caught:
        patient.responses.create(model="scripted", input="!ERR429")
    assert int(caught.value.response.headers["retry-after"]) >= 1
    assert len(scripted.recorder.exchanges) == 2


@pytest.fixture(scope="module")
def locked_server() -> Any:
    """A server that wants a key."""
    with scripted_model(["--store", "memory", "--api-key", "right"]) as server:
        yield server


@requirement("client:openai:authentication")
def test_a_wrong_key_is_an_authentication_error(locked_server: RunningServer) -> None:
    for key, code in (("wrong", "invalid_api_key"), ("right", None)):
        recorder = Recorder()
        with openai.OpenAI(
            base_url=locked_server.base_url,
            api_key=key,
            max_retries=0,
            http_client=httpx2.Client(transport=recorder),
        ) as client:
            if code is None:
                assert client.responses.create(model="scripted", input="Hi.").output_text
            else:
                with pytest.raises(openai.AuthenticationError) as caught:
                    client.responses.create(model="scripted", input="Hi.")
                assert caught.value.code == code
        recorder.verify()


@requirement("client:openai:headers")
def test_raw_headers_name_the_request_and_its_time(target: Target) -> None:
    raw = target.responses.with_raw_response.create(model=target.model, input="Hi.", max_output_tokens=2)
    again = target.responses.with_raw_response.retrieve(raw.parse().id)
    assert raw.headers["x-request-id"].startswith("req_")
    assert raw.headers["x-request-id"] != again.headers["x-request-id"]
    assert int(raw.headers["openai-processing-ms"]) >= 0
    assert raw.parse()._request_id == raw.headers["x-request-id"]


@requirement("client:openai:failed")
def test_a_failure_after_the_beginning_is_a_failed_response(scripted: Target) -> None:
    whole = scripted.responses.create(model="scripted", input="!TEXT It began.\n!FAIL")
    assert whole.status == "failed"
    assert whole.error is not None
    assert whole.error.code == "server_error"
    assert whole.output_text.startswith("It began.")
    assert scripted.responses.retrieve(whole.id).to_dict() == whole.to_dict()


@requirement("client:openai:failed")
@pytest.mark.parametrize("directive", ["!FAIL", "!STREAMERR", "!CUT"])
def test_a_stream_that_fails_raises_and_is_stored_as_failed(scripted: Target, directive: str) -> None:
    stream = scripted.responses.create(model="scripted", input=directive, stream=True)
    seen: list[Any] = []
    with pytest.raises(openai.APIError) as caught:
        seen.extend(_noting(stream, seen))
    assert caught.value.code == "server_error"
    assert [event.type for event in seen[:2]] == ["response.created", "response.in_progress"]
    response_id = seen[0].response.id
    stored = scripted.responses.retrieve(response_id)
    assert stored.status == "failed"
    with httpx2.stream("GET", f"{scripted.base_url}/responses/{response_id}?stream=true") as answer:
        events = strict_events(answer.read())
    assert [event.type for event in events[-2:]] == ["error", "response.failed"]
    assert events[-1].response.to_dict() == stored.to_dict()


@requirement("client:openai:incomplete")
def test_an_answer_that_is_cut_is_incomplete(target: Target) -> None:
    question = "!COUNT 9" if target.model == "scripted" else "Tell me a long story about the sea."
    whole = target.responses.create(model=target.model, input=question, max_output_tokens=3)
    events = list(target.responses.create(model=target.model, input=question, max_output_tokens=3, stream=True))
    assert events[-1].type == "response.incomplete"
    for response in (whole, events[-1].response):
        assert response.status == "incomplete"
        assert response.incomplete_details is not None
        assert response.incomplete_details.reason == "max_output_tokens"
        assert response.output[-1].to_dict()["status"] == "incomplete"
        assert response.usage is not None
        assert response.usage.output_tokens == 3
    chained = target.responses.create(
        model=target.model, input="Go on.", previous_response_id=whole.id, max_output_tokens=2
    )
    assert chained.status in ("completed", "incomplete")


@requirement("client:openai:incomplete")
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("!REASON one two three four", "reasoning"),
        (CALL_WEATHER, "function_call"),
        ("!CUSTOM note abcdefghijk", "custom"),
    ],
)
def test_thinking_and_calls_are_cut_as_well(scripted: Target, text: str, kind: str) -> None:
    events = list(
        scripted.responses.create(model="scripted", input=text, tools=[WEATHER, NOTE], max_output_tokens=2, stream=True)
    )
    final = events[-1].response  # type: ignore[union-attr]
    (item,) = final.output
    assert item.type.startswith(kind)
    assert final.status == item.to_dict().get("status", "incomplete") == "incomplete"
    with (
        pytest.raises(RuntimeError, match=r"response\.completed"),
        scripted.responses.stream(model="scripted", input=text, tools=[WEATHER, NOTE], max_output_tokens=2) as stream,
    ):
        stream.get_final_response()


@requirement("client:openai:logprobs")
def test_log_probabilities_come_when_they_are_included(target: Target) -> None:
    asked: Any = {"model": target.model, "input": "Hi.", "max_output_tokens": 4, "temperature": 0}
    with_them = target.responses.create(**asked, include=["message.output_text.logprobs"], top_logprobs=2)
    events = list(
        target.responses.create(**asked, include=["message.output_text.logprobs"], top_logprobs=2, stream=True)
    )
    streamed = [entry for event in events if event.type == "response.output_text.delta" for entry in event.logprobs]
    entries = with_them.output[0].content[0].logprobs  # type: ignore[union-attr]
    assert entries
    assert "".join(entry.token for entry in entries) == with_them.output_text
    assert [(entry.token, entry.logprob) for entry in streamed] == [(entry.token, entry.logprob) for entry in entries]
    assert all(entry.logprob <= 0 for entry in entries)
    if target.model != "scripted":
        assert all(len(entry.top_logprobs) == 2 for entry in entries)
    without = target.responses.create(**asked)
    assert not without.output[0].content[0].logprobs  # type: ignore[union-attr]


@requirement("client:openai:async")
async def test_the_async_client_does_all_of_it(async_target: tuple[openai.AsyncOpenAI, str]) -> None:
    client, model = async_target
    created = await client.responses.create(model=model, input="Hi.", max_output_tokens=4)
    stream = await client.responses.create(
        model=model, input="And?", previous_response_id=created.id, max_output_tokens=4, stream=True
    )
    types = [event.type async for event in stream]
    assert types[0] == "response.created"
    assert types[-1] in ("response.completed", "response.incomplete")
    items = [item async for item in client.responses.input_items.list(created.id, limit=1)]
    assert [_text_of(item) for item in items] == ["Hi."]
    assert (await client.responses.retrieve(created.id)).id == created.id
    assert model in [entry.id async for entry in client.models.list()]
    many = await asyncio.gather(
        *(client.responses.create(model=model, input=f"Number {n}?", max_output_tokens=2) for n in range(4))
    )
    assert len({response.id for response in many}) == 4
    await client.responses.delete(created.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(created.id)


@requirement("client:openai:models")
def test_models_are_listed_and_retrieved(target: Target) -> None:
    listed = [model.id for model in target.client.models.list()]
    assert target.model in listed
    assert not any("/" in name for name in listed)
    assert target.client.models.retrieve(target.model).id == target.model


def _noting(stream: Any, seen: list[Any]) -> Iterator[Any]:
    """Nothing; each event of the stream is noted as it comes, so that a later error loses none."""
    for event in stream:
        seen.append(event)
    yield from ()


def _text_of(item: Any) -> str:
    return "".join(part.text for part in item.content)
