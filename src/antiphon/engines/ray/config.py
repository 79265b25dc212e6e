"""From a `[[models]]` table to engines in a Ray cluster; what cannot be used is said at the start."""

from __future__ import annotations

import hashlib
from typing import Final

from antiphon.engines.base import Engine, EventHook
from antiphon.engines.ray.cluster import Place, RayActor
from antiphon.engines.ray.engine import Group, RayEngine
from antiphon.engines.ray.library import require_ray
from antiphon.engines.ray.wire import EngineOptions, encode
from antiphon.engines.replicas.engine import ReplicatedEngine, replica_hook
from antiphon.errors import ConfigurationError
from antiphon.prompt.dialects import DIALECTS
from antiphon.settings import ModelConfig, Settings

__all__ = ["actor_name", "ray_engine"]

_MOST_REPLICAS: Final = 1024


def ray_engine(
    config: ModelConfig, settings: Settings, on_event: EventHook | None = None, *, chat_template: str = ""
) -> Engine:
    """The engines that a table asks for, as one; nothing is asked of the cluster yet.

    `chat_template` is the text of another template than the model's own. The model's `path` is one of the nodes.

    Raises:
        ConfigurationError: the table cannot be used, or Ray is not installed.
    """
    name = config.name or _stem(config.path)
    place = f"The model '{name}' in [[models]]"
    _check(config, place)
    require_ray()
    replicas = config.replicas or 1
    if not isinstance(replicas, int) or not 1 <= replicas <= _MOST_REPLICAS:
        raise ConfigurationError(f"{place}: for the engine 'ray', 'replicas' is a number of engines, such as 2.")
    options = _options(config, settings, name, chat_template)
    needs = config.ray
    where = Place(needs.num_cpus, needs.num_gpus, needs.resources)
    group = Group(name, replicas)
    names = [actor_name(options, number) for number in range(replicas)]
    engines = [
        RayEngine(
            name,
            RayActor(actor, options, where),
            group,
            number,
            load_timeout=settings.load_timeout,
            on_event=replica_hook(on_event, number),
        )
        for number, actor in enumerate(names)
    ]
    # One alone as well: it may come back on another node in the middle of a turn.
    return ReplicatedEngine(name, engines, identities=names, on_event=on_event)


def actor_name(options: EngineOptions, number: int) -> str:
    """The name of an actor, another one for each model and each way to run it: what has changed is run beside it."""
    digest = hashlib.sha256(encode(options)).hexdigest()[:12]
    return f"{options.name}-{digest}-{number}"


def _check(config: ModelConfig, place: str) -> None:
    if not config.path:
        raise ConfigurationError(f"{place} needs 'path', a GGUF file that is on every node that may run it.")
    if config.embedding:
        raise ConfigurationError(f"{place}: the engine 'ray' generates; it makes no vectors.")
    if config.base_url is not None or config.upstream_model is not None:
        raise ConfigurationError(f"{place}: 'base_url' and 'upstream_model' belong to the engines of upstreams.")
    if config.tool_dialect is not None and config.tool_dialect not in DIALECTS:
        raise ConfigurationError(f"{place}: there is no tool-call dialect '{config.tool_dialect}'.")


def _options(config: ModelConfig, settings: Settings, name: str, chat_template: str) -> EngineOptions:
    return EngineOptions(
        path=config.path,
        name=name,
        dialect=config.tool_dialect,
        chat_template=chat_template,
        mmproj=config.mmproj,
        threads=settings.threads or max(1, int(config.ray.num_cpus)),
        context_length=config.context_length or settings.context_length,
        slots=settings.slots,
        batch_size=settings.batch_size,
        gpu_layers=settings.gpu_layers,
        reasoning_budget=settings.reasoning_budget,
        load_timeout=settings.load_timeout,
        render_timeout=settings.render_timeout,
    )


def _stem(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".gguf")
