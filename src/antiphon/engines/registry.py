"""The models that a server serves, their names and aliases, and the engine behind each name.

A model is named by its own name (a GGUF's file stem), by the path as it was given and by each alias; the alias `*`
takes every unknown name. Listings never show a path (issue 2, Models). Models that turn texts into vectors are listed
beside those that generate, and answer to no other request.

The models can change while the server runs. A name stands for the model that it stood for until the one that is to
take its place has started. A model that no name stands for any more is closed when nothing uses it (issue 5,
section 3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Self

from msgspec import Struct

from antiphon.engines.base import Engine, EventHook
from antiphon.engines.build import Entry, Served, configured, entry
from antiphon.engines.embedding import Embedder
from antiphon.errors import (
    AntiphonError,
    ConfigurationError,
    EngineUnavailableError,
    InvalidRequestError,
    NotFoundError,
    UnsupportedError,
)
from antiphon.protocol.json import quoted
from antiphon.settings import Settings

__all__ = ["Change", "Registry", "Served", "build_registry"]

WILDCARD = "*"


class Names(Struct):
    """What each name stands for. `listed` are shown; `hidden` are paths. The first engine generates by default."""

    listed: dict[str, Served]
    hidden: Mapping[str, Served]
    wildcard: Served | None
    default: str | None

    def models(self) -> list[Served]:
        """Every model that a name stands for, once."""
        every = () if self.wildcard is None else (self.wildcard,)
        return list(dict.fromkeys((*self.listed.values(), *self.hidden.values(), *every)))

    def find(self, name: str) -> Served | None:
        """The model of that name."""
        return self.listed.get(name) or self.hidden.get(name)


class Change(Struct, frozen=True):
    """What a new set of tables changes: names of models that are new, made anew, and gone."""

    added: Sequence[str]
    replaced: Sequence[str]
    removed: Sequence[str]


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
        listed: dict[str, Served] = {model.name: model for model in (*engines, *embedders)}
        listed.update((name, model) for name, model in aliases.items() if name != WILDCARD)
        self._wanted = Names(listed, hidden_names, aliases.get(WILDCARD), default_model)
        self._entries: list[Entry] = []
        self._on_event: EventHook | None = None
        self._starting: dict[Served, asyncio.Task[None]] = {}
        self._retiring: dict[asyncio.Task[None], Served] = {}
        self._absent: set[Served] = set()
        self._show(self._wanted)

    @classmethod
    def of(cls, names: Names, entries: Sequence[Entry], on_event: EventHook | None) -> Self:
        """The registry of such tables; `on_event` is told of models that come and go."""
        registry = cls([], {}, {}, None)
        registry._wanted, registry._entries, registry._on_event = names, list(entries), on_event
        registry._show(names)
        for each in entries:
            each.settle()
        return registry

    def _show(self, names: Names) -> None:
        self._names = names
        models = names.models()
        self.engines = [model for model in models if isinstance(model, Engine)]
        self.embedders = [model for model in models if isinstance(model, Embedder)]

    @property
    def on_event(self) -> EventHook | None:
        """Who is told of models that come, fail and go."""
        return self._on_event

    @property
    def default_model(self) -> str | None:
        """The model of requests that name none, where there is one."""
        return self._names.default

    def first(self) -> str:
        """The name of the model that generates by default.

        Raises:
            EngineUnavailableError: none has started yet.
        """
        if not self.engines:
            raise EngineUnavailableError("The model is being loaded. Please try again later.", retry_after=2.0)
        return self.engines[0].name

    @property
    def ready(self) -> bool:
        """Whether one of the models can generate now: one that is away must not take the others away with it."""
        return any(engine.ready for engine in self.engines)

    def names(self) -> list[str]:
        """The names to list: the generating model first, then the others and the aliases."""
        return list(self._names.listed)

    def find(self, name: str) -> Served | None:
        """The model that answers to that name, of whichever kind."""
        return self._names.find(name) or self._names.wildcard

    def resolve(self, name: str | None) -> tuple[str, Engine]:
        """The name that an answer carries and the engine behind it.

        Raises:
            InvalidRequestError: no name, and no default model is set.
            NotFoundError: an unknown name; the message lists the known ones.
            UnsupportedError: the model generates nothing.
        """
        if not name:
            if self._names.default is None:
                raise _no_name()
            name = self._names.default
        model = self.find(name)
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
        model = self._names.find(name) or (self.embedders[0] if self._names.wildcard is not None else None)
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

    def reload(self, settings: Settings) -> Change:
        """Serve the models of these settings from now on: what has not changed goes on, the rest is begun or ended.

        New models start in the background and are there when they have; one that cannot be started is told to the
        hook, as `load_failed`, and what its names stood for before stays.

        Raises:
            ConfigurationError: the tables cannot be used; nothing has changed.
        """
        failed = self._absent.difference(self._starting)
        kept = {each.identity: each.model for each in self._entries if each.model not in failed}
        wanted, entries = _names_of(settings, self._on_event, kept)
        before = {each.model for each in self._entries}
        after = {each.model for each in entries}
        old, new = {model.name for model in before - after}, {model.name for model in after - before}
        self._wanted, self._entries = wanted, entries
        for model in before - after:
            self._abandon(model)
        for each in entries:
            each.settle()
            if each.model not in before:
                self._absent.add(each.model)
                self._starting[each.model] = asyncio.create_task(self._start(each.model))
        self._switch()
        return Change(sorted(new - old), sorted(new & old), sorted(old - new))

    async def _start(self, model: Served) -> None:
        try:
            await model.start()
        except AntiphonError as error:
            self._tell(model, "load_failed", reason=str(error))
        except Exception as error:  # noqa: BLE001 - the other models must not go with it
            self._tell(model, "load_failed", reason=type(error).__name__)
        else:
            self._absent.discard(model)
            former = self._names.find(model.name)
            if isinstance(model, Engine) and isinstance(former, Engine):
                model.succeed(former)
            self._tell(model, "added")
            self._switch()
        finally:
            self._starting.pop(model, None)
        if model in self._absent:
            self._keep(model, model.close())

    def _abandon(self, model: Served) -> None:
        """End the start of a model that nobody wants any more."""
        task = self._starting.pop(model, None)
        if task is not None:
            task.cancel()
            self._keep(model, self._close_after(task, model))
        self._absent.discard(model)

    async def _close_after(self, start: asyncio.Task[None], model: Served) -> None:
        """Close a model whose start has been cancelled, which may take a moment."""
        await asyncio.wait({start})
        await model.close()

    def _switch(self) -> None:
        """Show what is wanted, as far as it has started, and let what nothing names any more come to its end."""
        before, wanted = self._names, self._wanted

        def here(name: str, model: Served) -> Served | None:
            return model if model not in self._absent else before.find(name)

        listed = {name: model for name, wish in wanted.listed.items() if (model := here(name, wish)) is not None}
        hidden = {name: model for name, wish in wanted.hidden.items() if (model := here(name, wish)) is not None}
        wildcard = before.wildcard if wanted.wildcard in self._absent else wanted.wildcard
        default = wanted.default
        if default is not None and default not in listed and default not in hidden:
            default = before.default
            if default is not None and (former := before.find(default)) is not None:
                hidden.setdefault(default, former)
        self._show(Names(listed, hidden, wildcard, default))
        for model in set(before.models()) - set(self._names.models()):
            self._keep(model, self._retire(model))

    async def _retire(self, model: Served) -> None:
        await model.gate.idle()
        await model.close()
        self._tell(model, "removed")

    def _keep(self, model: Served, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._retiring[task] = model
        task.add_done_callback(self._retiring.pop)

    def _tell(self, model: Served, event: str, **fields: str) -> None:
        if self._on_event is not None:
            self._on_event(model.name, event, fields)

    async def close(self) -> None:
        """Close every model, those too that no name stands for any more."""
        tasks = [*self._starting.values(), *self._retiring]
        unnamed = [*self._starting, *self._retiring.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        closes = (model.close() for model in (*self.engines, *self.embedders, *unnamed))
        ended = await asyncio.gather(*closes, return_exceptions=True)
        for fault in ended:
            # The others are closed all the same.
            if isinstance(fault, BaseException):
                raise fault


def _no_name() -> InvalidRequestError:
    return InvalidRequestError("Missing required parameter: 'model'.", param="model", code="missing_required_parameter")


def build_registry(settings: Settings, on_event: EventHook | None = None) -> Registry:
    """The registry that the settings ask for; nothing is loaded yet. `on_event` is told of deaths and restarts.

    Raises:
        ConfigurationError: a model file is missing, a name is taken twice, or an alias names no model.
    """
    names, entries = _names_of(settings, on_event, {})
    return Registry.of(names, entries, on_event)


def _names_of(
    settings: Settings, on_event: EventHook | None, kept: Mapping[bytes, Served]
) -> tuple[Names, list[Entry]]:
    """What each name of the settings stands for; models of `kept` are not made anew.

    Raises:
        ConfigurationError: as `build_registry` says.
    """
    entries: list[Entry] = []
    names: dict[str, Served] = {}
    aliases: dict[str, Served] = {}
    for config in configured(settings):
        made = entry(config, settings, on_event, kept)
        model = made.model
        twice = any(model is each.model for each in entries)
        for name in dict.fromkeys((model.name, config.path or model.name)):
            if twice or names.setdefault(name, model) is not model:
                raise ConfigurationError(f"Two models are named '{name}': give one of them another 'name'.")
        entries.append(made)
        for alias in config.aliases:
            _add_alias(aliases, names, alias, model)
    served = [made.model for made in entries]
    engines = [model for model in served if isinstance(model, Engine)]
    if not engines:
        raise ConfigurationError("No model generates: add one to [[models]] that has no 'embedding = true'.")
    for text in settings.alias:
        alias, separator, target = text.partition("=")
        # As llama.cpp has it: where one model is served, a name alone is another one of it.
        model = names.get(target) if separator else engines[0] if len(engines) == 1 else None
        if not alias or model is None:
            known = ", ".join(sorted({known.name for known in served}))
            raise ConfigurationError(f"--alias {text}: NAME=MODEL is expected, where MODEL is one of: {known}.")
        _add_alias(aliases, names, alias, model)
    default = settings.default_model
    if default is not None and not isinstance(names.get(default) or aliases.get(default), Engine):
        raise ConfigurationError(f"--default-model {default}: no model that generates has that name.")
    listed: dict[str, Served] = {model.name: model for model in engines}
    listed.update((model.name, model) for model in served)
    listed.update((name, model) for name, model in aliases.items() if name != WILDCARD)
    return Names(listed, names, aliases.get(WILDCARD), default), entries


def _add_alias(aliases: dict[str, Served], names: Mapping[str, Served], alias: str, model: Served) -> None:
    if names.get(alias, model) is not model or aliases.setdefault(alias, model) is not model:
        raise ConfigurationError(f"The name '{alias}' is given to two models.")
