"""The service and its application inside the test's own process, spoken to over ASGI without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from msgspec import Struct

from antiphon.engines.registry import Registry, build_registry
from antiphon.http.app import create_app
from antiphon.http.telemetry import Telemetry
from antiphon.protocol.sse import SSEParser
from antiphon.runtime.service import Service
from antiphon.settings import Settings
from antiphon.store.open import open_store
from antiphon.tools.base import Provider

__all__ = ["InProcess", "inprocess_app", "sse_events"]

BASE_URL = "http://127.0.0.1/v1"


class InProcess(Struct, frozen=True):
    """A started service and a client of it; the client's paths are below `/v1`, as in `client.post("/responses")`."""

    client: httpx2.AsyncClient
    service: Service

    async def create(self, input: Any = None, **fields: Any) -> dict[str, Any]:  # noqa: A002 - the wire's name
        """The response object of a request on the scripted model; anything but a 200 fails the test."""
        body = {"model": "scripted", "input": input, **fields}
        answer = await self.client.post("/responses", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def refused(self, status: int, input: Any = None, **fields: Any) -> dict[str, Any]:  # noqa: A002
        """The error object of a request that is refused with that status; nothing of it may have been stored."""
        store = self.service.store
        before = await store.status() if store is not None else None
        answer = await self.client.post("/responses", json={"model": "scripted", "input": input, **fields})
        assert answer.status_code == status, answer.text
        assert (await store.status() if store is not None else None) == before
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error

    async def stream(self, input: Any = None, **fields: Any) -> list[dict[str, Any]]:  # noqa: A002
        """The events of a streamed request on the scripted model, without the `[DONE]`, which must end them."""
        body = {"model": "scripted", "input": input, "stream": True, **fields}
        answer = await self.client.post("/responses", json=body)
        assert answer.status_code == 200, answer.text
        return sse_events(answer.content)

    async def echo(self, input: Any = None, **fields: Any) -> str:  # noqa: A002
        """The prompt that the model sees when a last user message `!ECHO` follows the input."""
        asked = {"type": "message", "role": "user", "content": "!ECHO"}
        given = [{"role": "user", "content": input}] if isinstance(input, str) else list(input or ())
        return (await self.create([*given, asked], **fields))["output_text"]


def sse_events(content: bytes) -> list[dict[str, Any]]:
    """The events of a whole stream; each is named by its type, and `[DONE]` ends them."""
    frames = SSEParser().feed(content)
    assert frames, content
    assert frames[-1].data == "[DONE]"
    events = [msgspec.json.decode(frame.data) for frame in frames[:-1]]
    assert [event["type"] for event in events] == [frame.event for frame in frames[:-1]]
    return events


@asynccontextmanager
async def inprocess_app(
    *,
    settings: Settings | None = None,
    store: str = "memory",
    tmp_path: Path | None = None,
    registry: Registry | None = None,
    tools: Sequence[Provider] | None = None,
) -> AsyncIterator[InProcess]:
    """A started service over the scripted model, unless the settings or `registry` name others, and its application.

    `tools` are its providers of hosted tools, in place of those that are set.

    `store` is `memory`, or `sqlite`, which needs `tmp_path` for its file, or `as-set` to leave the settings' own.
    """
    settings = settings or Settings(document_embedding="none")
    if not settings.model and not settings.models:
        settings = msgspec.structs.replace(settings, model=("scripted",))
    if store == "sqlite":
        assert tmp_path is not None, "a store in a file needs tmp_path"
        settings = msgspec.structs.replace(settings, store=str(tmp_path / "antiphon.db"))
    elif store != "as-set":
        settings = msgspec.structs.replace(settings, store=store)
    telemetry = Telemetry()
    service = Service(settings, registry or build_registry(settings), open_store(settings), telemetry, tools)
    await service.start()
    try:
        transport = httpx2.ASGITransport(create_app(service, telemetry))
        async with httpx2.AsyncClient(transport=transport, base_url=BASE_URL, timeout=60) as client:
            yield InProcess(client, service)
    finally:
        await service.close()
