"""The real llama-server as an upstream, and behind another server that is asked for responses: chains, forms, calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel

from support.llama_server import llama_server
from support.server import running_server

TOOL: Any = {
    "type": "function",
    "name": "add",
    "description": "Adds a number.",
    "parameters": {
        "type": "object",
        "properties": {"n": {"enum": [3, 4, 5]}},
        "required": ["n"],
        "additionalProperties": False,
    },
}


class Weather(BaseModel):
    sky: Literal["clear", "cloudy"]


@pytest.fixture(scope="module")
def near(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server in front of llama-server with the default model."""
    config = tmp_path_factory.mktemp("near") / "antiphon.toml"
    with llama_server(smollm2_path) as url:
        config.write_text(f'[[models]]\nname = "far"\nprofile = "llama-server"\nbase_url = "{url}"\n', encoding="utf-8")
        with running_server(["--config", str(config), "--store", "memory"]) as server:
            yield server.base_url


@pytest.fixture(scope="module", params=["chat", "responses"])
def client(
    near: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[openai.OpenAI]:
    """A client of that server, and of one in front of it."""
    with contextlib.ExitStack() as stack:
        if request.param == "responses":
            config = tmp_path_factory.mktemp("front") / "antiphon.toml"
            table = f'[[models]]\nname = "far"\nengine = "responses"\nprofile = "antiphon"\nbase_url = "{near}"\n'
            config.write_text(table, encoding="utf-8")
            near = stack.enter_context(running_server(["--config", str(config), "--store", "memory"])).base_url
        yield stack.enter_context(openai.OpenAI(base_url=near, api_key="none", max_retries=0))


@pytest.mark.requirement("upstream:real")
def test_a_chain_over_llama_server_finds_its_prefix_again(client: openai.OpenAI):
    first = client.responses.create(model="far", input="Say hi.", max_output_tokens=8, temperature=0)
    assert first.output_text
    with client.responses.stream(
        model="far", input="Again.", previous_response_id=first.id, max_output_tokens=64, temperature=0
    ) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.output_text == text
    assert final.usage is not None
    assert final.usage.input_tokens_details.cached_tokens > 16


@pytest.mark.requirement("upstream:real", "upstream:request:form")
def test_forms_and_forced_calls_hold_over_llama_server(client: openai.OpenAI):
    parsed = client.responses.parse(model="far", input="How is the sky?", text_format=Weather, max_output_tokens=60)
    assert parsed.output_parsed is not None
    called = client.responses.create(
        model="far", input="Add five.", tools=[TOOL], tool_choice="required", max_output_tokens=80
    )
    call = called.output[0]
    assert call.type == "function_call"
    assert call.name == "add"
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "8"}
    after = client.responses.create(
        model="far", input=[output], previous_response_id=called.id, tools=[TOOL], max_output_tokens=8
    )
    assert after.status in ("completed", "incomplete")


@pytest.mark.requirement("upstream:real", "upstream:logprobs")
def test_log_probabilities_come_from_llama_server(client: openai.OpenAI):
    response = client.responses.create(
        model="far", input="Hi", include=["message.output_text.logprobs"], top_logprobs=2, max_output_tokens=3
    )
    message = response.output[0]
    assert message.type == "message"
    part = message.content[0]
    assert part.type == "output_text"
    assert part.logprobs is not None
    assert "".join(entry.token for entry in part.logprobs) == part.text
    assert all(len(entry.top_logprobs) == 2 for entry in part.logprobs)


@pytest.mark.requirement("upstream:real", "upstream:texts")
def test_a_text_goes_on_over_llama_server(client: openai.OpenAI):
    asked: Any = {"model": "far", "prompt": "One, two, three,", "max_tokens": 6, "temperature": 0}
    whole = client.completions.create(**asked, logprobs=2)
    (choice,) = whole.choices
    assert whole.usage is not None
    assert (choice.finish_reason, whole.usage.completion_tokens) == ("length", 6)
    assert choice.logprobs is not None
    assert "".join(choice.logprobs.tokens or ()) == choice.text != ""
    assert all(len(top) == 2 for top in choice.logprobs.top_logprobs or ())
    streamed = client.completions.create(**asked, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == choice.text
    assert client.completions.create(model="far", prompt=[1, 2, 3], max_tokens=2).usage


@pytest.mark.requirement("upstream:real", "upstream:count")
@pytest.mark.parametrize("tools", [[], [TOOL]])
def test_the_tokens_of_a_prompt_are_those_that_llama_server_reads(client: openai.OpenAI, tools: Any):
    said: Any = [
        {"role": "user", "content": "How are you? 😀"},
        {"role": "assistant", "content": "Well."},
        {"role": "user", "content": "<|im_start|> is a marker."},
    ]
    asked: Any = {"model": "far", "input": said, "instructions": "Be brief.", "tools": tools}
    counted = client.responses.input_tokens.count(**asked)
    made = client.responses.create(**asked, max_output_tokens=1)
    assert made.usage is not None
    assert counted.input_tokens == made.usage.input_tokens
