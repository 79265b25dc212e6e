"""Which calls of a turn are taken, and where a response with some of them done stands."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.machine.router import MadeCall
from antiphon.machine.turn import Progress
from antiphon.machine.usage import NOTHING_USED
from antiphon.prompt.prompt import Prompt, ResolvedChoice
from antiphon.prompt.toolbox import toolbox
from antiphon.protocol.json import encode
from antiphon.protocol.request import decode_create_response
from antiphon.runtime.calls import MOST_TOLD, Calls
from antiphon.runtime.hosted import HostedTools, Wanted, wanted
from antiphon.runtime.keeper import KeptCall, standing
from antiphon.runtime.observer import Observer
from antiphon.store.base import Scope
from antiphon.store.toolruns import DONE, PENDING
from antiphon.tools.base import Session
from support.fake_tools import Corpus

requirement = pytest.mark.requirement

TOOLS = [{"type": "search_corpus"}, {"type": "grep"}]


async def made_by(**fields: Any) -> tuple[Calls, Prompt]:
    """The calls of a response with both tools, and its first prompt with the choice that the request makes."""
    request = decode_create_response(encode({"model": "m", "input": "x", "tools": TOOLS, **fields}))
    asked = wanted([Corpus()], request)
    assert isinstance(asked, Wanted)
    session = Session(Scope("t"), "resp_1", request)
    hosted = HostedTools(session, asked, Observer(), (), 100_000)
    await hosted.open_now()
    box = toolbox(request.tools, hosted=hosted.functions, here=hosted.here)
    allowed = ("grep",) if "tool_choice" in fields else tuple(box.entries)
    prompt = Prompt(messages=[], toolbox=box, choice=ResolvedChoice("auto", allowed))
    return Calls(hosted, Observer(), None, lambda _: None), prompt


def call(name: str) -> MadeCall:
    return MadeCall(name, '{"queries":["x"]}', name)


@requirement("loop:budget")
async def test_a_turn_that_makes_calls_without_end_is_told_of_a_few_of_them():
    calls, prompt = await made_by(max_tool_calls=1_000)
    taken = calls.honoured([call("grep")] * 500, prompt, 0, 0)
    assert len(taken) == MOST_TOLD
    assert [one.refusal is None for one in taken] == [True] * 8 + [False] * (MOST_TOLD - 8)


@requirement("loop:choice")
async def test_a_tool_that_may_not_be_called_is_not_run_whatever_the_model_says():
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "grep"}]}
    calls, prompt = await made_by(tool_choice=choice)
    refused, taken = calls.honoured([call("search_corpus"), call("grep")], prompt, 0, 0)
    assert (refused.refusal is not None, refused.body["type"]) == (True, "search_corpus_call")
    assert taken.refusal is None
    calls, prompt = await made_by()
    none = Prompt(messages=[], toolbox=prompt.toolbox, choice=ResolvedChoice("none", ()))
    assert calls.honoured([call("grep")], none, 0, 0) == []


def kept(position: int, turn: int, *, done: bool = True, asks: dict[str, Any] | None = None) -> KeptCall:
    name = f"sc_{position}"
    given = {"status": "completed"} if done else None
    return KeptCall(
        position, turn, f"call_{position}", name, "", "grep", "{}", None, asks, 9, NOTHING_USED,
        DONE if done else PENDING, given,
    )  # fmt: skip


def item(position: int, status: str = "completed") -> dict[str, Any]:
    return {"type": "search_corpus_call", "id": f"sc_{position}", "status": status}


MESSAGE = {"type": "message", "id": "msg_1"}
LIST = {"type": "mcp_list_tools", "id": "mcpl_1"}
CALL = {"type": "computer_call", "id": "cu_1", "call_id": "c"}


@requirement("loop:resume")
@pytest.mark.parametrize(
    ("items", "calls", "expected"),
    [
        ([], [], Progress()),
        ([LIST], [], Progress(0, 1)),
        ([LIST, MESSAGE], [kept(0, 0, done=False)], Progress(0, 1)),
        ([LIST, MESSAGE, item(0, "in_progress")], [kept(0, 0, done=False)], Progress(0, 1)),
        ([LIST, MESSAGE, item(0)], [kept(0, 0), kept(1, 0)], Progress(0, 1)),
        ([LIST, MESSAGE, item(0)], [kept(0, 0)], Progress(1, 3)),
        ([MESSAGE, item(0), MESSAGE], [kept(0, 0)], Progress(1, 2)),
        ([item(0), item(1)], [kept(0, 0), kept(1, 1)], Progress(2, 2)),
        ([item(0), MESSAGE], [kept(0, 0), kept(1, 1, done=False)], Progress(1, 1)),
        ([LIST, item(0)], [kept(0, -1)], Progress(0, 2)),
        ([LIST], [kept(0, -1)], Progress()),
        ([CALL, item(0)], [kept(0, 0)], Progress(1, 2, waiting=True)),
        ([item(0)], [kept(0, 0, asks={"id": "sc_0"})], Progress(1, 1, waiting=True)),
    ],
)
def test_where_a_response_stands_is_told_by_its_items_and_its_calls(
    items: list[Any], calls: list[KeptCall], expected: Progress
):
    assert standing(items, calls) == expected
