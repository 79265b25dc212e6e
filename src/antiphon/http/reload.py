"""Reads the settings anew while the server runs, and has it heed what can change: its models, and the keys of a file.

A file that cannot be used changes nothing. What takes a restart is named in the log, never its value.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import structlog

from antiphon.access import configured_keys
from antiphon.engines.registry import Registry
from antiphon.errors import ConfigurationError
from antiphon.settings import FIELDS, Settings

__all__ = ["Reloader"]

_log = structlog.get_logger("antiphon")

_CHANGEABLE = ("models", "model", "embedding_model", "alias", "default_model")


class Reloader:
    """Reloads when it is called, once `begin` says that the server has started.

    `read` gives the settings as they are now, and `learn_keys` takes in the API keys of settings.
    """

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        read: Callable[[], Settings],
        learn_keys: Callable[[list[bytes]], None],
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._read = read
        self._learn_keys = learn_keys
        self._begun = False
        self._due = False

    def begin(self) -> None:
        """The server has started; what was asked for before is done now."""
        self._begun = True
        if self._due:
            self()

    def __call__(self) -> None:
        """Read the settings and heed them; what cannot be done is logged."""
        self._due = not self._begun
        if self._due:
            return
        try:
            found = self._read()
            changed = [field.name for field in FIELDS if _differ(found, self._settings, field.name)]
            heeded = {name: getattr(found, name) for name in changed if name in _CHANGEABLE}
            settings = msgspec.structs.replace(self._settings, **heeded)
            keys = configured_keys(settings)
            change = self._registry.reload(settings)
        except ConfigurationError as error:
            _log.error(f"The settings were not read anew, and nothing has changed: {error}")
            return
        self._learn_keys(keys)
        self._settings = settings
        _log.info(
            "settings read anew",
            models_added=list(change.added),
            models_replaced=list(change.replaced),
            models_removed=list(change.removed),
        )
        if left := [name for name in changed if name not in _CHANGEABLE]:
            _log.warning("settings that a restart is needed for", settings=left)


def _differ(one: Settings, other: Settings, name: str) -> bool:
    return getattr(one, name) != getattr(other, name)
