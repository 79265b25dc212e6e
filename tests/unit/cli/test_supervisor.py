"""What a service manager is told of a server that it started."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.cli.supervisor import ADDRESS, ServerAnnouncer, notify
from support.server import running_server

pytestmark = pytest.mark.requirement("cluster:notify")

SECONDS = 10.0


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """A service manager's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(SECONDS)
        yield listening


def test_a_started_server_says_that_it_is_ready_and_a_stopped_one_that_it_stops(manager: socket.socket) -> None:
    arguments = ["--model", "scripted", "--store", "memory"]
    with running_server(arguments, environment={ADDRESS: manager.getsockname()}) as server:
        assert manager.recv(4096).decode() == f"READY=1\nSTATUS=Answers at {server.base_url}"
    assert manager.recv(4096) == b"STOPPING=1"


def test_what_it_waits_for_is_told(manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADDRESS, manager.getsockname())
    ServerAnnouncer().stopping(3, 30.0)
    assert manager.recv(4096) == b"STOPPING=1\nSTATUS=Waits for 3 responses"


def test_a_name_in_the_abstract_namespace_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("")  # Linux chooses a free abstract name.
        listening.settimeout(SECONDS)
        name = listening.getsockname()
        monkeypatch.setenv(ADDRESS, "@" + name[1:].decode())
        assert notify("READY=1")
        assert listening.recv(4096) == b"READY=1"


@pytest.mark.parametrize("address", [None, "", "relative", "/nowhere/at/all", "vsock:2:1234"])
def test_without_a_manager_nothing_is_told_and_nothing_fails(
    address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ADDRESS, raising=False)
    if address is not None:
        monkeypatch.setenv(ADDRESS, address)
    assert not notify("READY=1")
