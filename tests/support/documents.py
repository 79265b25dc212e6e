"""Uploads, and the wait until they have been ingested, over the application in process."""

from __future__ import annotations

import asyncio
from typing import Any

from support.inprocess import InProcess

__all__ = ["filled_store", "ingested", "uploaded"]


async def uploaded(api: InProcess, text: str, name: str = "a.md", headers: dict[str, str] | None = None) -> str:
    """The id of a file with this text."""
    reply = await api.client.post(
        "/files", files={"file": (name, text.encode())}, data={"purpose": "assistants"}, headers=headers
    )
    assert reply.status_code == 200, reply.text
    return reply.json()["id"]


async def ingested(api: InProcess, store: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """The vector store once nothing of it is ingested any more."""
    async with asyncio.timeout(60):
        while True:
            reply = await api.client.get(f"/vector_stores/{store}", headers=headers)
            assert reply.status_code == 200, reply.text
            found = reply.json()
            if found["status"] == "completed":
                return found
            await asyncio.sleep(0.01)


async def filled_store(api: InProcess, *texts: str, **fields: Any) -> tuple[str, list[str]]:
    """A vector store with a Markdown file of each text, ingested, and the ids of the files."""
    files = [await uploaded(api, text, f"file-{number}.md") for number, text in enumerate(texts)]
    reply = await api.client.post("/vector_stores", json={"file_ids": files, **fields})
    assert reply.status_code == 200, reply.text
    store = reply.json()["id"]
    await ingested(api, store)
    return store, files
