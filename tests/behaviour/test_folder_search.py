"""A folder of Markdown goes in by the command line, is searched in an answer, and citations name the right chunks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import openai
import pytest

from support.server import RunningServer

requirement = pytest.mark.requirement

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
STORE = "folder-search"
QUESTION = "revoked key stops"


def add(folder: Path, server: RunningServer) -> dict[str, Any]:
    """What the command says that it did."""
    command = [sys.executable, "-m", "antiphon", "corpus", "add", str(folder), "--store", STORE, "--json"]
    done = subprocess.run(
        [*command, "--server", server.base_url], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@requirement("hosted:folder")
def test_citations_of_a_folder_that_the_command_brought_in_resolve(
    scripted_process: RunningServer, tmp_path: Path
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in ("keys.md", "prompts.md"):
        shutil.copy(GUIDE / name, docs)
    assert add(docs, scripted_process)["added"] == ["docs/keys.md", "docs/prompts.md"]
    with openai.OpenAI(base_url=scripted_process.base_url, api_key="none", max_retries=0) as client:
        (store,) = [each for each in client.vector_stores.list() if each.name == STORE]
        searching: Any = {"type": "file_search", "vector_store_ids": [store.id]}
        asked = f'!CALL file_search {{"queries":["{QUESTION}"]}}\n!THEN\n!TEXT One.<cite i="2"/> Two.<cite i="1"/>'
        response = client.responses.create(
            model="scripted",
            input=asked,
            tools=[searching],
            tool_choice={"type": "file_search"},
            include=["file_search_call.results"],
        )
        call, message = response.output
        assert call.type == "file_search_call"
        assert call.results is not None
        assert message.type == "message"
        part: Any = message.content[0]
        assert part.text == "One. Two."
        cited = [annotation.chunk_id for annotation in part.annotations]
        reading: Any = {"type": "get_chunks", "store_identifiers": [store.id]}
        again: Any = client.responses.create(
            model="scripted",
            input=f"!CALL get_chunks {json.dumps({'chunk_ids': cited})}\n!THEN\n!TEXT Read.",
            tools=[reading],
            include=["get_chunks_call.results"],  # type: ignore[list-item]
        )
        (read,) = again.hosted_tool_calls
        found = [call.results[1], call.results[0]]
        assert [each["chunk_id"] for each in read["results"]] == cited
        for result, chunk, annotation in zip(found, read["results"], part.annotations, strict=True):
            assert (annotation.file_id, annotation.filename) == (result.file_id, result.filename)
            assert chunk["text"] in result.text
            assert chunk["text"] in (docs / chunk["filename"]).read_text()
        assert "a revoked one stops" in read["results"][1]["text"]
        client.vector_stores.delete(store.id)
