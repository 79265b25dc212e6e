"""The models that a server serves, their names and aliases, and the engine behind each name.

A model is named by its own name (a GGUF's file stem), by the path as it was given and by each alias; the alias `*`
takes every unknown name. Listings never show a path (issue 2, Models).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from antiphon.engines.base import Engine, EventHook
from antiphon.engines.catalog import locate
from antiphon.engines.scripted import ScriptedEngine
from antiphon.errors import ConfigurationError, InvalidRequestError, NotFoundError
from antiphon.protocol.json import quoted
from antiphon.settings import ModelConfig, Settings

__all__ = ["Registry", "build_registry"]

WILDCARD = "*"
DEFAULT_MODEL = "smollm2"


class Registry:
    """Engines by name. The first engine is the one that generates by default."""

    def __init__(
        self,
        engines: Sequence[Engine],
        hidden_names: Mapping[str, Engine],
        aliases: Mapping[str, Engine],
        default_model: str | None,
    ) -> None:
        self.engines = list(engines)
        self._listed: dict[str, Engine] = {engine.name: engine for engine in engines}
        self._listed.update((name, engine) for name, engine in aliases.items() if name != WILDCARD)
        self._names = {**hidden_names, **self._listed}
        self._wildcard = aliases.get(WILDCARD)
        self._default = default_model

    @property
    def ready(self) -> bool:
        """Whether the default engine can generate now."""
        return self.engines[0].ready

    def names(self) -> list[str]:
        """The names to list: the generating model first, then the others and the aliases."""
        return list(self._listed)

    def resolve(self, name: str | None) -> tuple[str, Engine]:
        """The name that an answer carries and the engine behind it.

        Raises:
            InvalidRequestError: no name, and no default model is set.
            NotFoundError: an unknown name; the message lists the known ones.
        """
        if not name:
            if self._default is None:
                raise InvalidRequestError(
                    "Missing required parameter: 'model'.", param="model", code="missing_required_parameter"
                )
            name = self._default
        engine = self._names.get(name, self._wildcard)
        if engine is None:
            raise NotFoundError(
                f"The model '{quoted(name)}' does not exist. This server serves: {', '.join(self.names())}.",
                param="model",
                code="model_not_found",
            )
        return name, engine

    async def start(
        self, loading: Callable[[str], None] | None = None, loaded: Callable[[str], None] | None = None
    ) -> None:
        """Load every model, one after another; the callbacks get its name before and after.

        Raises:
            ConfigurationError: a model cannot be loaded.
        """
        for engine in self.engines:
            if loading is not None:
                loading(engine.name)
            await engine.start()
            if loaded is not None:
                loaded(engine.name)

    async def close(self) -> None:
        """Close every engine."""
        await asyncio.gather(*(engine.close() for engine in self.engines))


def build_registry(settings: Settings, on_event: EventHook | None = None) -> Registry:
    """The registry that the settings ask for; nothing is loaded yet. `on_event` is told of deaths and restarts.

    Raises:
        ConfigurationError: a model file is missing, a name is taken twice, or an alias names no model.
    """
    configured = [
        *settings.models,
        *(ModelConfig(path=path) for path in settings.model),
    ] or [ModelConfig(path=DEFAULT_MODEL)]
    engines: list[Engine] = []
    names: dict[str, Engine] = {}
    aliases: dict[str, Engine] = {}
    for model in configured:
        engine = _engine(model, settings, on_event)
        for name in dict.fromkeys((engine.name, model.path)):
            if names.setdefault(name, engine) is not engine:
                raise ConfigurationError(f"Two models are named '{name}': give one of them another 'name'.")
        engines.append(engine)
        for alias in model.aliases:
            _add_alias(aliases, names, alias, engine)
    for entry in settings.alias:
        alias, separator, target = entry.partition("=")
        engine = names.get(target)
        if not separator or not alias or engine is None:
            known = ", ".join(sorted({known.name for known in engines}))
            raise ConfigurationError(f"--alias {entry}: NAME=MODEL is expected, where MODEL is one of: {known}.")
        _add_alias(aliases, names, alias, engine)
    default = settings.default_model
    if default is not None and default not in names and default not in aliases:
        raise ConfigurationError(f"--default-model {default}: no model has that name.")
    return Registry(engines, names, aliases, default)


def _add_alias(aliases: dict[str, Engine], names: Mapping[str, Engine], alias: str, engine: Engine) -> None:
    if names.get(alias, engine) is not engine or aliases.setdefault(alias, engine) is not engine:
        raise ConfigurationError(f"The name '{alias}' is given to two models.")


def _engine(model: ModelConfig, settings: Settings, on_event: EventHook | None) -> Engine:
    if model.path == ScriptedEngine.name:
        engine = ScriptedEngine(settings.scripted_context_length)
        engine.name = model.name or engine.name
        return engine
    path = Path(model.path).expanduser()
    if model.path == DEFAULT_MODEL and not path.exists():
        found = locate(settings.data_path)
        if found is None:
            raise ConfigurationError(
                f"The default model is not here yet. Fetch it with: antiphon models pull {DEFAULT_MODEL}"
            )
        path = found
    try:
        from antiphon.engines.llamacpp import LlamaCppEngine
    except ImportError as error:
        raise ConfigurationError(
            f"The local engine is not installed ({error.name}). Install it with: pip install 'antiphon[local]'"
        ) from None
    return LlamaCppEngine(path, settings, name=model.name, on_event=on_event)
