"""Loops of any shape: what becomes of their calls is what the rules say, and a chain tells it again byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.fake_tools import Corpus, Servers
from support.inprocess import inprocess_app, sse_events

requirement = pytest.mark.requirement

TOOLS = [
    {"type": "search_corpus"},
    {"type": "file_search", "vector_store_ids": ["vs_1"]},
    {"type": "mcp", "server_label": "here", "server_url": "https://mcp.test", "require_approval": "never"},
]
TYPES = {"search_corpus": "search_corpus_call", "file_search": "file_search_call", "look": "mcp_call"}
TYPES |= {"change": "mcp_call", "made_up": "search_corpus_call"}

calls = st.tuples(st.sampled_from(list(TYPES)), st.sampled_from(["one", "two", "fail", "né \\\\n <x>"]))
turns = st.tuples(st.booleans(), st.booleans(), st.lists(calls, min_size=1, max_size=10))


def lines(turn: tuple[bool, bool, list[tuple[str, str]]]) -> str:
    thinks, says, made = turn
    told = [*(["!REASON hm so"] if thinks else []), *(["!TEXT I look"] if says else [])]
    return "\n".join([*told, *(f'!CALL {name} {{"queries":["{query}"]}}' for name, query in made)])


def expected(program: list[tuple[bool, bool, list[tuple[str, str]]]], most: int) -> tuple[list[str], list[str]]:
    """The types of the items in order, and the states of the calls, by the rules (B2, B5)."""
    kinds, states = ["mcp_list_tools"], []
    left = most
    for thinks, says, made in program:
        kinds += ["reasoning"] * thinks
        if not left:
            # The answer without tools: the calls of this turn are left out.
            return [*kinds, "message"], states
        kinds += ["message"] * says
        for number, (name, query) in enumerate(made[:left]):
            kinds.append(TYPES[name])
            bad = name == "made_up" or number >= 8 or query == "fail"
            states.append("failed" if bad else "completed")
        left -= len(made[:left])
    return [*kinds, "message"], states


@requirement("loop:hosted", "loop:chain", "loop:laws")
@pytest.mark.hypothesis
@settings(max_examples=20)
@given(program=st.lists(turns, min_size=1, max_size=4), most=st.integers(1, 20), stream=st.booleans())
async def test_a_loop_of_any_shape_is_what_the_rules_say(program: Any, most: int, stream: bool):
    asked = "\n!THEN\n".join([*map(lines, program), "!ECHO"])
    async with inprocess_app(tools=[Corpus(), Servers()]) as api:
        fields = {"tools": TOOLS, "max_tool_calls": most, "instructions": "Be kind."}
        body = {"model": "scripted", "input": asked, "stream": stream, "background": stream, **fields}
        answer = await api.client.post("/responses", json=body)
        final = sse_events(answer.content)[-1]["response"] if stream else answer.json()
        replayed = sse_events((await api.client.get(f"/responses/{final['id']}?stream=true")).content)
        told = [event["item"] for event in replayed if event["type"] == "response.output_item.done"]
        kinds, states = expected(program, most)
        says_nothing = not any(item["type"] == "message" for item in told[-1:])
        if says_nothing:
            kinds = kinds[:-1]
            assert final["incomplete_details"] == {"reason": "max_tool_calls"}
        else:
            assert final["status"] == "completed"
        assert [item["type"] for item in told] == kinds
        assert [item["status"] for item in told if item["type"].endswith("_call")] == states
        # Law 3: what a chain tells begins with what the loop told its last turn.
        if final["status"] == "completed" and final["output_text"].endswith("<|im_start|>assistant\n"):
            again = await api.create("!ECHO", previous_response_id=final["id"], instructions="Be kind.")
            last = told[-1]["content"][0]["text"].removesuffix("<|im_start|>assistant\n")
            reminder = last.rfind("<|im_start|>user\n")
            assert again["output_text"].startswith(last if "No more tools" not in last else last[:reminder])
