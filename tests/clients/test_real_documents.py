"""A folder of documents searched by a call that the default model is made to make: its shape, its results, its text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest

from support.server import running_server

DOCUMENT = b"# Keys\n\n## Revoking\n\nA revoked key is refused within two seconds.\n"
FILES: Any = {"type": "file_search", "vector_store_ids": ["documents"], "max_num_results": 1}


@pytest.mark.requirement("corpus-tools:file-search", "client:real:forced")
def test_a_forced_search_of_the_default_model_has_queries_and_results(smollm2_path: Path) -> None:
    arguments = ["--model", str(smollm2_path), "--alias", "smollm=" + str(smollm2_path), "--threads", "1"]
    arguments += ["--store", "memory", "--document-embedding", "none"]
    with (
        running_server(arguments) as server,
        openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client,
    ):
        store = client.vector_stores.create(name="documents")
        file = client.vector_stores.files.upload_and_poll(
            vector_store_id=store.id, file=("keys.md", DOCUMENT), poll_interval_ms=50
        )
        assert file.status == "completed"
        response = client.responses.create(
            model="smollm",
            input="How fast is a revoked key refused?",
            tools=[FILES],
            tool_choice={"type": "file_search"},
            include=["file_search_call.results"],
            max_output_tokens=96,
            temperature=0,
        )
    call = response.output[0]
    assert call.type == "file_search_call"
    assert call.status == "completed"
    assert call.queries
    assert all(query.strip() for query in call.queries)
    assert call.results is not None
    assert {result.file_id for result in call.results} <= {file.id}
    assert [item.type for item in response.output[1:]] == ["message"]
