"""Citations in the answers of a model that searched: marks gone, annotations that resolve, also a turn later (B15)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from antiphon.tools.base import HostedCall, Opened, Outcome, Session
from support.fake_tools import Corpus, Tool
from support.inprocess import InProcess, inprocess_app

requirement = pytest.mark.requirement

FILES = {"type": "file_search", "vector_store_ids": ["vs_1"]}
SEARCH = '!CALL file_search {"queries":["one","two"]}'


class Citing(Tool):
    """A search whose results can be cited."""

    def settle(self, call: HostedCall, outcome: Outcome, session: Session) -> Outcome:
        """Number the results."""
        results = [
            {**result, "_number": session.cite(_annotation(index))}
            for index, result in enumerate(outcome.fields["results"])
        ]
        return Outcome({**outcome.fields, "results": results})

    def sources(self, body: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """The results of an earlier call, by number."""
        return {result["_number"]: _annotation(index) for index, result in enumerate(body.get("results") or ())}


def _annotation(index: int) -> dict[str, Any]:
    return {"type": "file_citation", "file_id": "file-1", "filename": "a.md", "chunk_id": f"file-1:{index}"}


class Library(Corpus):
    """Searches that can be cited."""

    async def open(self, declared: Sequence[dict[str, Any]], session: Session) -> Opened:
        """The one tool."""
        return Opened([Citing(declared[0], "file_search_call", "file_search", self.runs.append)])


@pytest.fixture(params=["memory", "sqlite"])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[InProcess]:
    async with inprocess_app(store=request.param, tmp_path=tmp_path, tools=[Library()]) as app:
        yield app


def part(response: dict[str, Any]) -> dict[str, Any]:
    return response["output"][-1]["content"][0]


@requirement("hosted:citations", "hosted:law")
async def test_b15_marks_become_annotations_of_results(api: InProcess):
    asked = f'{SEARCH}\n!THEN\n!TEXT It is so.<cite i="2"/> And so.<cite i="1"/><cite i="9"/>'
    whole = await api.create(asked, tools=[FILES], include=["file_search_call.results"])
    told = part(whole)
    assert told["text"] == whole["output_text"] == "It is so. And so."
    assert [(each["chunk_id"], each["index"]) for each in told["annotations"]] == [("file-1:1", 9), ("file-1:0", 17)]
    events = await api.stream(asked, tools=[FILES])
    added = [event for event in events if event["type"] == "response.output_text.annotation.added"]
    assert [event["annotation"] for event in added] == told["annotations"]
    assert [event["annotation_index"] for event in added] == [0, 1]
    assert part(events[-1]["response"]) == told
    assert "<cite" not in str(events[2:-1])


@requirement("hosted:citations", "hosted:evidence:chain")
async def test_b18_a_later_turn_cites_what_an_earlier_one_found_without_searching(api: InProcess):
    first = await api.create(f"{SEARCH}\n!THEN\n!TEXT Found.", tools=[FILES])
    again = '!TEXT Still so.<cite i="1"/>'
    second = await api.create(again, tools=[FILES], previous_response_id=first["id"])
    assert [each["chunk_id"] for each in part(second)["annotations"]] == ["file-1:0"]
    seen = await api.create("!ECHO", tools=[FILES], previous_response_id=second["id"])
    assert "[1] a.md, score 0.5\nfound one" in seen["output_text"]


@requirement("hosted:citations")
async def test_without_anything_to_cite_text_stays_as_it_is(api: InProcess):
    response = await api.create('!TEXT So.<cite i="1"/>', tools=[FILES])
    assert response["output_text"] == 'So.<cite i="1"/>'
