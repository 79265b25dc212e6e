"""A command's way to vector stores: the API of a running server, or the same API over the local store, in process."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import click
import httpx2
import msgspec

from antiphon.access import is_loopback
from antiphon.cli.access import DEFAULT_BASE_URL, check_libraries
from antiphon.cli.connection import LOOK_SECONDS, ServerError, UnreachableError, server_url
from antiphon.errors import ConfigurationError
from antiphon.settings import Settings

__all__ = ["DocumentsApi", "Known", "open_documents"]

PATH: Final = "path"
DIGEST: Final = "sha256"
"""The attributes that a file of a folder has: what it is called there, and what was in it."""

_PAGE: Final = 100
_SECONDS: Final = 120.0
_OURS: Final = (200, 401, 403, 429, 503)


class Known(msgspec.Struct, frozen=True):
    """A file of a vector store; `path` and `digest` are empty where it did not come from a folder."""

    id: str
    status: str
    path: str
    digest: str
    error: tuple[str, str] | None
    size: int


class DocumentsApi:
    """Vector stores and files over an HTTP client whose paths lie below `/v1`."""

    def __init__(self, client: httpx2.AsyncClient, where: str) -> None:
        self._client = client
        self.where = where

    async def stores(self) -> list[dict[str, Any]]:
        """All vector stores, newest first."""
        return [store async for store in self._all("vector_stores", {})]

    async def named(self, name: str) -> dict[str, Any] | None:
        """The newest vector store of that name, or the one by that id."""
        async for store in self._all("vector_stores", {}):
            if name in (store["name"], store["id"]):
                return store
        return None

    async def create(self, name: str) -> dict[str, Any]:
        """A new vector store."""
        return await self._ask("POST", "vector_stores", json={"name": name})

    async def files(self, store_id: str, status: str | None = None) -> AsyncGenerator[Known]:
        """The files of a vector store."""
        query = {} if status is None else {"filter": status}
        async for file in self._all(f"vector_stores/{store_id}/files", query):
            yield _known(file)

    async def upload(self, name: str, data: bytes) -> str:
        """Upload a file; its id."""
        form = {"file": (name.rsplit("/", 1)[-1], data, "application/octet-stream")}
        return (await self._ask("POST", "files", data={"purpose": "assistants"}, files=form))["id"]

    async def attach(
        self, store_id: str, file_id: str, attributes: Mapping[str, str], chunking: Mapping[str, Any] | None
    ) -> None:
        """Put an uploaded file into a vector store."""
        body: dict[str, Any] = {"file_id": file_id, "attributes": dict(attributes)}
        if chunking is not None:
            body["chunking_strategy"] = chunking
        await self._ask("POST", f"vector_stores/{store_id}/files", json=body)

    async def remove(self, store_id: str, file_id: str) -> None:
        """Take a file out of a vector store, and delete it; one that is gone already is no error."""
        for path in (f"vector_stores/{store_id}/files/{file_id}", f"files/{file_id}"):
            try:
                await self._ask("DELETE", path)
            except ServerError as error:
                if error.status != 404:
                    raise

    async def delete(self, file_id: str) -> None:
        """Delete an uploaded file."""
        await self._ask("DELETE", f"files/{file_id}")

    async def delete_store(self, store_id: str) -> None:
        """Delete a vector store; uploaded files stay."""
        await self._ask("DELETE", f"vector_stores/{store_id}")

    async def search(self, store_id: str, query: str, most: int) -> list[dict[str, Any]]:
        """The best chunks."""
        body = {"query": query, "max_num_results": most}
        return (await self._ask("POST", f"vector_stores/{store_id}/search", json=body))["data"]

    async def _all(self, path: str, query: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        asked = {"limit": _PAGE, **query}
        while True:
            page = await self._ask("GET", path, params=asked)
            for entry in page["data"]:
                yield entry
            if not page["has_more"] or not page["data"]:
                return
            asked["after"] = page["last_id"]

    async def _ask(self, method: str, path: str, **given: Any) -> dict[str, Any]:
        try:
            answer = await self._client.request(method, path, **given)
        except httpx2.RequestError as error:
            raise UnreachableError(f"The connection to {self.where} broke: {error or type(error).__name__}.") from None
        try:
            body: Any = answer.json()
            if answer.status_code == 200:
                return body
            raise ServerError(str(body["error"]["message"]), answer.status_code, body["error"].get("code"))
        except (ValueError, LookupError, TypeError):
            raise ServerError(f"The server answers {answer.status_code}.", answer.status_code) from None


@asynccontextmanager
async def open_documents(
    settings: Settings, server: str | None, api_key: str | None, *, local: bool = False
) -> AsyncGenerator[DocumentsApi]:
    """The server that is named, or the one at the default address where one answers, or else the local store.

    Raises:
        UnreachableError: the server that is named does not answer.
        ConfigurationError: the local store cannot be used here; the message says what to do.
    """
    base_url = server or DEFAULT_BASE_URL
    url = server_url(base_url)
    # As bytes: a key need not be ASCII.
    headers = {b"Authorization": f"Bearer {api_key}".encode()} if api_key else {}
    timeout = httpx2.Timeout(_SECONDS, connect=LOOK_SECONDS)
    trusted = not is_loopback(url.host)
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=timeout, trust_env=trusted) as client:
        if not local and (server is not None or await _answers(client)):
            yield DocumentsApi(client, base_url)
            return
    async with _local(settings) as client:
        yield DocumentsApi(client, "the local store")


async def _answers(client: httpx2.AsyncClient) -> bool:
    try:
        answer = await client.get("vector_stores", params={"limit": 1}, timeout=LOOK_SECONDS)
    except httpx2.RequestError:
        return False
    # A refusal is an answer, too: what follows says why. Whatever else listens there has no vector stores.
    return answer.status_code in _OURS and answer.headers.get("content-type", "").startswith("application/json")


@asynccontextmanager
async def _local(settings: Settings) -> AsyncGenerator[httpx2.AsyncClient]:
    """The API over the local store, which this process has for itself as a server would."""
    from antiphon.store.open import open_store, sqlite_path

    if sqlite_path(settings) is None:
        raise ConfigurationError(
            "No server answers, and only a store in a file can be used without one. Start the server that has the "
            "store, and name it with --server."
        )
    check_libraries(["scripted"])
    from antiphon.engines.registry import build_registry
    from antiphon.http.app import create_app
    from antiphon.http.telemetry import Telemetry
    from antiphon.protocol.ids import new_id
    from antiphon.runtime.observer import Observer
    from antiphon.runtime.service import Service

    class Told(Observer):
        def fault(self, message: str, error: BaseException) -> None:
            click.echo(f"Note: {message}: {error}", err=True)

    key = secrets.token_urlsafe()
    # No model generates here; a key of its own lets this command in where the store has keys.
    settings = msgspec.structs.replace(settings, model=("scripted",), models=(), alias=(), api_key=(key,))
    store = open_store(settings)
    if store is None:
        raise ConfigurationError("The settings turn persistence off, and documents are kept nowhere else.")
    service = Service(settings, build_registry(settings), store, Told())
    owner = new_id("srv")
    try:
        # Not `start`: responses that wait for the next server are not this command's.
        await store.open()
        service.corpora.start(owner, lambda: {owner})
        transport = httpx2.ASGITransport(create_app(service, Telemetry()))
        async with httpx2.AsyncClient(
            transport=transport,
            base_url="http://127.0.0.1/v1",
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx2.Timeout(None),
        ) as client:
            yield client
    finally:
        await service.close()


def _known(file: Mapping[str, Any]) -> Known:
    attributes: Mapping[str, Any] = file.get("attributes") or {}
    error: Mapping[str, Any] | None = file.get("last_error")
    return Known(
        file["id"],
        file["status"],
        str(attributes.get(PATH, "")) if DIGEST in attributes else "",
        str(attributes.get(DIGEST, "")),
        None if error is None else (str(error["code"]), str(error["message"])),
        int(file.get("usage_bytes") or 0),
    )
