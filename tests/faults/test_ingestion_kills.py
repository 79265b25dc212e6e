"""Servers that are killed again and again while they ingest, each at another place, on a file and on a database."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.embeddings_stub import embeddings_stub
from support.ingesting import Documents, arguments_of
from support.postgres import cluster
from support.server import running_server


@pytest.fixture
def database() -> Iterator[str]:
    """The address of an empty database."""
    shared = cluster()
    name = shared.create_database(empty=True)
    yield shared.url(name)
    shared.drop_database(name)


@pytest.mark.requirement("ingest:crash", "ingest:attempts")
def test_a_file_that_is_begun_four_times_is_given_up_and_others_go_on(tmp_path: Path):
    with embeddings_stub() as stub:
        arguments = arguments_of(str(tmp_path / "state.db"), stub)
        deadly = ("", "")
        for kill in range(3):
            stub.stick_after(kill)
            with running_server(arguments, stop_signal=signal.SIGKILL) as server:
                deadly = deadly if kill else Documents(server).add("deadly.md")
                assert stub.stuck.wait(60)
                server.process.kill()
                server.process.wait(10)
                stub.go_on.set()
        with running_server(arguments) as server:
            documents = Documents(server)
            assert documents.ended(*deadly).startswith("failed: The server ended each time")
            assert documents.texts(*deadly) == []
            assert documents.ended(*documents.add("harmless.md")) == "completed"


@pytest.mark.requirement("ingest:crash")
def test_another_server_takes_over_what_a_killed_one_has_begun(database: str):
    with embeddings_stub() as stub:
        arguments = arguments_of(database, stub)
        stub.stick_after(3)
        with (
            running_server(arguments, stop_signal=signal.SIGKILL) as first,
            running_server(arguments, stop_signal=signal.SIGKILL) as second,
        ):
            killed = Documents(first).add("guide.md")
            assert stub.stuck.wait(60)
            documents = Documents(second)
            assert documents.status(*killed) == "in_progress"
            first.process.kill()
            first.process.wait(10)
            stub.go_on.set()
            assert documents.ended(*killed) == "completed"
            whole = documents.add("guide.md")
            assert documents.ended(*whole) == "completed"
            assert documents.texts(*killed) == documents.texts(*whole)
            assert documents.hits(killed[0]) == documents.hits(whole[0])


@pytest.mark.requirement("ingest:crash", "ingest:stop")
def test_two_servers_share_the_work_and_none_is_done_twice(database: str):
    with embeddings_stub() as stub:
        arguments = arguments_of(database, stub)
        with running_server(arguments) as first, running_server(arguments) as second:
            both = Documents(first), Documents(second)
            added = [both[number % 2].add(f"{number}.md", f"# Number {number}\n\nText.\n") for number in range(20)]
            assert {both[0].ended(*each) for each in added} == {"completed"}
            assert [both[1].texts(*each) for each in added] == [["Text."]] * 20
        asked = [text for question in stub.questions for text in question]
        assert sorted(asked) == sorted(f"Number {number}\nText." for number in range(20))
