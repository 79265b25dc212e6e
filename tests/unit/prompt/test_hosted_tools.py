"""Functions that the server runs, beside those of the client: what the model knows them by, and how they are chosen."""

from __future__ import annotations

import pytest

from antiphon.errors import InvalidRequestError
from antiphon.machine.deltas import Stop, TokenUsage, ToolCallDelta, ToolCallStart
from antiphon.machine.router import MadeCall
from antiphon.prompt.choice import after_first_turn, resolve_choice
from antiphon.prompt.prompt import ResolvedChoice
from antiphon.prompt.toolbox import AddedTool, HostedFunction, toolbox
from antiphon.protocol.hosted import types_here
from antiphon.protocol.ids import new_id
from antiphon.protocol.tools import AllowedTools, FunctionTool, NamedToolChoice

WEB = {"type": "web_search"}
FILES = {"type": "file_search", "vector_store_ids": ["vs_1"]}
GREP = {"type": "grep", "store_identifiers": ["s"]}
CHUNKS = {"type": "get_chunks", "store_identifiers": ["s"]}
ONE, TWO = ({"type": "mcp", "server_label": label, "server_url": "https://a"} for label in ("one", "two"))
HERE = {"file_search", "grep", "get_chunks", "mcp"}
TOOLS = [FunctionTool("f"), FILES, GREP, CHUNKS, ONE, TWO, WEB]
HOSTED = [
    HostedFunction(FunctionTool("file_search"), "file_search"),
    HostedFunction(FunctionTool("grep"), "grep"),
    HostedFunction(FunctionTool("get_chunks"), "get_chunks"),
    HostedFunction(FunctionTool("add"), "mcp", "one"),
    HostedFunction(FunctionTool("add"), "mcp", "two"),
    HostedFunction(FunctionTool("a.b"), "mcp", "two"),
]
BOX = toolbox(TOOLS, hosted=HOSTED, here=HERE)
NAMES = [tool.name for tool in BOX.shown]


def named(kind, **fields):
    return NamedToolChoice(kind, fields.get("name"), {"type": kind, **fields})


@pytest.mark.requirement("hosted:tools", "hosted:tools:names")
def test_the_model_is_told_of_functions_that_run_here_by_names_of_their_own():
    assert NAMES[:5] == ["f", "file_search", "grep", "get_chunks", "add"]
    assert len(set(NAMES)) == len(NAMES) == 7
    assert all(name.startswith(("add_", "a_b_")) for name in NAMES[5:])
    assert BOX.hosted == [WEB]
    assert [BOX.entries[name].hosted for name in NAMES[1:]] == HOSTED
    assert toolbox(TOOLS, hosted=HOSTED, here=HERE).shown == BOX.shown


@pytest.mark.requirement("hosted:tools")
def test_a_call_by_such_a_name_is_held_with_the_name_of_its_tool():
    router = BOX.router()
    routed = router.feed(
        [ToolCallStart(NAMES[5]), ToolCallDelta("{}"), ToolCallStart("f"), Stop("stop", TokenUsage(1, 1))]
    )
    assert [type(delta) for delta in routed] == [ToolCallStart, Stop]
    assert router.made == [MadeCall("add", "{}", NAMES[5])]
    assert BOX.entries[router.made[0].told].hosted.server == "two"


@pytest.mark.requirement("hosted:tools:names")
def test_a_function_named_like_one_that_runs_here_is_refused_but_mcp_gives_way():
    with pytest.raises(InvalidRequestError) as refused:
        toolbox([FILES, FunctionTool("file_search")], hosted=HOSTED[:1], here={"file_search"})
    assert (refused.value.code, refused.value.param) == ("duplicate_tool_name", "tools[1].name")
    box = toolbox([ONE, FunctionTool("add")], hosted=HOSTED[3:4], here={"mcp"})
    assert next(tool.name for tool in box.shown) == "add"
    assert box.entries["add"].hosted is None
    # What the conversation has added is not of this request.
    added = [AddedTool(FunctionTool("file_search"))]
    assert len(toolbox([FILES], added, hosted=HOSTED[:1], here={"file_search"}).shown) == 2


@pytest.mark.requirement("hosted:tools:place")
def test_an_upstream_that_runs_tools_keeps_all_but_what_only_this_server_can_run():
    provided = {"file_search", "grep", "get_chunks", "mcp", "code_interpreter", "shell"}
    local = {"type": "shell"}
    tools = [*TOOLS, {"type": "code_interpreter"}, local]
    everything = {"file_search", "grep", "get_chunks", "mcp", "code_interpreter"}
    assert types_here(tools, provided, upstream=False) == everything
    assert types_here(tools, provided, upstream=True) == {"grep", "get_chunks"}
    ours = {"type": "file_search", "vector_store_ids": [new_id("vs")]}
    labelled = {"type": "mcp", "server_label": "notes"}
    assert types_here([ours, labelled], provided, upstream=True) == {"file_search", "mcp"}
    contained = {"type": "shell", "environment": {"type": "container_auto"}}
    assert types_here([contained], provided, upstream=False) == {"shell"}


@pytest.mark.requirement("hosted:choice")
@pytest.mark.parametrize(
    ("choice", "allowed"),
    [
        (named("file_search"), ["file_search"]),
        (named("grep"), ["grep"]),
        (named("mcp", server_label="one"), ["add"]),
        (named("mcp", server_label="two"), NAMES[5:]),
        (named("mcp", server_label="two", name="add"), NAMES[5:6]),
        ("required", NAMES),
    ],
)
def test_a_hosted_type_or_server_can_be_forced(choice, allowed):
    told, resolved = resolve_choice(BOX, choice)
    assert [tool.name for tool in told] == NAMES
    assert resolved == ResolvedChoice("required", tuple(allowed))
    assert after_first_turn(choice) == "auto"


@pytest.mark.requirement("hosted:choice")
def test_a_choice_of_a_server_that_told_of_no_such_tool_forces_nothing():
    for choice in (named("mcp", server_label="two", name="gone"), named("grep")):
        box = toolbox(TOOLS, hosted=HOSTED[3:], here=HERE)
        assert resolve_choice(box, choice)[1].mode == "auto"
    assert resolve_choice(toolbox([ONE], here={"mcp"}), "required") == ([], ResolvedChoice("auto", ()))


@pytest.mark.requirement("hosted:choice", "hosted:choice:get-chunks")
@pytest.mark.parametrize(
    "choice",
    [
        named("get_chunks"),
        named("mcp", server_label="three"),
        named("web_search"),
        named("file_search"),
        named("search_corpus"),
    ],
)
def test_what_cannot_be_forced_is_a_400(choice):
    box = BOX if choice.type != "file_search" else toolbox([GREP], hosted=HOSTED[1:2], here=HERE)
    with pytest.raises(InvalidRequestError) as refused:
        resolve_choice(box, choice)
    assert refused.value.code == "invalid_tool_choice"


@pytest.mark.requirement("hosted:choice")
def test_what_an_upstream_runs_is_still_chosen_there():
    _, resolved = resolve_choice(BOX, named("web_search"), hosted=True)
    assert resolved.hosted == {"type": "web_search"}
    _, resolved = resolve_choice(BOX, named("grep"), hosted=True)
    assert (resolved.mode, resolved.allowed, resolved.hosted) == ("required", ("grep",), None)


@pytest.mark.requirement("hosted:choice:allowed")
def test_allowed_tools_may_name_what_runs_here():
    tools = [{"type": "grep"}, {"type": "mcp", "server_label": "one"}, {"type": "function", "name": "f"}]
    told, resolved = resolve_choice(BOX, AllowedTools("required", tools))
    assert [tool.name for tool in told] == NAMES
    assert resolved == ResolvedChoice("required", ("f", "grep", "add"))
    with pytest.raises(InvalidRequestError):
        resolve_choice(BOX, AllowedTools("auto", [{"type": "search_corpus"}]))
    empty = toolbox([ONE], here={"mcp"})
    assert resolve_choice(empty, AllowedTools("required", [{"type": "mcp", "server_label": "one"}]))[1].mode == "auto"
