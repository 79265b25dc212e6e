"""Runs the application under uvicorn, from the settings to a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Protocol, cast

import uvicorn

from antiphon.access import check_access
from antiphon.engines.registry import build_registry
from antiphon.errors import ConfigurationError
from antiphon.http.app import Application, create_app
from antiphon.http.connection import BoundedProtocol, watch
from antiphon.http.logs import configure_logging
from antiphon.http.reload import Reloader
from antiphon.http.signals import Signals
from antiphon.http.socket import Socket, SocketLimits
from antiphon.http.telemetry import Telemetry
from antiphon.runtime.service import Service
from antiphon.settings import Settings
from antiphon.store.keyring import has_stored_keys, open_keyring
from antiphon.store.open import describe, open_store
from antiphon.store.registers import Registers

__all__ = ["Announcer", "serve"]

FLUSH_SECONDS = 5.0
"""How long answers may take to go out after the last response has ended."""

GRACEFUL_SECONDS = 30
KEEP_ALIVE_SECONDS = 75
MOST_FILES = 65_536
LEAST_RESERVE = 64
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

    def stopping(self, running: int, seconds: float) -> None:
        """The server was told to stop, and waits at most so long for the responses that run."""
        ...


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Called by uvicorn; signals are ours (see `signals.py`)."""
        yield


def serve(settings: Settings, announce: Announcer, read: Callable[[], Settings] | None = None) -> None:
    """Serve until a signal ends it.

    At the first one no new responses are taken, and those that run may go on for `drain_timeout`; the second ends them.
    `read` gives the settings anew, for the signal that asks for it.

    Raises:
        ConfigurationError: the address, the store or a model cannot be used.
    """
    check_access(settings, lambda: has_stored_keys(settings))
    configure_logging(settings)
    # Without persistence the service has no store, and keys that are there must still be asked for.
    keys_apart = settings.responses_store_max_entries == 0 and has_stored_keys(settings)
    with contextlib.closing(_listen(settings)) as listener:
        begin = _serve_with_keys if keys_apart else _serve
        _runner(begin(settings, listener, announce, read or (lambda: settings)))


def _runner(main: object) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)  # pyright: ignore[reportArgumentType]
    else:
        uvloop.run(main)  # pyright: ignore[reportArgumentType]


async def _serve_with_keys(
    settings: Settings, listener: socket.socket, announce: Announcer, read: Callable[[], Settings]
) -> None:
    async with open_keyring(settings) as keys:
        await _serve(settings, listener, announce, read, keys)


async def _serve(
    settings: Settings,
    listener: socket.socket,
    announce: Announcer,
    read: Callable[[], Settings],
    keys: Registers | None = None,
) -> None:
    telemetry = Telemetry()
    registry = build_registry(settings, telemetry.engine_event)
    store = open_store(settings)
    service = Service(settings, registry, store, telemetry)
    app = create_app(service, telemetry, keys)
    server = _Server(_config(app, settings))
    began: dict[str, float] = {}

    def loading(model: str) -> None:
        began[model] = time.monotonic()
        announce.loading(model)

    def loaded(model: str) -> None:
        announce.loaded(model, time.monotonic() - began[model])

    reloader = Reloader(settings, registry, read, app.learn_keys)
    with Signals(reloader) as signals:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        starting = asyncio.create_task(service.start(loading, loaded))
        told = asyncio.create_task(signals.stop.wait())
        connections = server.server_state.connections
        watching = asyncio.create_task(watch(connections, settings.receive_timeout, settings.write_timeout))
        try:
            await asyncio.wait({serving, starting, told}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await starting
                _tune_collector()
                reloader.begin()
                announce.started(_base_url(settings, listener), registry.names(), describe(store, settings))
                await asyncio.wait({serving, told}, return_when=asyncio.FIRST_COMPLETED)
                app.sockets.stop()
                await _drain(service, signals, announce)
            app.sockets.stop()
            await _close_connections(server, serving, signals)
        finally:
            server.should_exit = True
            watching.cancel()
            told.cancel()
            starting.cancel()
            await asyncio.gather(watching, told, starting, serving, return_exceptions=True)
            await service.close()


def _config(app: Application, settings: Settings) -> uvicorn.Config:
    sockets = partial(Socket, SocketLimits(app.bodies, settings.keep_alive_seconds))
    return uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws=cast(type[asyncio.Protocol], sockets),
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_most_connections(),
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
    )


def _most_connections() -> int | None:
    """As many connections as files may be open, less a reserve for engines, the store and whoever is one too many.

    The soft limit is raised as far as the system lets it: where it stands by default, 1,000 idle clients are too many.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return None
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MOST_FILES if soft == resource.RLIM_INFINITY else min(soft, MOST_FILES)
    return max(1, files - max(LEAST_RESERVE, files // 4))


async def _drain(service: Service, signals: Signals, announce: Announcer) -> None:
    """Let what runs come to its end, then end it: its readers get its terminal event, and it is stored."""
    seconds = service.settings.drain_timeout
    if service.running:
        announce.stopping(service.running, seconds)
    draining = asyncio.create_task(service.drain(seconds))
    await signals.unless_hurried(draining)
    draining.cancel()
    await service.end_runs()


async def _close_connections(server: uvicorn.Server, serving: asyncio.Task[None], signals: Signals) -> None:
    """Let the last answers go out; whoever does not take them by then is cut off, so that no handler is cancelled."""
    server.should_exit = True
    await signals.unless_hurried(serving, FLUSH_SECONDS)
    for connection in list(server.server_state.connections):
        connection.transport.abort()
    await serving


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
