"""The real llama.cpp behind the API: prefix reuse, leaving, many at once, a killed child, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import psutil
import pytest

from clients.conftest import KEY, Target
from clients.strict import AsyncRecorder, Recorder, strict_events
from support.server import RunningServer, running_server, wait_until
from support.tiny_gguf import HERMES

requirement = pytest.mark.requirement

LONG = "The river rose in the night, and by morning the lower road was gone. " * 40
CONTEXT = 512
STORY: Any = {"input": "Write a very long story about the sea, in many chapters.", "temperature": 0}
"""What the default model answers at length: more than seven hundred tokens."""

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "strict": False,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


@contextmanager
def sdk(base_url: str, retries: int = 0) -> Iterator[openai.OpenAI]:
    """The SDK on a server, its exchanges checked at the end."""
    recorder = Recorder()
    http = httpx2.Client(transport=recorder, timeout=60)
    with openai.OpenAI(base_url=base_url, api_key=KEY, max_retries=retries, http_client=http) as client:
        yield client
    recorder.verify()


def metric(root: str, name: str, **labels: str) -> float:
    """The value of a metric, summed over the samples that have these labels."""
    total = 0.0
    for line in httpx2.get(f"{root}/metrics").text.splitlines():
        if line.startswith(name + "{") and all(f'{key}="{value}"' in line for key, value in labels.items()):
            total += float(line.rpartition(" ")[2])
    return total


def running(root: str) -> float:
    """How many responses the server generates now."""
    return metric(root, "antiphon:num_requests_running")


@pytest.fixture(scope="module")
def small_process(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The default model with a short context, on a server whose child may be killed."""
    store = tmp_path_factory.mktemp("small") / "state.db"
    arguments = ["--model", str(smollm2_path), "--alias", "small=" + str(smollm2_path), "--store", str(store)]
    arguments += ["--threads", "1", "--slots", "2", "--context-length", str(CONTEXT)]
    with running_server(arguments) as server:
        yield server


@pytest.fixture
def small(small_process: RunningServer) -> Iterator[openai.OpenAI]:
    """The SDK on it."""
    with sdk(small_process.base_url) as client:
        yield client


@pytest.fixture
def root(real_process: RunningServer) -> str:
    """The root of the server with the default model."""
    return real_process.root


@requirement("client:real:usage")
def test_usage_adds_up_whole_and_streamed(real: Target) -> None:
    asked: Any = {"model": "smollm", "input": "Name a colour.", "max_output_tokens": 8, "temperature": 0}
    whole = real.responses.create(**asked)
    streamed = list(real.responses.create(**asked, stream=True))[-1].response  # type: ignore[union-attr]
    for usage in (whole.usage, streamed.usage):
        assert usage is not None
        assert usage.total_tokens == usage.input_tokens + usage.output_tokens
        assert 0 < usage.output_tokens <= 8
    assert whole.usage is not None
    assert streamed.usage.input_tokens == whole.usage.input_tokens
    assert streamed.output_text == whole.output_text


@requirement("client:real:curl")
def test_plain_http_gets_an_answer_whole_and_streamed(real_server: str) -> None:
    body = {"model": "smollm", "input": "Hi.", "max_output_tokens": 4}
    whole = httpx2.post(f"{real_server}/responses", json=body).json()
    assert whole["output_text"]
    events = strict_events(httpx2.post(f"{real_server}/responses", json={**body, "stream": True}).content)
    assert events[-1].response.output_text


@requirement("client:real:prefix")
def test_the_second_turn_of_a_chain_reads_only_what_is_new(real: Target) -> None:
    def timed(**fields: Any) -> tuple[Any, float]:
        began = time.monotonic()
        first = 0.0
        event: Any = None
        for event in real.responses.create(model="smollm", max_output_tokens=6, stream=True, **fields):
            if event.type == "response.output_text.delta" and not first:
                first = time.monotonic() - began
        return event.response, first

    cold, cold_seconds = timed(input="A story: " + LONG)
    warm, warm_seconds = timed(input="What was gone?", previous_response_id=cold.id)
    branch, _ = timed(input="When?", previous_response_id=cold.id)
    third, _ = timed(input="Why?", previous_response_id=warm.id)
    assert cold.usage.input_tokens > 500
    for response, parent in ((warm, cold), (branch, cold), (third, warm)):
        cached = response.usage.input_tokens_details.cached_tokens
        assert cached >= 0.95 * parent.usage.input_tokens
        assert response.usage.input_tokens - cached < 0.1 * response.usage.input_tokens
    assert warm_seconds < cold_seconds / 2


@requirement("client:real:prefix")
def test_a_history_that_is_sent_again_is_reused_as_well(real: Target) -> None:
    history: list[Any] = [{"role": "user", "content": "Another story: " + LONG[::-1][:900]}]
    first = real.responses.create(model="smollm", input=history, max_output_tokens=6, store=False)
    history += [*first.output, {"role": "user", "content": "Go on."}]
    second = real.responses.create(model="smollm", input=history, max_output_tokens=6, store=False)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens_details.cached_tokens >= 0.95 * first.usage.input_tokens


@requirement("client:real:leave")
def test_leaving_a_stream_frees_its_slot_and_keeps_what_was_generated(real: Target, root: str) -> None:
    stream = real.responses.create(model="smollm", **STORY, stream=True)
    seen: list[Any] = []
    for event in stream:
        seen.append(event)
        if sum(entry.type == "response.output_text.delta" for entry in seen) == 4:
            break
    assert running(root) == 1
    stream.close()
    wait_until(lambda: running(root) == 0)
    stored = real.responses.retrieve(seen[0].response.id)
    assert stored.status == "cancelled"
    assert stored.output[0].to_dict()["status"] == "incomplete"
    assert stored.output_text.startswith("".join(event.delta for event in seen if event.type.endswith("text.delta")))
    assert real.responses.create(model="smollm", input="Hi.", max_output_tokens=4).output_text


@requirement("client:real:leave")
def test_leaving_while_the_prompt_is_read_frees_the_slot(real: Target, root: str) -> None:
    stream = real.responses.create(model="smollm", input="Sum it up: " + LONG[::-1], stream=True)
    created: Any = next(iter(stream))
    stream.close()
    wait_until(lambda: running(root) == 0)
    stored = real.responses.retrieve(created.response.id)
    assert stored.status == "cancelled"
    assert stored.output_text == ""


@requirement("client:real:leave")
def test_leaving_an_answer_that_is_not_streamed_frees_the_slot(real_process: RunningServer, root: str) -> None:
    cancelled = metric(root, "antiphon:request_success_total", finished_reason="cancelled")
    body = json.dumps({"model": "smollm", **STORY})
    address = real_process.root.removeprefix("http://").partition(":")
    with socket.create_connection((address[0], int(address[2]))) as connection:
        connection.sendall(
            f"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        wait_until(lambda: running(root) == 1)
    wait_until(lambda: running(root) == 0)
    assert metric(root, "antiphon:request_success_total", finished_reason="cancelled") == cancelled + 1


@requirement("client:real:concurrent")
async def test_eight_requests_at_once_all_finish(real_process: RunningServer) -> None:
    recorder = AsyncRecorder()
    async with openai.AsyncOpenAI(
        base_url=real_process.base_url,
        api_key=KEY,
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=recorder, timeout=60),
    ) as client:

        async def one(number: int) -> Any:
            asked: Any = {"model": "smollm", "input": f"Say the number {number}.", "max_output_tokens": 12}
            if number % 2:
                return await client.responses.create(**asked)
            return [event async for event in await client.responses.create(**asked, stream=True)][-1].response

        answers = await asyncio.gather(*(one(number) for number in range(8)))
    assert [answer.output_text != "" for answer in answers] == [True] * 8
    assert {answer.status for answer in answers} <= {"completed", "incomplete"}
    assert len({answer.id for answer in answers}) == 8
    recorder.verify()


def child_of(server: RunningServer) -> psutil.Process:
    """The llama.cpp child of a server."""
    for process in psutil.Process(server.process.pid).children(recursive=True):
        if "antiphon.engines.llamacpp.child" in process.cmdline():
            return process
    raise LookupError("the server has no llama.cpp child")


@requirement("client:real:overflow")
@pytest.mark.parametrize("stream", [False, True])
def test_an_overflow_is_refused_with_both_numbers_before_any_event(small: openai.OpenAI, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError, match=rf"maximum context length is {CONTEXT} tokens.*resulted in \d+"):
        small.responses.create(model="small", input=LONG, stream=stream)


@requirement("client:real:truncation")
def test_truncation_drops_from_the_beginning(small: openai.OpenAI) -> None:
    kept: list[Any] = [
        {"role": "user", "content": "Let us speak of Norway."},
        {"role": "assistant", "content": "Gladly."},
        {"role": "user", "content": "What is its capital?"},
    ]
    dropped: list[Any] = [{"role": "user", "content": LONG}, {"role": "assistant", "content": "I see."}]
    asked: Any = {"model": "small", "instructions": "Be brief.", "temperature": 0, "max_output_tokens": 4}
    cut = small.responses.create(**asked, input=[*dropped, *kept], truncation="auto")
    same = small.responses.create(**asked, input=kept)
    assert cut.usage is not None
    assert same.usage is not None
    assert cut.truncation == "auto"
    assert (cut.usage.input_tokens, cut.output_text) == (same.usage.input_tokens, same.output_text)
    whole = list(small.responses.input_items.list(cut.id, order="asc"))
    assert len(whole) == 5
    with pytest.raises(openai.BadRequestError) as caught:
        small.responses.create(**asked, input=LONG, truncation="auto")
    assert caught.value.code == "context_length_exceeded"


@requirement("client:real:context-full")
def test_an_answer_that_fills_the_context_is_incomplete(tiny: Callable[..., Path]) -> None:
    model = tiny(script=["round ", "and ", "about "], endless=True, context_length=CONTEXT, name="endless")
    with (
        running_server(["--model", str(model), "--store", "memory", "--threads", "1"]) as server,
        sdk(server.base_url) as client,
    ):
        response = client.responses.create(model="endless", input="Go.")
        assert response.status == "incomplete"
        assert response.incomplete_details is not None
        assert response.incomplete_details.reason == "max_output_tokens"
        assert response.usage is not None
        assert response.usage.total_tokens == CONTEXT


@requirement("client:real:free")
@pytest.mark.parametrize("choice", ["auto", "none"])
def test_tools_that_need_not_be_called_are_taken(real: Target, choice: Any) -> None:
    response = real.responses.create(
        model="smollm", input="Say hi.", tools=[WEATHER], tool_choice=choice, max_output_tokens=4
    )
    assert response.tool_choice == choice
    assert [tool.type for tool in response.tools] == ["function"]


@requirement("client:real:media")
@pytest.mark.parametrize("kind", ["image", "audio", "video"])
def test_media_that_the_model_cannot_read_are_refused_before_anything_is_fetched(real: Target, kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/picture.png"
        part = {
            "image": {"type": "input_image", "image_url": url},
            "audio": {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
            "video": {"type": "video_url", "video_url": {"url": url}},
        }[kind]
        places: list[Any] = [
            [{"role": "user", "content": [part]}],
            [{"type": "function_call_output", "call_id": "call_1", "output": [part]}],
        ]
        for items in places:
            with pytest.raises(openai.BadRequestError, match=f"{kind} input is not supported"):
                real.responses.create(model="smollm", input=items)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


@requirement("client:real:calls")
def test_a_call_that_the_model_writes_comes_out_as_a_call(tiny: Callable[..., Path]) -> None:
    # What the grammar leaves no choice in comes in the tokenizer's own tokens; the script goes on where there is one.
    script = [
        "<think>",
        "A city",
        " is asked.",
        "</think>",
        "\n\n",
        "<tool_call>",
        ' "',
        "Os",
        'lo"}}\n',
        "</tool_call>",
    ]
    model = tiny(script=script, template=HERMES, name="caller")
    with running_server(["--model", str(model), "--store", "memory", "--threads", "1"]) as server:  # noqa: SIM117
        with sdk(server.base_url) as client:
            with client.responses.stream(model="caller", input="Weather?", tools=[WEATHER], temperature=0) as stream:
                kinds = [event.type for event in stream]
                final = stream.get_final_response()
            reasoning, call, *_ = final.output
            assert reasoning.type == "reasoning"
            assert reasoning.content is not None
            assert reasoning.content[0].text == "A city is asked."
            assert call.type == "function_call"
            assert json.loads(call.arguments) == {"city": "Oslo"}
            assert kinds.count("response.function_call_arguments.delta") > 1
            assert final.usage is not None
            assert 0 < final.usage.output_tokens_details.reasoning_tokens < final.usage.output_tokens
            output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "12 C"}
            answered = client.responses.create(
                model="caller", input=[output], tools=[WEATHER], previous_response_id=final.id, tool_choice="none"
            )
            assert "Oslo" in answered.output_text
