"""A few flows of the suites of this folder through a server whose models are another one's, asked in both ways.

All of them go through with `make through-upstreams`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from pydantic import BaseModel

from clients.conftest import KEY, Target
from clients.strict import Recorder
from support.fronted import upstream_table
from support.server import RunningServer, running_server, wait_until

pytestmark = pytest.mark.requirement("upstream:suites")

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
CRM: Any = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [{"type": "function", "name": "find", "parameters": WEATHER["parameters"], "strict": True}],
}
NOTE: Any = {"type": "custom", "name": "note"}


class Answer(BaseModel):
    sky: str
    degrees: int


@pytest.fixture(scope="module")
def front(scripted_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server in front of the one of the scripted model: `chat` and `responses` are named by how they are asked."""
    config = tmp_path_factory.mktemp("front") / "antiphon.toml"
    config.write_text("".join(upstream_table(kind, scripted_server, kind) for kind in ("chat", "responses")))
    with running_server(["--config", str(config), "--store", "memory"]) as server:
        yield server


@pytest.fixture(params=["chat", "responses"])
def far(front: RunningServer, request: pytest.FixtureRequest) -> Iterator[Target]:
    recorder = Recorder()
    http = httpx2.Client(transport=recorder, timeout=90)
    with openai.OpenAI(base_url=front.base_url, api_key=KEY, max_retries=0, http_client=http) as client:
        yield Target(front.base_url, request.param, client, recorder)
    recorder.verify()


def test_a_tool_loop_streams_and_is_chained(far: Target) -> None:
    said = '!REASON Which city?\n!CALL weather {"city": "Oslo"}\n!CUSTOM note {a text\n!CALL crm::find {"city": "Bonn"}'
    tools = [WEATHER, NOTE, CRM]
    with far.responses.stream(model=far.model, input=said, tools=tools) as stream:
        for _ in stream:
            pass
        called = stream.get_final_response()
    assert [item.type for item in called.output] == ["reasoning", "function_call", "custom_tool_call", "function_call"]
    thought, weather, note, find = called.output
    assert thought.content[0].text == "Which city?"  # type: ignore[union-attr, index]
    assert (weather.name, weather.arguments) == ("weather", '{"city": "Oslo"}')  # type: ignore[union-attr]
    assert (note.name, note.input) == ("note", "{a text")  # type: ignore[union-attr]
    assert (find.name, find.namespace) == ("find", "crm")  # type: ignore[union-attr]
    outputs: list[Any] = [
        {"type": item.type + "_output", "call_id": item.call_id, "output": f"output {number}"}  # type: ignore[union-attr]
        for number, item in enumerate(called.output[1:])
    ]
    after = far.responses.create(model=far.model, input=outputs, previous_response_id=called.id, tools=tools)
    assert after.output_text == "FINAL: output 2"
    shown = far.responses.create(model=far.model, input="!ECHO", previous_response_id=after.id).output_text
    for words in ("Oslo", "a text", "Bonn", "output 0", "output 1", "FINAL: output 2"):
        assert words in shown


def test_forms_cuts_refusals_and_counts_are_told_alike(far: Target) -> None:
    parsed = far.responses.parse(model=far.model, input="How is the sky?", text_format=Answer)
    assert parsed.output_parsed == Answer(sky="", degrees=0)
    forced = far.responses.create(model=far.model, input="Hi.", tools=[WEATHER], tool_choice="required")
    assert forced.output[0].type == "function_call"
    cut = far.responses.create(model=far.model, input="!COUNT 9", max_output_tokens=4)
    assert (cut.status, cut.output_text) == ("incomplete", "1 2 3 4 ")
    assert cut.usage is not None
    assert cut.usage.output_tokens == 4
    refused = far.responses.create(model=far.model, input="!REFUSE").output[0]
    assert refused.content[0].type == "refusal"  # type: ignore[union-attr, index]
    chat = far.client.chat.completions.create(model=far.model, messages=[{"role": "user", "content": "!COUNT 3"}])
    assert chat.choices[0].message.content == "1 2 3"


def test_errors_are_the_classes_that_the_package_has_for_them(far: Target) -> None:
    for status, kind in (
        (400, openai.BadRequestError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
    ):
        with pytest.raises(kind):
            far.responses.create(model=far.model, input=f"!ERR{status}")
        with pytest.raises(kind):
            far.responses.create(model=far.model, input=f"!ERR{status}", stream=True)
        with pytest.raises(kind):
            far.client.chat.completions.create(
                model=far.model, messages=[{"role": "user", "content": f"!ERR{status}"}], stream=True
            )
    for said in ("!FAIL", "!STREAMERR", "!CUT"):
        failed = far.responses.create(model=far.model, input=said)
        assert failed.error is not None
        assert (failed.status, failed.error.code) == ("failed", "server_error")
        assert far.responses.retrieve(failed.id).to_dict() == failed.to_dict()


def test_a_text_goes_on_and_the_tokens_of_a_prompt_are_counted(far: Target) -> None:
    text = far.client.completions.create(model=far.model, prompt="!COUNT 5", max_tokens=3, logprobs=1).choices[0]
    assert (text.text, text.finish_reason) == ("1 2 3 ", "length")
    assert text.logprobs is not None
    assert text.logprobs.tokens == ["1 ", "2 ", "3 "]
    asked: Any = {"model": far.model, "input": "Hi.", "instructions": "Be brief.", "tools": [WEATHER]}
    made = far.responses.create(**asked)
    assert made.usage is not None
    assert far.responses.input_tokens.count(**asked).input_tokens == made.usage.input_tokens


def test_a_conversation_goes_on_in_the_background(far: Target) -> None:
    conversation = far.client.conversations.create()
    first = far.responses.create(model=far.model, input="!COUNT 5", conversation=conversation.id, background=True)
    wait_until(lambda: far.responses.retrieve(first.id).status == "completed")
    assert far.responses.retrieve(first.id).output_text == "1 2 3 4 5"
    shown = far.responses.create(model=far.model, input="!ECHO", conversation=conversation.id).output_text
    assert "1 2 3 4 5" in shown
    assert len(list(far.client.conversations.items.list(conversation.id))) == 4
