"""Attacks by schemas, grammars, templates and numbers on a running server: each is withstood in two seconds.

The time is measured around the one request that attacks. A busy machine is given time elsewhere only: the client waits
longer than that before it gives up, and the plain requests beside and after an attack are not timed.
"""

from __future__ import annotations

import json
import re
import time
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin
from urllib.parse import quote

import httpx
import msgspec
import psutil
import pytest

from antiphon.engines.llamacpp import LlamaCppEngine
from antiphon.errors import ConfigurationError
from antiphon.protocol import chat, completions, embeddings, request
from antiphon.settings import Settings
from support import tiny_bert
from support.server import RunningServer, running_server
from support.tiny_gguf import CHATML, HERMES

SECONDS = 2.0
"""What an attack may take."""

PATIENCE = 60.0
"""Seconds after which the client gives up."""

LEAKS = re.compile(r"0x[0-9a-f]{8,}|Traceback|site-packages|\.py\b|/(?:home|usr|tmp|work|root)/", re.IGNORECASE)

PLAIN = json.dumps({"input": "Hello", "max_output_tokens": 16})


@pytest.fixture(scope="module")
def server(tiny: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    vectors = tiny_bert.build(tmp_path_factory.mktemp("bert"))
    arguments = ["--model", str(tiny(template=HERMES)), "--store", "memory", "--threads", "1"]
    arguments += ["--embedding-model", str(vectors)]
    with running_server(arguments) as started:
        # The first request pays for what is made once.
        assert post(started, PLAIN).status_code == 200
        yield started


def post(server: RunningServer, body: str) -> httpx.Response:
    headers = {"content-type": "application/json"}
    named = body.replace("{", '{"model":"tiny",', 1)
    return httpx.post(f"{server.base_url}/responses", content=named, headers=headers, timeout=PATIENCE)


def engines(server: RunningServer) -> set[int]:
    """The processes of the engines, of which there are two."""
    children = psutil.Process(server.process.pid).children()
    found = {child.pid for child in children if "antiphon.engines.llamacpp.child" in child.cmdline()}
    assert len(found) == 2
    return found


def withstood(server: RunningServer, body: str) -> httpx.Response:
    """The answer to an attack, which came in time, told nothing, and harmed nobody beside it or after it."""
    before = engines(server)
    with ThreadPoolExecutor(1) as beside:
        other = beside.submit(post, server, PLAIN)
        began = time.monotonic()
        answer = post(server, body)
        took = time.monotonic() - began
        assert other.result().status_code == 200
    assert post(server, PLAIN).status_code == 200
    assert engines(server) == before
    if answer.status_code == 200:
        assert answer.json()["status"] in ("completed", "incomplete"), answer.text[:500]
    else:
        assert 400 <= answer.status_code < 500, answer.text[:500]
        refused(answer)
    assert took < SECONDS
    return answer


def refused(answer: httpx.Response) -> None:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    assert LEAKS.search(answer.text) is None, answer.text[:500]


def nested(levels: int) -> str:
    return '{"type":"array","items":' * levels + '{"type":"null"}' + "}" * levels


def an_object(property_schema: str, more: str = "") -> str:
    closed = '"required":["a"],"additionalProperties":false'
    return f'{{"type":"object","properties":{{"a":{property_schema}}},{closed}{more}}}'


def a_pattern(pattern: str) -> str:
    return an_object(json.dumps({"type": "string", "pattern": pattern}))


def bomb(levels: int, width: int) -> str:
    """References that lead to `width` others each, level by level."""
    definitions: dict[str, Any] = {
        f"d{n}": {
            "type": "object",
            "properties": {f"p{k}": {"$ref": f"#/$defs/d{n + 1}"} for k in range(width)},
            "required": [f"p{k}" for k in range(width)],
            "additionalProperties": False,
        }
        for n in range(levels)
    }
    definitions[f"d{levels}"] = {"type": "null"}
    return an_object('{"$ref":"#/$defs/d0"}', f',"$defs":{json.dumps(definitions)}')


SCHEMAS = {
    "deep": (nested(10_000), 400),
    "depth-100": (nested(100), 400),
    "megabyte": (an_object(json.dumps({"type": "string", "description": "x" * 1_000_000})), 400),
    "circle": (an_object('{"$ref":"#/$defs/b"}', ',"$defs":{"b":{"$ref":"#/$defs/b"}}'), 400),
    "recursive": (an_object('{"anyOf":[{"$ref":"#"},{"type":"null"}]}'), None),
    "endless": (an_object('{"$ref":"#"}'), None),
    "reference-bomb": (bomb(12, 4), None),
    "many-references": (bomb(10, 10), 400),
    "huge-enum": (an_object(json.dumps({"enum": [f"value {n}" for n in range(50_000)]})), 400),
    "large-enum": (an_object(json.dumps({"enum": [f"v{n}" for n in range(4_000)]})), None),
    "pattern-plus": (a_pattern("^(a+)+$"), None),
    "pattern-nested": (a_pattern("(" * 60_000 + "a" + ")" * 60_000), 400),
    "pattern-reversed": (a_pattern("^a{5,0}$"), 400),
    "pattern-million": (a_pattern("^a{1,1000000}$"), None),
    "pattern-unclosed": (a_pattern("(a"), 400),
    "numbers-vast": (an_object(f'{{"type":"integer","minimum":-1{"0" * 400},"maximum":1{"0" * 400}}}'), None),
    "numbers-tiny": (an_object('{"type":"number","exclusiveMinimum":1e-300,"multipleOf":1e-300}'), None),
    "numbers-none": (an_object('{"type":"number","multipleOf":0}'), 400),
    "length-vast": (an_object(f'{{"type":"string","minLength":1{"0" * 30}}}'), None),
    "length-large": (an_object('{"type":"string","minLength":100000,"maxLength":1000000}'), None),
    "items-large": (an_object('{"type":"array","items":{"type":"null"},"minItems":100000}'), None),
    "type-unknown": (an_object('{"type":"nonsense"}'), 400),
    "type-number": (an_object('{"type":7}'), 400),
    "type-nested": (an_object('{"type":[["string"]]}'), 400),
}


@pytest.mark.requirement("attacks:schema")
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_hostile_schema_of_an_answer_is_withstood(server: RunningServer, name: str) -> None:
    schema, status = SCHEMAS[name]
    form = f'{{"type":"json_schema","name":"n","strict":true,"schema":{schema}}}'
    answer = withstood(server, f'{{"input":"Hello","max_output_tokens":16,"text":{{"format":{form}}}}}')
    assert status in (None, answer.status_code), answer.text[:500]


@pytest.mark.requirement("attacks:schema")
@pytest.mark.parametrize("name", SCHEMAS)
def test_hostile_parameters_of_a_tool_are_withstood(server: RunningServer, name: str) -> None:
    schema, status = SCHEMAS[name]
    tool = f'{{"type":"function","name":"f","strict":true,"parameters":{schema}}}'
    forced = '"tool_choice":{"type":"function","name":"f"}'
    answer = withstood(server, f'{{"input":"Hello","max_output_tokens":16,"tools":[{tool}],{forced}}}')
    assert status in (None, answer.status_code), answer.text[:500]


GRAMMARS = {
    "nested": ("lark", "start: " + "(" * 60_000 + '"a"' + ")" * 60_000, 400),
    "reversed": ("lark", 'start: "a"{5,0}', 400),
    "vast": ("lark", f'start: "a"{{1,1{"0" * 400}}}', None),
    "million": ("lark", 'start: "a"{1,1000000}', None),
    "repeated": ("lark", 'start: ((("a"~1..1000)~1..1000)~1..1000)', None),
    "no-start": ("lark", 'other: "a"', 400),
    "empty": ("lark", "", 400),
    "left-circle": ("lark", "start: start", 400),
    "circle": ("lark", "start: A\nA: B\nB: A", 400),
    "without-end": ("lark", 'start: "a" start', None),
    "regex-plus": ("regex", "(a+)+$", None),
    "regex-nested": ("regex", "(" * 60_000 + "a" + ")" * 60_000, 400),
    "regex-reversed": ("regex", "a{5,0}", 400),
    "regex-million": ("regex", "a{1,1000000}", None),
    "regex-repeated": ("regex", "((a{1,1000}){1,1000}){1,1000}", None),
}


@pytest.mark.requirement("attacks:grammar")
@pytest.mark.parametrize("name", GRAMMARS)
def test_a_hostile_grammar_of_a_custom_tool_is_withstood(server: RunningServer, name: str) -> None:
    syntax, definition, status = GRAMMARS[name]
    form = {"type": "grammar", "syntax": syntax, "definition": definition}
    tool = {"type": "custom", "name": "c", "format": form}
    body = {"input": "Hello", "max_output_tokens": 16, "tools": [tool], "tool_choice": {"type": "custom", "name": "c"}}
    answer = withstood(server, json.dumps(body))
    assert status in (None, answer.status_code), answer.text[:500]


TEMPLATES = {
    "globals": "{{ cycler.__init__.__globals__.os.popen('touch MADE').read() }}",
    "power": "{{ 'a'*10**9 }}",
    "format": "{{ ('{0.__init__.__globals__[os].system(touch MADE)}'|attr('format'))(cycler) }}",
}


@pytest.mark.requirement("attacks:template")
@pytest.mark.parametrize("name", TEMPLATES)
async def test_a_hostile_template_of_a_model_runs_nothing(tiny: Callable[..., Path], tmp_path: Path, name: str) -> None:
    made = tmp_path / "made"
    model = tiny(template=TEMPLATES[name].replace("MADE", str(made)) + CHATML)
    with pytest.raises(ConfigurationError, match="chat template cannot be parsed"):
        await LlamaCppEngine(model, Settings(threads=1)).start()
    assert not made.exists()


@pytest.mark.requirement("attacks:template")
@pytest.mark.parametrize(
    "field", ["input", "instructions", "chat_template", "metadata", "user", "chat_template_kwargs"]
)
def test_no_field_of_a_request_is_a_template(server: RunningServer, tmp_path: Path, field: str) -> None:
    made = tmp_path / "made"
    attack = f"{{{{ cycler.__init__.__globals__.os.popen('touch {made}').read() }}}}{{{{ 7 * 191 }}}}"
    kinds: dict[str, Any] = {"metadata": {"a": attack}, "chat_template_kwargs": {"a": attack, "chat_template": attack}}
    plain = {"input": "Hello", "max_output_tokens": 16, "temperature": 0}
    answer = withstood(server, json.dumps({**plain, field: kinds.get(field, attack)}))
    assert not made.exists()
    if answer.status_code == 200 and field not in ("input", "instructions"):
        # What the model read is what it reads without the field.
        assert answer.json()["usage"]["input_tokens"] == post(server, json.dumps(plain)).json()["usage"]["input_tokens"]


NUMBERS = {
    "low": str(-(2**63)),
    "lower": "-1" + "0" * 400,
    "high": str(2**63),
    "vast": "1" + "0" * 400,
    "longer": "1" * 5_000,
    "large": "1e308",
    "larger": "1e400",
    "nan": "NaN",
    "infinite": "Infinity",
    "infinitely-low": "-Infinity",
    "text": '"1"',
    "list": "[1]",
    "object": '{"1":1}',
    "truth": "true",
}
FRACTIONS = {"fraction": "1.5", "small": "1e-308", "rounded": "1.0000000000000001e0"}
# What a body is read into is no part of the interface, but no field of it may be left out here.
READ: list[type[msgspec.Struct]] = [module._Body for module in (request, chat, completions, embeddings)]
BODIES: dict[str, tuple[type[msgspec.Struct], dict[str, Any]]] = {
    "/responses": (READ[0], {"model": "tiny", "input": "Hello", "max_output_tokens": 16}),
    "/chat/completions": (
        READ[1],
        {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16},
    ),
    "/completions": (READ[2], {"model": "tiny", "prompt": "Hello", "max_tokens": 4}),
    "/embeddings": (READ[3], {"model": "bert", "input": "Hello"}),
}


@pytest.mark.requirement("attacks:template")
@pytest.mark.parametrize("field", ["messages", "chat_template", "chat_template_kwargs", "user", "prompt"])
def test_no_field_of_a_chat_is_a_template(server: RunningServer, tmp_path: Path, field: str) -> None:
    made = tmp_path / "made"
    attack = f"{{{{ cycler.__init__.__globals__.os.popen('touch {made}').read() }}}}{{{{ 7 * 191 }}}}"
    given: dict[str, Any] = {
        "messages": [{"role": "user", "content": attack}],
        "chat_template_kwargs": {"a": attack, "chat_template": attack},
    }
    route, plain = "/chat/completions", {**BODIES["/chat/completions"][1], "temperature": 0}
    if field == "prompt":
        route, plain = "/completions", {**BODIES["/completions"][1], "temperature": 0}
    with client(server) as asking:
        usual = asking.post(route, json=plain).json()
        answer = asking.post(route, json={**plain, field: given.get(field, attack)})
    assert not made.exists()
    assert answer.status_code == 200, answer.text[:500]
    if field not in ("messages", "prompt"):
        assert answer.json()["usage"]["prompt_tokens"] == usual["usage"]["prompt_tokens"]


def kinds(annotation: Any) -> set[type]:
    """The types of numbers that a field may have by itself."""
    if annotation in (int, float):
        return {annotation}
    if get_origin(annotation) in (Annotated, Union, types.UnionType):
        return set[type]().union(*(kinds(part) for part in get_args(annotation)))
    return set()


def numeric_fields(body: type[msgspec.Struct]) -> dict[str, set[type]]:
    found = {field.name: kinds(field.type) for field in msgspec.structs.fields(body)}
    return {name: types for name, types in found.items() if types}


@pytest.mark.requirement("attacks:number")
@pytest.mark.parametrize("route", BODIES)
def test_numbers_far_out_of_range_are_withstood(server: RunningServer, route: str) -> None:
    body, plain = BODIES[route]
    fields = numeric_fields(body)
    assert len(fields) == (1 if route == "/embeddings" else 31 if route == "/responses" else 32)
    attacks = [
        (field, name, number, {**plain, field: "NUMBER"})
        for field, numbers in fields.items()
        for name, number in (NUMBERS if float in numbers else NUMBERS | FRACTIONS).items()
    ]
    all_refused(server, route, attacks)


@pytest.mark.requirement("attacks:number")
def test_numbers_deep_in_a_body_are_withstood(server: RunningServer) -> None:
    numbers = NUMBERS | FRACTIONS
    response, text, vectors = (BODIES[route][1] for route in ("/responses", "/completions", "/embeddings"))
    management = [{"type": "compaction", "compact_threshold": "NUMBER"}]
    places: list[tuple[str, str, dict[str, str], dict[str, Any]]] = [
        ("/responses", "context_management", numbers, {**response, "context_management": management}),
        ("/responses", "logit_bias", NUMBERS, {**response, "logit_bias": {"5": "NUMBER"}}),
        # A text among the prompts is a prompt, and a list of tokens is one too.
        ("/completions", "prompt", without(numbers, "text", "list"), {**text, "prompt": ["NUMBER"]}),
        ("/completions", "prompt", numbers, {**text, "prompt": [["NUMBER"]]}),
        ("/embeddings", "input", without(numbers, "text", "list"), {**vectors, "input": ["NUMBER"]}),
        ("/embeddings", "input", numbers, {**vectors, "input": [["NUMBER"]]}),
        ("/detokenize", "tokens", numbers, {"model": "tiny", "tokens": ["NUMBER"]}),
    ]
    for route, field, table, body in places:
        all_refused(server, route, [(field, name, number, body) for name, number in table.items()])


@pytest.mark.requirement("attacks:number", "sampling:bias:unknown")
def test_a_bias_of_what_is_no_token_is_refused(server: RunningServer) -> None:
    for route in ("/responses", "/chat/completions", "/completions"):
        plain = BODIES[route][1]
        keys = ["-1", str(2**31), "1" * 400, "1.0", "NaN", "a", "", str(2**31 - 1), "1000000"]
        all_refused(server, route, [("logit_bias", key, "1", {**plain, "logit_bias": {key: "NUMBER"}}) for key in keys])
        with client(server) as asking:
            assert asking.post(route, json={**plain, "logit_bias": {"5": 1, "639": -1}}).status_code == 200


@pytest.mark.requirement("attacks:number")
def test_numbers_in_a_query_are_withstood(server: RunningServer) -> None:
    with client(server) as asking:
        kept = asking.post("/responses", json=BODIES["/responses"][1]).json()["id"]
        for name, number in NUMBERS.items():
            for query in (f"/{kept}/input_items?limit=", f"/{kept}?stream=true&starting_after="):
                answer = asking.get(f"/responses{query}{quote(number)}")
                assert answer.status_code == 400, (name, query, answer.text[:500])
                refused(answer)


def without(numbers: dict[str, str], *names: str) -> dict[str, str]:
    return {name: number for name, number in numbers.items() if name not in names}


def client(server: RunningServer) -> httpx.Client:
    headers = {"content-type": "application/json"}
    return httpx.Client(base_url=server.base_url, headers=headers, timeout=PATIENCE)


def all_refused(server: RunningServer, route: str, attacks: list[tuple[str, str, str, dict[str, Any]]]) -> None:
    """Each attack, by the field that it is in and its name, is a 400 about that field, and no harm is done."""
    before = engines(server)
    # The two that are no part of the API have no prefix.
    path = f"{server.base_url.removesuffix('/v1')}{route}" if route == "/detokenize" else route
    with client(server) as asking:
        for field, name, number, body in attacks:
            began = time.monotonic()
            answer = asking.post(path, content=json.dumps(body).replace('"NUMBER"', number))
            took = time.monotonic() - began
            assert answer.status_code == 400, (route, field, name, answer.text[:500])
            refused(answer)
            error = answer.json()["error"]
            if error["code"] != "invalid_json":
                assert error["param"].partition("[")[0].partition(".")[0] == field, (route, field, name, error)
            assert took < SECONDS
    assert post(server, PLAIN).status_code == 200
    assert engines(server) == before
