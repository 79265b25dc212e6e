"""A model that prunes what it sees: the view, the stored history, the edits that a response tells of (B14)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.settings import Settings
from antiphon.tools.prune import PruneProvider
from support.inprocess import InProcess, inprocess_app

requirement = pytest.mark.requirement

PRUNES = {"edits": [{"type": "prune_context"}]}
LONG = "Long. " * 400


def history(size: str = LONG) -> list[dict[str, object]]:
    return [
        {"role": "user", "content": "Look."},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": size},
    ]


def asks(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@pytest.fixture(params=["memory", "sqlite"])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[InProcess]:
    async with inprocess_app(store=request.param, tmp_path=tmp_path, tools=[PruneProvider()]) as app:
        yield app


PRUNE = asks('!CALL prune_context {"ids":["c1"]}\n!THEN\n!ECHO')


@requirement("hosted:prune", "hosted:prune:edits")
async def test_b14_the_model_prunes_a_result_and_the_response_says_so(api: InProcess):
    response = await api.create([*history(), PRUNE], context_management=PRUNES)
    assert "[c1] [Pruned.]" in response["output_text"]
    assert LONG not in response["output_text"]
    (edit,) = response["context_management"]["applied_edits"]
    assert (edit["type"], edit["calls"]) == ("prune_context", 1)
    assert edit["cleared_input_tokens"] == (len(LONG) - len("[Pruned.]")) // 4
    assert [call["ids"] for call in response["hosted_tool_calls"]] == [["c1"]]
    assert (await api.client.get(f"/responses/{response['id']}")).json() == response


@requirement("hosted:prune")
async def test_b14_what_is_stored_is_whole_and_prunes_persist_over_a_chain(api: InProcess):
    first = await api.create([*history(), PRUNE], context_management=PRUNES)
    # It is not declared any more, and what was pruned stays so.
    second = await api.create("!ECHO", previous_response_id=first["id"])
    assert "[Pruned.]" in second["output_text"]
    assert LONG not in second["output_text"]
    assert "context_management" not in second
    listed = (await api.client.get(f"/responses/{second['id']}/input_items", params={"limit": 100})).json()["data"]
    assert [item["output"] for item in listed if item["type"] == "function_call_output"] == [LONG]


@requirement("hosted:prune")
async def test_b14_usage_falls_in_the_next_turn(api: InProcess):
    whole = await api.create([*history(), asks("!TEXT so")])
    first = await api.create(
        [*history(), asks('!CALL prune_context {"ids":["c1"]}\n!THEN\n!TEXT so')], context_management=PRUNES
    )
    second = await api.create("!TEXT so", previous_response_id=first["id"])
    assert second["usage"]["input_tokens"] < whole["usage"]["input_tokens"] / 2


@requirement("hosted:prune")
async def test_b14_without_the_edit_nothing_can_be_pruned(api: InProcess):
    response = await api.create([*history(), asks("!ECHO")], context_management={"edits": [{"type": "clear"}]})
    assert LONG in response["output_text"]
    assert "[c1]" not in response["output_text"]
    assert "context_management" not in response


@requirement("hosted:prune:truncate")
async def test_b14_results_that_do_not_fit_are_truncated_only_where_the_edit_is_declared():
    settings = Settings(scripted_context_length=1_500)
    async with inprocess_app(settings=settings, tools=[PruneProvider()]) as api:
        given = [*history("Long. " * 2_000), asks("!TEXT so")]
        assert (await api.refused(400, given))["code"] == "context_length_exceeded"
        response = await api.create(given, context_management=PRUNES)
        assert response["output_text"] == "so"
        (edit,) = response["context_management"]["applied_edits"]
        assert response["hosted_tool_calls"] == []
        assert (edit["type"], edit["tool_call_id"]) == ("truncate_tool_result", "c1")
        assert edit["cleared_input_tokens"] > 1_000
        text = {"role": "user", "content": "Long. " * 2_000}
        assert (await api.refused(400, [text], context_management=PRUNES))["code"] == "context_length_exceeded"


@requirement("hosted:prune:edits")
async def test_b14_the_terminal_event_has_the_edits(api: InProcess):
    events = await api.stream([*history(), PRUNE], context_management=PRUNES)
    assert events[-1]["response"]["context_management"]["applied_edits"][0]["calls"] == 1
    assert "context_management" not in events[0]["response"]
