"""Rules of the local model that are of the server as a whole: resumed streams, the list of models, metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon.engines.registry import build_registry
from antiphon.errors import ConfigurationError
from antiphon.prompt.prompt import ChatMessage, Prompt
from antiphon.protocol.tools import FunctionTool
from antiphon.runtime.keys import new_key
from antiphon.runtime.limits import KeyRules
from antiphon.settings import ModelConfig, Settings
from support import tiny_gguf
from support.inprocess import InProcess, inprocess_app, sse_events

requirement = pytest.mark.requirement


@requirement("subset:M42")
async def test_a_stream_is_resumed_behind_any_of_its_events(api: InProcess) -> None:
    live = await api.client.post("/responses", json={"model": "scripted", "input": "!COUNT 9", "stream": True})
    events = sse_events(live.content)
    where = f"/responses/{events[0]['response']['id']}?stream=true"
    for place in range(len(events)):
        resumed = await api.client.get(f"{where}&starting_after={place}")
        assert live.content.endswith(resumed.content)
        assert sse_events(resumed.content) == events[place + 1 :]
    # The names of the source are none here.
    for method, path in (("GET", "/stream?conv_id=a"), ("DELETE", "/stream"), ("POST", "/streams/lookup")):
        assert (await api.client.request(method, path)).status_code == 404


@requirement("subset:M46")
async def test_each_model_that_is_served_is_listed_with_its_aliases() -> None:
    async with inprocess_app(settings=Settings(model=("scripted",), alias=("gpt-5=scripted",))) as api:
        listed = (await api.client.get("/models")).json()
        assert listed["object"] == "list"
        assert [entry["id"] for entry in listed["data"]] == ["scripted", "gpt-5"]
        for entry in listed["data"]:
            assert entry["object"] == "model"
            assert entry["owned_by"] == "antiphon"
            assert isinstance(entry["created"], int)
            assert (await api.client.get(f"/models/{entry['id']}")).json() == entry


@requirement("subset:M47")
async def test_metrics_count_requests_tokens_and_times_by_names_of_ours(api: InProcess) -> None:
    await api.create("!COUNT 3")
    exposed = (await api.client.get("http://127.0.0.1/metrics")).text
    for name in (
        "antiphon:request_success_total",
        "antiphon:prompt_tokens_total",
        "antiphon:prompt_tokens_cached_total",
        "antiphon:generation_tokens_total",
        "antiphon:time_to_first_token_seconds_bucket",
        "antiphon:num_requests_running",
    ):
        assert f"\n{name}{{" in exposed, name
    assert "mlxcel_" not in exposed


NOTHING = {"hits": 0, "misses": 0, "prompt_tokens": 0, "prefix_tokens_reused": 0}


async def cache(api: InProcess, method: str, what: str) -> dict[str, Any]:
    answer = await api.client.request(method, f"/cache/{what}")
    assert answer.status_code == 200, answer.text
    return answer.json()


@requirement("subset:M48")
async def test_a_model_without_a_cache_says_so_in_the_same_fields(api: InProcess) -> None:
    await api.create("!COUNT 3")
    stats = await cache(api, "GET", "stats")
    (model,) = stats.pop("models")
    assert model.pop("id") == "scripted"
    assert model == {name: value for name, value in stats.items() if name != "object"}
    assert set(model) == {"enabled", *NOTHING}
    assert (model["enabled"], model["hits"], model["misses"], model["prefix_tokens_reused"]) == (False, 0, 1, 0)
    emptied = {"object": "cache.reset", "enabled": False, "models": [{"id": "scripted", "reset": False}]}
    assert await cache(api, "POST", "reset") == emptied
    assert NOTHING.items() <= (await cache(api, "GET", "stats")).items()


@requirement("subset:M48")
async def test_a_local_model_counts_what_it_had_read_and_forgets_it(tmp_path: Path) -> None:
    model = tiny_gguf.build(tmp_path, template=tiny_gguf.CHATML)
    async with inprocess_app(settings=Settings(model=(str(model),), threads=1)) as api:
        asked = {"model": model.stem, "input": "The same words again, for whoever counts them.", "max_output_tokens": 2}

        async def cached() -> int:
            usage = (await api.client.post("/responses", json=asked)).json()["usage"]
            return usage["input_tokens_details"]["cached_tokens"]

        assert await cached() == 0
        again = await cached()
        assert again > 10
        stats = await cache(api, "GET", "stats")
        assert (stats["enabled"], stats["hits"], stats["misses"]) == (True, 1, 1)
        assert stats["prefix_tokens_reused"] == again
        emptied = await cache(api, "POST", "reset")
        assert emptied["models"] == [{"id": model.stem, "reset": True}]
        assert NOTHING.items() <= (await cache(api, "GET", "stats")).items()
        assert await cached() == 0
        assert await cached() == again


@requirement("subset:M48")
async def test_a_tenant_cannot_empty_what_is_everybodys(api: InProcess) -> None:
    secret, key = new_key("acme", "acme", KeyRules(), 1000)
    assert api.service.store is not None
    await api.service.store.add_key(key)
    headers = {"Authorization": f"Bearer {secret}"}
    answer = await api.client.post("/cache/reset", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "operator_only")
    assert (await api.client.get("/cache/stats", headers=headers)).status_code == 200


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


PAST: list[dict[str, Any]] = [
    {"role": "user", "content": "One."},
    thought("an older thought"),
    {"role": "assistant", "content": "<think>an inline thought</think>Two."},
]


@requirement("reasoning:context", "engine:template:preserve-thinking")
@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({}, True),
        ({"reasoning": {"context": "auto"}}, True),
        ({"reasoning": {"context": "all_turns"}}, True),
        ({"reasoning": {"context": "current_turn"}}, False),
        ({"chat_template_kwargs": {"preserve_thinking": False}}, False),
        ({"reasoning": {"context": "all_turns"}, "chat_template_kwargs": {"preserve_thinking": False}}, False),
        ({"reasoning": {"context": "current_turn"}, "chat_template_kwargs": {"preserve_thinking": True}}, True),
    ],
)
async def test_past_thinking_is_told_unless_the_request_says_otherwise(
    api: InProcess, fields: dict[str, Any], kept: bool
) -> None:
    prompt = await api.echo(PAST, **fields)
    assert ("an older thought" in prompt, "an inline thought" in prompt) == (kept, kept)
    assert "Two." in prompt
    first = await api.create("!REASON a thought of a chain\n!TEXT Two.")
    assert ("<think>a thought of a chain" in await api.echo(previous_response_id=first["id"], **fields)) is kept


@requirement("reasoning:context")
async def test_thinking_of_a_tool_loop_is_of_the_current_turn(api: InProcess) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    outcome = {"type": "function_call_output", "call_id": "c", "output": "O"}
    asked = [*PAST, {"role": "user", "content": "!ECHO\n!THEN\n!ECHO"}, thought("a thought of now"), call, outcome]
    prompt = (await api.create(asked, reasoning={"context": "current_turn"}))["output_text"]
    assert "a thought of now" in prompt
    assert "an older thought" not in prompt


@requirement("settings:tool-dialect")
async def test_a_setting_names_the_form_of_a_models_calls(tmp_path: Path) -> None:
    path = str(tiny_gguf.build(tmp_path, template=tiny_gguf.HERMES))
    for settings in (
        Settings(model=(path,), tool_dialect="generic", threads=1),
        Settings(models=(ModelConfig(path=path, tool_dialect="generic"),), threads=1),
    ):
        async with inprocess_app(settings=settings) as api:
            (engine,) = api.service.registry.engines
            turn = await engine.prepare(Prompt([ChatMessage("user", "Hi.")], tools=[FunctionTool(name="f")]))
            assert "You can call these tools" in turn.rendered
    with pytest.raises(ConfigurationError, match=r"no tool-call dialect 'klingon'.* hermes"):
        build_registry(Settings(model=(path,), tool_dialect="klingon"))
    with pytest.raises(ConfigurationError, match="--tool-dialect"):
        build_registry(Settings(model=("scripted", path), tool_dialect="hermes"))
