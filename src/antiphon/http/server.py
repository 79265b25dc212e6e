"""Runs the application under uvicorn, from the settings to a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import time
from typing import Protocol

import structlog
import uvicorn

from antiphon.engines.registry import build_registry
from antiphon.errors import ConfigurationError
from antiphon.http.app import create_app
from antiphon.http.auth import is_loopback
from antiphon.http.telemetry import Telemetry
from antiphon.runtime.service import Service
from antiphon.settings import Settings
from antiphon.store.open import describe, open_store

__all__ = ["Announcer", "serve"]

GRACEFUL_SECONDS = 30
KEEP_ALIVE_SECONDS = 75
BACKLOG = 2048
COLLECTOR_THRESHOLDS = (5_000, 20, 20)


class Announcer(Protocol):
    """Whoever tells a person how the start goes."""

    def loading(self, model: str) -> None:
        """A model begins to load."""
        ...

    def loaded(self, model: str, seconds: float) -> None:
        """A model is loaded."""
        ...

    def started(self, base_url: str, models: list[str], state: str) -> None:
        """The server answers at that URL; `state` says where responses are kept and how long."""
        ...


def serve(settings: Settings, announce: Announcer) -> None:
    """Serve until a signal ends it.

    Raises:
        ConfigurationError: the address, the store or a model cannot be used.
    """
    if not is_loopback(settings.host) and not settings.api_key and not settings.allow_unauthenticated:
        raise ConfigurationError(
            f"Refusing to listen on {settings.host} without an API key: anyone who reaches it could use it. "
            "Set --api-key, or --allow-unauthenticated if that is what you want."
        )
    _configure_logging(settings)
    with contextlib.closing(_listen(settings)) as listener:
        _runner(_serve(settings, listener, announce))


def _runner(main: object) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)  # pyright: ignore[reportArgumentType]
    else:
        uvloop.run(main)  # pyright: ignore[reportArgumentType]


async def _serve(settings: Settings, listener: socket.socket, announce: Announcer) -> None:
    telemetry = Telemetry()
    registry = build_registry(settings, telemetry.engine_event)
    store = open_store(settings)
    service = Service(settings, registry, store, telemetry)
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(service, telemetry),
            http="httptools",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACEFUL_SECONDS,
        )
    )
    began: dict[str, float] = {}

    def loading(model: str) -> None:
        began[model] = time.monotonic()
        announce.loading(model)

    def loaded(model: str) -> None:
        announce.loaded(model, time.monotonic() - began[model])

    serving = asyncio.create_task(server.serve(sockets=[listener]))
    starting = asyncio.create_task(service.start(loading, loaded))
    try:
        await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            _tune_collector()
            announce.started(_base_url(settings, listener), registry.names(), describe(store, settings))
        await serving
    finally:
        server.should_exit = True
        starting.cancel()
        await asyncio.gather(starting, serving, return_exceptions=True)
        await service.close()


def _tune_collector() -> None:
    """Keep the garbage collector from walking over what stays for ever, and from starting every few requests.

    Requests leave no cycles behind, so there is little to find: by default it takes a seventh of the time of short
    answers, and now and then stops the loop for 50 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)


def _listen(settings: Settings) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigurationError(f"Cannot listen on {settings.host}: {error.strerror}.") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"Cannot listen on {settings.host} port {settings.port}: {error.strerror}. Choose another with --port."
        ) from None
    return listener


def _base_url(settings: Settings, listener: socket.socket) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{listener.getsockname()[1]}/v1"


def _configure_logging(settings: Settings) -> None:
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    logging.basicConfig(level=max(level, logging.WARNING), format="%(levelname)s %(message)s")
    renderer = structlog.processors.JSONRenderer() if settings.log_format == "json" else structlog.dev.ConsoleRenderer()
    processors: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if settings.log_format == "json":
        processors.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(),
        cache_logger_on_first_use=True,
    )
