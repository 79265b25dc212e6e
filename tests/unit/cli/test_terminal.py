"""What a start and a download look like, on a terminal and off it."""

from __future__ import annotations

import sys
import threading

import pytest

from antiphon.cli import terminal
from antiphon.cli.terminal import TerminalAnnouncer, download_progress, printable, snippet


class Clock:
    """A clock that goes a second a look, and tells when it has been looked at three times."""

    def __init__(self) -> None:
        self.seconds = -1.0
        self.looked_at = threading.Event()

    def monotonic(self) -> float:
        self.seconds += 1
        if self.seconds == 2:
            self.looked_at.set()
        return self.seconds


def make_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


@pytest.mark.requirement("cli:serve:progress")
def test_a_log_gets_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    announcer = TerminalAnnouncer()
    announcer.loading("smollm2")
    announcer.loaded("smollm2", 0.61)
    assert capsys.readouterr().err == "Loading smollm2 ...\nLoaded smollm2 in 0.6 s.\n"


@pytest.mark.requirement("cli:serve:progress")
def test_a_terminal_gets_a_line_that_counts_the_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_terminal(monkeypatch)
    clock = Clock()
    monkeypatch.setattr(terminal, "time", clock)
    announcer = TerminalAnnouncer(interval=0.001)
    announcer.loading("smollm2")
    assert clock.looked_at.wait(5)
    announcer.loaded("smollm2", 0.61)
    shown = capsys.readouterr().err
    assert "Loading smollm2 ... 1 s" in shown
    assert shown.endswith("Loaded smollm2 in 0.6 s.\n")


@pytest.mark.requirement("cli:serve:announce")
def test_a_start_tells_url_models_state_and_a_snippet(capsys: pytest.CaptureFixture[str]) -> None:
    TerminalAnnouncer().started("http://127.0.0.1:8080/v1", ["smollm2", "gpt-5"], "Responses are kept in memory.")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "Antiphon answers at http://127.0.0.1:8080/v1",
        "Models: smollm2, gpt-5",
        "Responses are kept in memory.",
    ]
    assert '    client = OpenAI(base_url="http://127.0.0.1:8080/v1", api_key="none")' in lines
    assert any(line.endswith('antiphon chat "Hello!"') for line in lines)


@pytest.mark.requirement("cli:serve:announce")
def test_the_snippet_is_python_and_holds_no_key(capsys: pytest.CaptureFixture[str]) -> None:
    compile(snippet("http://127.0.0.1:1/v1", "smollm2", with_key=False), "snippet", "exec")
    TerminalAnnouncer(with_key=True).started("http://127.0.0.1:9/v1", ["m"], "")
    shown = capsys.readouterr().out
    assert "YOUR_API_KEY" in shown
    assert "antiphon chat --base-url http://127.0.0.1:9/v1" in shown


@pytest.mark.requirement("cli:models:pull")
def test_a_download_is_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    make_terminal(monkeypatch)
    with download_progress("Fetching smollm2") as progress:
        progress(0, 2_000_000)
        progress(1_000_000, 2_000_000)
        progress(1_000_001, 2_000_000)
        progress(2_000_000, 2_000_000)
    shown = capsys.readouterr().err.split("\r\033[K")
    assert shown[2] == "Fetching smollm2 [################----------------]  50 %  1.0 of 2.0 MB"
    assert shown[3].endswith("100 %  2.0 of 2.0 MB\n")
    assert len(shown) == 4


@pytest.mark.requirement("cli:models:pull")
def test_a_download_is_a_line_for_each_tenth_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with download_progress("Fetching smollm2") as progress:
        for received in range(1001):
            progress(received, 1000)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11
    assert lines[-1] == "Fetching smollm2: 100 % of 0.0 MB"


@pytest.mark.requirement("cli:chat:control")
def test_control_characters_are_taken_out_of_text() -> None:
    assert printable("a\x1b[31mb\x9b2J\rc\x07\n\td é 猫") == "a[31mb2Jc\n\td é 猫"
