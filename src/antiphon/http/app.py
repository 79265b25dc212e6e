"""The ASGI application: routes, authentication, and every error in OpenAI's envelope."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Final, Protocol

from starlette.routing import Match, Route

from antiphon import __version__
from antiphon.errors import APIError, InternalError, MethodNotAllowedError, NotFoundError
from antiphon.http.auth import Authenticator
from antiphon.http.compaction import CompactionRoutes
from antiphon.http.completions import CompletionsRoutes
from antiphon.http.conversations import ConversationsRoutes
from antiphon.http.cors import Origins
from antiphon.http.exchange import ASGIScope, Bodies, ClientDisconnectedError, Exchange, Handler, Receive, Send
from antiphon.http.files import FilesRoutes
from antiphon.http.prefixes import PrefixRoutes
from antiphon.http.responses import ResponsesRoutes
from antiphon.http.telemetry import Telemetry
from antiphon.http.vectors import VectorsRoutes
from antiphon.http.websocket import WebSockets
from antiphon.protocol.json import quoted
from antiphon.runtime.keys import KeyRing
from antiphon.runtime.service import Service
from antiphon.store.registers import Registers

__all__ = ["Application", "create_app"]

OPEN_PATHS = frozenset({"/", "/health", "/ready"})
"""Paths that need no key: probes and whoever only looks what answers here have none (M43)."""


_LATER: Final[Mapping[str, tuple[str, str]]] = {
    "vector_stores": ("antiphon.http.vector_stores", "VectorStoresRoutes"),
    "stores": ("antiphon.http.stores", "StoresRoutes"),
    "containers": ("antiphon.http.containers", "ContainersRoutes"),
}
"""Families of routes by the first part of their paths, loaded when one is first asked for: a server starts sooner."""


class _Family(Protocol):
    def table(self) -> Sequence[tuple[str, str, Handler]]: ...


class Application:
    """What an ASGI server calls. It does not start the service: whoever made the service does."""

    def __init__(self, service: Service, telemetry: Telemetry, keys: Registers | None = None) -> None:
        self._service = service
        self._telemetry = telemetry
        store = service.store
        if store is not None and store.shared:
            telemetry.count_missed_rings(lambda: store.missed_rings)
        self._limits = service.limits
        self._authenticator = Authenticator(service.settings, KeyRing(keys or service.store), self._limits)
        self._origins = Origins(service.settings.allowed_origins)
        self.bodies = Bodies(service.settings.max_body_bytes, service.settings.max_buffered_bytes)
        self.sockets = WebSockets(service, self._authenticator, self.bodies, telemetry)
        self.learn_keys = self._authenticator.learn
        telemetry.show_models(lambda: service.registry.engines)
        self._started_at = int(time.time())
        self._table = self._routes()
        self._later = dict(_LATER)

    async def __call__(self, asgi: ASGIScope, receive: Receive, send: Send) -> None:
        """Answer one request, or take one WebSocket connection."""
        if asgi["type"] == "websocket":
            await self.sockets(asgi, receive, send)
            return
        if asgi["type"] != "http":
            raise NotImplementedError(asgi["type"])
        exchange = Exchange(asgi, receive, send, self.bodies)
        name = "none"
        try:
            if await self._preflight(exchange):
                return
            if asgi["path"] not in OPEN_PATHS:
                exchange.scope = await self._authenticator.authenticate(asgi["headers"])
                exchange.rates = self._limits.rates
            name, handler = self._find(asgi)
            await handler(exchange)
        except APIError as error:
            await self._refuse(exchange, error)
        except ClientDisconnectedError:
            exchange.status = 499
        except Exception as error:  # noqa: BLE001 - the last line: a client never sees a traceback
            self._telemetry.fault("a request failed", error)
            await self._refuse(exchange, InternalError("The server had an error while processing your request."))
        finally:
            exchange.release()
            self._telemetry.http_request(name, exchange.method, exchange.status, time.monotonic() - exchange.started_at)

    async def _preflight(self, exchange: Exchange) -> bool:
        """Say what a page of another origin may do, where that is asked or answered; True when that was all (M44)."""
        origin = exchange.header(b"origin")
        exchange.cross_origin = self._origins.answer(origin)
        asks = exchange.method == "OPTIONS" and exchange.raw_header(b"access-control-request-method") is not None
        if not asks or origin is None or not self._origins.allows(origin):
            return False
        requested = exchange.raw_header(b"access-control-request-headers")
        private = exchange.header(b"access-control-request-private-network") == "true"
        await exchange.reply(b"", headers=self._origins.preflight(requested, private=private))
        return True

    async def _refuse(self, exchange: Exchange, error: APIError) -> None:
        if exchange.status == 0:
            await exchange.reply_error(error)

    def _find(self, asgi: ASGIScope) -> tuple[str, Handler]:
        """The route of a request and its handler; the handler is called from here, one frame down, not by the route.

        Raises:
            NotFoundError: no route has this path.
            MethodNotAllowedError: none of those that have it takes this method.
        """
        known = False
        if self._later:
            family = asgi["path"].removeprefix("/v1").lstrip("/").partition("/")[0]
            if family in self._later:
                self._load(family)
        for route, name, handler in self._table:
            match, found = route.matches(asgi)
            if match is Match.FULL:
                asgi.update(found)
                return name, handler
            known = known or match is Match.PARTIAL
        if known:
            raise MethodNotAllowedError(f"Method {asgi['method']} is not allowed here.", code="method_not_allowed")
        raise NotFoundError(f"Invalid URL ({asgi['method']} {quoted(asgi['path'])}).", code="unknown_url")

    def load_routes(self) -> None:
        """Load all families of routes that wait for their first request."""
        for family in list(self._later):
            self._load(family)

    def _load(self, family: str) -> None:
        module, name = self._later[family]
        routes: _Family = getattr(import_module(module), name)(self._service)
        self._table += _below_both(routes.table())
        del self._later[family]

    def _routes(self) -> list[tuple[Route, str, Handler]]:
        responses = ResponsesRoutes(self._service)
        contexts = CompactionRoutes(self._service)
        conversations = ConversationsRoutes(self._service)
        completions = CompletionsRoutes(self._service)
        vectors = VectorsRoutes(self._service)
        files = FilesRoutes(self._service)
        prefixes = PrefixRoutes(self._service, self._telemetry)
        conversation, item = "/conversations/{conversation_id}", "/conversations/{conversation_id}/items/{item_id}"
        table: list[tuple[str, str, Handler]] = [
            ("POST", "/responses", responses.create),
            ("POST", "/responses/compact", contexts.compact),
            ("POST", "/responses/input_tokens", contexts.input_tokens),
            ("GET", "/responses/{response_id}", responses.retrieve),
            ("DELETE", "/responses/{response_id}", responses.delete),
            ("POST", "/responses/{response_id}/cancel", responses.cancel),
            ("GET", "/responses/{response_id}/input_items", responses.input_items),
            ("POST", "/conversations", conversations.create),
            ("GET", conversation, conversations.retrieve),
            ("POST", conversation, conversations.update),
            ("DELETE", conversation, conversations.delete),
            ("POST", f"{conversation}/items", conversations.add_items),
            ("GET", f"{conversation}/items", conversations.list_items),
            ("GET", item, conversations.retrieve_item),
            ("DELETE", item, conversations.delete_item),
            ("POST", "/chat/completions", completions.chat),
            ("POST", "/completions", completions.text),
            ("POST", "/embeddings", vectors.embed),
            ("POST", "/tokenize", vectors.tokenize),
            ("POST", "/detokenize", vectors.detokenize),
            ("GET", "/cache/stats", prefixes.stats),
            ("POST", "/cache/reset", prefixes.reset),
            ("POST", "/files", files.create),
            ("GET", "/files", files.list),
            ("GET", "/files/{file_id}", files.retrieve),
            ("GET", "/files/{file_id}/content", files.content),
            ("DELETE", "/files/{file_id}", files.delete),
            ("GET", "/models", self._models),
            ("GET", "/models/{model:path}", self._model),
        ]
        roots: list[tuple[str, Handler]] = [
            ("/", self._root),
            ("/health", self._health),
            ("/ready", self._ready),
            ("/metrics", self._metrics),
            ("/version", self._version),
        ]
        found = _below_both(table)
        return found + [(Route(path, _called_from_here, methods=["GET"]), path, handler) for path, handler in roots]

    async def _models(self, exchange: Exchange) -> None:
        data = [self._model_object(name) for name in self._limits.names(exchange.scope)]
        await exchange.reply_json({"object": "list", "data": data})

    async def _model(self, exchange: Exchange) -> None:
        name = exchange.path_parameter("model")
        self._limits.require(exchange.scope, name)
        await exchange.reply_json(self._model_object(name))

    def _model_object(self, name: str) -> dict[str, object]:
        return {"id": name, "object": "model", "created": self._started_at, "owned_by": "antiphon"}

    async def _root(self, exchange: Exchange) -> None:
        await exchange.reply_json(
            {"name": "antiphon", "version": __version__, "api": "/v1", "docs": "antiphon --help, or README.md"}
        )

    async def _health(self, exchange: Exchange) -> None:
        await exchange.reply_json({"status": "ok"})

    async def _ready(self, exchange: Exchange) -> None:
        if self._service.ready:
            await exchange.reply_json({"status": "ready"})
        else:
            service = self._service
            waiting = "loading" if service.store_reachable or not service.started else "store unreachable"
            await exchange.reply_json({"status": "stopping" if service.draining else waiting}, 503)

    async def _metrics(self, exchange: Exchange) -> None:
        headers = ((b"content-type", self._telemetry.content_type.encode()),)
        await exchange.reply(self._telemetry.exposition(), headers=headers)

    async def _version(self, exchange: Exchange) -> None:
        await exchange.reply_json({"version": __version__})


def _below_both(table: Iterable[tuple[str, str, Handler]]) -> list[tuple[Route, str, Handler]]:
    """The routes of a table, below `/v1` and without it."""
    rows = list(table)
    return [
        (Route(prefix + path, _called_from_here, methods=[method]), path, handler)
        for prefix in ("/v1", "")
        for method, path, handler in rows
    ]


async def _called_from_here(asgi: ASGIScope, receive: Receive, send: Send) -> None:
    """Stands for the endpoint of a route, of which only the match is used."""
    raise NotImplementedError(asgi["path"])


def create_app(service: Service, telemetry: Telemetry | None = None, keys: Registers | None = None) -> Application:
    """The application over a service; `telemetry` must be the service's observer where it is given.

    `keys` is where API keys are, if not in the service's store.
    """
    return Application(service, telemetry or Telemetry(), keys)
