"""A document that is ingested by real servers, and what must come of it however often they are killed."""

from __future__ import annotations

from typing import Any

import httpx2

from antiphon.corpus.blocks import tokens
from support.embeddings_stub import EmbeddingsStub
from support.server import RunningServer, wait_until

__all__ = ["GUIDE", "Documents", "arguments_of"]

GUIDE = "# Guide\n\nHow to begin.\n\n" + "".join(
    f"## Part {number}\n\n" + f"A sentence about part {number} of the guide, and no other. " * 30 + "\n\n"
    for number in range(50)
)
"""So much that it is embedded in several questions."""


def arguments_of(store: str, stub: EmbeddingsStub) -> list[str]:
    """What a server is started with that has its vectors made by the stub."""
    embedding = ["--document-embedding", stub.url, "--document-embedding-model", "stub"]
    return ["--model", "scripted", "--store", store, *embedding, "--lease-seconds", "1"]


class Documents:
    """A client of one server's documents."""

    def __init__(self, server: RunningServer) -> None:
        self._url = server.base_url

    def _ask(self, method: str, path: str, **given: Any) -> Any:
        answer = httpx2.request(method, f"{self._url}/{path}", timeout=30, **given)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def add(self, name: str, text: str = GUIDE) -> tuple[str, str]:
        """Upload a file into a new vector store; the ids of both."""
        file = self._ask("POST", "files", files={"file": (name, text.encode())}, data={"purpose": "assistants"})
        store = self._ask("POST", "vector_stores", json={"name": name, "file_ids": [file["id"]]})
        return store["id"], file["id"]

    def status(self, store_id: str, file_id: str) -> str:
        """The status of a file, with the message of one that failed."""
        found = self._ask("GET", f"vector_stores/{store_id}/files/{file_id}")
        return found["status"] + (f": {found['last_error']['message']}" if found["last_error"] else "")

    def ended(self, store_id: str, file_id: str) -> str:
        """The status of a file, once it has ended."""
        wait_until(lambda: self.status(store_id, file_id) != "in_progress")
        return self.status(store_id, file_id)

    def texts(self, store_id: str, file_id: str) -> list[str]:
        """The chunks of a file in their order; each within its size, and together all of it."""
        content = self._ask("GET", f"vector_stores/{store_id}/files/{file_id}/content")["data"]
        texts = [part["text"] for part in content]
        assert all(tokens(text) <= 250 for text in texts)
        return texts

    def hits(self, store_id: str) -> list[tuple[str, float]]:
        """What a search finds, by words and by vectors."""
        body = {"query": "part 42 of the guide", "max_num_results": 50}
        found = self._ask("POST", f"vector_stores/{store_id}/search", json=body)["data"]
        return [(hit["content"][0]["text"], hit["score"]) for hit in found]
