"""A server that is killed in the middle of ingestion: the next one goes on, and the chunks are the same, none twice."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from support.embeddings_stub import embeddings_stub
from support.ingesting import Documents, arguments_of
from support.server import running_server


@pytest.mark.requirement("ingest:crash")
def test_a_file_is_ingested_whole_and_once_after_a_kill(tmp_path: Path):
    with embeddings_stub() as stub:
        arguments = arguments_of(str(tmp_path / "state.db"), stub)
        stub.stick_after(2)
        with running_server(arguments, stop_signal=signal.SIGKILL) as server:
            killed = Documents(server).add("guide.md")
            assert stub.stuck.wait(60)
            assert Documents(server).status(*killed) == "in_progress"
            assert Documents(server).texts(*killed) == []
            server.process.kill()
            server.process.wait(10)
            stub.go_on.set()
        with running_server(arguments) as server:
            documents = Documents(server)
            assert documents.ended(*killed) == "completed"
            whole = documents.add("guide.md")
            assert documents.ended(*whole) == "completed"
            texts = documents.texts(*whole)
            assert len(texts) > 90
            assert documents.texts(*killed) == texts
            assert documents.hits(killed[0]) == documents.hits(whole[0])
