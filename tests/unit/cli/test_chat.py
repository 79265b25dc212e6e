"""`antiphon chat` against a stand-in for a server."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from antiphon.cli import chat as chat_module
from antiphon.cli.main import cli
from support.responses_stub import ResponsesStub, answer, responses_stub


@pytest.fixture
def server() -> Iterator[ResponsesStub]:
    with responses_stub() as running:
        yield running


def chat(server: ResponsesStub, *arguments: str, typed: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["chat", "--base-url", server.base_url, *arguments], input=typed)


@pytest.mark.requirement("cli:chat:stream")
def test_the_answer_is_written_and_nothing_else(server: ResponsesStub) -> None:
    server.answers = [answer("resp_1", "Hel", "lo", thinking="Hm.")]
    result = chat(server, "Say", "hello")
    assert result.exit_code == 0
    assert result.output == "Hello\n"
    assert server.requests == [{"model": "first", "input": "Say hello", "stream": True}]


@pytest.mark.requirement("cli:chat:stream")
def test_thinking_is_dimmed_and_set_off_on_a_terminal(
    server: ResponsesStub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers = [answer("resp_1", "Hello", thinking="Hm.")]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    cli(["chat", "--base-url", server.base_url, "Hi"], standalone_mode=False)
    assert capsys.readouterr().out == "\x1b[2mHm.\x1b[0m\n\nHello\n"


@pytest.mark.requirement("cli:chat:stream")
def test_model_instructions_and_key_are_sent(server: ResponsesStub) -> None:
    server.answers = [answer("resp_1", "x")]
    chat(server, "--model", "third", "--instructions", "Be brief.", "--api-key", "k1,k2", "Hi")
    assert server.requests[0]["model"] == "third"
    assert server.requests[0]["instructions"] == "Be brief."
    assert server.keys == ["Bearer k1"]


@pytest.mark.requirement("cli:chat:stream")
def test_an_answer_that_was_cut_short_says_so_on_stderr(server: ResponsesStub) -> None:
    cut = answer("resp_1", "1 2", status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    server.answers = [cut]
    result = chat(server, "count")
    assert result.exit_code == 0
    assert result.stdout == "1 2\n"
    assert "cut short: max_output_tokens" in result.stderr


@pytest.mark.requirement("cli:chat:control")
def test_an_answer_cannot_steer_the_terminal(server: ResponsesStub) -> None:
    server.answers = [answer("resp_1", "\x1b]0;owned\x07red")]
    assert chat(server, "Hi").stdout == "]0;ownedred\n"


@pytest.mark.requirement("cli:chat:chain")
def test_a_conversation_is_a_line_a_turn_and_keeps_the_chain(server: ResponsesStub) -> None:
    server.answers = [answer("resp_1", "one"), answer("resp_2", "two")]
    result = chat(server, typed="first\n\n  second  \n")
    assert result.exit_code == 0
    assert result.stdout == "one\ntwo\n"
    assert "previous_response_id" not in server.requests[0]
    assert server.requests[1]["previous_response_id"] == "resp_1"
    assert server.requests[1]["input"] == "second"


@pytest.mark.requirement("cli:chat:chain")
def test_continue_goes_on_from_the_last_answer_with_its_model(server: ResponsesStub, data_path: Path) -> None:
    server.answers = [answer("resp_1", "a"), answer("resp_2", "b"), answer("resp_3", "c"), answer("resp_4", "d")]
    chat(server, "--model", "second", "one")
    chat(server, "-c", "two")
    assert server.requests[1] == {
        "model": "second",
        "input": "two",
        "previous_response_id": "resp_1",
        "stream": True,
    }
    kept = data_path / "chat.json"
    assert json.loads(kept.read_text()) == {"response_id": "resp_2", "model": "second"}
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    server.models = ["first"]
    chat(server, "--continue", "three")
    assert server.requests[2]["model"] == "first", "the model of the last turn is not served any more"
    chat(server, "four")
    assert "previous_response_id" not in server.requests[3]


@pytest.mark.requirement("cli:chat:chain")
def test_continue_without_an_earlier_answer_is_an_error(server: ResponsesStub, data_path: Path) -> None:
    assert "no earlier answer" in chat(server, "-c", "two").stderr
    data_path.mkdir()
    (data_path / "chat.json").write_text("{")
    assert chat(server, "-c", "two").exit_code == 1


@pytest.mark.requirement("cli:chat:errors")
@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (404, {"error": {"message": "The model 'x' does not exist.", "code": "model_not_found"}}, "does not exist"),
        (502, b"<html>bad gateway</html>", "The server answers 502."),
        (500, {"error": "text"}, "The server answers 500."),
    ],
)
def test_a_refused_request_is_the_servers_own_words(
    server: ResponsesStub, status: int, body: object, words: str
) -> None:
    server.refuse = (status, body)
    result = chat(server, "Hi")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert words in result.stderr


@pytest.mark.requirement("cli:chat:errors")
@pytest.mark.parametrize(
    ("ending", "words"),
    [
        ({"type": "response.failed", "response": {"id": "r", "error": {"message": "It broke."}}}, "It broke."),
        ({"type": "error", "message": "It broke."}, "It broke."),
        ({"type": "error", "error": {"message": "It broke."}}, "It broke."),
        ({"type": "response.in_progress"}, "broke off before its end"),
    ],
)
def test_an_answer_that_fails_keeps_what_came_and_says_why(
    server: ResponsesStub, data_path: Path, ending: dict[str, object], words: str
) -> None:
    server.answers = [[*answer("r", "Hel")[:-1], ending]]
    result = chat(server, "Hi")
    assert result.exit_code == 1
    assert result.stdout == "Hel\n"
    assert words in result.stderr
    assert not (data_path / "chat.json").exists()


@pytest.mark.requirement("cli:chat:errors")
def test_a_server_that_was_named_and_does_not_answer_is_an_error(server: ResponsesStub) -> None:
    server.base_url = "http://127.0.0.1:1/v1"
    result = chat(server, "Hi")
    assert result.exit_code == 1
    assert result.stderr == "Error: No server answers at http://127.0.0.1:1/v1/.\n"


@pytest.mark.requirement("cli:chat:errors")
def test_lines_from_a_pipe_stop_at_the_first_error(server: ResponsesStub) -> None:
    server.refuse = (400, {"error": {"message": "No."}})
    result = chat(server, typed="one\ntwo\n")
    assert result.exit_code == 1
    assert len(server.requests) == 1


@pytest.mark.requirement("cli:chat:interrupt")
def test_ctrl_c_leaves_without_a_traceback(server: ResponsesStub, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: object, text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(chat_module.AnswerWriter, "answer", interrupt)
    server.answers = [answer("resp_1", "one")]
    result = chat(server, "Hi")
    assert result.exit_code == 130
    assert result.output.strip() == ""


@pytest.mark.requirement("cli:chat:own-server")
def test_a_server_is_started_only_where_none_answers_at_the_default_address(
    server: ResponsesStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    option = next(param for param in chat_module.chat.params if param.name == "base_url")
    monkeypatch.setattr(option, "default", server.base_url)
    server.answers = [answer("resp_1", "one")]
    assert CliRunner().invoke(cli, ["chat", "Hi"]).stdout == "one\n"


@pytest.mark.requirement("cli:chat:own-server", "registry:file")
@pytest.mark.parametrize(
    ("model", "more"), [("first", []), ("second", []), ("scripted", ["--model", "scripted", "--config", os.devnull])]
)
def test_a_server_of_its_own_serves_the_file_of_the_directory_unless_another_model_is_named(
    server: ResponsesStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: str, more: list[str]
) -> None:
    started: list[list[str]] = []

    @contextmanager
    def own_server(arguments: list[str], title: str, timeout: float) -> Iterator[str]:
        started.append(arguments)
        yield server.base_url

    (tmp_path / "antiphon.toml").write_text('[[models]]\nname = "first"\npath = "scripted2"\naliases = ["second"]\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(chat_module, "own_server", own_server)
    option = next(param for param in chat_module.chat.params if param.name == "base_url")
    monkeypatch.setattr(option, "default", "http://127.0.0.1:9/v1")
    server.answers = [answer("resp_1", "one")]
    result = CliRunner().invoke(cli, ["chat", "--data-dir", str(tmp_path), "--model", model, "Hi"])
    assert result.stdout == "one\n"
    assert started == [["--data-dir", str(tmp_path), *more]]
