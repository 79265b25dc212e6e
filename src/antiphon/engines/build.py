"""From the tables of the settings to engines: what cannot be used is said before anything is loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from antiphon.engines.base import Engine, EventHook
from antiphon.engines.catalog import CATALOG, locate
from antiphon.engines.embedding import Embedder
from antiphon.engines.florence.engine import FlorenceEngine
from antiphon.engines.florence.folder import is_florence, missing_libraries
from antiphon.engines.scripted import ScriptedEngine
from antiphon.engines.terms import Terms, read_terms
from antiphon.errors import ConfigurationError
from antiphon.protocol.json import encode
from antiphon.settings import ModelConfig, Settings
from antiphon.tables import LimitsConfig, RayConfig, ReplicaConfig

if TYPE_CHECKING:
    from antiphon.engines.upstream.elsewhere import ElsewhereEngine

__all__ = ["DEFAULT_MODEL", "Entry", "Served", "configured", "entry", "upstream_engine", "upstream_tables"]

Served = Engine | Embedder
"""Whatever stands behind the name of a model."""

DEFAULT_MODEL = "smollm2"
_MOST_TEMPLATE = 2**20
_MOST_DIGESTED = 2**20
_ELSEWHERE: Final = ("chat", "responses")
_ENGINES: Final = ("llamacpp", "scripted", *_ELSEWHERE, "ray")


class Entry(Struct, eq=False):
    """One table and the model that it is of. `identity` is the same for as long as the model need not be made anew."""

    config: ModelConfig
    model: Served
    identity: bytes
    terms: Terms
    template_defaults: Mapping[str, Any]

    def settle(self) -> None:
        """Have the model heed what a table may change while it runs."""
        if isinstance(self.model, Engine):
            limits = self.config.limits
            self.model.terms = self.terms
            self.model.template_defaults = self.template_defaults
            self.model.gate.limit(limits.max_concurrent, limits.max_queue)


def configured(settings: Settings) -> list[ModelConfig]:
    """The tables of all models: those of the file, then those of flags and environment, else the default model.

    Raises:
        ConfigurationError: a flag of one model is given with several.
    """
    named = settings.model if settings.model or settings.models else (DEFAULT_MODEL,)
    own = {field: getattr(settings, field) for field in ("mmproj", "chat_template_file", "tool_dialect")}
    for field, value in own.items():
        if value is not None and len(named) != 1:
            flag = field.replace("_", "-")
            raise ConfigurationError(
                f"--{flag} belongs to one --model; several models have '{field}' in [[models]] each."
            )
    tables = [*settings.models, *(ModelConfig(path=path, **own) for path in named)]
    if settings.embedding_model is not None:
        tables.append(ModelConfig(path=settings.embedding_model, embedding=True))
    return tables


def entry(config: ModelConfig, settings: Settings, on_event: EventHook | None, kept: Mapping[bytes, Served]) -> Entry:
    """A table and its model; nothing is loaded yet. `kept` are models by identity, which need not be made anew.

    Raises:
        ConfigurationError: the table cannot be used.
    """
    place = f"The model '{config.name or config.path or config.upstream_model}' in [[models]]"
    limits = config.limits
    if config.embedding and (config.defaults or limits != LimitsConfig()):
        raise ConfigurationError(f"{place} makes vectors: 'defaults' and 'limits' are for models that generate.")
    if limits.max_queue is not None and limits.max_concurrent is None:
        raise ConfigurationError(f"{place}: 'max_queue' is of no use without 'max_concurrent'.")
    terms = read_terms(place, config.defaults, limits.max_output_tokens, settings.min_output_tokens)
    identity = _identity(config)
    model = kept.get(identity) or _model(config, settings, on_event)
    variables = {**_template_variables(settings), **config.chat_template_kwargs}
    return Entry(config, model, identity, terms, variables)


def _identity(config: ModelConfig) -> bytes:
    """A digest of all that a model is made from, the content of its small files included; the rest can change."""
    limits = LimitsConfig(context_length=config.limits.context_length)
    made_from = replace(config, aliases=(), defaults={}, chat_template_kwargs={}, limits=limits)
    digest = hashlib.sha256(encode(made_from))
    small = [config.chat_template_file, config.api_key_file]
    small += [replica.api_key_file for replica in _replicas(config)]
    for name in (config.path, config.mmproj, *small):
        digest.update(_content(name, whole=name in small) if name else b"")
        digest.update(b"\0")
    return digest.digest()


def _content(name: str, *, whole: bool) -> bytes:
    path = Path(name).expanduser()
    try:
        state = path.stat()
        if whole and state.st_size <= _MOST_DIGESTED:
            return path.read_bytes()
    except OSError:
        # Whoever makes the model says so.
        return b""
    return f"{state.st_size} {state.st_mtime_ns}".encode()


def _template_variables(settings: Settings) -> dict[str, Any]:
    text = settings.chat_template_kwargs or "{}"
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        raise ConfigurationError(
            "--chat-template-kwargs: a JSON object is expected, such as '{\"enable_thinking\": false}'."
        ) from None


def _model(config: ModelConfig, settings: Settings, on_event: EventHook | None) -> Served:
    if config.engine == "ray":
        from antiphon.engines.ray.config import ray_engine

        template = "" if config.chat_template_file is None else _template(Path(config.chat_template_file).expanduser())
        return ray_engine(_bounded(config), settings, on_event, chat_template=template)
    if tables := upstream_tables(config):
        return _elsewhere(tables, on_event)
    length = config.limits.context_length
    if length is not None:
        settings = replace(settings, context_length=length, scripted_context_length=length)
    _check_local(config)
    if config.path == ScriptedEngine.name and not config.embedding:
        engine = ScriptedEngine(settings.scripted_context_length, settings.reasoning_budget)
        engine.name = config.name or engine.name
        return engine
    path = Path(config.path).expanduser()
    if is_florence(path):
        return _florence(path, config, settings, on_event)
    if config.path in CATALOG and not path.exists():
        found = locate(settings.data_path, config.path)
        if found is None:
            what = "default model" if config.path == DEFAULT_MODEL else f"model {config.path}"
            raise ConfigurationError(f"The {what} is not here yet. Fetch it with: antiphon models pull {config.path}")
        path = found
    return _llamacpp(path, config, settings, on_event)


def _replicas(config: ModelConfig) -> list[ReplicaConfig]:
    return [ReplicaConfig(each) if isinstance(each, str) else each for each in config.servers]


def upstream_tables(config: ModelConfig) -> list[ModelConfig]:
    """The tables that the servers of a model elsewhere would have one by one; none for a model that runs here.

    Raises:
        ConfigurationError: its replicas cannot be used.
    """
    if config.engine not in _ELSEWHERE and (config.engine is not None or not (config.base_url or config.servers)):
        return []
    if config.path:
        raise ConfigurationError(f"{config.path}: a model that runs elsewhere, as its URL says, has no 'path'.")
    config, replicas = _bounded(config), _replicas(config)
    place = f"The model '{config.name or config.upstream_model}' in [[models]]"
    if isinstance(config.replicas, int):
        raise ConfigurationError(f"{place}: its 'replicas' are a list of URLs or tables.")
    if not replicas:
        return [config]
    if config.base_url is not None:
        raise ConfigurationError(f"{place}: 'replicas' stand in the place of 'base_url'; give one of them.")
    if len({(each.base_url.rstrip("/"), each.upstream_model) for each in replicas}) != len(replicas):
        raise ConfigurationError(f"{place}: two of its replicas are the same.")
    return [_replica(config, each) for each in replicas]


def _elsewhere(tables: Sequence[ModelConfig], on_event: EventHook | None) -> Engine:
    """The engine of a model that runs elsewhere: over one server, or over several that run the same model.

    Raises:
        ConfigurationError: a table cannot be used.
    """
    if len(tables) == 1:
        return upstream_engine(tables[0], on_event)
    from antiphon.engines.replicas.engine import ReplicatedEngine, replica_hook

    engines = [upstream_engine(table, replica_hook(on_event, number)) for number, table in enumerate(tables)]
    identities = [f"{table.base_url} {table.upstream_model or ''}".strip() for table in tables]
    return ReplicatedEngine(engines[0].name, engines, identities=identities, on_event=on_event)


def _replica(config: ModelConfig, replica: ReplicaConfig) -> ModelConfig:
    """The table that one replica would have by itself."""
    own = {name: value for name in replica.__struct_fields__ if (value := getattr(replica, name)) is not None}
    if replica.api_key_env is not None or replica.api_key_file is not None:
        own = {"api_key_env": None, "api_key_file": None, **own}
    return replace(config, **{"name": config.name or config.upstream_model, "replicas": (), **own})


def upstream_engine(config: ModelConfig, on_event: EventHook | None = None) -> ElsewhereEngine:
    """The engine over one server; nothing is asked of it yet.

    Raises:
        ConfigurationError: the table cannot be used.
    """
    if config.engine == "responses":
        from antiphon.engines.responses import responses_engine

        return responses_engine(config, on_event)
    from antiphon.engines.upstream import chat_engine

    return chat_engine(config, on_event)


def _bounded(config: ModelConfig) -> ModelConfig:
    """The table of a model elsewhere with its limit as the context of its engine.

    Raises:
        ConfigurationError: the table says two lengths of it.
    """
    length = config.limits.context_length
    if length is None:
        return config
    if config.context_length not in (None, length):
        raise ConfigurationError(
            f"The model '{config.name or config.upstream_model}' in [[models]]: 'context_length' and "
            "'limits.context_length' differ; give one of them."
        )
    return replace(config, context_length=length)


def _check_local(config: ModelConfig) -> None:
    """Refuse a table that names no model here.

    Raises:
        ConfigurationError: it has no path, an unknown engine, or fields of an upstream.
    """
    if not config.path:
        raise ConfigurationError("A [[models]] table needs 'path', or 'base_url' for a model that runs elsewhere.")
    if config.engine not in (None, "llamacpp", "scripted"):
        known = ", ".join(f"'{name}'" for name in _ENGINES)
        raise ConfigurationError(f"{config.path}: the engine is one of {known}, not '{config.engine}'.")
    if (config.engine == "scripted") > (config.path == ScriptedEngine.name):
        raise ConfigurationError(f"{config.path}: the scripted engine has the path 'scripted'.")
    plain = ModelConfig()
    elsewhere = [name for name in _UPSTREAM_FIELDS if getattr(config, name) != getattr(plain, name)]
    if elsewhere:
        raise ConfigurationError(
            f"{config.path}: '{elsewhere[0]}' belongs to models that run elsewhere, whose table has no 'path'."
        )
    scripted = config.path == ScriptedEngine.name
    if config.ray != RayConfig():
        raise ConfigurationError(f"{config.path}: 'ray' belongs to the engine 'ray'.")
    ignored = [
        name
        for name in ("mmproj", "chat_template_file", "tool_dialect")
        if getattr(config, name) is not None and (scripted or config.embedding)
    ]
    if ignored:
        what = "makes vectors" if config.embedding else "is scripted"
        raise ConfigurationError(f"{config.path}: it {what}, and has no use for '{ignored[0]}'.")


_UPSTREAM_FIELDS: Final = (
    "base_url",
    "upstream_model",
    "replicas",
    "api_key_env",
    "api_key_file",
    "context_length",
    "media",
    "profile",
    "thinking",
    "idle_timeout",
)


def _llamacpp(path: Path, config: ModelConfig, settings: Settings, on_event: EventHook | None) -> Served:
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
    unused = ("mmproj", "chat_template_file", "tool_dialect")
    if config.limits.context_length is not None:
        raise ConfigurationError(f"{path} is a Florence-2 model, whose context cannot be made shorter.")
    if config.embedding or any(getattr(config, name) is not None for name in unused):
        raise ConfigurationError(
            f"{path} is a Florence-2 model: it makes no vectors, and has neither an 'mmproj' nor a chat template, nor "
            "does it call tools."
        )
    missing = missing_libraries()
    if missing:
        raise ConfigurationError(
            f"{path} is a Florence-2 model, whose engine is not installed ({', '.join(missing)}). "
            'Install it with: pip install "antiphon[vision]"'
        )
    return FlorenceEngine(path, settings, name=config.name, on_event=on_event)
