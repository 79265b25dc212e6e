"""From a `[[models]]` table to an engine over a Responses endpoint; what cannot be used is said at the start."""

from __future__ import annotations

from antiphon.engines.base import EventHook
from antiphon.engines.responses.engine import ResponsesEngine
from antiphon.engines.responses.profiles import PROFILES
from antiphon.engines.upstream.config import check_elsewhere, upstream_target
from antiphon.settings import ModelConfig

__all__ = ["responses_engine"]


def responses_engine(config: ModelConfig, on_event: EventHook | None = None) -> ResponsesEngine:
    """The engine that a table asks for; nothing is asked of the upstream yet.

    Raises:
        ConfigurationError: the table cannot be used, or its key cannot be read.
    """
    name, place = check_elsewhere(config, PROFILES)
    profile = PROFILES[config.profile]
    return ResponsesEngine(
        name,
        upstream_target(config, place, profile.key_header),
        profile,
        model=config.upstream_model,
        context_length=config.context_length,
        media=frozenset(config.media),
        on_event=on_event,
    )
