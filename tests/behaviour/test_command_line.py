"""The command line with real servers."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from antiphon.cli import chat as chat_module
from antiphon.cli.child import own_server
from antiphon.cli.connection import Connection, UnreachableError
from antiphon.cli.main import cli
from antiphon.cli.terminal import snippet
from antiphon.errors import ConfigurationError
from support.server import running_server

ANTIPHON = [sys.executable, "-m", "antiphon"]


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("ANTIPHON_BASE_URL", "ANTIPHON_API_KEY", "ANTIPHON_CONFIG", "ANTIPHON_MODEL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def nothing_at_the_default_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    option = next(param for param in chat_module.chat.params if param.name == "base_url")
    monkeypatch.setattr(option, "default", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("ANTIPHON_DATA_DIR", str(tmp_path))


def answers(base_url: str) -> bool:
    try:
        with Connection(base_url) as connection:
            return bool(connection.models())
    except UnreachableError:
        return False


@pytest.mark.requirement("cli:serve:announce")
def test_the_printed_snippet_runs(scripted_server: str) -> None:
    code = snippet(scripted_server, "scripted", with_key=False)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "Hello from scripted.\n"


@pytest.mark.requirement("cli:chat:stream", "cli:chat:chain")
def test_chat_talks_to_a_server_and_keeps_the_chain(scripted_server: str, tmp_path: Path) -> None:
    arguments = ["chat", "--base-url", scripted_server, "--data-dir", str(tmp_path)]
    first = CliRunner().invoke(cli, [*arguments, "!TEXT one two"])
    assert (first.exit_code, first.stdout) == (0, "one two\n")
    second = CliRunner().invoke(cli, [*arguments, "-c", "--instructions", "Be brief.", "!ECHO"])
    assert "!TEXT one two" in second.stdout
    assert "Be brief." in second.stdout


@pytest.mark.requirement("cli:chat:errors")
def test_chat_says_what_the_server_and_the_model_say(scripted_server: str, tmp_path: Path) -> None:
    arguments = ["chat", "--base-url", scripted_server, "--data-dir", str(tmp_path)]
    unknown = CliRunner().invoke(cli, [*arguments, "--model", "gpt-0", "Hi"])
    assert unknown.exit_code == 1
    assert "gpt-0" in unknown.stderr
    failed = CliRunner().invoke(cli, [*arguments, "!FAIL"])
    assert failed.exit_code == 1
    assert failed.stderr.startswith("Error: ")


@pytest.mark.requirement("cli:chat:interrupt")
def test_ctrl_c_leaves_a_running_answer(scripted_server: str, tmp_path: Path) -> None:
    arguments = ["chat", "--base-url", scripted_server, "--data-dir", str(tmp_path), "!SLOW 20\n!COUNT 100000"]
    process = subprocess.Popen([*ANTIPHON, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read(1) == b"1"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors == b""


@pytest.mark.requirement("cli:chat:own-server")
@pytest.mark.usefixtures("nothing_at_the_default_address")
def test_chat_starts_a_server_of_its_own_and_goes_on_with_the_next() -> None:
    first = CliRunner().invoke(cli, ["chat", "--model", "scripted", "!TEXT one"])
    assert (first.exit_code, first.stdout) == (0, "one\n"), first.output
    second = CliRunner().invoke(cli, ["chat", "-c", "!ECHO"])
    assert "!TEXT one" in second.stdout, "the same model and the same chain, in another server"


@pytest.mark.requirement("cli:chat:own-server")
@pytest.mark.usefixtures("nothing_at_the_default_address")
def test_chat_repeats_why_its_server_did_not_start(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["chat", "--model", str(tmp_path / "missing.gguf"), "Hi"])
    assert result.exit_code == 2
    assert "missing.gguf" in result.stderr


@pytest.mark.requirement("cli:chat:own-server")
def test_a_server_of_ones_own_ends_with_its_use(tmp_path: Path) -> None:
    arguments = ["--model", "scripted", "--store", "memory", "--data-dir", str(tmp_path)]
    with own_server(arguments, "scripted", 60.0) as base_url:
        assert answers(base_url)
    assert not answers(base_url)


@pytest.mark.requirement("cli:chat:own-server")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_server_of_ones_own_ends_when_its_owner_is_told_to(number: signal.Signals) -> None:
    code = (
        "import signal\n"
        "from antiphon.cli.child import own_server\n"
        "with own_server(['--model', 'scripted', '--store', 'memory'], 'scripted', 60.0) as base_url:\n"
        "    print(base_url, flush=True)\n"
        "    while True:\n"
        "        signal.pause()\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL)
    assert owner.stdout is not None
    base_url = owner.stdout.readline().strip()
    assert answers(base_url)
    owner.send_signal(number)
    owner.communicate(timeout=30)
    assert owner.returncode == 128 + number
    assert not answers(base_url)


@pytest.mark.requirement("cli:chat:own-server")
def test_a_server_that_is_not_ready_in_time_is_stopped(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigurationError, match="not ready after 0 s"),
        own_server(["--model", "scripted", "--store", "memory", "--data-dir", str(tmp_path)], "scripted", 0.0),
    ):
        pass


@pytest.mark.requirement("cli:serve:stop")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_is_told_to_stop_ends_without_an_error(number: signal.Signals) -> None:
    with running_server(["--model", "scripted", "--store", "memory"], stop_signal=number) as server:
        pass
    assert server.process.returncode == 0
    assert server.lines[-1] == "Stopped.\n"
    assert not any("Traceback" in line for line in server.lines)


@pytest.mark.requirement("cli:errors", "cli:serve:loopback")
def test_a_refused_start_is_one_line_on_stderr() -> None:
    result = subprocess.run([*ANTIPHON, "serve", "--host", "0.0.0.0"], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
