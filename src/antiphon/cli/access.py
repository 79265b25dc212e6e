"""What must hold before a server starts: nobody uninvited gets in, and the libraries are there."""

from __future__ import annotations

import importlib.util
import ipaddress
from collections.abc import Iterable

from antiphon.errors import ConfigurationError
from antiphon.settings import Settings

__all__ = ["DEFAULT_BASE_URL", "check_access", "check_libraries", "is_loopback", "missing_libraries"]

DEFAULT_BASE_URL = "http://127.0.0.1:8080/v1"
"""Where `antiphon serve` answers unless it is told otherwise."""

_SERVER_LIBRARIES = ("starlette", "uvicorn", "httptools", "aiohttp", "structlog", "prometheus_client")
_ENGINE_LIBRARIES = ("xllamacpp",)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_access(settings: Settings) -> None:
    """Refuse to let the network in without a key.

    Raises:
        ConfigurationError: the address is not a loopback address, and there is no key and no leave to go without.
    """
    if any(not key.strip() for key in settings.api_key):
        raise ConfigurationError("An API key is empty.")
    if not (is_loopback(settings.host) or settings.api_key or settings.allow_unauthenticated):
        raise ConfigurationError(
            f"Listening on '{settings.host}' lets others than this machine in: give a key with --api-key, "
            "or allow anyone with --allow-unauthenticated."
        )


def missing_libraries(models: Iterable[str]) -> list[str]:
    """The libraries that a server of these models needs and that are not installed."""
    local = any(model != "scripted" for model in models)
    needed = (*_SERVER_LIBRARIES, *(_ENGINE_LIBRARIES if local else ()))
    return [name for name in needed if importlib.util.find_spec(name) is None]


def check_libraries(models: Iterable[str]) -> None:
    """Refuse to start without the libraries that the server or its models need.

    Raises:
        ConfigurationError: some are missing; the message says what to install.
    """
    missing = missing_libraries(models)
    if missing:
        raise ConfigurationError(f"Not installed: {', '.join(missing)}. Install them: pip install 'antiphon[local]'.")
