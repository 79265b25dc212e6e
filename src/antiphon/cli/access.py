"""What the commands share: the default address, the key to send, the libraries that a server needs, an event loop."""

from __future__ import annotations

import importlib.util
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from antiphon.errors import ConfigurationError

__all__ = ["DEFAULT_BASE_URL", "check_libraries", "first_key", "missing_libraries", "run"]

T = TypeVar("T")

DEFAULT_BASE_URL = "http://127.0.0.1:8080/v1"
"""Where `antiphon serve` answers unless it is told otherwise."""

_SERVER_LIBRARIES = ("starlette", "uvicorn", "httptools", "aiohttp", "structlog", "prometheus_client")
_ENGINE_LIBRARIES = ("xllamacpp",)


def first_key(keys: str | None) -> str | None:
    """The key to send where ANTIPHON_API_KEY may name several, separated by commas, as it does for `serve`."""
    return next((key for key in (keys or "").split(",") if key), None)


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of asynchronous work, in an event loop of its own."""
    # Not at the top: --help of any command would load it.
    import asyncio

    return asyncio.run(work)


def missing_libraries(models: Iterable[str]) -> list[str]:
    """The libraries that a server of these models needs and that are not installed."""
    # Not at the top: --help of any command would load it.
    from antiphon.engines.florence.folder import is_florence

    # What a Florence-2 model needs is the registry's matter, which says how to install it.
    local = any(model != "scripted" and not is_florence(Path(model).expanduser()) for model in models)
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
