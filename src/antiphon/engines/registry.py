"""The models that a server serves, their names and aliases, and the engine behind each name.

A model is named by its own name (a GGUF's file stem), by the path as it was given and by each alias; the alias `*`
takes every unknown name. Listings never show a path (issue 2, Models). Models that turn texts into vectors are listed
beside those that generate, and answer to no other request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from antiphon.engines.base import Engine, EventHook
from antiphon.engines.catalog import locate
from antiphon.engines.embedding import Embedder
from antiphon.engines.florence.engine import FlorenceEngine
from antiphon.engines.florence.folder import is_florence, missing_libraries
from antiphon.engines.scripted import ScriptedEngine
from antiphon.errors import ConfigurationError, InvalidRequestError, NotFoundError, UnsupportedError
from antiphon.protocol.json import quoted
from antiphon.settings import ModelConfig, Settings

__all__ = ["Registry", "Served", "build_registry"]

Served = Engine | Embedder
"""Whatever stands behind the name of a model."""

WILDCARD = "*"
DEFAULT_MODEL = "smollm2"
_MOST_TEMPLATE = 2**20


class Registry:
    """Engines by name. The first engine is the one that generates by default."""

    def __init__(
        self,
        engines: Sequence[Engine],
        hidden_names: Mapping[str, Served],
        aliases: Mapping[str, Served],
        default_model: str | None,
        embedders: Sequence[Embedder] = (),
    ) -> None:
        self.engines = list(engines)
        self.embedders = list(embedders)
        self._listed: dict[str, Served] = {model.name: model for model in (*engines, *embedders)}
        self._listed.update((name, model) for name, model in aliases.items() if name != WILDCARD)
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

    def find(self, name: str) -> Served | None:
        """The model that answers to that name, of whichever kind."""
        return self._names.get(name, self._wildcard)

    def resolve(self, name: str | None) -> tuple[str, Engine]:
        """The name that an answer carries and the engine behind it.

        Raises:
            InvalidRequestError: no name, and no default model is set.
            NotFoundError: an unknown name; the message lists the known ones.
            UnsupportedError: the model generates nothing.
        """
        if not name:
            if self._default is None:
                raise _no_name()
            name = self._default
        model = self._names.get(name, self._wildcard)
        if model is None:
            raise self.unknown(name)
        if isinstance(model, Embedder):
            raise UnsupportedError(
                f"The model '{quoted(name)}' turns texts into vectors and generates nothing: it is for /v1/embeddings.",
                param="model",
            )
        return name, model

    def resolve_embedder(self, name: str | None) -> tuple[str, Embedder]:
        """The name that an answer carries and the embedding model behind it.

        Where the alias `*` is set, unknown names are the first embedding model's; without a name it is the only one.

        Raises:
            InvalidRequestError: no name, and there are several.
            NotFoundError: an unknown name; the message lists the known ones.
            UnsupportedError: the model makes no vectors, or none here does.
        """
        if not self.embedders:
            raise UnsupportedError(
                "This server has no embedding model: start it with --embedding-model FILE.gguf.", param="model"
            )
        if not name:
            if len(self.embedders) > 1:
                raise _no_name()
            name = self.embedders[0].name
        model = self._names.get(name, self.embedders[0] if self._wildcard is not None else None)
        if model is None:
            raise self.unknown(name)
        if isinstance(model, Engine):
            names = ", ".join(embedder.name for embedder in self.embedders)
            raise UnsupportedError(
                f"The model '{quoted(name)}' generates text and makes no vectors. For those there is: {names}.",
                param="model",
            )
        return name, model

    def unknown(self, name: str) -> NotFoundError:
        """The error for a name that no model has; it lists those that there are."""
        return NotFoundError(
            f"The model '{quoted(name)}' does not exist. This server serves: {', '.join(self.names())}.",
            param="model",
            code="model_not_found",
        )

    async def start(
        self, loading: Callable[[str], None] | None = None, loaded: Callable[[str], None] | None = None
    ) -> None:
        """Load every model, one after another; the callbacks get its name before and after.

        Raises:
            ConfigurationError: a model cannot be loaded.
        """
        for engine in (*self.engines, *self.embedders):
            if loading is not None:
                loading(engine.name)
            await engine.start()
            if loaded is not None:
                loaded(engine.name)

    async def close(self) -> None:
        """Close every model."""
        await asyncio.gather(*(model.close() for model in (*self.engines, *self.embedders)))


def _no_name() -> InvalidRequestError:
    return InvalidRequestError("Missing required parameter: 'model'.", param="model", code="missing_required_parameter")


def build_registry(settings: Settings, on_event: EventHook | None = None) -> Registry:
    """The registry that the settings ask for; nothing is loaded yet. `on_event` is told of deaths and restarts.

    Raises:
        ConfigurationError: a model file is missing, a name is taken twice, or an alias names no model.
    """
    named = settings.model if settings.model or settings.models else (DEFAULT_MODEL,)
    own = {field: getattr(settings, field) for field in ("mmproj", "chat_template_file", "tool_dialect")}
    for field, value in own.items():
        if value is not None and len(named) != 1:
            flag = field.replace("_", "-")
            raise ConfigurationError(
                f"--{flag} belongs to one --model; several models have '{field}' in [[models]] each."
            )
    configured = [
        *settings.models,
        *(ModelConfig(path=path, **own) for path in named),
    ]
    if settings.embedding_model is not None:
        configured.append(ModelConfig(path=settings.embedding_model, embedding=True))
    server_wide = _template_variables(settings)
    served: list[Served] = []
    names: dict[str, Served] = {}
    aliases: dict[str, Served] = {}
    for config in configured:
        model = _model(config, settings, on_event)
        if isinstance(model, Engine):
            model.template_defaults = {**server_wide, **config.chat_template_kwargs}
        for name in dict.fromkeys((model.name, config.path or model.name)):
            if names.setdefault(name, model) is not model:
                raise ConfigurationError(f"Two models are named '{name}': give one of them another 'name'.")
        served.append(model)
        for alias in config.aliases:
            _add_alias(aliases, names, alias, model)
    engines = [model for model in served if isinstance(model, Engine)]
    embedders = [model for model in served if isinstance(model, Embedder)]
    if not engines:
        raise ConfigurationError("No model generates: add one to [[models]] that has no 'embedding = true'.")
    for entry in settings.alias:
        alias, separator, target = entry.partition("=")
        # As llama.cpp has it: where one model is served, a name alone is another one of it.
        model = names.get(target) if separator else engines[0] if len(engines) == 1 else None
        if not alias or model is None:
            known = ", ".join(sorted({known.name for known in served}))
            raise ConfigurationError(f"--alias {entry}: NAME=MODEL is expected, where MODEL is one of: {known}.")
        _add_alias(aliases, names, alias, model)
    default = settings.default_model
    if default is not None and not isinstance(names.get(default) or aliases.get(default), Engine):
        raise ConfigurationError(f"--default-model {default}: no model that generates has that name.")
    return Registry(engines, names, aliases, default, embedders)


def _check_local(config: ModelConfig) -> None:
    """Refuse a table that names no model here.

    Raises:
        ConfigurationError: it has no path, an unknown engine, or fields of an upstream.
    """
    if not config.path:
        raise ConfigurationError("A [[models]] table needs 'path', or 'base_url' for a model that runs elsewhere.")
    if config.engine not in (None, "llamacpp", "scripted"):
        raise ConfigurationError(
            f"{config.path}: the engine is 'llamacpp', 'scripted' or 'chat', not '{config.engine}'."
        )
    if (config.engine == "scripted") > (config.path == ScriptedEngine.name):
        raise ConfigurationError(f"{config.path}: the scripted engine has the path 'scripted'.")
    if config.base_url is not None or config.upstream_model is not None:
        raise ConfigurationError(f"{config.path}: 'base_url' and 'upstream_model' belong to the engine 'chat'.")


def _template_variables(settings: Settings) -> dict[str, Any]:
    text = settings.chat_template_kwargs or "{}"
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        raise ConfigurationError(
            "--chat-template-kwargs: a JSON object is expected, such as '{\"enable_thinking\": false}'."
        ) from None


def _add_alias(aliases: dict[str, Served], names: Mapping[str, Served], alias: str, model: Served) -> None:
    if names.get(alias, model) is not model or aliases.setdefault(alias, model) is not model:
        raise ConfigurationError(f"The name '{alias}' is given to two models.")


def _model(config: ModelConfig, settings: Settings, on_event: EventHook | None) -> Served:
    if config.engine == "chat" or (config.engine is None and config.base_url is not None):
        from antiphon.engines.upstream import chat_engine

        return chat_engine(config, on_event)
    _check_local(config)
    if config.path == ScriptedEngine.name and not config.embedding:
        engine = ScriptedEngine(settings.scripted_context_length, settings.reasoning_budget)
        engine.name = config.name or engine.name
        return engine
    path = Path(config.path).expanduser()
    if is_florence(path):
        return _florence(path, config, settings, on_event)
    if config.path == DEFAULT_MODEL and not path.exists():
        found = locate(settings.data_path)
        if found is None:
            raise ConfigurationError(
                f"The default model is not here yet. Fetch it with: antiphon models pull {DEFAULT_MODEL}"
            )
        path = found
    try:
        from antiphon.engines.llamacpp import LlamaCppEmbedder, LlamaCppEngine
    except ImportError as error:
        raise ConfigurationError(
            f"The local engine is not installed ({error.name}). Install it with: pip install 'antiphon[local]'"
        ) from None
    if config.embedding:
        return LlamaCppEmbedder(path, settings, name=config.name, on_event=on_event)
    mmproj = None if config.mmproj is None else Path(config.mmproj).expanduser()
    template = "" if config.chat_template_file is None else _template(Path(config.chat_template_file).expanduser())
    return LlamaCppEngine(
        path,
        settings,
        name=config.name,
        dialect=config.tool_dialect,
        chat_template=template,
        mmproj=mmproj,
        on_event=on_event,
    )


def _template(path: Path) -> str:
    """The chat template in a file."""
    try:
        if path.stat().st_size > _MOST_TEMPLATE:
            raise ConfigurationError(f"--chat-template-file {path}: no template is longer than {_MOST_TEMPLATE} bytes.")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or "it cannot be read").lower()
        raise ConfigurationError(f"--chat-template-file {path}: {reason}.") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"--chat-template-file {path}: it is no text in UTF-8.") from None
    if not text.strip():
        raise ConfigurationError(f"--chat-template-file {path}: the file is empty.")
    return text


def _florence(path: Path, config: ModelConfig, settings: Settings, on_event: EventHook | None) -> FlorenceEngine:
    if config.embedding or config.mmproj is not None or config.chat_template_file is not None:
        raise ConfigurationError(
            f"{path} is a Florence-2 model: it makes no vectors, and has neither an 'mmproj' nor a chat template."
        )
    missing = missing_libraries()
    if missing:
        raise ConfigurationError(
            f"{path} is a Florence-2 model, whose engine is not installed ({', '.join(missing)}). "
            'Install it with: pip install "antiphon[vision]"'
        )
    return FlorenceEngine(path, settings, name=config.name, on_event=on_event)
