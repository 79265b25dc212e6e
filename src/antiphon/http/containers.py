"""The routes under `/v1/containers`, and the same without `/v1` (hosted-tools A3).

A file of a container goes out whole, to be saved and not shown; parts of it are not offered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, TypeVar

from starlette.datastructures import UploadFile

from antiphon.errors import InvalidRequestError
from antiphon.http.exchange import Exchange, Handler
from antiphon.http.forms import UploadPlaces, file_too_large, is_form, receive_form
from antiphon.http.leaving import while_client_stays
from antiphon.http.paging import Page, read_page
from antiphon.protocol.containers import Removed, decode_container, decode_file_id
from antiphon.protocol.files import disposition, safe_filename
from antiphon.runtime.service import Service
from antiphon.tools.code.contents import Content
from antiphon.tools.code.record import MOST_FILE_BYTES, Container, KeptFile

__all__ = ["ContainersRoutes"]

_PIECE = 256 * 1024

Row = TypeVar("Row", Container, KeptFile)


class ContainersRoutes:
    """Handlers over one service."""

    def __init__(self, service: Service) -> None:
        self._containers = service.containers
        self._places = UploadPlaces()

    def table(self) -> Sequence[tuple[str, str, Handler]]:
        """The routes: method, path and handler."""
        container = "/containers/{container_id}"
        file = f"{container}/files/{{file_id}}"
        return [
            ("POST", "/containers", self.create),
            ("GET", "/containers", self.list),
            ("GET", container, self.retrieve),
            ("DELETE", container, self.delete),
            ("POST", f"{container}/files", self.add_file),
            ("GET", f"{container}/files", self.files),
            ("GET", file, self.file),
            ("GET", f"{file}/content", self.content),
            ("DELETE", file, self.remove_file),
        ]

    async def create(self, exchange: Exchange) -> None:
        """`POST /containers`."""
        asked = decode_container(await exchange.body())
        made = await self._containers.create(exchange.scope, asked)
        await exchange.reply_json(made.shown())

    async def list(self, exchange: Exchange) -> None:
        """`GET /containers`: newest first unless `order=asc`, expired ones too."""
        rows, more = _page(self._containers.list(exchange.scope), read_page(exchange))
        await exchange.reply_json(_list([row.shown() for row in rows], more))

    async def retrieve(self, exchange: Exchange) -> None:
        """`GET /containers/{id}`."""
        await exchange.reply_json(self._containers.get(exchange.scope, _container_id(exchange)).shown())

    async def delete(self, exchange: Exchange) -> None:
        """`DELETE /containers/{id}`: what runs in it is ended."""
        container_id = _container_id(exchange)
        await self._containers.delete(exchange.scope, container_id)
        await exchange.reply_json(Removed(container_id, "container.deleted"))

    async def add_file(self, exchange: Exchange) -> None:
        """`POST /containers/{id}/files`: a form with `file`, or the id of a file that was uploaded before."""
        container = self._running(exchange)
        if not is_form(exchange):
            file_id = decode_file_id(await exchange.body())
            made = await self._containers.add_uploaded(exchange.scope, container, file_id)
            await exchange.reply_json(made.shown(container.id))
            return
        with self._places.taken(exchange.scope.tenant):
            form = await receive_form(exchange, MOST_FILE_BYTES)
            try:
                file, named = form.get("file"), form.get("file_id")
                if isinstance(file, UploadFile):
                    if (file.size or 0) > MOST_FILE_BYTES:
                        raise file_too_large(MOST_FILE_BYTES)
                    made = self._containers.add_file(container, safe_filename(file.filename), await file.read())
                elif isinstance(named, str):
                    made = await self._containers.add_uploaded(exchange.scope, container, named)
                else:
                    raise InvalidRequestError(
                        "Missing required parameter: 'file', as a part of the form with a filename.",
                        param="file",
                        code="missing_required_parameter",
                    )
            finally:
                await form.close()
        await exchange.reply_json(made.shown(container.id))

    async def files(self, exchange: Exchange) -> None:
        """`GET /containers/{id}/files`: newest first unless `order=asc`."""
        container = self._running(exchange)
        rows, more = _page(list(container.files.values()), read_page(exchange))
        await exchange.reply_json(_list([row.shown(container.id) for row in rows], more))

    async def file(self, exchange: Exchange) -> None:
        """`GET /containers/{id}/files/{file_id}`."""
        container = self._running(exchange)
        found = self._containers.file(container, exchange.path_parameter("file_id"))
        await exchange.reply_json(found.shown(container.id))

    async def content(self, exchange: Exchange) -> None:
        """`GET /containers/{id}/files/{file_id}/content`."""
        found = self._containers.file(self._running(exchange), exchange.path_parameter("file_id"))
        headers = (
            (b"content-type", b"application/octet-stream"),
            (b"content-disposition", disposition(found.name)),
            (b"x-content-type-options", b"nosniff"),
        )
        async with while_client_stays(exchange):
            await exchange.reply_in_pieces(found.content.size, _pieces(found.content), headers)

    async def remove_file(self, exchange: Exchange) -> None:
        """`DELETE /containers/{id}/files/{file_id}`: it goes from the container before anything else is run there."""
        container = self._running(exchange)
        found = self._containers.file(container, exchange.path_parameter("file_id"))
        del container.files[found.id]
        await exchange.reply_json(Removed(found.id, "container.file.deleted"))

    def _running(self, exchange: Exchange) -> Container:
        return self._containers.get_running(exchange.scope, _container_id(exchange))


def _page(rows: Sequence[Row], page: Page) -> tuple[list[Row], bool]:
    """The rows of a page, of all of them oldest first, and whether more follow."""
    ordered = list(reversed(rows)) if page.newest_first else list(rows)
    after = page.after
    if after is not None:
        place = next((place for place, row in enumerate(ordered) if row.id == after), None)
        # Whoever deletes while listing goes on from what is gone.
        rest = [row for row in ordered if (row.id < after if page.newest_first else row.id > after)]
        ordered = rest if place is None else ordered[place + 1 :]
    return ordered[: page.limit], len(ordered) > page.limit


def _list(data: Sequence[Any], has_more: bool) -> dict[str, Any]:
    first, last = (data[0].id, data[-1].id) if data else (None, None)
    return {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": has_more}


async def _pieces(content: Content) -> AsyncGenerator[bytes]:
    for position in range(0, content.size, _PIECE):
        yield content.piece(position, _PIECE)
        await asyncio.sleep(0)


def _container_id(exchange: Exchange) -> str:
    return exchange.path_parameter("container_id")
