"""`antiphon doctor`."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from antiphon.cli import access
from antiphon.cli import doctor as cli_doctor
from antiphon.cli.main import cli
from antiphon.corpus import localmodel
from antiphon.engines import catalog
from support import tiny_bert
from support.postgres import cluster
from support.responses_stub import responses_stub

pytestmark = pytest.mark.requirement("cli:doctor")


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def doctor(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["doctor", "--port", "0", *arguments], catch_exceptions=False)


def line(result: Result, subject: str) -> str:
    return next(text for text in result.stdout.splitlines() if text[6:].startswith(f"{subject} "))


def test_a_machine_that_can_serve_has_no_failing_line() -> None:
    result = doctor("--model", "scripted", "--store", "memory")
    assert result.exit_code == 0
    assert "fail" not in result.stdout
    assert "xllamacpp 20" in line(result, "libraries")
    assert "memory" in line(result, "store")


def test_a_missing_default_model_fails_and_says_what_to_do() -> None:
    result = doctor()
    assert result.exit_code == 1
    assert line(result, "model").startswith("fail")
    assert "-> antiphon models pull smollm2" in result.stdout


def test_a_default_model_of_the_wrong_hash_fails(data_path: Path) -> None:
    path = data_path / "models" / "smollm2.gguf"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(98_362_432)
    result = doctor()
    assert "damaged: wrong sha256" in line(result, "model")
    assert result.exit_code == 1


def test_a_model_file_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    assert "No such file" in line(doctor("--model", str(path)), "model")
    path.write_bytes(b"PK\x03\x04")
    assert "is not a GGUF file" in line(doctor("--model", str(path)), "model")
    path.write_bytes(b"GGUF\x03\0\0\0")
    assert line(doctor("--model", str(path)), "model").startswith("ok")


@pytest.mark.requirement("upstream:settings")
def test_an_upstream_is_asked_whether_it_answers(tmp_path: Path, scripted_server: str) -> None:
    config = tmp_path / "antiphon.toml"

    def checked(table: str) -> Result:
        config.write_text(f'[[models]]\nname = "far"\n{table}\n', encoding="utf-8")
        return doctor("--config", str(config), "--store", "memory")

    there = checked(f'base_url = "{scripted_server}"')
    assert there.exit_code == 0
    assert line(there, "upstream").startswith("ok")
    away = checked('base_url = "http://127.0.0.1:9/v1"')
    assert away.exit_code == 0
    assert line(away, "upstream").startswith("warn")
    wrong = checked('base_url = "http://127.0.0.1:9/v1"\nprofile = "acme"')
    assert wrong.exit_code == 1
    assert line(wrong, "upstream").startswith("fail")
    several = checked(f'replicas = ["{scripted_server}", "http://127.0.0.1:9/v1"]')
    assert [text[:4].strip() for text in several.stdout.splitlines() if " upstream " in text] == ["ok", "warn"]
    assert "1 in [[models]], by the names far" in line(several, "models")
    assert f"{config} is read" in line(several, "file")


@pytest.mark.requirement("registry:tables")
def test_what_a_table_says_of_requests_is_looked_at(tmp_path: Path) -> None:
    config = tmp_path / "antiphon.toml"
    config.write_text('[[models]]\npath = "scripted"\ndefaults = { temperature = 9 }\n', encoding="utf-8")
    result = doctor("--config", str(config), "--store", "memory")
    assert result.exit_code == 1
    assert "Invalid value for 'temperature'" in line(result, "models")


def test_missing_libraries_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "missing_libraries", lambda models: ["uvicorn"])
    monkeypatch.setattr("antiphon.cli.doctor.missing_libraries", lambda models: ["uvicorn"])
    result = doctor("--model", "scripted")
    assert result.exit_code == 1
    assert "missing: uvicorn" in line(result, "libraries")
    assert "pip install 'antiphon[local]'" in result.stdout


def test_a_data_directory_that_cannot_be_written_fails(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    result = doctor("--model", "scripted", "--data-dir", str(file / "data"))
    assert line(result, "data").startswith("fail")


def test_the_store_is_told_with_its_size(tmp_path: Path) -> None:
    path = tmp_path / "responses.db"
    assert "made at the first start" in line(doctor("--model", "scripted", "--store", str(path)), "store")
    path.write_bytes(bytes(2_500_000))
    told = line(doctor("--model", "scripted", "--store", str(path)), "store")
    assert str(path) in told
    assert "2.5 MB" in told


@pytest.mark.requirement("store:postgresql:care")
def test_a_database_is_looked_at() -> None:
    running = cluster()
    empty, made = running.create_database(empty=True), running.create_database()

    def told(name: str, **options: str) -> str:
        return line(doctor("--model", "scripted", "--store", running.url(name, **options)), "store")

    assert "made at the first start" in told(empty)
    assert told(made).startswith("ok")
    assert "0 servers have it open" in told(made)
    running.execute(
        "UPDATE antiphon_schema SET version = 99 WHERE version = (SELECT max(version) FROM antiphon_schema)", made
    )
    assert told(made).startswith("warn")
    for name in (empty, made):
        running.drop_database(name)
    lost = told(made, password="secret")
    assert lost.startswith("fail")
    assert f'database "{made}" does not exist' in lost
    assert "secret" not in lost


def test_a_store_of_another_kind_fails() -> None:
    assert line(doctor("--model", "scripted", "--store", "mysql://there"), "store").startswith("fail")


def test_a_port_with_a_server_of_the_api_is_a_warning() -> None:
    with responses_stub() as server:
        port = server.base_url.rsplit(":", 1)[1].removesuffix("/v1")
        result = doctor("--model", "scripted", "--port", port)
    assert line(result, "port").startswith("warn")
    assert "first, second" in line(result, "port")
    assert result.exit_code == 0


def test_a_port_that_something_else_has_fails(busy_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.cli.connection.LOOK_SECONDS", 0.05)
    result = doctor("--model", "scripted", "--port", str(busy_port))
    assert line(result, "port").startswith("fail")
    assert result.exit_code == 1


def test_settings_that_differ_are_told_and_secrets_are_not() -> None:
    result = doctor(
        "--model", "scripted", "--api-key", "hunter2", "--index-url", "https://me:hunter2@pypi.example/simple"
    )
    assert "model=('scripted',)" in line(result, "settings")
    assert "api_key=(set)" in line(result, "settings")
    assert "hunter2" not in result.output


def test_settings_that_would_be_refused_fail() -> None:
    assert "lets others than this machine in" in doctor("--model", "scripted", "--host", "0.0.0.0").stdout
    result = doctor("--dialect", "klingon")
    assert result.exit_code == 1
    assert line(result, "settings").startswith("fail")


@pytest.mark.requirement("search:doctor")
def test_what_reads_documents_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = ("--model", "scripted", "--store", "memory")
    assert "all-minilm-l6-v2, which is fetched when it is first needed" in line(doctor(*scripted), "documents")
    words = doctor(*scripted, "--document-embedding", "none")
    assert "searched by words alone: what is said in other words" in line(words, "documents")
    model = tiny_bert.build(tmp_path)
    for module in (catalog, localmodel):
        monkeypatch.setattr(module, "locate", lambda folder, name: model)
    assert line(doctor(*scripted), "documents").endswith("which is here and starts")
    model.write_bytes(b"no model")
    broken = doctor(*scripted)
    assert line(broken, "documents").startswith("warn")
    assert "cannot be used, so that words alone are searched: " in line(broken, "documents")
    assert broken.exit_code == 0
    monkeypatch.setattr(cli_doctor, "_OF_DOCUMENTS", ("numpy", "no_such_library"))
    result = doctor(*scripted)
    assert line(result, "documents").startswith("warn")
    assert line(result, "documents").endswith("missing: no_such_library")
    assert "-> pip install 'antiphon[corpus]'" in result.stdout
    assert result.exit_code == 0
