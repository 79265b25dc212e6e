"""Ray itself, which is imported where it is used only: it is an extra, and takes a second to load."""

from __future__ import annotations

import importlib
from typing import Any

from antiphon.errors import ConfigurationError

__all__ = ["require_ray"]


def require_ray(module: str = "ray") -> Any:
    """A module of the library.

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ConfigurationError(
            "This needs Ray, which is not installed. Install it with: pip install 'antiphon[ray]'"
        ) from None
