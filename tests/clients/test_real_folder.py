"""The default model searches this project's own pages, which the command line brought in."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from clients.conftest import KEY
from clients.strict import Recorder
from support.server import RunningServer, running_server

pytestmark = pytest.mark.requirement("hosted:folder:real")

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {str(page.relative_to(DOCS.parent)) for page in DOCS.rglob("*.md")}


@pytest.fixture(scope="module")
def searched(smollm2_path: Path) -> Iterator[RunningServer]:
    """A server over the default model, into whose store the pages came."""
    arguments = ["--model", str(smollm2_path), "--alias", "smollm=" + str(smollm2_path), "--store", "memory"]
    with running_server([*arguments, "--threads", "1"]) as server:
        command = [sys.executable, "-m", "antiphon", "corpus", "add", "docs/", "--json", "--server", server.base_url]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, cwd=DOCS.parent)
        assert done.returncode == 0, done.stderr
        assert set(json.loads(done.stdout)["added"]) == PAGES
        yield server


@pytest.mark.parametrize("stream", [False, True])
def test_a_forced_search_has_its_call_its_results_and_an_answer(searched: RunningServer, stream: bool) -> None:
    recorder = Recorder()
    http: Any = openai.DefaultHttpxClient(transport=recorder, timeout=120)
    plain = openai.OpenAI(base_url=searched.base_url, api_key=KEY, max_retries=0)
    with plain, openai.OpenAI(base_url=searched.base_url, api_key=KEY, max_retries=0, http_client=http) as client:
        (store,) = plain.vector_stores.list()
        fields: Any = {
            "model": "smollm",
            "input": "How is a key revoked?",
            "tools": [{"type": "file_search", "vector_store_ids": [store.id], "max_num_results": 3}],
            "tool_choice": {"type": "file_search"},
            "include": ["file_search_call.results"],
            "max_output_tokens": 300,
            "temperature": 0,
        }
        if stream:
            events: list[Any] = list(client.responses.create(**fields, stream=True))
            kinds = [event.type for event in events]
            # A small model may well go on to the limit of its answer.
            response: Any = events[-1].response
            assert [kind for kind in kinds if "file_search" in kind] == [
                "response.file_search_call.in_progress",
                "response.file_search_call.searching",
                "response.file_search_call.completed",
            ]
        else:
            response = client.responses.create(**fields)
        call, message = response.output
        assert (call.type, call.status) == ("file_search_call", "completed")
        assert 1 <= len(call.queries) <= 8
        assert all(call.queries)
        assert 1 <= len(call.results) <= 3
        assert [result.score for result in call.results] == sorted((r.score for r in call.results), reverse=True)
        for result in call.results:
            page = result.attributes["path"]
            assert page in PAGES
            assert result.filename == Path(page).name
            assert result.text.rpartition("\n\n")[2] in (DOCS.parent / page).read_text()
        assert (message.type, message.role) == ("message", "assistant")
        assert response.output_text
        files = {file.id for file in plain.vector_stores.files.list(store.id, limit=100)}
        assert {result.file_id for result in call.results} <= files
    recorder.verify()
