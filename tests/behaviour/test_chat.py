"""`POST /v1/chat/completions`: the answers of responses in chat's words, bounded and stopped as responses are."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.engines.base import PreparedTurn
from antiphon.engines.scripted import ScriptedEngine
from antiphon.http.app import create_app
from antiphon.machine.deltas import Delta
from antiphon.prompt.prompt import Prompt
from antiphon.runtime.keys import new_key
from antiphon.runtime.limits import KeyRules
from antiphon.settings import Settings
from support.asgi import ManualExchange
from support.chatting import chat, chat_refused, chunks_of, gathered, said, streamed
from support.inprocess import InProcess, inprocess_app

requirement = pytest.mark.requirement

FUNCTION: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
WEATHER = {"type": "function", "function": FUNCTION}
NOTE = {"type": "custom", "custom": {"name": "note"}}
CALL = '!CALL get_weather {"city": "Oslo"}'


def exchange(api: InProcess, text: str, **fields: Any) -> ManualExchange:
    body = {"model": "scripted", "messages": said(text), **fields}
    return ManualExchange(create_app(api.service), body, "/v1/chat/completions")


@pytest.fixture
async def one() -> AsyncGenerator[InProcess]:
    """The scripted model over the memory store: nothing here is stored."""
    async with inprocess_app() as app:
        yield app


# What is answered


@requirement("chat:answer", "api:chat")
async def test_a_whole_answer_has_these_fields(one: InProcess):
    answer = await chat(one, "Hi.")
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{44}", answer.pop("id"))
    assert re.fullmatch(r"fp_[0-9a-f]{10}", answer.pop("system_fingerprint"))
    assert isinstance(answer.pop("created"), int)
    assert answer == {
        "object": "chat.completion",
        "model": "scripted",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello from scripted.", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 2,
            "completion_tokens": 3,
            "total_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
        "service_tier": "default",
    }
    bare = await one.client.post(
        "http://127.0.0.1/chat/completions", json={"model": "scripted", "messages": said("Hi.")}
    )
    assert bare.json()["choices"] == (await chat(one, "Hi."))["choices"]


@requirement("chat:stream")
async def test_the_bytes_of_a_stream_are_exactly_these(one: InProcess):
    body = {"model": "scripted", "messages": said("!REASON hm\n!TEXT a b"), "stream": True}
    reply = await one.client.post("/chat/completions", json={**body, "stream_options": {"include_usage": True}})
    text = re.sub(r'"created":\d+', '"created":0', re.sub(r"chatcmpl-[0-9a-f]{44}", "chatcmpl", reply.text))
    start = (
        'data: {"id":"chatcmpl","object":"chat.completion.chunk","created":0,"model":"scripted",'
        '"system_fingerprint":"fp_f4e1a209c1","choices":['
    )
    end = ',"logprobs":null,"finish_reason":%s}],"usage":null}\n\n'
    deltas = [
        '{"role":"assistant","content":null}',
        '{"reasoning_content":"hm","reasoning":"hm"}',
        '{"content":"a "}',
        '{"content":"b"}',
    ]
    expected = "".join(start + '{"index":0,"delta":' + delta + end % "null" for delta in deltas)
    expected += start + '{"index":0,"delta":{}' + end % '"stop"'
    expected += start + '],"usage":{"prompt_tokens":6,"completion_tokens":3,"total_tokens":9,'
    expected += '"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":1}}}\n\n'
    assert text == expected + "data: [DONE]\n\n"
    without = await one.client.post("/chat/completions", json=body)
    assert b'"usage"' not in without.content


LINES = st.lists(
    st.one_of(
        st.sampled_from(["!REASON let me see", "!TEXT some words", "!REFUSE no", "!COUNT 7", "just text", "!ECHO"]),
        st.sampled_from([CALL, "!CALL get_weather", '!CALL other {"a":[1,2]}', "!CUSTOM note some text"]),
        st.sampled_from(["!INCOMPLETE cut", "!TEXT"]),
    ),
    max_size=5,
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "parallel_tool_calls": st.booleans(),
        "tool_choice": st.sampled_from(["auto", "none", "required"]),
        "temperature": st.sampled_from([0.0, 1.0]),
    },
)


@requirement("chat:same")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(LINES, OPTIONS, st.booleans(), st.sampled_from([None, 1, 3, 100]), st.booleans())
async def test_a_chat_answer_is_the_response_to_the_same_prompt(
    one: InProcess, lines: list[str], options: dict[str, Any], tools: bool, limit: int | None, logprobs: bool
) -> None:
    text = "\n".join(lines) or "Hi."
    declared = [WEATHER, NOTE] if tools or options.get("tool_choice") == "required" else []
    flat = [{"type": "function", **FUNCTION}, {"type": "custom", "name": "note"}] if declared else []
    include = ["message.output_text.logprobs"] if logprobs else []
    response = await one.create(text, tools=flat, max_output_tokens=limit, include=include, **options)
    fields = {"tools": declared, "max_completion_tokens": limit, "logprobs": logprobs, **options}
    whole = await chat(one, text, **fields)
    chunks = await streamed(one, text, stream_options={"include_usage": True}, **fields)
    (choice,) = whole["choices"]
    expected = chat_choice(response)
    told = gathered(chunks)
    assert chunks[-1]["usage"] == whole["usage"] == chat_usage(response["usage"])
    for found in (choice, told):
        without_ids(found)
        found["logprobs"] = (
            found["logprobs"]["content"] if isinstance(found["logprobs"], dict) else found["logprobs"] or []
        )
        assert found == expected


def chat_choice(response: dict[str, Any]) -> dict[str, Any]:
    """What a chat answer has to say where a response says this."""
    output = response["output"]
    parts = [part for item in output if item["type"] == "message" for part in item["content"]]
    texts = [part for part in parts if part["type"] == "output_text"]
    refusal = "".join(part["refusal"] for part in parts if part["type"] == "refusal")
    thinking = "".join(part["text"] for item in output if item["type"] == "reasoning" for part in item["content"])
    calls: list[dict[str, Any]] = []
    for item in output:
        if item["type"] == "function_call":
            calls.append({"type": "function", "function": {"name": item["name"], "arguments": item["arguments"]}})
        elif item["type"] == "custom_tool_call":
            calls.append({"type": "custom", "custom": {"name": item["name"], "input": item["input"]}})
    content = "".join(part["text"] for part in texts)
    message = {
        "role": "assistant",
        "content": content or (None if calls or refusal else ""),
        "refusal": refusal or None,
    }
    if thinking:
        message |= {"reasoning_content": thinking, "reasoning": thinking}
    if calls:
        message["tool_calls"] = calls
    ended = "tool_calls" if calls else "stop"
    return {
        "index": 0,
        "message": message,
        "logprobs": [entry for part in texts for entry in part["logprobs"]],
        "finish_reason": "length" if response["status"] == "incomplete" else ended,
    }


def chat_usage(usage: dict[str, Any]) -> dict[str, Any]:
    return {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
        "prompt_tokens_details": {"cached_tokens": usage["input_tokens_details"]["cached_tokens"]},
        "completion_tokens_details": {"reasoning_tokens": usage["output_tokens_details"]["reasoning_tokens"]},
    }


def without_ids(choice: dict[str, Any]) -> None:
    for call in choice["message"].get("tool_calls", ()):
        assert re.fullmatch(r"call_[0-9a-f]{44}", call.pop("id"))


PICTURE = "data:image/png;base64,AA=="


@requirement("chat:messages")
async def test_every_message_is_shown_to_the_model_as_the_items_of_a_response_are(one: InProcess):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": "One moment.",
            "reasoning_content": "A tool is needed.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'}},
                {"id": "c2", "type": "custom", "custom": {"name": "note", "input": "remember"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "Rain."},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "noted"}]},
        {"role": "developer", "content": "Be kind."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "And this?"},
                {"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}},
                {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
                {"type": "file", "file": {"filename": "a.txt", "file_data": "AA=="}},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "A picture."}], "reasoning": "I see it."},
        {"role": "user", "content": "!ECHO"},
    ]
    items = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "A tool is needed."}]},
        {"role": "assistant", "content": "One moment."},
        {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"city":"Oslo"}'},
        {"type": "custom_tool_call", "call_id": "c2", "name": "note", "input": "remember"},
        {"type": "function_call_output", "call_id": "c1", "output": "Rain."},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "noted"},
        {"role": "developer", "content": "Be kind."},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "And this?"},
                {"type": "input_image", "image_url": PICTURE, "detail": "low"},
                {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
                {"type": "input_file", "filename": "a.txt", "file_data": "AA=="},
            ],
        },
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "I see it."}]},
        {"role": "assistant", "content": "A picture."},
        {"role": "user", "content": "!ECHO"},
    ]
    response = await one.create(items)
    answer = await chat(one, messages)
    shown = answer["choices"][0]["message"]["content"]
    assert shown == response["output_text"]
    assert answer["usage"]["prompt_tokens"] == response["usage"]["input_tokens"]
    for text in ("Be brief.\n\nBe kind.", "A tool is needed.", "remember", "Rain.", "noted", PICTURE, "I see it."):
        assert text in shown
    assert shown.index("A tool is needed.") < shown.index("One moment.") < shown.index("remember")


@requirement("chat:choice")
@pytest.mark.parametrize(
    ("choice", "called"),
    [
        ("none", None),
        ("auto", None),
        ("required", "get_weather"),
        ({"type": "function", "function": {"name": "get_weather"}}, "get_weather"),
        ({"type": "custom", "custom": {"name": "note"}}, "note"),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [{"type": "custom", "custom": {"name": "note"}}]},
            },
            "note",
        ),
    ],
)
async def test_every_tool_choice_is_kept(one: InProcess, choice: Any, called: str | None) -> None:
    (found,) = (await chat(one, "Hi.", tools=[WEATHER, NOTE], tool_choice=choice))["choices"]
    names = [call[call["type"]]["name"] for call in found["message"].get("tool_calls", ())]
    assert names == ([] if called is None else [called])
    assert found["finish_reason"] == ("stop" if called is None else "tool_calls")


@requirement("chat:choice")
async def test_calls_come_in_parallel_or_one_at_a_time(one: InProcess):
    for parallel, count in ((True, 2), (False, 1)):
        answer = await chat(one, f"{CALL}\n{CALL}", tools=[WEATHER], parallel_tool_calls=parallel)
        assert len(answer["choices"][0]["message"]["tool_calls"]) == count


@requirement("chat:format")
@pytest.mark.parametrize(
    ("form", "text"),
    [
        ({"type": "text"}, "Hello from scripted."),
        ({"type": "json_object"}, "{}"),
        ({"type": "json_schema", "json_schema": {"name": "w", "schema": FUNCTION["parameters"]}}, '{"city":""}'),
        ({"type": "json_schema", "name": "w", "schema": FUNCTION["parameters"]}, '{"city":""}'),
    ],
)
async def test_every_format_is_kept(one: InProcess, form: dict[str, Any], text: str) -> None:
    answer = await chat(one, "Hi, in JSON or not.", response_format=form)
    assert answer["choices"][0]["message"]["content"] == text


@requirement("chat:logprobs")
async def test_log_probabilities_come_where_they_are_asked_for(one: InProcess):
    (choice,) = (await chat(one, "!TEXT a b", logprobs=True, top_logprobs=0))["choices"]
    assert choice["logprobs"] == {
        "content": [
            {"token": "a ", "bytes": [97, 32], "logprob": 0.0, "top_logprobs": []},
            {"token": "b", "bytes": [98], "logprob": 0.0, "top_logprobs": []},
        ],
        "refusal": None,
    }
    (call,) = (await chat(one, CALL, tools=[WEATHER], logprobs=True))["choices"]
    assert call["logprobs"] == {"content": [], "refusal": None}


@requirement("subset:M49")
@pytest.mark.parametrize(
    ("alias", "names"), [("reasoning", {"reasoning_content", "reasoning"}), ("none", {"reasoning_content"})]
)
async def test_thinking_has_a_second_name_unless_that_is_off(alias: str, names: set[str]) -> None:
    async with inprocess_app(settings=Settings(reasoning_alias_field=alias)) as api:
        message = (await chat(api, "!REASON hm\n!TEXT a"))["choices"][0]["message"]
        assert {name for name in message if name.startswith("reasoning")} == names
        assert {message[name] for name in names} == {"hm"}
        streams = gathered(await streamed(api, "!REASON hm\n!TEXT a"))["message"]
        assert streams == message
        response = await api.create("!REASON hm\n!TEXT a")
        assert response["output"][0]["content"] == [{"type": "reasoning_text", "text": "hm"}]
        assert not {"reasoning_content", "reasoning"} & set(response["output"][0])


# Several answers


class Watched(ScriptedEngine):
    """Keeps the prompts and the seeds that it is asked for, and counts what it generates at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts: list[Prompt] = []
        self.seeds: list[int | None] = []
        self.running = self.most = 0

    async def prepare(self, prompt: Prompt) -> PreparedTurn:
        self.prompts.append(prompt)
        return await super().prepare(prompt)

    async def generate(self, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        self.seeds.append(turn.prompt.sampling.seed)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            async for deltas in super().generate(turn):
                yield deltas
        finally:
            self.running -= 1


@pytest.fixture
async def watched(one: InProcess) -> Watched:
    """The engine of `one`, watched."""
    engine = Watched()
    await engine.start()
    registry = one.service.registry
    registry._names.listed["scripted"] = engine
    return engine


@requirement("chat:effort")
async def test_an_effort_reaches_the_template_as_that_of_a_response_does(one: InProcess, watched: Watched):
    variables = {"enable_thinking": True}
    for effort in ("low", " NONE ", None):
        await chat(one, "Hi.", reasoning_effort=effort, chat_template_kwargs=variables)
        await one.create("Hi.", reasoning={"effort": effort}, chat_template_kwargs=variables)
        ours, theirs = watched.prompts[-2:]
        assert ours == theirs
        assert (ours.reasoning_effort, ours.template_kwargs) == (effort, variables)


@requirement("chat:sampling", "subset:M29")
async def test_every_field_of_sampling_is_that_of_a_response(one: InProcess, watched: Watched):
    fields: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "min_p": 0.1,
        "presence_penalty": 1,
        "frequency_penalty": -1,
        "repeat_penalty": 1.1,
        "xtc_probability": 0.5,
        "logit_bias": {"7": -1.5},
        "seed": 4,
        "stop": ["end"],
    }
    await chat(one, "Hi.", max_tokens=5, **fields)
    await one.create("Hi.", max_output_tokens=5, **fields)
    assert watched.prompts[0] == watched.prompts[1]
    await one.client.post("/completions", json={"model": "scripted", "prompt": "Hi.", **fields})
    assert watched.prompts[2].sampling == watched.prompts[0].sampling


@requirement("chat:n")
async def test_several_answers_are_generated_at_once_and_the_prompt_counts_once(one: InProcess, watched: Watched):
    text = "!SLOW 5\n!TEXT a b"
    whole = await chat(one, text, n=3, seed=7)
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    assert {choice["message"]["content"] for choice in whole["choices"]} == {"a b"}
    assert (watched.seeds, watched.most) == ([7, 8, 9], 3)
    single = await chat(one, text)
    assert whole["usage"]["prompt_tokens"] == single["usage"]["prompt_tokens"]
    assert whole["usage"]["completion_tokens"] == 3 * single["usage"]["completion_tokens"]
    chunks = await streamed(one, text, n=3)
    assert [gathered(chunks, index) for index in range(3)] == [
        {**choice, "logprobs": []} for choice in whole["choices"]
    ]


@requirement("chat:n")
async def test_one_answer_that_fails_stops_the_others(one: InProcess, watched: Watched):
    for text in ("!FAIL", "!CUT"):
        error = await one.client.post("/chat/completions", json={"model": "scripted", "messages": said(text), "n": 3})
        assert (error.status_code, error.json()["error"]["code"]) == (500, "server_error")
        assert watched.running == 0
        assert one.service.admission.running == 0


@requirement("chat:choices:bound")
async def test_each_answer_takes_a_place(monkeypatch: pytest.MonkeyPatch):
    async with inprocess_app(settings=Settings(max_concurrent_requests=3)) as api:
        assert (await chat_refused(api, 400, "Hi.", n=4))["param"] == "n"
        assert len((await chat(api, "Hi.", n=3))["choices"]) == 3
        stream = exchange(api, "!SLOW 60000\n!TEXT a b", n=2, stream=True)
        await stream.next()
        assert api.service.admission.running == 2
        assert (await chat_refused(api, 503, "Hi.", n=2))["type"] == "server_busy"
        assert len((await chat(api, "Hi."))["choices"]) == 1
        stream.leave()
        await stream.finished()
        assert api.service.admission.running == 0


# Limits, errors and ends


@requirement("chat:unstored")
async def test_nothing_of_a_chat_is_stored(api: InProcess):
    assert api.service.store is not None
    before = await api.service.store.status()
    answer = await chat(api, "Hi.", store=True, metadata={"a": "b"}, user="u")
    await streamed(api, "Hi.", store=True)
    assert await api.service.store.status() == before
    for name in (answer["id"], answer["id"].replace("chatcmpl-", "resp_")):
        assert (await api.client.get(f"/responses/{name}")).status_code == 404


@requirement("chat:limit")
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_an_answer_that_is_cut_says_so(one: InProcess, name: str) -> None:
    (choice,) = (await chat(one, "!COUNT 9", **{name: 3}))["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("1 2 3 ", "length")
    (call,) = (await chat(one, CALL, tools=[WEATHER], **{name: 2}))["choices"]
    assert call["finish_reason"] == "length"
    assert call["message"]["tool_calls"][0]["function"]["arguments"] == '{"city":'
    thinking = (await chat(one, "!REASON a b c", **{name: 2}))["choices"][0]
    assert (thinking["message"]["content"], thinking["message"]["reasoning_content"]) == ("", "a b ")


@requirement("chat:limit")
async def test_the_least_limit_of_a_server_is_named_as_it_was_sent():
    async with inprocess_app(settings=Settings(min_output_tokens=16)) as api:
        error = await chat_refused(api, 400, "Hi.", max_tokens=3)
        assert (error["param"], error["code"]) == ("max_tokens", "integer_below_min_value")
        assert "'max_tokens'" in error["message"]


EMPTY = "Request must include at least one non-empty message content or media input."


@requirement("subset:M6", "chat:empty")
@pytest.mark.parametrize(
    ("messages", "passes"),
    [
        ([], False),
        (said(""), False),
        (said("  \n"), False),
        ([{"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": " "}]}], False),
        ([{"role": "user", "content": None}], False),
        ([{"role": "system", "content": " "}, *said("")], False),
        ([{"role": "system", "content": "Be brief."}, *said("")], True),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PICTURE}}]}], True),
        ([*said("Hi."), {"role": "assistant", "content": "Hello."}, *said("")], True),
    ],
)
async def test_a_request_with_nothing_to_answer_is_refused(one: InProcess, messages: Any, passes: bool) -> None:
    if passes:
        assert (await chat(one, messages))["choices"]
    else:
        error = await chat_refused(one, 400, messages)
        assert error == {"message": EMPTY, "type": "invalid_request_error", "param": "messages", "code": "empty_input"}


@requirement("chat:errors")
@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"model": "unknown"}, 404, "model"),
        ({"model": None}, 400, "model"),
        ({"tool_choice": "required"}, 400, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "f"}}}, 400, "tool_choice.name"),
        ({"response_format": {"type": "yaml"}}, 400, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, 400, "response_format.json_schema.schema"),
        ({"n": 200}, 400, "n"),
        ({"stop": ["x"] * 17}, 400, "stop"),
    ],
)
async def test_what_is_refused_is_refused_before_a_stream_begins(
    one: InProcess, fields: dict[str, Any], status: int, param: str
) -> None:
    error = await chat_refused(one, status, "Hi.", **fields)
    assert error["param"] == param
    assert one.service.admission.running == 0


@requirement("chat:errors")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 429, 500, 503])
async def test_an_engine_that_refuses_is_an_http_error(one: InProcess, status: int) -> None:
    await chat_refused(one, status, f"!ERR{status}")


@requirement("chat:errors")
async def test_a_prompt_that_is_too_long_is_refused_or_cut():
    async with inprocess_app(settings=Settings(scripted_context_length=40)) as api:
        long = [*said("x" * 200), {"role": "assistant", "content": "y"}, *said("Hi.")]
        error = await chat_refused(api, 400, long)
        assert (error["param"], error["code"]) == ("messages", "context_length_exceeded")
        assert (await chat(api, long, truncation="auto"))["choices"][0]["finish_reason"] == "stop"


@requirement("chat:errors")
@pytest.mark.parametrize("text", ["!FAIL", "!STREAMERR", "!CUT", "!REASON hm\n!FAIL some words"])
async def test_a_failure_is_an_error_whole_and_the_last_chunk_of_a_stream(one: InProcess, text: str) -> None:
    whole = await one.client.post("/chat/completions", json={"model": "scripted", "messages": said(text)})
    assert whole.status_code == 500
    chunks = await streamed(one, text, stream_options={"include_usage": True})
    assert chunks[-1] == whole.json()
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks[:-1])


class Faulty(ScriptedEngine):
    """Fails in a way that nobody has thought of, or ends without a word."""

    silent = False

    async def generate(self, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        yield []
        if not self.silent:
            raise ZeroDivisionError("/secret/path")


@requirement("chat:errors")
@pytest.mark.parametrize("silent", [False, True])
async def test_a_fault_of_ours_tells_nothing_of_itself(one: InProcess, silent: bool) -> None:
    engine = Faulty()
    engine.silent = silent
    await engine.start()
    one.service.registry._names.listed["scripted"] = engine
    for n in (1, 2):
        whole = await one.client.post("/chat/completions", json={"model": "scripted", "messages": said("Hi."), "n": n})
        assert whole.status_code == 500
        assert "secret" not in whole.text
        assert (await streamed(one, "Hi.", n=n))[-1] == whole.json()
    assert one.service.admission.running == 0


async def until_text(stream: ManualExchange) -> None:
    seen = b""
    while b'"content":"' not in seen:
        seen += bytes((await stream.next()).get("body", b""))


@requirement("chat:leave")
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("streams", [True, False])
async def test_the_engine_stops_when_the_client_leaves(one: InProcess, watched: Watched, streams: bool, n: int) -> None:
    client = exchange(one, "!SLOW 100\n!COUNT 1000", stream=streams, n=n)
    if streams:
        await until_text(client)
    else:
        async with asyncio.timeout(10):
            while watched.running < n:
                await asyncio.sleep(0.001)
    client.leave()
    await client.finished()
    assert watched.running == 0
    assert one.service.admission.running == 0
    assert not one.service.beside._guests


@requirement("chat:stop")
async def test_what_runs_when_the_server_stops_is_told_so(one: InProcess):
    stream = exchange(one, "!SLOW 100\n!COUNT 1000", stream=True)
    whole = exchange(one, "!SLOW 100\n!COUNT 1000")
    await until_text(stream)
    draining = asyncio.create_task(one.service.drain(0.01))
    await draining
    assert (await chat_refused(one, 503, "Hi."))["code"] == "service_unavailable"
    await one.service.end_runs()
    sent = b"".join(bytes(message.get("body", b"")) for message in await stream.finished())
    told = chunks_of(sent)[-1]["error"]
    assert told["code"] == "service_unavailable"
    start, body = await whole.finished()
    assert start["status"] == 503
    assert json.loads(body["body"])["error"] == told
    assert one.service.admission.running == 0


@requirement("chat:keys")
async def test_a_key_is_held_to_its_limits(api: InProcess):
    secret, key = new_key("test", "acme", KeyRules(requests_per_minute=2, tokens_per_minute=1000), 1000)
    only, other = new_key("other", "acme", KeyRules(models=("another",)), 1000)
    assert api.service.store is not None
    await api.service.store.add_key(key)
    await api.service.store.add_key(other)
    headers = {"Authorization": f"Bearer {secret}"}
    body = {"model": "scripted", "messages": said("!COUNT 20")}
    for left in (1, 0):
        answer = await api.client.post("/chat/completions", json={**body, "n": 2}, headers=headers)
        assert answer.status_code == 200
        assert answer.headers["x-ratelimit-remaining-requests"] == str(left)
    assert int(answer.headers["x-ratelimit-remaining-tokens"]) < 1000 - 40
    refused = await api.client.post("/chat/completions", json=body, headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert int(refused.headers["retry-after-ms"]) > 0
    unknown = await api.client.post("/chat/completions", json=body, headers={"Authorization": f"Bearer {only}"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    assert (await api.client.post("/chat/completions", json=body)).status_code == 401


@requirement("chat:metrics")
async def test_chats_are_counted_as_responses_are(one: InProcess):
    await chat(one, "Hi.")
    await chat(one, "!COUNT 9", max_tokens=2)
    await streamed(one, "!FAIL")
    exposed = (await one.client.get("http://127.0.0.1/metrics")).text
    for reason in ("completed", "max_output_tokens", "server_error"):
        assert f'antiphon:request_success_total{{finished_reason="{reason}",model_name="scripted"}} 1.0' in exposed
    assert 'antiphon:num_requests_running{model_name="scripted"} 0.0' in exposed
    assert 'handler="/chat/completions"' in exposed


@requirement("chat:keep-alive")
async def test_a_silent_stream_gets_comments():
    async with inprocess_app(settings=Settings(keep_alive_seconds=0.01)) as api:
        body = {"model": "scripted", "messages": said("!SLOW 50\n!COUNT 3"), "stream": True}
        answer = await api.client.post("/chat/completions", json=body)
        assert b": keep-alive\n\n" in answer.content
        assert gathered(chunks_of(answer.content))["message"]["content"] == "1 2 3"


@requirement("chat:large")
async def test_a_large_body_is_held_only_until_its_answer_begins():
    async with inprocess_app(settings=Settings(max_body_bytes=1024, max_buffered_bytes=1024)) as api:
        long = await api.client.post("/chat/completions", json={"model": "scripted", "messages": said("x" * 2000)})
        assert (long.status_code, long.json()["error"]["code"]) == (413, "request_too_large")
        app = create_app(api.service)
        body = {"model": "scripted", "messages": said("!SLOW 60000\n!TEXT a b"), "stream": True}
        stream = ManualExchange(app, body, "/v1/chat/completions")
        await stream.next()
        assert app.bodies.held == 0
        stream.leave()
        await stream.finished()
