"""The server as an application of Ray Serve: each replica is what `antiphon serve` runs, behind Ray's proxies.

What replicas share is in PostgreSQL, as for any servers beside each other: what one of them leaves when it is lost,
another one takes over. `antiphon deploy ray` writes the configuration that names `build`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from antiphon.access import check_access
from antiphon.engines.ray.library import require_ray
from antiphon.engines.registry import build_registry
from antiphon.errors import AntiphonError, ConfigurationError
from antiphon.http.app import Application, create_app
from antiphon.http.exchange import ASGIScope, Receive, Send
from antiphon.http.logs import configure_logging
from antiphon.http.telemetry import Telemetry
from antiphon.runtime.service import Service
from antiphon.settings import Settings, load_settings
from antiphon.store.addresses import is_database
from antiphon.store.keyring import has_stored_keys
from antiphon.store.open import open_store

__all__ = ["DEPLOYMENT", "Replica", "ReplicaApplication", "build", "replica_settings"]

DEPLOYMENT: Final = "server"
"""The name of the deployment in the application."""


def build(args: Mapping[str, Any]) -> Any:
    """The application that Ray Serve runs: `args` are `settings`, as in a configuration file, or `config`, its path.

    Raises:
        ConfigurationError: Ray Serve is not installed.
    """
    serve = require_ray("ray.serve")
    return serve.deployment(serve.ingress()(Replica), name=DEPLOYMENT).bind(dict(args))


def replica_settings(args: Mapping[str, Any]) -> Settings:
    """The settings of a replica: those of `args`, and of its node's environment.

    Raises:
        ConfigurationError: they cannot be used, or state would not be shared by the replicas.
    """
    config = args.get("config")
    settings = load_settings(flags=args.get("settings"), config=None if config is None else Path(config))
    if not is_database(settings.store) or settings.responses_store_max_entries == 0:
        raise ConfigurationError(
            "Replicas share their state in PostgreSQL: set 'store', or ANTIPHON_STORE on every node, to "
            "postgresql://USER@HOST/DATABASE."
        )
    check_access(settings, lambda: has_stored_keys(settings))
    return settings


class Replica:
    """What Ray Serve makes of each replica; `args` are those of `build`."""

    def __init__(self, args: dict[str, Any]) -> None:
        self._args = args

    def __serve_build_asgi_app__(self) -> ReplicaApplication:
        """Called by Ray Serve for the application of the replica."""
        settings = replica_settings(self._args)
        configure_logging(settings)
        return ReplicaApplication(settings)


class ReplicaApplication:
    """The ASGI application with its life: the service starts and ends with the replica."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._service: Service | None = None
        self._application: Application | None = None

    async def __call__(self, asgi: ASGIScope, receive: Receive, send: Send) -> None:
        """Answer one request, take one WebSocket connection, or live."""
        if asgi["type"] == "lifespan":
            await self._live(receive, send)
        elif self._application is not None:
            await self._application(asgi, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._start()
        except AntiphonError as error:
            await self._stop()
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _start(self) -> None:
        telemetry = Telemetry()
        registry = build_registry(self._settings, telemetry.engine_event)
        self._service = service = Service(self._settings, registry, open_store(self._settings), telemetry)
        await service.start()
        self._application = create_app(service, telemetry)

    async def _stop(self) -> None:
        """Let what runs come to its end; what does not is gone on with by another replica."""
        service, self._service = self._service, None
        if service is None:
            return
        if self._application is not None:
            self._application.sockets.stop()
            await service.drain(self._settings.drain_timeout)
        await service.close()
