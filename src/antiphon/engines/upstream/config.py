"""From a `[[models]]` table to an engine over an upstream; what cannot be used is said at the start."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final
from urllib.parse import quote

from yarl import URL

from antiphon.engines.base import EventHook
from antiphon.engines.upstream.client import UpstreamTarget
from antiphon.engines.upstream.engine import ChatEngine
from antiphon.engines.upstream.profiles import PROFILES
from antiphon.errors import ConfigurationError
from antiphon.settings import ModelConfig

__all__ = ["chat_engine", "check_elsewhere", "upstream_target"]

_MOST_KEY: Final = 8_192
_THINKING: Final = ("tagged", "primed", "none")
_MEDIA: Final = frozenset({"image", "audio"})
_SAFE: Final = "/?%:@!$&'()*+,;=~"
"""What stays as it is in the query of a URL."""

_SECRETS: Final = frozenset({"key", "api-key", "api_key", "apikey", "token", "access_token", "sig", "subscription-key"})
"""Parameters of a URL that would be a key in the table."""


def chat_engine(config: ModelConfig, on_event: EventHook | None = None) -> ChatEngine:
    """The engine that a table asks for; nothing is asked of the upstream yet.

    Raises:
        ConfigurationError: the table cannot be used, or its key cannot be read.
    """
    name, place = check_elsewhere(config, PROFILES)
    if config.thinking not in _THINKING:
        raise ConfigurationError(f"{place}: 'thinking' is one of {', '.join(_THINKING)}.")
    return ChatEngine(
        name,
        upstream_target(config, place, PROFILES[config.profile].key_header),
        PROFILES[config.profile],
        model=config.upstream_model,
        context_length=config.context_length,
        media=frozenset(config.media),
        thinking=config.thinking,
        on_event=on_event,
    )


def check_elsewhere(config: ModelConfig, profiles: Collection[str]) -> tuple[str, str]:
    """The name of a model that runs elsewhere, and what its table is called in what is said of its faults.

    Raises:
        ConfigurationError: the table cannot be used; `profiles` are the kinds of upstream that there are.
    """
    name = config.name or config.upstream_model
    if not name:
        raise ConfigurationError("A [[models]] table with 'base_url' needs 'name', or 'upstream_model'.")
    place = f"The model '{name}' in [[models]]"
    if config.path or config.embedding or config.mmproj is not None or config.chat_template_file is not None:
        raise ConfigurationError(f"{place} runs elsewhere: no file of this machine belongs to it.")
    if config.tool_dialect is not None:
        raise ConfigurationError(f"{place} runs elsewhere, and the server there reads its calls: no 'tool_dialect'.")
    if config.profile not in profiles:
        raise ConfigurationError(f"{place}: there is no profile '{config.profile}'; there are {', '.join(profiles)}.")
    if not _MEDIA.issuperset(config.media):
        raise ConfigurationError(f"{place}: 'media' holds some of {', '.join(sorted(_MEDIA))}.")
    if config.idle_timeout <= 0 or (config.context_length is not None and config.context_length < 1):
        raise ConfigurationError(f"{place}: 'idle_timeout' and 'context_length' are more than 0.")
    return name, place


def upstream_target(config: ModelConfig, place: str, key_header: str | None = None) -> UpstreamTarget:
    """Where an upstream is, and its key; `place` names the table in what is said of its faults.

    Raises:
        ConfigurationError: the URL is none, or the key cannot be read.
    """
    text, query = _url(config, place)
    return UpstreamTarget(
        text, _key(config, place), idle_timeout=config.idle_timeout, query=query, key_header=key_header
    )


def _url(config: ModelConfig, place: str) -> tuple[str, str]:
    """The URL without its query, and the query, which every call keeps: Azure's says the version of the API."""
    text, _, query = (config.base_url or "").partition("?")
    try:
        url = URL(config.base_url or "")
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host or url.user or url.password or url.fragment:
        raise ConfigurationError(f"{place}: 'base_url' must be a URL such as http://127.0.0.1:8000/v1.")
    if not _SECRETS.isdisjoint(name.lower() for name in url.query):
        raise ConfigurationError(f"{place}: a key does not belong into 'base_url'; see 'api_key_env'.")
    return text.rstrip("/"), quote(query, safe=_SAFE)


def _key(config: ModelConfig, place: str) -> str:
    """The key, from where the table says; it is never a part of the table itself."""
    if config.api_key_env is not None and config.api_key_file is not None:
        raise ConfigurationError(f"{place}: give one of 'api_key_env' and 'api_key_file'.")
    if config.api_key_env is not None:
        key, source = os.environ.get(config.api_key_env, ""), f"the variable {config.api_key_env}"
    elif config.api_key_file is not None:
        path = Path(config.api_key_file).expanduser()
        source = f"the file {path}"
        try:
            key = path.read_text(encoding="utf-8") if path.stat().st_size <= _MOST_KEY else ""
        except (OSError, UnicodeDecodeError):
            raise ConfigurationError(f"{place}: {source} cannot be read.") from None
    else:
        return ""
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable():
        raise ConfigurationError(f"{place}: {source} holds no key.")
    return key
