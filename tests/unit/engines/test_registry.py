"""Tables of models: what they make, and what is refused at the start."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli.options import read_settings
from antiphon.engines.build import upstream_tables
from antiphon.engines.gate import DEFAULT_QUEUE, Gate
from antiphon.engines.registry import Registry, build_registry
from antiphon.engines.replicas.engine import ReplicatedEngine
from antiphon.engines.terms import NO_TERMS, Terms, terms_of
from antiphon.errors import ConfigurationError, ServerBusyError
from antiphon.protocol.defaults import decode_defaults, with_defaults
from antiphon.protocol.request import decode_create_response
from antiphon.settings import load_settings

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "models.md"
FAR = 'name = "far"\nbase_url = "http://127.0.0.1:9/v1"\n'
NEAR = 'path = "scripted"\n'
TWO = 'name = "far"\nreplicas = ["http://127.0.0.1:9/v1", "http://127.0.0.1:8/v1"]\n'


def built(tmp_path: Path, table: str, head: str = "") -> Registry:
    """The registry of a file with that table."""
    file = tmp_path / "antiphon.toml"
    file.write_text(f"{head}[[models]]\n{table}", encoding="utf-8")
    return build_registry(load_settings({}, {}, file))


@pytest.mark.requirement("registry:tables")
@pytest.mark.parametrize(
    ("table", "words"),
    [
        (NEAR + "defaults = { temprature = 1 }", "'temprature' is no field that can be set so"),
        (NEAR + 'defaults = { model = "x" }', "'model' is no field"),
        (NEAR + "defaults = { stream = true }", "'stream' is no field"),
        (NEAR + "defaults = { temperature = 3 }", "'defaults': Invalid value for 'temperature'"),
        (NEAR + 'defaults = { temperature = "warm" }', "'defaults': .*temperature"),
        (NEAR + 'defaults = { truncation = "some" }', "'auto' and 'disabled'"),
        (NEAR + "defaults = { reasoning = { effrt = 1 } }", "'reasoning.effrt' is no field"),
        (NEAR + "defaults = { reasoning = 1 }", "'defaults': .*reasoning"),
        (NEAR + 'defaults = { text = { verbosity = "loud" } }', "'low', 'medium', and 'high'"),
        (NEAR + "defaults = { instructions = [] }", "'instructions' must be a text"),
        (
            NEAR + "defaults = { max_output_tokens = 9 }\nlimits = { max_output_tokens = 5 }",
            "from 1 to 5 here, but is 9",
        ),
        (NEAR + "limits = { max_output_tokens = 0 }", "limits"),
        (NEAR + "limits = { tokens = 1 }", "unknown field `tokens`"),
        (NEAR + "limits = { max_queue = 1 }", "of no use without 'max_concurrent'"),
        ('path = "e.gguf"\nembedding = true\nlimits = { max_concurrent = 1 }', "makes vectors"),
        ('path = "e.gguf"\nembedding = true\nchat_template_file = "x"', "no use for 'chat_template_file'"),
        ('path = "e.gguf"\nembedding = true\nmmproj = "x"', "no use for 'mmproj'"),
        (NEAR + 'tool_dialect = "hermes"', "is scripted, and has no use for 'tool_dialect'"),
        (NEAR + 'api_key_env = "X"', "'api_key_env' belongs to models that run elsewhere"),
        (NEAR + 'replicas = ["http://h/v1"]', "a model that runs elsewhere, as its URL says, has no 'path'"),
        (NEAR + "ray = { num_cpus = 2 }", "'ray' belongs to the engine 'ray'"),
        (NEAR + 'engine = "vllm"', "one of 'llamacpp', 'scripted', 'chat', 'responses', 'ray', not 'vllm'"),
        (FAR + 'replicas = ["http://h/v1"]', "in the place of 'base_url'"),
        (FAR + "limits = { context_length = 5 }\ncontext_length = 6", "differ"),
        ('engine = "chat"\nname = "far"\nreplicas = 2', "a list of URLs or tables"),
        ('name = "far"\nreplicas = ["http://h/v1", "http://h/v1/"]', "two of its replicas are the same"),
        ('name = "far"\nreplicas = [{ url = "http://h/v1" }]', "replicas"),
        ('name = "far"\nreplicas = ["ftp://h"]', "must be a URL"),
        ('name = "far"\nreplicas = [{ base_url = "http://h/v1", api_key_env = "NO_SUCH_KEY" }]', "holds no key"),
    ],
)
def test_a_table_that_cannot_be_used_says_what_is_wrong(tmp_path: Path, table: str, words: str):
    with pytest.raises(ConfigurationError, match=words):
        built(tmp_path, table)


@pytest.mark.requirement("registry:replicas")
def test_replicas_are_one_model_on_several_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OF_ALL", "a")
    monkeypatch.setenv("OF_ONE", "b")
    file = tmp_path / "key"
    file.write_text("c")
    table = (
        'name = "far"\napi_key_env = "OF_ALL"\nidle_timeout = 7\nlimits = { context_length = 99 }\nreplicas = [\n'
        '"http://one/v1", { base_url = "http://two/v1", api_key_env = "OF_ONE", upstream_model = "m" },\n'
        f'{{ base_url = "http://three/v1", api_key_file = "{file}", idle_timeout = 3 }}]\n'
    )
    registry = built(tmp_path, table)
    (engine,) = registry.engines
    assert isinstance(engine, ReplicatedEngine)
    assert (registry.names(), len(engine.engines)) == (["far"], 3)
    assert engine.capabilities.context_length == 99
    (config,) = load_settings({}, {}, tmp_path / "antiphon.toml").models
    one, two, three = upstream_tables(config)
    assert [each.base_url for each in (one, two, three)] == ["http://one/v1", "http://two/v1", "http://three/v1"]
    assert [each.api_key_env for each in (one, two, three)] == ["OF_ALL", "OF_ONE", None]
    assert [each.idle_timeout for each in (one, two, three)] == [7, 7, 3]
    assert (two.upstream_model, three.api_key_file) == ("m", str(file))
    (single,) = built(tmp_path, 'name = "far"\nreplicas = ["http://one/v1"]\n').engines
    assert not isinstance(single, ReplicatedEngine)


@pytest.mark.requirement("registry:replicas")
def test_replicas_may_be_responses_endpoints(tmp_path: Path):
    (engine,) = built(tmp_path, f'engine = "responses"\n{TWO}').engines
    assert isinstance(engine, ReplicatedEngine)
    assert {type(each).__name__ for each in engine.engines} == {"ResponsesEngine"}


@pytest.mark.requirement("registry:tables", "project:guides")
def test_the_tables_of_the_guide_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AZURE_KEY", "a")
    monkeypatch.setenv("SECOND_KEY", "b")
    (text,) = re.findall(r"^```toml\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    file = tmp_path / "antiphon.toml"
    file.write_text(text, encoding="utf-8")
    registry = build_registry(load_settings({}, {}, file))
    assert registry.names() == ["small", "large", "azure", "gpt-4o-mini", "gpt-5"]
    assert registry.resolve(None)[1].terms.max_output_tokens == 8000
    assert isinstance(registry.resolve("gpt-5")[1], ReplicatedEngine)


@pytest.mark.requirement("registry:file")
def test_the_file_of_the_working_directory_is_read_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert read_settings({}).port == 8080
    (tmp_path / "antiphon.toml").write_text("port = 1\n")
    (tmp_path / "other.toml").write_text("slots = 3\n")
    assert read_settings({}).port == 1
    assert read_settings({"port": 2}).port == 2
    named = read_settings({"config": tmp_path / "other.toml"})
    assert (named.port, named.slots) == (8080, 3)


@pytest.mark.requirement("registry:defaults")
def test_samplers_and_parts_are_filled_one_by_one():
    defaults = decode_defaults(
        {"top_k": 5, "dry_base": 2.0, "typical_p": 0.5, "repetition_penalty": 1.5, "reasoning": {"effort": "low"}}
    )
    own = b'{"typical_p": 0.9, "reasoning": {"summary": "auto", "effort": null}, "top_k": 0}'
    request = with_defaults(decode_create_response(own), defaults)
    assert request.samplers.named() == {"dry_base": 2.0, "typical_p": 0.9}
    assert (request.top_k, request.repeat_penalty) == (0, 1.5)
    assert (request.reasoning.effort, request.reasoning.summary) == ("low", "auto")
    plain = decode_create_response(b"{}")
    assert NO_TERMS.applied(plain) is plain
    stops = decode_defaults({"stop": ["END"]})
    said = {b"{}": ["END"], b'{"stop": null}': ["END"], b'{"stop": []}': [], b'{"stop": "X"}': ["X"]}
    assert {body: with_defaults(decode_create_response(body), stops).stop for body in said} == said


@pytest.mark.requirement("registry:defaults:kept")
def test_terms_are_kept_with_what_they_come_to():
    terms = Terms(decode_defaults({"temperature": 0.5}), 9)
    for kept in (terms, terms_of(terms.kept())):
        request = kept.applied(decode_create_response(b"{}"))
        assert (request.temperature, request.max_output_tokens) == (0.5, 9)
    assert terms_of(NO_TERMS.kept()) is NO_TERMS
    chosen = Terms(decode_defaults({"max_output_tokens": 4}), 9)
    assert terms_of(chosen.kept()).applied(decode_create_response(b"{}")).max_output_tokens == 4


@pytest.mark.requirement("registry:limits:concurrent")
async def test_slots_go_to_who_waited_longest_and_not_to_who_left():
    gate = Gate()
    gate.limit(1)
    order: list[int] = []

    async def turn(number: int) -> None:
        async with gate.slot():
            order.append(number)
            await asyncio.sleep(0)

    await gate.acquire()
    tasks = [asyncio.create_task(turn(number)) for number in range(4)]
    await asyncio.sleep(0)
    assert (gate.running, gate.waiting) == (1, 4)
    tasks[1].cancel()
    gate.release()
    # Its slot is given, and it is cancelled before it knows.
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (order, gate.running, gate.waiting) == ([2, 3], 0, 0)
    await gate.acquire()
    waiting = [asyncio.create_task(turn(number)) for number in (5, 6)]
    await asyncio.sleep(0)
    gate.limit(None)
    await asyncio.gather(*waiting)
    assert (order, gate.running) == ([2, 3, 5, 6], 1)


@pytest.mark.requirement("registry:limits:concurrent")
async def test_places_are_bounded_and_those_in_the_background_are_not():
    gate = Gate()
    gate.limit(2)
    gate.enter(2 + DEFAULT_QUEUE)
    with pytest.raises(ServerBusyError) as caught:
        gate.enter()
    assert caught.value.retry_after == 1.0
    with gate.place(bounded=False):
        idle = asyncio.create_task(gate.idle())
        await asyncio.sleep(0)
        gate.leave(2 + DEFAULT_QUEUE)
        await asyncio.sleep(0)
        assert not idle.done()
    await idle
    gate.enter()
    gate.leave()


@pytest.mark.requirement("registry:tables")
def test_defaults_of_every_kind_are_taken(tmp_path: Path):
    fields: dict[str, Any] = {
        "seed": 1,
        "stop": "x",
        "logit_bias": {"5": 1.0},
        "thinking_budget": 3,
        "max_tool_calls": 2,
    }
    request = decode_defaults(fields).request
    filled = with_defaults(decode_create_response(b"{}"), decode_defaults(fields))
    for name in ("seed", "stop", "samplers", "thinking_budget", "max_tool_calls"):
        assert getattr(filled, name) == getattr(request, name) != getattr(decode_create_response(b"{}"), name)
    assert built(tmp_path, NEAR + 'defaults = { seed = 1, service_tier = "flex" }\n').names() == ["scripted"]
