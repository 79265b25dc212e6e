"""A server that is killed in mid-stream: what it acknowledged is there again, and nothing hangs."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx2
import pytest

from antiphon.protocol.json import loads
from antiphon.protocol.sse import SSEParser
from support.server import running_server

CLOSING = 3
"""The events that close an open message: of its text, its part and itself."""


@pytest.mark.requirement("fault:server-killed", "replay:lost")
def test_after_a_kill_stored_responses_are_there_and_a_running_one_has_failed(tmp_path: Path):
    arguments = ["--model", "scripted", "--store", str(tmp_path / "state.db")]
    with (
        running_server(arguments, stop_signal=signal.SIGKILL) as server,
        httpx2.Client(base_url=server.base_url, timeout=30) as client,
    ):
        kept = client.post("/responses", json={"model": "scripted", "input": "remember"}).json()
        body = {"model": "scripted", "input": "!SLOW 20\n!COUNT 5000", "stream": True}
        with client.stream("POST", "/responses", json=body) as stream:
            parser = SSEParser()
            events: list[dict[str, object]] = []
            for chunk in stream.iter_bytes():
                events += [loads(event.data) for event in parser.feed(chunk)]
                if len(events) > 40:
                    # Here: behind the loop the connection is closed, which would cancel the response.
                    server.process.kill()
                    server.process.wait(10)
                    break
    running_id = events[0]["response"]["id"]  # type: ignore[index]
    with running_server(arguments) as server, httpx2.Client(base_url=server.base_url, timeout=30) as client:
        assert client.get(f"/responses/{kept['id']}").json() == kept
        left = client.get(f"/responses/{running_id}").json()
        assert left["status"] == "failed"
        assert left["error"]["code"] == "server_restarted"
        frames = SSEParser().feed(client.get(f"/responses/{running_id}?stream=true").content)
        durable = [loads(frame.data) for frame in frames[:-1]]
        assert durable[-1]["response"] == left
        closing = [event["type"] for event in durable].index("error") - CLOSING
        assert durable[:closing] == events[:closing]
        lost = client.get(f"/responses/{running_id}?stream=true&starting_after={closing}")
        assert (lost.status_code, lost.json()["error"]["code"]) == (400, "events_lost")
        rest = client.get(f"/responses/{running_id}?stream=true&starting_after={closing - 1}")
        assert [loads(frame.data) for frame in SSEParser().feed(rest.content)[:-1]] == durable[closing:]
        body = {"model": "scripted", "input": "!ECHO", "previous_response_id": kept["id"]}
        assert "remember" in client.post("/responses", json=body).json()["output_text"]
        assert client.delete(f"/responses/{running_id}").json()["deleted"] is True
