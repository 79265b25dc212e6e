"""`antiphon ask` with the running server, and with endpoints that refuse, break or are not there."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from antiphon.cli.ask import MAX_BYTES
from antiphon.cli.main import cli
from antiphon.client.client import Client
from support.breaking import breaking_proxy
from support.responses_stub import answer, responses_stub

requirement = pytest.mark.requirement
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d4944415478da63fccfc0f01f0005050202"
    "5fc8f1d20000000049454e44ae426082"
)


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("ANTIPHON_BASE_URL", "ANTIPHON_API_KEY", "OPENAI_API_KEY", "AZURE_OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def ask(base_url: str, *arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(cli, ["ask", "--base-url", base_url, *arguments], input=typed)


def ask_antiphon(base_url: str, *arguments: str, typed: str = "") -> Result:
    return ask(base_url, "--provider", "antiphon", *arguments, typed=typed)


@requirement("cli:ask:answer")
@pytest.mark.parametrize("streamed", ["--stream", "--no-stream"])
def test_the_answer_is_written_and_nothing_else(scripted_server: str, streamed: str) -> None:
    result = ask_antiphon(scripted_server, streamed, "!REASON hm\n!TEXT one", "two")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "one two\n", "")
    typed = ask_antiphon(scripted_server, streamed, typed="!TEXT typed\n")
    assert (typed.exit_code, typed.stdout) == (0, "typed\n")
    odd = ask_antiphon(scripted_server, streamed, "!TEXT \udcff odd")
    assert (odd.exit_code, odd.stdout) == (0, "\ufffd odd\n")
    generic = ask(scripted_server, streamed, "--model", "scripted", "!TEXT any")
    assert (generic.exit_code, generic.stdout) == (0, "any\n")


@requirement("cli:ask:answer")
def test_a_terminal_sees_it_come_with_the_thinking(
    scripted_server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("ANTIPHON_BASE_URL", scripted_server)
    cli(["ask", "!REASON Hm.\n!TEXT Hello"], standalone_mode=False)
    written = capsys.readouterr()
    assert written.out == "\x1b[2mHm.\x1b[0m\n\nHello\n"
    assert "--previous resp_" in written.err


@requirement("cli:ask:chain", "cli:ask:json")
def test_it_goes_on_from_an_answer(scripted_server: str) -> None:
    whole = ask_antiphon(scripted_server, "--json", "!TEXT one")
    response = json.loads(whole.stdout)
    assert (response["text"], response["finish_reason"]) == ("one", "stop")
    previous = response["response_id"]
    echo = ask_antiphon(scripted_server, "--previous", previous, "--instructions", "Be brief.", "!ECHO")
    assert "!TEXT one" in echo.stdout
    assert "Be brief." in echo.stdout
    gone = ask_antiphon(scripted_server, "--previous", "resp_" + "0" * 48, "Hi")
    assert gone.exit_code == 1
    assert "answers 404" in gone.stderr


@requirement("cli:ask:json")
def test_chunks_are_a_line_each(scripted_server: str) -> None:
    result = ask_antiphon(scripted_server, "--json", "--stream", "!COUNT 3")
    chunks = [json.loads(line) for line in result.stdout.splitlines()]
    assert [chunk["text"] for chunk in chunks if chunk["chunk"] == "content"] == ["1 ", "2 ", "3"]
    assert chunks[-1]["terminal"] is True


@requirement("cli:ask:schema")
def test_an_answer_follows_a_schema(scripted_server: str, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}')
    result = ask_antiphon(scripted_server, "--schema", str(schema), "where?")
    assert result.exit_code == 0
    assert isinstance(json.loads(result.stdout)["name"], str)
    cut = ask_antiphon(scripted_server, "--schema", str(schema), "!REFUSE")
    assert cut.exit_code == 1
    assert "does not follow the schema" in cut.stderr
    schema.write_text("[")
    broken = ask_antiphon(scripted_server, "--schema", str(schema), "where?")
    assert (broken.exit_code, "is no JSON Schema" in broken.stderr) == (2, True)


@requirement("cli:ask:parts")
def test_images_and_files_go_along(scripted_server: str, tmp_path: Path) -> None:
    text, image, large = tmp_path / "a.txt", tmp_path / "a.png", tmp_path / "large.txt"
    text.write_text("what is in it")
    image.write_bytes(PIXEL)
    result = ask_antiphon(scripted_server, "--file", str(text), "--image", str(image), "!ECHO")
    assert result.exit_code == 0, result.stderr
    assert base64.b64encode(b"what is in it").decode() in result.stdout
    assert base64.b64encode(PIXEL).decode() in result.stdout
    with large.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    for place, said in ((str(large), "larger than 50 MB"), (str(tmp_path / "none.txt"), "cannot be read")):
        refused = ask_antiphon(scripted_server, "--file", place, "Hi")
        assert (refused.exit_code, said in refused.stderr) == (2, True)


@requirement("cli:ask:errors")
@pytest.mark.parametrize("streamed", ["--stream", "--no-stream"])
def test_what_goes_wrong_is_one_line_and_code_1(scripted_server: str, streamed: str) -> None:
    for words, said in (("!ERR429", "answers 429"), ("!FAIL", "scripted"), ("!STREAMERR", "scripted")):
        result = ask_antiphon(scripted_server, streamed, words)
        assert result.exit_code == 1, words
        assert said in result.stderr, result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert "Traceback" not in result.stderr
    cut = ask_antiphon(scripted_server, streamed, "!INCOMPLETE")
    assert (cut.exit_code, "cut short" in cut.stderr) == (0, True)


@requirement("cli:ask:errors")
@pytest.mark.parametrize("provider", ["antiphon", "generic"])
def test_an_endpoint_that_is_not_there_is_told(provider: str) -> None:
    result = ask("http://127.0.0.1:9/v1", "--provider", provider, "Hi")
    assert result.exit_code == 1
    assert "127.0.0.1:9" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@requirement("cli:ask:errors")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--provider", "azure", "Hi"], "--base-url"),
        (["--provider", "openai", "--api-key-env", "NOT_THERE", "--model", "m", "Hi"], "NOT_THERE"),
        (["--base-url", "ftp://there", "--model", "m", "Hi"], "not a base URL"),
        ([], "Ask something"),
    ],
)
def test_what_cannot_be_asked_is_code_2(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(cli, ["ask", *arguments])
    assert result.exit_code == 2
    assert said in result.stderr


@requirement("cli:ask:keys")
def test_a_key_goes_only_where_it_belongs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-openai")
    monkeypatch.setenv("ANTIPHON_API_KEY", "one,two")
    monkeypatch.setenv("OTHER", "other")
    with responses_stub() as stub:
        stub.answers = [answer(f"resp_{number}", "x") for number in range(4)]
        asked = ["--model", "m", "--stream", "Hi"]
        assert ask(stub.base_url, *asked).exit_code == 0
        assert ask(stub.base_url, "--api-key-env", "OTHER", *asked).exit_code == 0
        assert ask(stub.base_url, "--provider", "openai", *asked).exit_code == 0
        assert ask_antiphon(stub.base_url, *asked).exit_code == 0
        requests = list(stub.requests)
        assert [request["model"] for request in requests] == ["m"] * 4
    assert stub.posted_keys == [None, "Bearer other", "Bearer of-openai", "Bearer one"]


@requirement("cli:ask:answer")
def test_a_warning_is_a_line_of_its_own() -> None:
    with responses_stub() as stub:
        stub.answers = [answer("resp_1", "x")]
        result = ask(stub.base_url, "--provider", "openai", "--model", "gpt-4o-audio-preview", "--stream", "Hi")
    assert (result.exit_code, result.stdout) == (0, "x\n")
    assert result.stderr == "('gpt-4o-audio-preview' is not known to answer at /responses.)\n"


@requirement("cli:ask:interrupt")
def test_an_interruption_ends_the_answer_too(scripted_server: str) -> None:
    command = [sys.executable, "-m", "antiphon", "ask", "--provider", "antiphon", "--stream", "!SLOW 20\n!COUNT 1000"]
    with breaking_proxy(scripted_server) as proxy:
        environment = {**os.environ, "ANTIPHON_BASE_URL": proxy.base_url}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as asking:
            assert asking.stdout is not None
            assert asking.stderr is not None
            assert asking.stdout.read(2) == b"1 "
            asking.send_signal(signal.SIGINT)
            asking.stdout.read()
            assert (asking.wait(10), asking.stderr.read()) == (130, b"\n")
        [cancelled] = [line.split("/")[-2] for line in proxy.requests if line.endswith("/cancel")]
    with Client(scripted_server, provider="antiphon") as client:
        assert client.retrieve(cancelled).status == "cancelled"
