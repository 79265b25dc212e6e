"""The loop of hosted tools, on the scripted model: rules of the Mixedbread endpoint and of OpenAI's (hosted-search)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from antiphon.errors import ContextOverflowError
from antiphon.machine.fold import Fold
from antiphon.prompt.looping import ANSWER_NOW, HOSTED_INSTRUCTIONS
from antiphon.protocol.events import decode_event
from antiphon.protocol.json import encode, loads
from antiphon.protocol.request import decode_create_response
from antiphon.protocol.sse import SSEParser
from antiphon.store.base import Scope
from support.fake_tools import Corpus, Servers
from support.inprocess import InProcess, inprocess_app, sse_events

requirement = pytest.mark.requirement

SEARCH = {"type": "search_corpus"}
GREP = {"type": "grep"}
FILES = {"type": "file_search", "vector_store_ids": ["vs_1"]}
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
OPEN = {"type": "mcp", "server_label": "here", "server_url": "https://mcp.test", "require_approval": "never"}


@pytest.fixture
def corpus() -> Corpus:
    return Corpus()


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture(params=["memory", "sqlite"])
async def api(
    request: pytest.FixtureRequest, tmp_path: Path, corpus: Corpus, servers: Servers
) -> AsyncIterator[InProcess]:
    async with inprocess_app(store=request.param, tmp_path=tmp_path, tools=[corpus, servers]) as app:
        yield app


def search(*queries: str, name: str = "search_corpus") -> str:
    listed = ",".join(f'"{query}"' for query in queries)
    return f'!CALL {name} {{"queries":[{listed}]}}'


def kinds(answer: dict[str, Any]) -> list[str]:
    return [item["type"] for item in answer["output"]]


def text(answer: dict[str, Any]) -> str:
    return "".join(part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"])


@requirement("loop:hosted")
async def test_b2_declared_tools_run_for_as_many_turns_as_the_model_wants(api: InProcess, corpus: Corpus):
    asked = "\n".join([search("one"), "!THEN", search("two"), "!THEN", "!TEXT the answer"])
    answer = await api.create(asked, tools=[SEARCH])
    assert (answer["status"], kinds(answer), answer["output_text"]) == ("completed", ["message"], "the answer")
    assert [call["queries"] for call in answer["hosted_tool_calls"]] == [["one"], ["two"]]
    assert corpus.runs == ["search_corpus one", "search_corpus two"]
    assert (await api.client.get(f"/responses/{answer['id']}")).json() == answer


@requirement("loop:hosted:order")
async def test_several_calls_of_a_turn_are_told_in_the_order_of_the_model_whichever_ends_first(
    api: InProcess, corpus: Corpus
):
    corpus.gates["late"] = asyncio.Event()
    asked = "\n".join([search("wait late"), search("open"), "!THEN", "!ECHO"])
    running = asyncio.create_task(api.create(asked, tools=[SEARCH]))
    async with asyncio.timeout(20):
        while len(corpus.runs) < 2:
            await asyncio.sleep(0.001)
    corpus.gates["late"].set()
    answer = await running
    assert [call["queries"] for call in answer["hosted_tool_calls"]] == [["wait late"], ["open"]]
    told = answer["output_text"]
    assert told.index("found wait late") < told.index("found open")


@requirement("loop:hosted:order")
async def test_a_tool_that_may_not_run_twice_makes_its_turn_go_one_after_the_other(api: InProcess, servers: Servers):
    servers.gates["first"] = asyncio.Event()
    asked = "\n".join([search("wait first", name="change"), search("two", name="look"), "!THEN", "!TEXT done"])
    running = asyncio.create_task(api.create(asked, tools=[OPEN]))
    async with asyncio.timeout(20):
        while not servers.runs:
            await asyncio.sleep(0.001)
    for _ in range(50):
        await asyncio.sleep(0)
    assert servers.runs == ["change wait first"]
    servers.gates["first"].set()
    answer = await running
    assert servers.runs == ["change wait first", "look two"]
    assert kinds(answer) == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]


@requirement("loop:fault")
@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        (search("fail"), "store_not_found", "There is no such store."),
        (search("break"), "server_error", "The tool failed."),
        ("!CALL search_corpus [1]", "invalid_arguments", "must be one JSON object"),
        ('!CALL search_corpus {"queries":', "invalid_arguments", "must be one JSON object"),
        ('!CALL made_up {"queries":["x"]}', "unknown_tool", "There is no tool 'made_up'. These are there: search"),
    ],
)
async def test_b3_whatever_goes_wrong_is_a_failed_item_and_the_loop_goes_on(
    api: InProcess, corpus: Corpus, call: str, code: str, message: str
):
    answer = await api.create("\n".join([call, "!THEN", "!ECHO"]), tools=[SEARCH])
    (item,) = answer["hosted_tool_calls"]
    assert (item["type"], item["status"], item["error"]["code"]) == ("search_corpus_call", "failed", code)
    assert message in item["error"]["message"]
    assert message in answer["output_text"]
    assert "secret" not in str(answer)
    assert answer["status"] == "completed"


@requirement("loop:fault:invented")
@pytest.mark.parametrize(
    ("tools", "shown"),
    [([OPEN, FILES], ("file_search_call", None)), ([OPEN], ("mcp_call", "made_up"))],
)
async def test_an_invented_call_is_shown_as_no_call_of_a_tool_that_was_not_made(
    api: InProcess, servers: Servers, tools: list[dict[str, Any]], shown: tuple[str, str | None]
):
    answer = await api.create('!CALL made_up {"queries":["x"]}\n!THEN\n!ECHO', tools=tools)
    (item,) = [item for item in answer["output"] if item["type"].endswith("_call")]
    assert (item["type"], item.get("name"), item["status"]) == (*shown, "failed")
    assert "There is no tool 'made_up'" in answer["output_text"]
    assert servers.runs == []


@requirement("loop:fault:timeout")
async def test_a_run_that_takes_too_long_is_given_up(tmp_path: Path):
    corpus = Corpus(seconds=0.05)
    async with inprocess_app(tools=[corpus]) as api:
        answer = await api.create("\n".join([search("hang"), "!THEN", "!TEXT on"]), tools=[SEARCH])
    (item,) = answer["hosted_tool_calls"]
    assert item["error"] == {"code": "timeout", "message": "The tool did not end within 0.05 seconds."}
    assert answer["output_text"] == "on"


@requirement("loop:fault:servers")
@pytest.mark.parametrize("waits", [True, False])
async def test_a_provider_that_cannot_be_opened_refuses_no_request(waits: bool):
    servers = Servers(down=True)
    servers.waits = waits
    async with inprocess_app(tools=[servers]) as api:
        answer = await api.create("\n".join([search("x", name="look"), "!THEN", "!ECHO"]), tools=[OPEN])
    (call, _) = answer["output"]
    assert (call["type"], call["name"], call["server_label"], call["status"]) == ("mcp_call", "look", "here", "failed")
    assert "There is no tool 'look'" in answer["output_text"]
    assert "secret" not in str(answer)


@requirement("loop:check")
async def test_an_entry_that_cannot_be_read_is_a_400(api: InProcess):
    error = await api.refused(400, "hi", tools=[{**SEARCH, "bad": True}])
    assert error["param"] == "tools[0].bad"


@requirement("loop:budget")
async def test_b5_a_turn_runs_eight_calls_and_the_others_get_an_error(api: InProcess, corpus: Corpus):
    asked = "\n".join([*(search(f"q{n}") for n in range(9)), "!THEN", "!TEXT done"])
    answer = await api.create(asked, tools=[SEARCH])
    calls = answer["hosted_tool_calls"]
    assert [call["status"] for call in calls] == ["completed"] * 8 + ["failed"]
    assert calls[8]["error"]["code"] == "too_many_calls"
    assert len(corpus.runs) == 8


@requirement("loop:budget")
async def test_b5_the_budget_is_sixteen_calls_unless_the_request_says_otherwise(api: InProcess, corpus: Corpus):
    asked = "\n!THEN\n".join([search(f"q{n}") for n in range(20)])
    answer = await api.create(asked, tools=[SEARCH])
    assert len(answer["hosted_tool_calls"]) == len(corpus.runs) == 16
    assert answer["max_tool_calls"] is None
    answer = await api.create(asked, tools=[SEARCH], max_tool_calls=3)
    assert (len(answer["hosted_tool_calls"]), answer["max_tool_calls"]) == (3, 3)
    answer = await api.create(
        "\n".join([search("a"), search("b"), search("c"), "!THEN", "!TEXT x"]), tools=[SEARCH], max_tool_calls=2
    )
    assert [call["queries"] for call in answer["hosted_tool_calls"]] == [["a"], ["b"]]
    assert (await api.refused(400, "x", tools=[SEARCH], max_tool_calls=0))["param"] == "max_tool_calls"
    assert (await api.create("hi", max_tool_calls=1))["output_text"] == "Hello from scripted."


@requirement("loop:budget:answer")
async def test_b6_at_the_budget_the_model_is_told_once_to_answer_and_its_answer_is_whole(api: InProcess):
    answer = await api.create("\n".join([search("one"), "!THEN", "!ECHO"]), tools=[SEARCH], max_tool_calls=1)
    assert (answer["status"], answer["incomplete_details"]) == ("completed", None)
    assert answer["output_text"].count(str(ANSWER_NOW.content)) == 1
    assert answer["output_text"].endswith(f"{ANSWER_NOW.content}<|im_end|>\n<|im_start|>assistant\n")
    again = await api.create("!ECHO", previous_response_id=answer["id"])
    assert again["output_text"].count(str(ANSWER_NOW.content)) == 1


@requirement("loop:budget:incomplete")
async def test_b6_a_model_that_even_then_only_searches_leaves_the_response_incomplete(api: InProcess):
    asked = "\n".join(["!TEXT so far", search("one"), "!THEN", "!REASON hm", search("again")])
    answer = await api.create(asked, tools=[SEARCH], max_tool_calls=1)
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_tool_calls"})
    assert answer["output_text"] == "so far"
    assert len(answer["hosted_tool_calls"]) == 1


@requirement("loop:budget:window")
async def test_b6_a_context_that_what_was_found_fills_up_still_gets_an_answer_without_tools(
    api: InProcess, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
):
    _, engine = api.service.limits.resolve(Scope("default"), "scripted")
    asked = "\n".join(["!TEXT so far", search("big"), "!THEN", "!TEXT what there is"])

    async def answered(room: int, **fields: Any) -> dict[str, Any]:
        narrow = replace(engine.capabilities, context_length=room)
        monkeypatch.setattr(engine, "_capabilities", narrow)
        return await api.create(asked, tools=[SEARCH], **fields)

    real = type(engine).prepare

    async def prepare(self: Any, prompt: Any) -> Any:
        # The functions of tools take their part of a context, which this model does not count.
        turn = await real(self, prompt)
        tokens = turn.input_tokens + 500 * len(prompt.tools)
        if tokens >= self.capabilities.context_length:
            raise ContextOverflowError(tokens, self.capabilities.context_length)
        return turn

    monkeypatch.setattr(type(engine), "prepare", prepare)
    answer = await answered(1100)
    assert (answer["status"], answer["output_text"]) == ("completed", "so farwhat there is")
    answer = await answered(600)
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "context_window"})
    assert answer["output_text"] == "so far"
    assert len(answer["hosted_tool_calls"]) == 1


@requirement("loop:fault:engine")
async def test_a_model_that_fails_in_a_later_turn_leaves_what_was_found(api: InProcess):
    answer = await api.create("\n".join([search("one"), "!THEN", "!FAIL oh"]), tools=[SEARCH])
    assert (answer["status"], answer["output_text"]) == ("failed", "oh")
    assert [call["status"] for call in answer["hosted_tool_calls"]] == ["completed"]
    told = await api.create("!ECHO", previous_response_id=answer["id"])
    assert "found one" in told["output_text"]


@requirement("loop:choice")
async def test_b7_a_forced_call_is_forced_in_the_first_turn_only(api: InProcess, corpus: Corpus):
    answer = await api.create("!THEN\n!TEXT free", tools=[SEARCH, GREP], tool_choice={"type": "grep"})
    assert [call["type"] for call in answer["hosted_tool_calls"]] == ["grep_call"]
    assert answer["output_text"] == "free"
    answer = await api.create("!THEN\n!TEXT free", tools=[SEARCH], tool_choice="required")
    assert [call["type"] for call in answer["hosted_tool_calls"]] == ["search_corpus_call"]
    answer = await api.create(search("x"), tools=[SEARCH], tool_choice="none")
    assert (answer["hosted_tool_calls"], answer["output_text"]) == ([], "Hello from scripted.")


@requirement("loop:choice")
async def test_a_call_that_is_forced_by_name_is_one_call_and_later_turns_have_as_many_as_they_like(api: InProcess):
    asked = "\n".join([search("a", name="grep"), search("b", name="grep"), "!THEN", search("c"), search("d")])
    answer = await api.create(f"{asked}\n!THEN\n!TEXT done", tools=[SEARCH, GREP], tool_choice={"type": "grep"})
    assert [call["queries"] for call in answer["hosted_tool_calls"]] == [["a"], ["c"], ["d"]]


@requirement("loop:slot")
async def test_a_model_with_one_slot_serves_others_while_a_tool_runs(api: InProcess, corpus: Corpus):
    _, engine = api.service.limits.resolve(Scope("default"), "scripted")
    engine.gate.limit(1)
    corpus.gates["late"] = asyncio.Event()
    asked = "\n".join([search("wait late"), "!THEN", "!TEXT done"])
    running = asyncio.create_task(api.create(asked, tools=[SEARCH]))
    async with asyncio.timeout(20):
        while not corpus.runs:
            await asyncio.sleep(0.001)
        assert engine.gate.running == 0
        assert (await api.create("!TEXT me first"))["output_text"] == "me first"
    corpus.gates["late"].set()
    assert (await running)["output_text"] == "done"
    cut = asyncio.create_task(api.create(search("hang"), tools=[SEARCH], background=True))
    name = (await cut)["id"]
    async with asyncio.timeout(20):
        while len(corpus.runs) < 2:
            await asyncio.sleep(0.001)
    await api.client.post(f"/responses/{name}/cancel")
    assert (engine.gate.running, engine.gate.waiting) == (0, 0)


@requirement("loop:metrics")
async def test_runs_are_counted_by_tool_and_by_how_they_ended(api: InProcess):
    await api.create("\n".join([search("one"), search("break"), "!THEN", "!TEXT x"]), tools=[SEARCH])
    told = (await api.client.get("http://127.0.0.1/metrics")).text
    for status in ("completed", "failed"):
        assert f'antiphon:tool_runs_total{{status="{status}",tool="search_corpus_call"}} 1.0' in told, told
    assert 'antiphon:tool_run_seconds_count{tool="search_corpus_call"} 2.0' in told


@requirement("loop:none")
async def test_a_request_without_hosted_tools_takes_no_step_for_them(
    api: InProcess, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(type(api.service.hosting), "tools", None)
    assert (await api.create("!TEXT plain"))["output_text"] == "plain"
    monkeypatch.undo()
    answer = await api.create("!CALL weather {}", tools=[WEATHER])
    assert kinds(answer) == ["function_call"]
    assert "hosted_tool_calls" not in answer
    run = await api.service.planner.plan(Scope("default"), decode_create_response(b'{"model":"scripted","input":"hi"}'))
    assert (run.hosted, run.rounds, run.late) == (None, None, None)


@requirement("loop:mixed")
async def test_b8_a_call_of_the_clients_ends_the_run_after_the_hosted_calls_of_its_turn(api: InProcess, corpus: Corpus):
    asked = "\n".join(["!CALL weather {}", search("one"), "!THEN", search("never")])
    first = await api.create(asked, tools=[SEARCH, WEATHER])
    assert (first["status"], kinds(first), corpus.runs) == ("completed", ["function_call"], ["search_corpus one"])
    assert len(first["hosted_tool_calls"]) == 1
    output = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "sunny"}
    ask = {"type": "message", "role": "user", "content": "!ECHO"}
    second = await api.create([output, ask], previous_response_id=first["id"], tools=[SEARCH, WEATHER])
    told = second["output_text"]
    assert "found one" in told
    assert "sunny" in told
    assert corpus.runs == ["search_corpus one"]
    assert second["hosted_tool_calls"] == []


@requirement("loop:parallel")
@pytest.mark.parametrize(
    ("calls", "hosted", "output"),
    [
        ([search("one"), search("two")], 1, ["message"]),
        ([search("one"), "!CALL weather {}"], 1, ["message"]),
        (["!CALL weather {}", search("one")], 0, ["function_call"]),
    ],
)
async def test_b9_without_parallel_calls_one_call_of_a_turn_is_honoured(
    api: InProcess, calls: list[str], hosted: int, output: list[str]
):
    asked = "\n".join([*calls, "!THEN", "!TEXT done"])
    answer = await api.create(asked, tools=[SEARCH, WEATHER], parallel_tool_calls=False)
    assert (len(answer["hosted_tool_calls"]), kinds(answer)) == (hosted, output)


@requirement("loop:instructions")
async def test_b13_two_sentences_stand_where_there_is_no_system_text_and_hosted_tools_are_declared(api: InProcess):
    sentences = HOSTED_INSTRUCTIONS.count(". ") + HOSTED_INSTRUCTIONS.endswith(".")
    assert sentences == 2
    assert HOSTED_INSTRUCTIONS in (await api.create("!ECHO", tools=[SEARCH]))["output_text"]
    assert HOSTED_INSTRUCTIONS not in (await api.create("!ECHO"))["output_text"]
    assert HOSTED_INSTRUCTIONS not in (await api.create("!ECHO", tools=[WEATHER]))["output_text"]
    assert (
        HOSTED_INSTRUCTIONS not in (await api.create("!ECHO", tools=[SEARCH], instructions="Be kind."))["output_text"]
    )
    for role in ("system", "developer"):
        given = [{"role": role, "content": "Be kind."}, {"role": "user", "content": "!ECHO"}]
        assert HOSTED_INSTRUCTIONS not in (await api.create(given, tools=[SEARCH]))["output_text"]


@requirement("loop:usage")
async def test_b16_usage_is_that_of_all_turns(api: InProcess):
    asked = "\n".join(["!REASON a b c", search("one"), "!THEN", "!REASON d e", search("two"), "!THEN", "!TEXT x y z"])
    answer = await api.create(asked, tools=[SEARCH])
    usage = answer["usage"]
    assert usage["output_tokens_details"]["reasoning_tokens"] == 5
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    counted = (
        await api.client.post("/responses/input_tokens", json={"model": "scripted", "input": asked, "tools": [SEARCH]})
    ).json()["input_tokens"]
    assert usage["input_tokens"] > 3 * counted
    arguments = [len('{"queries":["one"]}'), len('{"queries":["two"]}')]
    assert usage["output_tokens"] == 5 + 3 + sum(-(-size // 4) for size in arguments)


@requirement("loop:limit")
async def test_max_output_tokens_bounds_all_turns_together(api: InProcess):
    asked = "\n".join([search("one"), "!THEN", "!COUNT 50"])
    answer = await api.create(asked, tools=[SEARCH], max_output_tokens=16)
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert answer["usage"]["output_tokens"] == 16
    cut = await api.create("\n".join(["!COUNT 14", search("one")]), tools=[SEARCH], max_output_tokens=16)
    assert (cut["status"], cut["hosted_tool_calls"]) == ("incomplete", [])


@requirement("loop:chain")
async def test_b17_instructions_are_those_of_the_request_alone(api: InProcess):
    first = await api.create(search("one") + "\n!THEN\n!TEXT x", tools=[SEARCH], instructions="Old words.")
    told = (await api.create("!ECHO", previous_response_id=first["id"], instructions="New words."))["output_text"]
    assert "New words." in told
    assert "Old words." not in told


@requirement("loop:chain")
async def test_b18_a_chain_restores_what_was_found_and_inherits_no_tools(api: InProcess, corpus: Corpus):
    first = await api.create(search("one") + "\n!THEN\n!TEXT x", tools=[SEARCH])
    assert first["hosted_tool_calls"][0]["results"] is None
    second = await api.create("!ECHO", previous_response_id=first["id"])
    assert "found one" in second["output_text"]
    assert "hosted_tool_calls" not in second
    third = await api.create(search("two") + "\n!THEN\n!ECHO", previous_response_id=second["id"], tools=[SEARCH])
    assert third["output_text"].count("found one<|im_end|>") == 2
    assert [body["queries"] for body in corpus.tools[0].evidence[0]] == [["one"]]
    assert corpus.tools[0].evidence[0][0]["results"][0]["_private"] == 1


@requirement("loop:chain")
async def test_b18_what_a_chain_tells_is_what_the_loop_told_byte_for_byte(api: InProcess):
    calls = "\n".join([search("one"), search("two"), "!THEN", "!REASON hm", search("three"), "!THEN", "!ECHO"])
    first = await api.create(calls, tools=[SEARCH], instructions="Be kind.")
    second = await api.create("!ECHO", previous_response_id=first["id"], instructions="Be kind.")
    told = first["output_text"].removesuffix("<|im_start|>assistant\n")
    assert second["output_text"].startswith(told)


@requirement("loop:chain")
async def test_a_conversation_restores_what_was_found(api: InProcess):
    talk = (await api.client.post("/conversations", json={})).json()["id"]
    await api.create(search("one") + "\n!THEN\n!TEXT x", tools=[SEARCH], conversation=talk)
    told = await api.create("!ECHO", conversation=talk)
    assert "found one" in told["output_text"]


@requirement("loop:include")
async def test_b4_results_are_null_unless_they_are_included_and_private_fields_are_never_told(api: InProcess):
    asked = search("one", name="file_search") + "\n!THEN\n!TEXT x"
    answer = await api.create(asked, tools=[FILES])
    call = answer["output"][0]
    assert (call["type"], call["results"], call["queries"]) == ("file_search_call", None, ["one"])
    assert not [name for name in call if name.startswith("_")]
    answer = await api.create(asked, tools=[FILES], include=["file_search_call.results", "unknown.value"])
    (result,) = answer["output"][0]["results"]
    assert (result["text"], "_private" in result) == ("found one", False)


@requirement("loop:payload")
async def test_what_a_run_may_give_is_bounded_by_the_context_and_shared_by_the_calls_of_a_turn(corpus: Corpus):
    async with inprocess_app(tools=[corpus]) as api:
        await api.create("\n".join([search("a"), "!THEN", "!TEXT x"]), tools=[GREP, SEARCH])
        assert corpus.tools[1].seen[0].characters == 30_000 * 4
        await api.create("\n".join([*[search("a")] * 6, "!THEN", "!TEXT x"]), tools=[SEARCH])
        assert {call.characters for call in corpus.tools[0].seen} == {96_000 // 6 * 4}


@requirement("loop:unowned")
async def test_types_that_nobody_runs_are_accepted_and_not_offered(api: InProcess):
    tools = [{"type": "web_search"}, {"type": "image_generation"}, {"type": "code_interpreter"}]
    answer = await api.create("!ECHO", tools=tools)
    assert answer["status"] == "completed"
    assert answer["tools"] == tools


@requirement("loop:laws")
async def test_a_loop_is_replayed_byte_for_byte_and_its_events_add_up_to_its_object(api: InProcess):
    asked = "\n".join(
        [
            *("!REASON hm", "!TEXT I look", search("one"), search("fail", name="file_search")),
            *(search("x", name="look"), "!CALL weather {}", "!THEN", "!TEXT never"),
        ]
    )
    body = {"model": "scripted", "input": asked, "tools": [SEARCH, FILES, OPEN, WEATHER], "stream": True}
    for fields in ({}, {"background": True}, {"include": ["search_corpus_call.results"]}):
        live = (await api.client.post("/responses", json={**body, **fields})).content
        events = sse_events(live)
        final = events[-1]["response"]
        kinds_told = [event["item"]["type"] for event in events if event["type"] == "response.output_item.done"]
        assert kinds_told == [
            "mcp_list_tools",
            "reasoning",
            "message",
            "function_call",
            "search_corpus_call",
            "file_search_call",
            "mcp_call",
        ]
        assert [event["output_index"] for event in events if event["type"] == "response.output_item.done"] == [
            *range(7)
        ]
        assert kinds(final) == [kind for kind in kinds_told if kind != "search_corpus_call"]
        assert (await api.client.get(f"/responses/{final['id']}?stream=true")).content == live
        assert (await api.client.get(f"/responses/{final['id']}")).json() == final
        folded = Fold()
        for frame in SSEParser().feed(live)[:-1]:
            folded.apply(decode_event(frame.data))
        assert loads(encode(folded.snapshot())) == final
