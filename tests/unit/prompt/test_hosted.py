"""What a model is told of hosted items: calls and results in their turns, approvals, and results that were pruned."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.prompt.assembly import assemble, renamed
from antiphon.prompt.hosted import NOT_KEPT, PRUNED, hosted_call, hosted_result
from antiphon.prompt.messages import EMPTY, MessageBuilder, join
from antiphon.prompt.prompt import ChatMessage, ToolCall
from antiphon.prompt.pruning import PRUNED_RESULT, applied_edits, cleared, pruned, truncated
from antiphon.prompt.toolbox import HostedFunction, toolbox
from antiphon.protocol.hosted import HOSTED_ITEMS, project
from antiphon.protocol.ids import PREFIX_BY_ITEM_TYPE, new_id
from antiphon.protocol.items import decode_item
from antiphon.protocol.json import encode
from antiphon.protocol.tools import FunctionTool


def item(kind, **fields):
    """An item of a tool that ran here, as it is kept."""
    identity = fields.pop("id", None) or new_id(PREFIX_BY_ITEM_TYPE[kind])
    return {"type": kind, "id": identity, "status": "completed", "_call_id": identity, **fields}


def user(text):
    return {"type": "message", "role": "user", "content": text}


def says(text):
    return {"type": "message", "role": "assistant", "content": text}


def thinks(text):
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def parts_of(*batches):
    """Parts of a history, each converted after the one before."""
    before, parts = EMPTY, []
    for batch in batches:
        builder = MessageBuilder(before)
        builder.add([decode_item(encode(body)) for body in batch])
        before = builder.conversation()
        parts.append(before)
    return parts


def messages(*batches, **options):
    return list(assemble(parts_of(*batches), None, **options))


def spoken(told):
    """Messages by role: text, and the names of calls."""
    return [(each.role, each.content or [call.name for call in each.tool_calls]) for each in told]


CHUNK = {
    "chunk_id": "file_1:0",
    "document_id": "file_1",
    "filename": "a.md",
    "file_title": "About",
    "text": "Alpha.",
    "search_score": 0.12345,
    "_number": 7,
}
OTHER = {**CHUNK, "chunk_id": "file_1:1", "text": "Beta.", "_number": 8}
SEARCH = item("search_corpus_call", queries=["q"], store=None, results=[CHUNK])


@pytest.mark.requirement("hosted:evidence")
@pytest.mark.parametrize(
    ("body", "name", "arguments", "result"),
    [
        (SEARCH, "search_corpus", {"queries": ["q"]}, "[7] file_1:0, a.md, About, score 0.12\nAlpha."),
        (
            item(
                "file_search_call",
                queries=["q"],
                results=[{"file_id": "f", "filename": "b.md", "score": 1, "text": "T"}],
            ),
            "file_search",
            {"queries": ["q"]},
            "- b.md, score 1\nT",
        ),
        (
            item("grep_call", pattern="x", results=[{**CHUNK, "text": None, "seen": True}]),
            "grep",
            {"pattern": "x"},
            "[7] file_1:0, a.md, About, score 0.12\n[Given before.]",
        ),
        (
            item("get_chunks_call", chunk_ids=["a:0"], results=[{"chunk_id": "a:0", "error": {"message": "Gone."}}]),
            "get_chunks",
            {"chunk_ids": ["a:0"]},
            "a:0: error: Gone.",
        ),
        (
            item("search_corpus_call", queries=["q"], results=[]),
            "search_corpus",
            {"queries": ["q"]},
            "Nothing was found.",
        ),
        (
            item("inspect_metadata_call", store="s", facets={"year": [2020]}),
            "inspect_metadata",
            {"store": "s"},
            '{"facets":{"year":[2020]}}',
        ),
        (item("list_stores_call", stores=[{"name": "s"}]), "list_stores", {}, '{"stores":[{"name":"s"}]}'),
        (
            item(
                "web_search_call",
                action={"type": "search", "query": "q"},
                results=[{"title": "T", "url": "u", "snippet": "S"}],
            ),
            "web_search",
            {"query": "q"},
            "- T\nu\nS",
        ),
        (
            item(
                "code_interpreter_call",
                code="1+1",
                outputs=[{"type": "logs", "logs": "2"}, {"type": "image", "url": "u"}],
            ),
            "code_interpreter",
            {"code": "1+1"},
            "2\n[An image, which the user sees]",
        ),
        (item("code_interpreter_call", code="x=1", outputs=[]), "code_interpreter", {"code": "x=1"}, "[No output]"),
        (
            item("mcp_call", name="add", server_label="s", arguments='{"a":1}', output="3", error=None),
            "add",
            {"a": 1},
            "3",
        ),
        (
            item(
                "mcp_call",
                name="add",
                server_label="s",
                arguments="{}",
                status="failed",
                error={"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "No."}]},
            ),
            "add",
            {},
            "Error: No.",
        ),
        (
            item(
                "search_corpus_call", queries=[], status="failed", results=None, error={"code": "x", "message": "Bad."}
            ),
            "search_corpus",
            {"queries": []},
            "Error: Bad.",
        ),
        (item("prune_context_call", ids=["a:0"]), "prune_context", {"ids": ["a:0"]}, "Done."),
        (
            item("image_generation_call", revised_prompt="a cat", result="aGk="),
            "image_generation",
            {"prompt": "a cat"},
            None,
        ),
    ],
)
def test_each_type_is_told_as_a_call_and_what_it_gave(body, name, arguments, result):
    told = messages([user("u"), body, says("so")])
    assert [each.role for each in told] == ["user", "assistant", "tool", "assistant"]
    (call,) = told[1].tool_calls
    assert (call.name, json.loads(call.arguments)) == (name, arguments)
    assert told[2].tool_call_id == call.id == body["id"]
    if result is not None:
        assert told[2].content == result


@pytest.mark.requirement("hosted:evidence")
def test_the_exact_words_are_kept_where_they_were_noted():
    noted = {"_told": "just so", "_name": "mine", "_arguments": '{ "q" : 1 }', "_call_id": "call_1"}
    body = item("file_search_call", queries=["q"], results=[], **noted)
    assert hosted_call(body) == ToolCall("call_1", "mine", '{ "q" : 1 }', True)
    assert hosted_result(body) == "just so"


@pytest.mark.requirement("hosted:evidence:not-kept")
@pytest.mark.parametrize(
    "full",
    [
        item("file_search_call", queries=["q"], results=[CHUNK]),
        item("search_corpus_call", queries=["q"], results=[CHUNK]),
        item("code_interpreter_call", code="1", outputs=[{"type": "logs", "logs": "2"}]),
        item("web_search_call", action={"type": "search", "query": "q"}, results=[{"title": "T"}]),
    ],
)
def test_results_that_a_client_sends_back_without_are_told_as_not_kept(full):
    told = messages([user("u"), project(full, ()), user("v")])
    assert told[2].content == NOT_KEPT


@pytest.mark.requirement("hosted:evidence")
def test_calls_of_one_turn_stand_together_and_those_of_the_next_apart():
    calls = [item("file_search_call", queries=[str(n)], results=[], _turn=turn) for n, turn in enumerate([0, 0, 1])]
    told = messages([user("u"), thinks("hm"), *calls, thinks("so"), says("answer")])
    assert spoken(told) == [
        ("user", "u"),
        ("assistant", ["file_search", "file_search"]),
        ("tool", "Nothing was found."),
        ("tool", "Nothing was found."),
        ("assistant", ["file_search"]),
        ("tool", "Nothing was found."),
        ("assistant", "answer"),
    ]
    assert [each.reasoning for each in told if each.role == "assistant"] == ["hm", "", "so"]


@pytest.mark.requirement("hosted:evidence")
def test_a_clients_call_of_the_same_turn_has_its_output_after_what_ran_here():
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "out"}
    told = messages([user("u"), says("I look."), call, {**SEARCH, "_turn": 0}], [output])
    assert spoken(told)[1:] == [
        ("assistant", "I look."),
        ("tool", "[7] file_1:0, a.md, About, score 0.12\nAlpha."),
        ("tool", "out"),
    ]
    assert [each.name for each in told[1].tool_calls] == ["f", "search_corpus"]


histories = st.lists(
    st.sampled_from(
        [
            user("u"),
            says("a"),
            thinks("t"),
            SEARCH,
            {**SEARCH, "id": new_id("sc"), "_turn": 1},
            item("mcp_call", name="add", server_label="s", arguments="{}", output="3", _turn=2),
            item("prune_context_call", ids=["file_1:0"]),
            item("mcp_approval_request", id="mcpr_" + "0" * 44, name="add", server_label="s", arguments="{}"),
            {"type": "mcp_approval_response", "approval_request_id": "mcpr_" + "0" * 44, "approve": False},
            {"type": "mcp_approval_response", "approval_request_id": "mcpr_" + "0" * 44, "approve": True},
            {"type": "mcp_list_tools", "id": new_id("mcpl"), "server_label": "s", "tools": []},
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "q"},
            },
            {"type": "mcp_call", "name": "add", "server_label": "s", "arguments": "{}", "output": "4"},
            {"type": "mcp_approval_request", "id": "mcpr_1", "name": "add", "server_label": "s", "arguments": "{}"},
            {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False},
        ]
    ),
    max_size=8,
)


@pytest.mark.requirement("hosted:evidence:chain")
@given(histories, st.integers(0, 8), st.booleans())
def test_a_chain_tells_the_same_as_its_items_sent_at_once(history, cut, prunable):
    parts = parts_of(history[:cut], history[cut:])
    inline = parts_of(history)
    told = assemble(parts, "sys", prunable=prunable)
    assert list(told) == list(assemble(inline, "sys", prunable=prunable))
    assert list(told) == list(assemble([join(parts)], "sys", prunable=prunable))
    # Every call has its result, and every result its call.
    calls = [call.id for each in told for call in each.tool_calls]
    assert [each.tool_call_id for each in told if each.role == "tool"] == calls


APPROVAL = item("mcp_approval_request", name="add", server_label="s", arguments='{"a":1}')


@pytest.mark.requirement("hosted:approval")
def test_a_denied_call_is_told_with_the_reason():
    answer = {"type": "mcp_approval_response", "approval_request_id": APPROVAL["id"], "approve": False, "reason": "No!"}
    told = messages([user("u"), thinks("hm"), APPROVAL], [answer], [says("Fine.")])
    assert spoken(told)[1:] == [
        ("assistant", ["add"]),
        ("tool", "The user did not approve this call, so that it was not run. Reason: No!"),
        ("assistant", "Fine."),
    ]
    assert told[1].tool_calls[0].arguments == '{"a":1}'


@pytest.mark.requirement("hosted:approval")
def test_an_approved_call_is_told_once_as_the_call_that_was_run():
    answer = {"type": "mcp_approval_response", "approval_request_id": APPROVAL["id"], "approve": True}
    listed = {"type": "mcp_list_tools", "id": new_id("mcpl"), "server_label": "s", "tools": [{"name": "add"}]}
    ran = item("mcp_call", name="add", server_label="s", arguments="{}", output="3", approval_request_id=APPROVAL["id"])
    parts = parts_of([user("u"), APPROVAL], [answer], [listed, ran, says("3")])
    assert parts[1].asked
    assert not parts[2].asked
    assert spoken(assemble(parts, None))[1:] == [("assistant", ["add"]), ("tool", "3"), ("assistant", "3")]


@pytest.mark.requirement("hosted:approval")
def test_a_call_that_nobody_answered_is_not_told_and_can_still_be_denied():
    answer = {"type": "mcp_approval_response", "approval_request_id": APPROVAL["id"], "approve": False}
    assert spoken(messages([user("u"), APPROVAL], [user("v")])) == [("user", "u"), ("user", "v")]
    told = messages([user("u"), APPROVAL], [user("v"), answer])
    assert [each.role for each in told] == ["user", "user", "assistant", "tool"]


@pytest.mark.requirement("hosted:evidence")
def test_past_calls_of_a_server_have_the_name_that_its_tool_has_now():
    calls = [item("mcp_call", name="add", server_label=label, arguments="{}", output="3") for label in ("one", "two")]
    box = toolbox(
        [{"type": "mcp"}],
        hosted=[HostedFunction(FunctionTool("add"), "mcp", label) for label in ("one", "two")],
        here={"mcp"},
    )
    told = renamed(messages([user("u"), *calls]), box.renames)
    assert [call.name for call in told[1].tool_calls] == list(box.entries)


@pytest.mark.requirement("hosted:evidence")
def test_what_an_upstream_ran_stays_an_item_of_its_own():
    theirs = item("web_search_call", upstream_id="ws_1", action={"type": "search", "query": "q"})
    assert spoken(messages([user("u"), theirs, says("a")])) == [("user", "u"), ("assistant", "a")]
    (turn,) = [each for each in messages([user("u"), theirs, says("a")], hosted=True) if each.role == "assistant"]
    assert turn.items[0].id == theirs["id"]
    # What ran here is told to such an upstream as a call of a function.
    mixed = messages([user("u"), theirs, SEARCH], hosted=True)
    assert [getattr(each, "name", None) or each.id for each in mixed[1].items] == [theirs["id"], "search_corpus"]
    assert mixed[2].role == "tool"


THEIRS = {
    "type": "mcp_call",
    "name": "add",
    "server_label": "s",
    "arguments": "{}",
    "output": "4",
    "status": "completed",
}


@pytest.mark.requirement("hosted:evidence:elsewhere")
def test_items_that_a_client_brings_are_told_to_every_model_in_its_own_way():
    history = [user("u"), THEIRS, says("4")]
    assert spoken(messages(history))[1:] == [("assistant", ["add"]), ("tool", "4"), ("assistant", "4")]
    native = messages(history, hosted=True)
    assert [each.role for each in native] == ["user", "assistant", "assistant"]
    assert (native[1].tool_calls, native[1].items[0].type) == ((), "mcp_call")
    # Once it is stored it has an id, which changes nothing of what is told.
    stored = messages([user("u"), {**THEIRS, "id": new_id("mcp")}, says("4")])
    assert [each.tool_calls for each in stored] == [each.tool_calls for each in messages(history)]
    request = {"type": "mcp_approval_request", "_sent_id": "mcpr_1", "name": "add", "arguments": "{}"}
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False}
    assert spoken(messages([user("u"), request, answer]))[1][1] == ["add"]
    assert [each.type for each in messages([user("u"), request, answer], hosted=True)[1].items] == [
        "mcp_approval_request",
        "mcp_approval_response",
    ]


def prune(*ids):
    return item("prune_context_call", ids=list(ids))


@pytest.mark.requirement("hosted:prune")
def test_a_pruned_chunk_loses_its_text_and_keeps_its_place():
    found = item("search_corpus_call", queries=["q"], results=[CHUNK, OTHER])
    told = messages([user("u"), found, prune("file_1:0"), says("a")])
    assert told[2].content == (
        f"[7] file_1:0, a.md, About, score 0.12\n{PRUNED}\n\n[8] file_1:1, a.md, About, score 0.12\nBeta."
    )
    # Nothing is lost: the same items without the call are told whole.
    assert "Alpha." in messages([user("u"), found])[2].content


@pytest.mark.requirement("hosted:prune:restore")
def test_only_get_chunks_brings_a_pruned_chunk_back():
    again = item("grep_call", pattern="x", results=[CHUNK])
    gotten = item("get_chunks_call", chunk_ids=["file_1:0"], results=[CHUNK])
    later = item("grep_call", pattern="y", results=[CHUNK])
    history = [user("u"), SEARCH, prune("file_1:0"), again, gotten, later, prune("other"), says("a")]
    tools = [each.content for each in messages(history) if each.role == "tool"]
    assert ["Alpha." in content for content in tools if "file_1:0" in content] == [False, False, True, True]
    tools = [each.content for each in messages([*history[:6], prune("file_1:0"), later]) if each.role == "tool"]
    assert not any("Alpha." in content for content in tools)


@pytest.mark.requirement("hosted:prune")
def test_results_of_a_clients_tool_are_pruned_by_their_call_and_shown_with_it():
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "long"}
    before = messages([user("u"), call], [output], prunable=True)
    assert before[2].content == "[c1]\nlong"
    after = messages([user("u"), call], [output, prune("c1"), says("a")], prunable=True)
    assert after[2].content == f"[c1] {PRUNED_RESULT}"
    assert messages([user("u"), call], [output, prune("c1"), says("a")])[2].content == PRUNED_RESULT
    assert messages([user("u"), call], [output])[2].content == "long"
    files = item(
        "file_search_call", queries=["q"], results=[{"file_id": "f", "_chunk": 3, "filename": "b", "text": "T"}]
    )
    assert messages([user("u"), files], prunable=True)[2].content == "- f:3, b\nT"


@pytest.mark.requirement("hosted:prune")
def test_a_prune_that_failed_prunes_nothing():
    failed = {**prune("file_1:0"), "status": "failed", "error": {"message": "x"}}
    assert "Alpha." in messages([user("u"), SEARCH, failed])[2].content


@pytest.mark.requirement("hosted:prune:edits")
def test_a_response_says_what_was_pruned_in_it():
    long = {**CHUNK, "text": "A" * 4_000}
    found = item("search_corpus_call", queries=["q"], results=[long])
    parts = parts_of([user("u"), found, prune("file_1:0")], [user("v"), prune("file_1:0", "none")])
    first = [message for part in parts[:1] for message in [*part.messages, *part.open_turn.results]]
    whole = list(first)
    assert cleared(whole).calls == 1
    edits = applied_edits(whole)
    assert edits is not None
    (edit,) = edits["applied_edits"]
    assert (edit["type"], edit["calls"]) == ("prune_context", 1)
    assert 980 <= edit["cleared_input_tokens"] <= 1_000
    assert applied_edits(whole, cleared(whole)) is None
    assert applied_edits([ChatMessage("user", "u")]) is None


@pytest.mark.requirement("hosted:prune:truncate")
def test_the_longest_results_are_cut_until_it_fits():
    tools = [ChatMessage("tool", "x" * size, tool_call_id=str(size)) for size in (1_000, 9_000, 20_000)]
    view, edits = truncated([ChatMessage("user", "y" * 99_999), *tools], 1_000)
    assert [edit["tool_call_id"] for edit in edits] == ["20000"]
    assert edits[0]["cleared_input_tokens"] == 1_000
    assert [len(each.content) for each in view[:3]] == [99_999, 1_000, 9_000]
    assert 20_000 - len(view[3].content) == 4_000
    view, edits = truncated(tools, 100_000)
    assert [edit["tool_call_id"] for edit in edits] == ["20000", "9000"]
    assert [len(each.content) for each in view] == [1_000, 2_020, 2_020]
    assert applied_edits(tools, cut=edits) == {"applied_edits": edits}
    assert pruned(tools) == tools


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["chunk_id", "text", "score", "error", "message", "type", "logs", "seen", "_number", "title"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
FIELDS = [
    "queries",
    "results",
    "error",
    "output",
    "outputs",
    "arguments",
    "action",
    "name",
    "server_label",
    "code",
    "ids",
    "status",
    "facets",
    "stores",
    "approval_request_id",
    "approve",
    "reason",
    "_told",
    "_turn",
    "_call_id",
    "_arguments",
    "upstream_id",
]


@pytest.mark.requirement("hosted:evidence:elsewhere")
def test_a_score_that_is_no_score_is_left_out():
    body = {**THEIRS, "type": "file_search_call", "results": [{"file_id": "f", "score": 10**400, "text": "T"}]}
    assert messages([user("u"), body])[2].content == "- f\nT"


@pytest.mark.requirement("hosted:evidence:elsewhere")
@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([*sorted(HOSTED_ITEMS - {"shell_call", "shell_call_output"}), "mcp_approval_response"]),
            st.dictionaries(st.sampled_from(FIELDS), values, max_size=5),
        ),
        max_size=3,
    ),
    st.booleans(),
    st.booleans(),
)
def test_whatever_a_client_sends_as_such_an_item_can_be_told(given_items, hosted, prunable):
    bodies = [{**fields, "type": kind} for kind, fields in given_items]
    told = messages([user("u"), *bodies], hosted=hosted, prunable=prunable)
    calls = [call.id for each in told for call in each.tool_calls]
    results = [each.tool_call_id for each in told if each.role == "tool"]
    assert calls == results
    assert all(isinstance(each.content, str) for each in told)
    for body in bodies:
        project(body, ["file_search_call.results"])
