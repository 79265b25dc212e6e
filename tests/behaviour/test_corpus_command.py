"""`antiphon corpus`: a folder goes into a vector store of a server or of the local store, again and again the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from antiphon.cli import documents_api
from antiphon.cli.connection import ServerError
from antiphon.cli.documents_api import DocumentsApi
from antiphon.cli.main import cli
from antiphon.cli.syncing import bring
from antiphon.runtime.takeover import Takeover
from antiphon.settings import Settings
from antiphon.store.base import NewResponse, StoreLimits
from antiphon.store.sqlite import SQLiteStore
from support.inprocess import InProcess, inprocess_app
from support.server import running_server
from support.stores import OURS

requirement = pytest.mark.requirement
LARGEST = 10**6


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A folder with two documents and what is none."""
    folder = tmp_path / "docs"
    (folder / "guide").mkdir(parents=True)
    (folder / "a.md").write_text("# Walruses\n\nThe walrus speaks of many things.\n")
    (folder / "guide" / "b.txt").write_text("Of cabbages and kings.\n")
    (folder / "c.png").write_bytes(b"\x89PNG\r\n\x1a\n\0")
    return folder


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory, and no server at the default address."""
    monkeypatch.setattr(documents_api, "DEFAULT_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("ANTIPHON_DOCUMENT_EMBEDDING", "none")
    monkeypatch.setenv("ANTIPHON_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def corpus(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["corpus", *map(str, arguments)])


def told(*arguments: object, code: int = 0) -> Any:
    """What a command says to programs."""
    done = corpus(*arguments, "--json")
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def exercise(docs: Path, *where: str) -> None:
    """Everything that the commands do, on a server or on the local store."""
    done = corpus("add", docs, *where)
    assert (done.exit_code, done.stdout) == (
        0,
        "documents: 2 added, 0 unchanged, 1 skipped.\n"
        "Skipped, neither text nor a document that can be read: docs/c.png\n",
    ), done.output
    assert told("add", docs, *where)["unchanged"] == ["docs/a.md", "docs/guide/b.txt"]
    found = told("search", "walrus", *where)
    assert [(hit["filename"], hit["attributes"]["path"]) for hit in found] == [("a.md", "docs/a.md")]
    assert "docs/a.md\n       The walrus speaks" in corpus("search", "walrus", *where).stdout
    (docs / "a.md").write_text("# Walruses\n\nThe oyster is silent.\n")
    (docs / "guide" / "b.txt").unlink()
    (docs / "new.md").write_text("Ships and sealing wax.\n")
    outcome = told("add", docs, "--prune", *where)
    assert (outcome["added"], outcome["replaced"]) == (["docs/new.md"], ["docs/a.md"])
    assert outcome["removed"] == ["docs/guide/b.txt"]
    assert told("search", "oyster", "things", "--most", "1", *where)[0]["content"][0]["text"] == "The oyster is silent."
    assert told("search", "cabbages", *where) == []
    files = told("list", "documents", *where)
    assert [file["path"] for file in files] == ["docs/a.md", "docs/new.md"]
    assert {file["status"] for file in files} == {"completed"}
    assert told("list", *where)[0]["file_counts"]["total"] == 2
    gone = corpus("remove", "documents", "docs/new.md", "docs/none.md", *where)
    assert gone.exit_code == 1
    assert gone.stderr == "Removed 1 file of 'documents'.\nError: There is no file 'docs/none.md' in it.\n"
    assert len(corpus("list", "documents", *where).stdout.splitlines()) == 2
    assert corpus("remove", "documents", "--yes", *where).exit_code == 0
    assert told("list", *where) == []
    none = corpus("search", "walrus", *where)
    assert (none.exit_code, none.stderr) == (
        2,
        "Error: There is no vector store 'documents'. See: antiphon corpus list\n",
    )


@requirement("ingest:command", "ingest:command:local")
def test_a_folder_comes_into_the_local_store_where_no_server_runs(docs: Path, alone: Path) -> None:
    exercise(docs)
    assert (alone / "antiphon.db").exists()


@requirement("ingest:command:local")
async def test_responses_that_wait_for_the_next_server_are_left_to_it(
    docs: Path, alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def taken(self: Takeover) -> None:
        raise AssertionError("it has no model that could go on with them")

    monkeypatch.setattr(Takeover, "start", taken)
    alone.mkdir()
    store = SQLiteStore(alone / "antiphon.db", StoreLimits())
    await store.open()
    await store.create_response(OURS, NewResponse("resp_1", None, "in_progress", 1, b"{}", (), owner="gone"))
    await store.close()
    outcome = await asyncio.to_thread(told, "add", docs)
    assert len(outcome["added"]) == 2
    await store.open()
    assert [row.id for row in await store.orphans(set())] == ["resp_1"]
    await store.close()


@requirement("ingest:command", "ingest:command:server")
def test_a_folder_comes_into_a_server_and_a_store_that_one_holds_is_left_to_it(docs: Path, alone: Path) -> None:
    arguments = ["--model", "scripted", "--data-dir", str(alone), "--api-key", "secret", "--document-embedding", "none"]
    with running_server(arguments) as server:
        where = ["--server", server.base_url, "--api-key"]
        exercise(docs, *where, "secret")
        wrong = corpus("add", docs, *where, "wrong")
        assert (wrong.exit_code, wrong.stderr) == (1, "Error: Incorrect API key provided.\n")
        held = corpus("add", docs)
        assert held.exit_code == 2
        assert "in use by another server" in held.stderr
    gone = corpus("add", docs, *where, "secret")
    assert gone.exit_code == 1
    assert gone.stderr.startswith(f"Error: The connection to {server.base_url} broke")


@requirement("ingest:command:local")
@pytest.mark.parametrize("store", ["memory", "postgresql://nobody@127.0.0.1:9/none"])
def test_only_a_file_can_be_used_without_a_server(
    docs: Path, alone: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.setenv("ANTIPHON_STORE", store)
    done = corpus("add", docs)
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: No server answers, and only a store in a file can be used without one.")
    assert "nobody" not in done.stderr


@requirement("ingest:command")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--store", "a/b.db"], "a database is named by ANTIPHON_STORE"),
        (["--server", "ftp://x"], "not an http or https URL"),
        (["--chunk-overlap", "10"], "--chunk-overlap needs --chunk-size"),
        (["--chunk-size", "200", "--chunk-overlap", "101"], "half of --chunk-size"),
    ],
)
def test_what_cannot_be_meant_is_refused(docs: Path, alone: Path, options: list[str], words: str) -> None:
    done = corpus("add", docs, *options)
    assert done.exit_code == 2
    assert words in done.output


@pytest.fixture
async def server() -> AsyncIterator[InProcess]:
    """A server in this process that ingests."""
    settings = Settings(document_embedding="none", max_file_bytes=5_000, max_vector_store_files=4)
    async with inprocess_app(settings=settings) as made:
        yield made


@pytest.fixture
def api(server: InProcess) -> DocumentsApi:
    return DocumentsApi(server.client, "here")


async def put(api: DocumentsApi, docs: Path, **more: Any) -> Any:
    store = await api.named("documents") or await api.create("documents")
    return await bring(api, store["id"], [docs], most=LARGEST, **more)


@requirement("ingest:command:again")
async def test_a_file_that_failed_is_told_and_tried_again_only_where_that_can_help(
    api: DocumentsApi, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (docs / "d.pdf").write_bytes(b"%PDF-1.4 broken")
    (docs / "e.txt").write_text("large " * 1_000)
    lines: list[str] = []
    outcome = await put(api, docs, tell=lines.append)
    assert outcome.added == ["docs/a.md", "docs/guide/b.txt"]
    assert [name for name, _ in outcome.failed] == ["docs/e.txt", "docs/d.pdf"]
    assert "larger than 5000 bytes" in outcome.failed[0].reason
    assert "undamaged" in outcome.failed[1].reason
    assert lines[-1] == "3 of 3 files read"
    again = await put(api, docs)
    assert again.unchanged == ["docs/a.md", "docs/guide/b.txt"]
    assert [name for name, reason in again.skipped if reason.startswith("unchanged since it failed")] == ["docs/d.pdf"]
    (docs / "d.pdf").write_bytes(b"%PDF-1.4 broken otherwise")
    third = await put(api, docs)
    assert [name for name, _ in third.failed] == ["docs/e.txt", "docs/d.pdf"]


@requirement("ingest:command:again")
async def test_a_run_that_was_broken_off_is_gone_on_with(
    api: DocumentsApi, server: InProcess, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.service.corpora.stop()
    first = asyncio.create_task(put(api, docs))
    store = None
    async with asyncio.timeout(30):
        while store is None or store["file_counts"]["total"] < 2:
            store = await api.named("documents")
            await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    uploaded = (await server.client.get("/files")).json()["data"]
    server.service.corpora.start("again", lambda: {"again"})
    outcome = await put(api, docs)
    assert outcome.added == ["docs/a.md", "docs/guide/b.txt"]
    assert (await server.client.get("/files")).json()["data"] == uploaded
    # A copy that was left by a run which ended before it had removed what it replaced.
    await api.attach(store["id"], await api.upload("a.md", b"Old."), {"path": "docs/a.md", "sha256": "old"}, None)
    await put(api, docs)
    assert {file.path async for file in api.files(store["id"])} == {"docs/a.md", "docs/guide/b.txt"}
    assert len((await server.client.get("/files")).json()["data"]) == 2


@requirement("ingest:command:again")
async def test_what_cannot_be_put_in_is_not_left_uploaded(api: DocumentsApi, server: InProcess, docs: Path) -> None:
    for number in range(5):
        (docs / f"n{number}.txt").write_text(f"text {number}")
    with pytest.raises(ServerError) as refused:
        await put(api, docs)
    assert refused.value.code == "file_limit_reached"
    assert len((await server.client.get("/files")).json()["data"]) == 4
