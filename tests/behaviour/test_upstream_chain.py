"""A server in front of another one: what clients get through both is what they get from the one behind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from pydantic import BaseModel

from antiphon.engines.registry import build_registry
from antiphon.settings import load_settings
from support.server import running_server

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "upstreams.md"
BLOCKS = re.findall(r"^```toml\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
FUNCTION = {"type": "function", "name": "f", "parameters": SCHEMA, "strict": True}
CUSTOM = {"type": "custom", "name": "c"}


class Number(BaseModel):
    n: int


@pytest.fixture(scope="module")
def chain(scripted_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a server whose models are the scripted one of another server, by two profiles and the guide."""
    config = tmp_path_factory.mktemp("chain") / "antiphon.toml"
    tables = [
        f'[[models]]\nname = "{name}"\nprofile = "{name}"\nupstream_model = "scripted"\nbase_url = "{scripted_server}"'
        for name in ("openai", "generic")
    ]
    tables.append(BLOCKS[0].replace("http://127.0.0.1:8000/v1", scripted_server).replace("Qwen/Qwen3-8B", "scripted"))
    config.write_text("\n".join(tables), encoding="utf-8")
    with running_server(["--config", str(config), "--store", "memory"]) as server:
        yield server.base_url


def output(base_url: str, model: str, asked: str, **fields: Any) -> list[Any]:
    """What a response says, without its ids."""
    body = {"model": model, "input": asked, **fields}
    response = httpx2.post(f"{base_url}/responses", json=body, timeout=60, trust_env=False).json()
    found: list[Any] = [response["status"], (response["incomplete_details"] or {}).get("reason")]
    for item in response["output"]:
        parts = [part.get("text", part.get("refusal")) for part in item.get("content") or ()]
        found.append([item["type"], item["status"], item.get("name"), item.get("arguments", item.get("input")), parts])
    return found


@pytest.mark.requirement("upstream:chain")
@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("Hi", {}),
        ("!TEXT One\n!TEXT two", {}),
        ("!REASON Think first.\n!TEXT Then speak.", {}),
        ("!REFUSE I will not.", {}),
        ("!COUNT 40", {"max_output_tokens": 7}),
        ('!CALL f {"n": 3}', {"tools": [FUNCTION]}),
        ('!TEXT I call.\n!CALL f {"n": 3}\n!CALL f {"n": 4}', {"tools": [FUNCTION]}),
        ('!CALL f {"n": 3}\n!CALL f {"n": 4}', {"tools": [FUNCTION], "parallel_tool_calls": False}),
        ("Hi", {"tools": [FUNCTION], "tool_choice": "required"}),
        ("Hi", {"tools": [FUNCTION, CUSTOM], "tool_choice": {"type": "function", "name": "f"}}),
        ("Hi", {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}}),
        ("Say it in json", {"text": {"format": {"type": "json_object"}}}),
        ("!INCOMPLETE Cut here", {}),
    ],
)
def test_a_response_through_two_servers_is_that_of_the_one_behind(
    chain: str, scripted_server: str, text: str, fields: dict[str, Any]
):
    expected = output(scripted_server, "scripted", text, **fields)
    assert output(chain, "openai", text, **fields) == expected
    if "format" not in str(fields) and fields.get("tool_choice") is None:
        assert output(chain, "generic", text, **fields) == expected


@pytest.mark.requirement("upstream:chain", "upstream:custom")
def test_a_custom_tool_is_called_through_two_servers(chain: str):
    found = output(chain, "openai", '!CALL c {"input": "a\\n\\"b\\""}', tools=[CUSTOM])
    assert found == ["completed", None, ["custom_tool_call", "completed", "c", 'a\n"b"', []]]


@pytest.mark.requirement("upstream:chain")
def test_the_openai_sdk_streams_calls_tools_and_parses_over_the_chain(chain: str):
    with openai.OpenAI(base_url=chain, api_key="none", max_retries=0) as client:
        with client.responses.stream(model="openai", input="!REASON Why.\n!COUNT 50") as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_response()
        assert final.output_text == " ".join(str(n) for n in range(1, 51))
        assert {"response.created", "response.reasoning_text.delta", "response.output_text.delta"} <= kinds
        assert final.usage is not None
        assert final.usage.output_tokens == 51
        assert final.usage.output_tokens_details.reasoning_tokens == 1

        first = client.responses.create(model="openai", input='!CALL f {"n": 5}', tools=[FUNCTION])  # type: ignore[list-item]
        call = first.output[0]
        assert call.type == "function_call"
        assert call.arguments == '{"n": 5}'
        result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "five"}
        second = client.responses.create(model="openai", input=[result], previous_response_id=first.id)
        assert second.output_text == "FINAL: five"

        parsed = client.responses.parse(model="openai", input="Hi", text_format=Number)
        assert isinstance(parsed.output_parsed, Number)


@pytest.mark.requirement("upstream:chain", "project:guides")
def test_the_configurations_of_the_guide_are_ones(chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    assert len(BLOCKS) >= 3
    for number, block in enumerate(BLOCKS):
        (tmp_path / f"{number}.toml").write_text(block, encoding="utf-8")
        registry = build_registry(load_settings({}, {}, tmp_path / f"{number}.toml"))
        assert registry.names()[0] in ("qwen", "gpt")
    assert output(chain, "qwen", "!TEXT It works.")[2][4] == ["It works."]
