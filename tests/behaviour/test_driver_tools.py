"""The tool loop with the running server: chained, replayed, streamed and over a session it ends the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from antiphon.client.chunks import ContentChunk, ThinkingChunk
from antiphon.client.client import AsyncClient, Client
from antiphon.client.toolcalls import Outcome
from antiphon.client.toolruns import run_tools, run_tools_async, stream_tools
from antiphon.http.app import create_app
from support.inprocess import inprocess_app

requirement = pytest.mark.requirement
SCRIPT = (
    '!REASON where\n!CALL look {"at":"sky"}\n!CALL look {"at":"sea"}\n'
    "!THEN\n!CUSTOM note blue { sky\n!THEN\n!REASON so\n!TEXT done"
)
NOTE = {"type": "custom", "name": "note"}


def look(at: str) -> dict[str, str]:
    """Look there."""
    return {"seen": at}


@pytest.fixture(scope="module")
def client(scripted_server: str) -> Iterator[Client]:
    with Client(scripted_server, provider="antiphon", model="scripted") as client:
        yield client


def outputs_of(run: Any) -> list[Any]:
    return [outcome.output for outcome in run.outcomes]


EXPECTED = [{"seen": "sky"}, {"seen": "sea"}, "BLUE { SKY"]


@requirement("driver:tools:server")
@pytest.mark.parametrize("options", [{}, {"store": False}, {"chain": False}], ids=["chained", "not-stored", "replayed"])
def test_it_ends_with_the_answer_chained_and_replayed(client: Client, options: dict[str, bool]) -> None:
    kept = {"note": str.upper}
    run = run_tools(client, SCRIPT, tools=[look, NOTE], functions=kept, **options)
    assert (run.text, run.response.thinking, outputs_of(run), len(run.responses)) == ("done", "so", EXPECTED, 3)
    assert run.usage.total_tokens == sum(response.usage.total_tokens for response in run.responses)
    with stream_tools(client, SCRIPT, tools=[look, NOTE], functions=kept, **options) as stream:
        events = list(stream)
        streamed = stream.result()
    assert (streamed.text, outputs_of(streamed)) == (run.text, EXPECTED)
    assert [event.text for event in events if isinstance(event, ThinkingChunk)] == ["where", "so"]
    assert "".join(event.text for event in events if isinstance(event, ContentChunk)) == "done"
    assert [event.output for event in events if isinstance(event, Outcome)] == EXPECTED


@requirement("driver:tools:server")
def test_it_runs_over_a_session_though_nothing_is_stored(client: Client) -> None:
    with client.session() as session:
        run = run_tools(session, SCRIPT, tools=[look, NOTE], functions={"note": str.upper}, store=False)
    assert (run.text, outputs_of(run)) == ("done", EXPECTED)


@requirement("driver:tools:server")
async def test_it_runs_in_this_process() -> None:
    async def note(text: str) -> str:
        return text.upper()

    async with inprocess_app() as served:
        application = create_app(served.service)
        async with AsyncClient(provider="antiphon", model="scripted", app=application) as client:
            run = await run_tools_async(client, SCRIPT, tools=[look, NOTE], functions={"note": note})
    assert (run.text, outputs_of(run)) == ("done", EXPECTED)
