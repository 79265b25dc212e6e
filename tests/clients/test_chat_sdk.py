"""Chat and text completions and embeddings of the official `openai` package, on the scripted and the default model.

Each test's fixtures hold every object and every chunk that went over the wire strictly against the package's types.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from pydantic import BaseModel

from clients.conftest import Target
from clients.strict import Recorder
from support import tiny_bert
from support.fronted import scripted_model

requirement = pytest.mark.requirement


WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CALL = '!CALL get_weather {"city": "Oslo"}'


class Person(BaseModel):
    """What is parsed out of an answer."""

    name: str
    age: int
    tags: list[str]


def said(text: str) -> Any:
    return [{"role": "user", "content": text}]


@requirement("client:chat:create")
def test_create_gives_a_whole_answer(target: Target) -> None:
    messages: Any = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Say hello."}]},
        {"role": "assistant", "content": "Hello."},
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "And again?", "name": "ann"},
    ]
    completion = target.client.chat.completions.create(
        model=target.model,
        messages=messages,
        max_completion_tokens=target.tokens,
        temperature=0.0,
        seed=1,
        stop=["\n\n\n"],
        reasoning_effort="low",
        metadata={"purpose": "test"},
        user="someone",
        store=True,
        service_tier="auto",
    )
    (choice,) = completion.choices
    assert choice.message.content
    assert choice.finish_reason in ("stop", "length")
    assert completion.model == target.model
    assert completion.usage is not None
    assert 0 < completion.usage.completion_tokens <= target.tokens
    assert completion.system_fingerprint


@requirement("client:chat:stream")
def test_a_stream_says_what_the_whole_answer_says(target: Target) -> None:
    asked: Any = {"model": target.model, "messages": said("Count to three."), "max_tokens": target.tokens}
    asked |= {"temperature": 0, "seed": 3}
    whole = target.client.chat.completions.create(**asked)
    chunks = list(target.client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].message.content != ""
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason] == [
        whole.choices[0].finish_reason
    ]


@requirement("client:chat:same")
def test_a_chat_says_what_the_response_says(target: Target) -> None:
    fields: Any = {"model": target.model, "temperature": 0}
    completion = target.client.chat.completions.create(
        messages=[{"role": "system", "content": "Be brief."}, *said("What is a server?")],
        max_tokens=target.tokens,
        **fields,
    )
    response = target.responses.create(
        input="What is a server?", instructions="Be brief.", max_output_tokens=target.tokens, **fields
    )
    assert completion.choices[0].message.content == response.output_text
    assert completion.usage is not None
    assert response.usage is not None
    assert completion.usage.prompt_tokens == response.usage.input_tokens
    assert completion.usage.completion_tokens == response.usage.output_tokens


@requirement("client:chat:stream-helper")
def test_stream_helper_gathers_text_thinking_and_usage(scripted: Target) -> None:
    with scripted.client.chat.completions.stream(
        model="scripted", messages=said("!REASON hm hm\n!COUNT 5"), stream_options={"include_usage": True}
    ) as stream:
        deltas = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion()
    assert deltas == final.choices[0].message.content == "1 2 3 4 5"
    assert final.choices[0].message.model_extra == {"reasoning_content": "hm hm", "reasoning": "hm hm"}
    assert final.usage is not None
    assert final.usage.completion_tokens_details is not None
    assert final.usage.completion_tokens_details.reasoning_tokens == 2


@requirement("client:chat:stream-helper")
def test_stream_helper_parses_calls(scripted: Target) -> None:
    with scripted.client.chat.completions.stream(
        model="scripted", messages=said(f"{CALL}\n{CALL.replace('Oslo', 'Rome')}"), tools=[WEATHER]
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert calls is not None
    assert [call.function.parsed_arguments for call in calls] == [{"city": "Oslo"}, {"city": "Rome"}]
    assert kinds.count("tool_calls.function.arguments.delta") > 2
    assert kinds.count("tool_calls.function.arguments.done") == 2
    assert final.choices[0].finish_reason == "tool_calls"


@requirement("client:chat:parse")
def test_answer_is_parsed_into_a_model(scripted: Target) -> None:
    whole = scripted.client.chat.completions.parse(model="scripted", messages=said("Who?"), response_format=Person)
    with scripted.client.chat.completions.stream(
        model="scripted", messages=said("Who?"), response_format=Person
    ) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_completion()
    expected = Person(name="", age=0, tags=[])
    assert whole.choices[0].message.parsed == streamed.choices[0].message.parsed == expected


@requirement("client:chat:parse")
def test_tools_and_a_schema_go_together(scripted: Target) -> None:
    tool = openai.pydantic_function_tool(Person)
    for choice in ("required", {"type": "function", "function": {"name": "Person"}}):
        parsed = scripted.client.chat.completions.parse(
            model="scripted", messages=said("Who?"), tools=[tool], tool_choice=choice
        )
        assert parsed.choices[0].message.tool_calls is not None
        assert parsed.choices[0].message.tool_calls[0].function.parsed_arguments == Person(name="", age=0, tags=[])
    both = scripted.client.chat.completions.parse(
        model="scripted", messages=said(CALL), tools=[WEATHER], response_format=Person
    )
    assert both.choices[0].message.tool_calls is not None
    with pytest.raises(openai.LengthFinishReasonError):
        scripted.client.chat.completions.parse(
            model="scripted", messages=said("Who?"), response_format=Person, max_tokens=1
        )


@requirement("client:chat:tool-loop")
@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called_and_its_output_answered(scripted: Target, stream: bool) -> None:
    messages = said(f"!REASON A tool.\n{CALL}")
    if stream:
        with scripted.client.chat.completions.stream(model="scripted", messages=messages, tools=[WEATHER]) as events:
            message: Any = events.get_final_completion().choices[0].message
    else:
        message = (
            scripted.client.chat.completions.create(model="scripted", messages=messages, tools=[WEATHER])
            .choices[0]
            .message
        )
    (call,) = message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Oslo"}
    messages += [message, {"role": "tool", "tool_call_id": call.id, "content": "Rain."}]
    final = scripted.client.chat.completions.create(model="scripted", messages=messages, tools=[WEATHER])
    assert final.choices[0].message.content == "FINAL: Rain."


@requirement("client:chat:refusal")
def test_a_refusal_is_a_field_of_its_own(scripted: Target) -> None:
    with scripted.client.chat.completions.stream(model="scripted", messages=said("!REFUSE I will not.")) as stream:
        deltas = "".join(event.delta for event in stream if event.type == "refusal.delta")
        final = stream.get_final_completion()
    assert deltas == final.choices[0].message.refusal == "I will not."
    assert final.choices[0].message.content is None
    parsed = scripted.client.chat.completions.parse(model="scripted", messages=said("!REFUSE"), response_format=Person)
    assert parsed.choices[0].message.parsed is None


@requirement("client:chat:n")
def test_several_answers_come_side_by_side(target: Target) -> None:
    asked: Any = {"model": target.model, "messages": said("!COUNT 4"), "max_tokens": 4, "n": 3}
    whole = target.client.chat.completions.create(**asked)
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    texts = ["", "", ""]
    for chunk in target.client.chat.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert all(texts)
    if target.model == "scripted":
        assert texts == [choice.message.content for choice in whole.choices]


@requirement("client:chat:logprobs")
def test_log_probabilities_come_where_they_are_asked_for(target: Target) -> None:
    asked: Any = {"model": target.model, "messages": said("Hi."), "max_tokens": 4, "temperature": 0}
    asked |= {"logprobs": True, "top_logprobs": 2}
    (choice,) = target.client.chat.completions.create(**asked).choices
    assert choice.logprobs is not None
    assert choice.logprobs.content
    assert "".join(entry.token for entry in choice.logprobs.content) == choice.message.content
    streamed = [
        entry
        for chunk in target.client.chat.completions.create(**asked, stream=True)
        for part in chunk.choices
        if part.logprobs is not None
        for entry in part.logprobs.content or ()
    ]
    assert [entry.token for entry in streamed] == [entry.token for entry in choice.logprobs.content]
    if target.model != "scripted":
        assert all(len(entry.top_logprobs) == 2 for entry in choice.logprobs.content)


@requirement("client:chat:errors")
@pytest.mark.parametrize(
    ("directive", "kind"),
    [
        ("!ERR400", openai.BadRequestError),
        ("!ERR404", openai.NotFoundError),
        ("!ERR429", openai.RateLimitError),
        ("!ERR500", openai.InternalServerError),
        ("!ERR503", openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_each_error_is_the_class_that_the_package_has_for_it(
    scripted: Target, directive: str, kind: type[openai.APIStatusError], stream: bool
) -> None:
    with pytest.raises(kind) as caught:
        scripted.client.chat.completions.create(model="scripted", messages=said(directive), stream=stream)
    assert type(caught.value) is kind
    assert caught.value.request_id


@requirement("client:chat:errors")
@pytest.mark.parametrize("directive", ["!FAIL", "!STREAMERR", "!CUT"])
def test_a_stream_that_fails_raises(scripted: Target, directive: str) -> None:
    seen: list[Any] = []
    with pytest.raises(openai.APIError) as caught:
        for chunk in scripted.client.chat.completions.create(model="scripted", messages=said(directive), stream=True):
            seen.append(chunk)
    assert caught.value.code == "server_error"
    assert seen[0].choices[0].delta.role == "assistant"


@requirement("client:chat:errors")
def test_a_request_that_cannot_be_names_its_field(target: Target) -> None:
    cases: list[tuple[dict[str, Any], type[openai.APIStatusError], str]] = [
        ({"model": "no-such-model"}, openai.NotFoundError, "model"),
        ({"temperature": 3}, openai.BadRequestError, "temperature"),
        ({"max_tokens": 0}, openai.BadRequestError, "max_tokens"),
        ({"messages": []}, openai.BadRequestError, "messages"),
        ({"messages": said("")}, openai.BadRequestError, "messages"),
        ({"n": 1000}, openai.BadRequestError, "n"),
    ]
    for fields, kind, param in cases:
        with pytest.raises(kind) as caught:
            target.client.chat.completions.create(**{"model": target.model, "messages": said("Hi."), **fields})
        assert caught.value.param == param


@requirement("client:chat:async")
async def test_the_async_client_does_the_same(async_target: tuple[openai.AsyncOpenAI, str]) -> None:
    client, model = async_target
    whole = await client.chat.completions.create(model=model, messages=said("Hi."), max_tokens=4)
    assert whole.choices[0].message.content
    stream = await client.chat.completions.create(model=model, messages=said("Hi."), max_tokens=4, stream=True)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


@requirement("client:completions")
async def test_the_async_client_goes_on_with_text(async_target: tuple[openai.AsyncOpenAI, str]) -> None:
    client, model = async_target
    text = await client.completions.create(model=model, prompt="Once upon", max_tokens=4)
    assert text.choices[0].text


@requirement("client:completions")
def test_text_goes_on_whole_and_streamed(target: Target) -> None:
    asked: Any = {"model": target.model, "prompt": "!COUNT 9", "max_tokens": 5, "temperature": 0}
    whole = target.client.completions.create(**asked)
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 5
    streamed = "".join(chunk.choices[0].text for chunk in target.client.completions.create(**asked, stream=True))
    assert streamed == whole.choices[0].text != ""
    with_logprobs = target.client.completions.create(**asked, logprobs=2)
    logprobs = with_logprobs.choices[0].logprobs
    assert logprobs is not None
    assert "".join(logprobs.tokens or ()) == whole.choices[0].text
    echoed = target.client.completions.create(**asked, echo=True)
    assert echoed.choices[0].text == "!COUNT 9" + whole.choices[0].text
    several = target.client.completions.create(model=target.model, prompt=["a", "b"], max_tokens=2, n=2)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    for prompt in ("", [""]):
        assert target.client.completions.create(model=target.model, prompt=prompt, max_tokens=3).choices[0].text
    with pytest.raises(openai.BadRequestError):
        target.client.completions.create(model=target.model, prompt=" ")


@pytest.fixture
def embedding(tmp_path: Path) -> Iterator[Target]:
    """A server with an embedding model."""
    path = tiny_bert.build(tmp_path)
    arguments = ["--embedding-model", str(path), "--store", "memory", "-t", "1"]
    recorder = Recorder()
    with (
        scripted_model(arguments) as server,
        openai.OpenAI(
            base_url=server.base_url, api_key="any", max_retries=0, http_client=httpx2.Client(transport=recorder)
        ) as client,
    ):
        yield Target(server.base_url, "bert", client, recorder)
    recorder.verify()


@requirement("client:embeddings")
def test_vectors_are_the_same_in_either_form(embedding: Target) -> None:
    decoded = embedding.client.embeddings.create(model="bert", input=["hello", "there"])
    numbers = embedding.client.embeddings.create(model="bert", input=["hello", "there"], encoding_format="float")
    for one, other in zip(decoded.data, numbers.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6)
        assert len(one.embedding) == tiny_bert.WIDTH
    assert numbers.usage.prompt_tokens == 14
    with pytest.raises(openai.BadRequestError) as caught:
        embedding.client.embeddings.create(model="bert", input="hello", dimensions=4)
    assert caught.value.param == "dimensions"
