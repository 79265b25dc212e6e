"""The process that checks schemas, grammars and outputs: what it finds, and that it may die of what it checks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import psutil
import pytest

from antiphon.child_process import ChildProcess
from antiphon.engines.checks.checker import TOO_MUCH, Checker

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "born": {"type": "string", "format": "date"}},
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.fixture
async def checker() -> AsyncIterator[Checker]:
    made = Checker()
    yield made
    await made.close()


@pytest.mark.requirement("constrain:check:schema")
@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        (PERSON, ""),
        ({}, ""),
        ({"type": "string", "format": "int64"}, ""),
        ({"type": "string", "pattern": "^(?=.*[A-Z]).+$"}, ""),
        ({"minimum": 1, "exclusiveMinimum": True}, ""),
        ({"items": [{"type": "string"}], "additionalItems": False}, ""),
        ({"$schema": "https://example.com/mine", "type": "string"}, ""),
        ({"type": "strange"}, "(at type)"),
        ({"properties": {"a": {"pattern": "[a"}}}, "(at properties/a/pattern)"),
        ({"minLength": "x"}, 'is not of type "integer"'),
        ({"$ref": "#/$defs/nowhere"}, "does not exist"),
        ({"$ref": "https://example.com/elsewhere.json"}, "Retrieval is disabled"),
    ],
)
async def test_a_schema_is_one_of_any_draft_or_a_fault(checker: Checker, schema: dict[str, Any], fault: str) -> None:
    found = await checker.schema(schema)
    assert (fault in found) if fault else found == ""


@pytest.mark.requirement("constrain:check:output")
@pytest.mark.parametrize(
    ("schema", "text", "fits"),
    [
        (PERSON, '{"name": "Ada", "born": "1815-12-10"}', True),
        (PERSON, '{"name": "Ada", "born": "1815-02-30"}', False),
        (PERSON, '{"born": "1815-12-10"}', False),
        (PERSON, '{"name": "Ada"', False),
        (PERSON, "", False),
        ({"type": "number"}, "1e999", True),
        ({"type": "number"}, "NaN", False),
        ({"type": "number", "minimum": 0}, "-1e999999999", False),
        ({"type": "number", "maximum": 1}, "1e-999999999", True),
        ({"type": "number"}, "9.9e096533882092096383089", True),
        ({"type": "number", "maximum": 1}, "0.0e-400", True),
        ({"type": "integer", "minimum": 0}, "1" * 10_000, True),
        ({"type": "array", "uniqueItems": True}, "[1, 2, 1]", False),
        ({"type": "string", "pattern": "^(?=.*[A-Z]).+$"}, '"aBc"', True),
        ({"type": "string", "pattern": "^(?=.*[A-Z]).+$"}, '"abc"', False),
        ({"type": "string", "pattern": "^(?=(a+)+$)x"}, '"' + "a" * 50_000 + 'b"', False),
        ({"properties": {"n": {"$ref": "#"}}}, '{"n":' * 100_000 + "{}" + "}" * 100_000, False),
    ],
)
async def test_an_output_is_checked_against_the_whole_schema(
    checker: Checker, schema: dict[str, Any], text: str, fits: bool
) -> None:
    assert (await checker.instance(schema, text) == "") is fits
    assert await checker.schema({"type": "object"}) == ""
    assert checker.starts == 1


@pytest.mark.requirement("constrain:check:grammar")
async def test_a_grammar_is_read_and_a_text_is_matched_with_it(checker: Checker) -> None:
    assert await checker.grammar('start: "a" b\nb: /[0-9]+/') == ""
    assert "unknown name" in await checker.grammar("start: nowhere")
    assert await checker.grammar("start: start") == "it allows no text"
    assert await checker.match('start: "a" /[0-9]+/', "a12") == ""
    for text in ("a", "a12b", "b", ""):
        assert await checker.match('start: "a" /[0-9]+/', text)
    assert await checker.match("start: /(?s:.*)/", "Grüße, \N{SLIGHTLY SMILING FACE}\n") == ""


DEEP: dict[str, Any] = {}
for _ in range(400):
    DEEP = {"properties": {"a": DEEP}}

BAD: tuple[str, ...] = (
    "hello",
    'start "a"',
    'start:: "a"',
    'start: "a',
    "start: /a",
    'start: ("a"',
    'start: "a")',
    'start: ["a"',
    'start: "a"{1',
    'start: "a"{}',
    'start: "a"{-1}',
    'start: "a"{-5,-1}',
    'start: "a"{5,0}',
    'start: "a"~5..2',
    'start: "a"{1.5}',
    'start: "a"{a,b}',
    f'start: "a"{{{2**64}}}',
    f'start: "a"{{{10**400}}}',
    f'start: "a"{{0,{2**63}}}',
    'start: "a"**',
    'start: "a" }',
    "start: foo",
    "start: FOO",
    "start: A\nA: A",
    'start: A\nA: b\nb: "b"',
    "start: a\na: b\nb: a",
    'START: "a"',
    'start: "a"\nstart: "b"',
    'start: A\nA: "a"\nA: "b"',
    "start: /(/",
    "start: /[/",
    "start: /[z-a]/",
    "start: /a{5,0}/",
    "start: /*/",
    r"start: /(a)\1/",
    "start: /a(?=b)/",
    "start: /(?<=a)b/",
    r"start: /\q/",
    r"start: /\u{ffffffff}/",
    "start: /a/z",
    "start: /(?P<a/",
    "start: /(a)?(?(1)b|c)/",
    r"start: /[^\s\S]/",
    "start: /a/ & /b/",
    "%import python.x\nstart: x",
    "%import .secret (x)\nstart: x",
    "%import /etc/passwd\nstart: x",
    '%override start: "a"',
    "%declare X\nstart: X",
    '%system ls\nstart: "a"',
    'start: %json {"type": ',
    "start: %json nonsense",
    'start: %json {"type":"nonsense"}',
    'start: %json {"not": {}}',
    'start: %json {"$ref":"http://127.0.0.1:1/x"}',
    'start: %json {"$ref":"file:///etc/passwd"}',
    'start: %json {"enum":[]}',
    'start: %json {"type":"string","pattern":"("}',
    'start: %json {"type":"integer","minimum":5,"maximum":1}',
    'start: %regex {"bad": 1}',
    "start: t{A}",
    "start: <nope>",
    "start: <[99999999999]>",
    "start: <[5-1]>",
    'start: "\0" \0',
    'start[max_tokens=-1]: "a"',
    f"start[max_tokens={2**70}]: /a*/",
    'start[temperature=NaN]: "a"',
    'start[foo=1]: "a"',
    '%llguidance {"no_forcing": 7}\nstart: "a"',
    '%llguidance {\nstart: "a"',
    "start: @x",
)


@pytest.mark.requirement("constrain:attack:grammar")
async def test_every_bad_grammar_is_a_fault_and_the_process_lives(checker: Checker) -> None:
    assert [grammar for grammar in BAD if not await checker.grammar(grammar)] == []
    assert checker.starts == 1
    assert await checker.grammar('start: "a"') == ""


ATTACKS: dict[str, str] = {
    "nested": "start: " + "(" * 60_000 + '"a"' + ")" * 60_000,
    "backwards": 'start: "a"{5,0}',
    "many": "start: " + " | ".join(f'"{n}"' for n in range(50_000)),
    "long": 'start: "' + "a" * 1_000_000,
    "symbols": "start: " + '"a" ' * 250_000,
    "circle": "start: A\nA: B\nB: A",
    "no-root": 'foo: "a"',
    "empty": "",
    "left": "start: start",
    "nothing": "\0\ud7ff",
    "product": 'start: %json {"allOf": ['
    + ",".join(
        f'{{"anyOf": [{{"type":"object","required": ["a{n}"]}}, {{"type":"object","required": ["b{n}"]}}]}}'
        for n in range(24)
    )
    + "]}",
}


@pytest.mark.requirement("constrain:attack:grammar")
@pytest.mark.parametrize("name", ATTACKS)
async def test_a_hostile_grammar_is_a_fault_within_its_time_and_the_loop_goes_on(checker: Checker, name: str) -> None:
    assert await checker.grammar('start: "a"') == ""
    process = psutil.Process(checker.pid)
    before = sum(process.cpu_times()[:2])
    task = asyncio.create_task(checker.grammar(ATTACKS[name]))
    longest, last = 0.0, time.monotonic()
    while not task.done():
        await asyncio.sleep(0)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    assert task.result()
    if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        assert sum(process.cpu_times()[:2]) - before < 1
    assert longest < 1
    assert await checker.grammar('start: "b"') == ""


@pytest.mark.requirement("constrain:attack:schema")
@pytest.mark.parametrize(
    "schema",
    [
        DEEP,
        {"pattern": "^a{1,1000000}$"},
        {"pattern": "(" * 5_000 + "a" + ")" * 5_000},
        {"pattern": "^((a{1,1000}){1,1000}){1,1000}$"},
    ],
    ids=("deep", "repeat", "nested", "repeated"),
)
async def test_a_hostile_schema_ends_nothing_but_itself(checker: Checker, schema: dict[str, Any]) -> None:
    await checker.schema(schema)
    assert await checker.schema({"type": "object"}) == ""


@pytest.mark.requirement("constrain:check:process")
async def test_who_waits_beside_a_job_that_kills_is_answered(checker: Checker) -> None:
    jobs = [checker.grammar(ATTACKS["many"]), checker.schema(PERSON), checker.grammar('start: "c"')]
    assert await asyncio.gather(*jobs) == [TOO_MUCH, "", ""]
    assert checker.starts == 2
    assert await checker.grammar(ATTACKS["many"]) == TOO_MUCH
    assert checker.starts == 2


@pytest.mark.requirement("constrain:check:process")
async def test_a_question_that_is_given_up_leaves_no_answer_for_the_next(checker: Checker) -> None:
    assert await checker.schema(PERSON) == ""
    task = asyncio.create_task(checker.grammar(ATTACKS["many"]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await checker.schema({"type": "strange"})
    assert await checker.schema({"type": "string"}) == ""


@pytest.mark.requirement("constrain:check:process")
async def test_a_question_that_is_given_up_while_the_process_starts_leaves_no_answer_for_the_next(
    checker: Checker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ask = asyncio.Event(), ChildProcess.ask_line

    async def told(process: ChildProcess, job: bytes) -> bytes:
        asked.set()
        return await ask(process, job)

    monkeypatch.setattr(ChildProcess, "ask_line", told)
    task = asyncio.create_task(checker.schema(PERSON))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await checker.schema({"type": "strange"})
    assert await checker.schema({"type": "string"}) == ""


@pytest.mark.requirement("constrain:check:process")
async def test_what_is_remembered_is_bounded_and_the_process_ends_with_its_owner(checker: Checker) -> None:
    for number in range(600):
        assert await checker.schema({"const": number}) == ""
    assert len(checker._known) <= 512
    process = psutil.Process(checker.pid)
    await checker.close()
    assert not process.is_running()
