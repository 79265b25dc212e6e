"""The tool loop against an endpoint of our own words: what is called, what the model is told, and where it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any

import anyio
import httpx2
import msgspec
import pydantic
import pytest

from antiphon.client.chunks import ContentChunk
from antiphon.client.client import AsyncClient, Client
from antiphon.client.context import ImagePart, user
from antiphon.client.errors import DriverError
from antiphon.client.toolcalls import Outcome
from antiphon.client.toolruns import (
    ToolLimits,
    run_tools,
    run_tools_async,
    stream_tools,
    stream_tools_async,
)

requirement = pytest.mark.requirement
Item = dict[str, Any]


def said(text: str) -> Item:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "status": "completed", "content": [part]}


def call(name: str, arguments: str = "{}", identity: str = "call_1", **fields: Any) -> Item:
    return {"type": "function_call", "name": name, "arguments": arguments, "call_id": identity, **fields}


class Endpoint:
    """Answers with these outputs, one after the other, the last for ever; `asked` are the bodies that came."""

    def __init__(self, *outputs: list[Item], **fields: Any) -> None:
        self.outputs = outputs
        self.fields = fields
        self.asked: list[dict[str, Any]] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        body = msgspec.json.decode(request.content)
        number = len(self.asked)
        self.asked.append(body)
        output = self.outputs[min(number, len(self.outputs) - 1)]
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        whole = {"id": f"resp_{number}", "object": "response", "status": "completed", "model": "m", "output": output}
        whole |= {"usage": usage, **self.fields}
        if not body.get("stream"):
            return httpx2.Response(200, json=whole)
        frame = {"type": f"response.{whole['status']}", "response": whole}
        text = f"event: {frame['type']}\ndata: {msgspec.json.encode(frame).decode()}\n\n"
        return httpx2.Response(200, text=text, headers={"content-type": "text/event-stream"})

    def told(self, round_number: int = 1) -> list[Any]:
        """The results of calls that the endpoint got in that round."""
        items = self.asked[round_number]["input"]
        return [item["output"] for item in items if item.get("type", "").endswith("_output")]

    def error(self) -> Any:
        """The one error that it was told."""
        [output] = self.told()
        return msgspec.json.decode(output)["error"]


@contextmanager
def asking(endpoint: Endpoint, provider: str = "generic") -> Iterator[Client]:
    with httpx2.Client(transport=httpx2.MockTransport(endpoint)) as http:
        yield Client("http://host/v1", "k", provider, "m", http=http, resume=False)


def weather(city: str, days: int = 1) -> dict[str, Any]:
    """Tell the weather."""
    return {"city": city, "days": days}


def broken(city: str) -> str:
    raise LookupError(f"nobody knows {city}")


@requirement("driver:tools:loop", "driver:tools:usage")
@pytest.mark.parametrize("streamed", [False, True])
def test_calls_are_made_until_there_is_an_answer(streamed: bool) -> None:
    endpoint = Endpoint(
        [call("weather", '{"city":"Oslo"}'), call("weather", '{"city":"Rome","days":2}', "call_2")],
        [call("weather", '{"city":"Bonn"}', "call_3")],
        [said("fine")],
    )
    given = [user("hi")]
    with asking(endpoint) as client:
        if streamed:
            with stream_tools(client, given, tools=[weather]) as stream:
                events = list(stream)
                run = stream.result()
            assert [event.call.id for event in events if isinstance(event, Outcome)] == ["call_1", "call_2", "call_3"]
            assert [event.text for event in events if isinstance(event, ContentChunk)] == ["fine"]
        else:
            run = run_tools(client, given, tools=[weather])
    assert (run.text, run.stopped, run.pending) == ("fine", "answer", [])
    assert (run.usage.input_tokens, run.usage.output_tokens, run.usage.total_tokens) == (30, 15, 45)
    assert [outcome.output for outcome in run.outcomes][:2] == [
        {"city": "Oslo", "days": 1},
        {"city": "Rome", "days": 2},
    ]
    assert len(given) == 1
    assert len(run.context.messages) == 1 + 3 + 3
    assert [response.response_id for response in run.responses] == ["resp_0", "resp_1", "resp_2"]


@requirement("driver:tools:chain")
def test_all_rounds_go_along_where_the_endpoint_keeps_nothing() -> None:
    endpoint = Endpoint(
        [call("weather", '{"city":"Oslo"}')], [call("weather", '{"city":"Rome"}', "call_2")], [said("x")]
    )
    with asking(endpoint) as client:
        run_tools(client, "hi", tools=[weather])
    kinds = [item.get("type", item.get("role")) for item in endpoint.asked[2]["input"]]
    assert kinds == ["user", "function_call", "function_call_output", "function_call", "function_call_output"]
    assert "previous_response_id" not in endpoint.asked[2]


@requirement("driver:tools:chain")
@pytest.mark.parametrize("given", [None, "resp_before"])
def test_rounds_go_on_from_each_other_where_the_endpoint_keeps_answers(given: str | None) -> None:
    endpoint = Endpoint(
        [call("weather", '{"city":"Oslo"}')], [call("weather", '{"city":"Rome"}', "call_2")], [said("x")]
    )
    with asking(endpoint, "antiphon") as client:
        run_tools(client, "hi", tools=[weather], previous_response_id=given, background=False)
    assert [body.get("previous_response_id") for body in endpoint.asked] == [given, "resp_0", "resp_1"]
    assert [item["call_id"] for item in endpoint.asked[2]["input"]] == ["call_2"]


@requirement("driver:tools:chain")
def test_a_named_answer_stays_below_the_whole_where_that_is_asked_for() -> None:
    endpoint = Endpoint([call("weather", '{"city":"Oslo"}')], [said("x")])
    outputs = [{"call_id": "call_0", "output": "before"}]
    with asking(endpoint, "antiphon") as client:
        run_tools(client, "hi", tools=[weather], previous_response_id="resp_before", chain=False, tool_outputs=outputs)
    assert [body["previous_response_id"] for body in endpoint.asked] == ["resp_before"] * 2
    calls = [item["call_id"] for item in endpoint.asked[1]["input"] if "call_id" in item]
    assert calls == ["call_0", "call_1", "call_1"]


@requirement("driver:tools:errors")
@pytest.mark.parametrize(
    ("made", "code", "message"),
    [
        (call("broken", '{"city":"Oslo"}'), "failed", "nobody knows Oslo"),
        (call("nothing"), "unknown_tool", "There is no tool 'nothing'. There are: weather, broken, place."),
        (call("weather", "{"), "invalid_arguments", "The arguments are not JSON."),
        (call("weather", "[]"), "invalid_arguments", "The arguments are not a JSON object."),
        (call("weather", ""), "invalid_arguments", "missing a required argument: 'city'"),
        (call("weather", '{"city":"a","x":1}'), "invalid_arguments", "got an unexpected keyword argument 'x'"),
        (call("weather", '{"city":7}'), "invalid_arguments", "Argument 'city': Expected `str`, got `int`"),
        (
            call("place", '{"name":"a"}'),
            "invalid_arguments",
            "The arguments are not what the schema of the tool describes.",
        ),
    ],
)
def test_what_cannot_be_done_the_model_is_told(made: Item, code: str, message: str) -> None:
    endpoint = Endpoint([made], [said("sorry")])
    place = {"name": "place", "parameters": {"type": "object", "properties": {"name": {"enum": ["b"]}}}}
    with asking(endpoint) as client:
        run = run_tools(client, "hi", tools=[weather, broken, place], functions={"place": lambda name: name})
    assert run.text == "sorry"
    error = endpoint.error()
    assert (error["code"], error["message"]) == (code, message)
    assert error.get("type") == ("LookupError" if code == "failed" else None)
    assert "Traceback" not in str(endpoint.asked)
    assert run.outcomes[0].error == code
    assert isinstance(run.outcomes[0].exception, LookupError) == (code == "failed")


class Place(msgspec.Struct):
    name: str


class Model(pydantic.BaseModel):
    size: int


@requirement("driver:tools:arguments")
def test_arguments_are_of_the_types_that_the_function_names() -> None:
    seen: list[Any] = []

    def visit(place: Place, day: date, model: Model, others: list[Place] | None = None) -> ImagePart:
        seen.extend((place, day, model, others))
        return ImagePart(url="http://host/a.png")

    given = '{"place":{"name":"Oslo"},"day":"2026-11-30","model":{"size":3},"others":[{"name":"Rome"}]}'
    endpoint = Endpoint([call("visit", given)], [said("x")])
    with asking(endpoint) as client:
        run_tools(client, "hi", tools=[visit])
    assert seen == [Place("Oslo"), date(2026, 11, 30), Model(size=3), [Place("Rome")]]
    assert endpoint.told() == [[{"type": "input_image", "image_url": "http://host/a.png"}]]


@requirement("driver:tools:kinds")
def test_custom_tools_get_their_text_and_others_their_item() -> None:
    seen: list[Any] = []

    def kept(value: Any) -> Any:
        seen.append(value)
        return [{"outcome": "ok"}] if isinstance(value, dict) else "done"

    shell = {"type": "shell_call", "call_id": "call_2", "action": {"commands": ["ls"]}, "status": "completed"}
    custom = {"type": "custom_tool_call", "name": "note", "input": "a { b", "call_id": "call_1"}
    endpoint = Endpoint([custom, shell], [said("x")])
    tools = [{"type": "custom", "name": "note"}, {"type": "shell", "environment": {"type": "local"}}]
    with asking(endpoint) as client:
        run = run_tools(client, "hi", tools=tools, functions={"note": kept, "shell": kept})
    assert run.text == "x"
    assert seen[0] == "a { b"
    assert seen[1]["action"] == {"commands": ["ls"]}
    outputs = [item for item in endpoint.asked[1]["input"] if str(item.get("type")).endswith("_output")]
    assert [item["type"] for item in outputs] == ["custom_tool_call_output", "shell_call_output"]


@requirement("driver:tools:kinds")
def test_members_of_namespaces_and_tools_of_one_kind_are_told_apart() -> None:
    def member(name: str) -> Item:
        return {"type": "function", "name": name, "parameters": {"type": "object", "properties": {"at": {}}}}

    spaces = [{"type": "namespace", "name": name, "tools": [member("look")]} for name in ("sky", "sea")]
    searches = [{"type": "file_search", "vector_store_ids": [name]} for name in ("a", "b")]
    made = [call("look", '{"at":1}', f"call_{name}", namespace=name) for name in ("sky", "sea")]
    endpoint = Endpoint([*made, call("print", '{"x":1}', "call_3")], [said("x")])
    functions = {"sky::look": lambda at: "blue", "look": lambda at: "deep", "print": dict}
    with asking(endpoint) as client:
        run = run_tools(client, "hi", tools=[*spaces, *searches], functions=functions)
    assert [outcome.output for outcome in run.outcomes] == ["blue", "deep", {"x": 1}]


@requirement("driver:tools:hosted")
def test_what_the_server_executed_is_left_alone() -> None:
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    }
    endpoint = Endpoint([search, said("found")])
    with asking(endpoint) as client:
        run = run_tools(client, "hi", tools=[weather, {"type": "web_search"}])
    assert (run.text, run.stopped, len(endpoint.asked), run.outcomes) == ("found", "answer", 1, [])


@requirement("driver:tools:pending")
def test_calls_that_nobody_here_can_make_are_handed_back_whole() -> None:
    endpoint = Endpoint([call("weather", '{"city":"Oslo"}'), call("place", "{}", "call_2")])
    place = {"name": "place", "parameters": {"type": "object", "properties": {}}}
    with asking(endpoint) as client:
        run = run_tools(client, "hi", tools=[weather, place])
    assert (run.stopped, run.outcomes) == ("pending", [])
    assert [pending.id for pending in run.pending] == ["call_1", "call_2"]


@requirement("driver:tools:structured")
def test_a_structured_answer_by_a_call_is_the_answer() -> None:
    endpoint = Endpoint([call("structured_output", '{"name":"Oslo"}')])
    with asking(endpoint, "mixedbread") as client:
        run = run_tools(client, "hi", text_format=Place)
    assert (run.stopped, run.object, len(endpoint.asked)) == ("answer", Place("Oslo"), 1)
    # Who goes on from it has no call without a result.
    assert [message.tool_call_id for message in run.context.messages] == [None, None, "call_1"]


@requirement("driver:tools:ends")
@pytest.mark.parametrize(
    ("fields", "stopped"),
    [
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "refusal"),
        ({"status": "failed", "error": {"code": "server_error", "message": "no"}}, "problem"),
        ({"status": "cancelled"}, "problem"),
    ],
)
def test_an_answer_that_did_not_end_well_has_no_calls_made(fields: dict[str, Any], stopped: str) -> None:
    endpoint = Endpoint([call("weather", '{"city":"Oslo"}')], **fields)
    with asking(endpoint) as client:
        run = run_tools(client, "hi", tools=[weather])
    assert (run.stopped, run.outcomes, len(endpoint.asked)) == (stopped, [], 1)
    assert len(run.context.messages) == (1 if stopped == "problem" else 2)


@requirement("driver:tools:ends")
def test_a_refusal_ends_it() -> None:
    refusal = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    with asking(Endpoint([refusal])) as client:
        assert run_tools(client, "hi", tools=[weather]).stopped == "refusal"


@requirement("driver:tools:limits")
def test_rounds_and_calls_are_limited() -> None:
    endless = Endpoint([call("weather", '{"city":"Oslo"}'), call("weather", '{"city":"Rome"}', "call_2")])
    with asking(endless) as client:
        run = run_tools(client, "hi", tools=[weather], limits=ToolLimits(rounds=3))
        assert (run.stopped, len(endless.asked), len(run.outcomes), len(run.pending)) == ("rounds", 3, 4, 2)
        run = run_tools(client, "hi", tools=[weather], limits=ToolLimits(calls=5))
        assert (run.stopped, len(run.outcomes), len(run.pending)) == ("calls", 4, 2)


@requirement("driver:tools:limits")
def test_a_choice_of_a_tool_counts_once() -> None:
    endpoint = Endpoint([call("weather", '{"city":"Oslo"}')], [said("x")])
    with asking(endpoint) as client:
        run_tools(client, "hi", tools=[weather], tool_choice="required")
        assert [body["tool_choice"] for body in endpoint.asked] == ["required", "auto"]
        allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]}
        endpoint.asked.clear()
        run_tools(client, "hi", tools=[weather], tool_choice=allowed)
    assert [body["tool_choice"] for body in endpoint.asked] == [allowed, {**allowed, "mode": "auto"}]


@requirement("driver:tools:limits", "driver:tools:errors")
def test_a_call_that_takes_too_long_is_left_behind() -> None:
    leave = threading.Event()

    def slow() -> str:
        leave.wait(20)
        return "late"

    endpoint = Endpoint([call("slow")], [said("x")])
    begun = time.monotonic()
    with asking(endpoint) as client:
        assert run_tools(client, "hi", tools=[slow], limits=ToolLimits(seconds=0.05)).text == "x"
    leave.set()
    assert time.monotonic() - begun < 10
    assert endpoint.error() == {"code": "too_slow", "message": "It took longer than 0.05 seconds."}


@requirement("driver:tools:threads")
def test_functions_run_in_the_callers_thread_where_time_does_not_count() -> None:
    seen: list[threading.Thread] = []

    def where() -> str:
        seen.append(threading.current_thread())
        return ""

    with asking(Endpoint([call("where")], [said("x")])) as client:
        run_tools(client, "hi", tools=[where], limits=ToolLimits(seconds=None))
    assert seen == [threading.current_thread()]


@requirement("driver:tools:threads")
@pytest.mark.parametrize("seconds", [None, 5.0])
def test_an_interruption_is_no_result(seconds: float | None) -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    with asking(Endpoint([call("interrupted")])) as client, pytest.raises(KeyboardInterrupt):
        run_tools(client, "hi", tools=[interrupted], limits=ToolLimits(seconds=seconds))


@requirement("driver:tools:loop")
def test_asynchronous_functions_need_the_asynchronous_loop() -> None:
    async def later() -> str:
        return ""

    hidden: Callable[[], Any] = lambda: later()
    endpoint = Endpoint([call("hidden")])
    with asking(endpoint) as client:
        for start in (run_tools, stream_tools):
            with pytest.raises(DriverError, match="run_tools_async"):
                start(client, "hi", tools=[later])
        tools = [{"name": "hidden"}]
        with pytest.raises(DriverError, match="asynchronous"):
            run_tools(client, "hi", tools=tools, functions={"hidden": hidden})
        with pytest.raises(DriverError, match="two tools"):
            run_tools(client, "hi", tools=[weather, weather])


@requirement("driver:tools:loop")
def test_a_run_that_was_left_has_no_result() -> None:
    with asking(Endpoint([said("x")])) as client:
        stream = stream_tools(client, "hi")
        next(stream)
        stream.close()
        with pytest.raises(DriverError, match="left"):
            stream.result()


@requirement("driver:tools:parallel", "driver:tools:errors", "driver:tools:limits")
@pytest.mark.parametrize("streamed", [False, True])
async def test_calls_of_one_turn_run_at_once_and_keep_their_order(streamed: bool) -> None:
    running = most = 0
    both = anyio.Event()

    async def meet(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            both.set()
        await both.wait()
        running -= 1
        return number

    async def stuck() -> None:
        await anyio.sleep_forever()

    def plain() -> str:
        return threading.current_thread().name

    made = [call("meet", f'{{"number":{number}}}', f"call_{number}") for number in range(4)]
    made += [call("stuck", "{}", "call_4"), call("plain", "{}", "call_5")]
    endpoint = Endpoint(made, [said("x")])
    limits = ToolLimits(seconds=0.2, parallel=2)
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(endpoint)) as http:
        client = AsyncClient("http://host/v1", provider="generic", model="m", http=http)
        if streamed:
            async with stream_tools_async(client, "hi", tools=[meet, stuck, plain], limits=limits) as stream:
                seen = [event.call.id async for event in stream if isinstance(event, Outcome)]
                run = await stream.result()
            assert seen == [f"call_{number}" for number in range(6)]
        else:
            run = await run_tools_async(client, "hi", tools=[meet, stuck, plain], limits=limits)
    assert run.text == "x"
    assert [outcome.output for outcome in run.outcomes][:4] == [0, 1, 2, 3]
    assert run.outcomes[4].error == "too_slow"
    assert run.outcomes[5].output != threading.current_thread().name
    assert most == 2
