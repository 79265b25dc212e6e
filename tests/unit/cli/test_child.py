"""The server of one command's own, on systems that are not this one."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from antiphon.cli.child import own_server


@pytest.mark.requirement("cli:portable")
def test_a_system_without_sighup_starts_and_stops_a_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(signal, "SIGHUP")
    before = signal.getsignal(signal.SIGTERM)
    arguments = ["--model", "scripted", "--store", "memory", "--data-dir", str(tmp_path)]
    with own_server(arguments, "scripted", 60.0) as base_url:
        assert base_url.startswith("http://127.0.0.1:")
    assert signal.getsignal(signal.SIGTERM) is before
