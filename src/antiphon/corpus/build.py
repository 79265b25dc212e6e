"""From the settings to what makes vectors of documents, and what ranks them again; nothing is loaded or asked yet."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import TYPE_CHECKING, Final

from antiphon.corpus.embedding import TextEmbedder
from antiphon.corpus.localmodel import OwnEmbedder, ServedEmbedder, catalogue_model
from antiphon.corpus.reranking import Reranker, ServedReranker
from antiphon.engines.catalog import EMBEDDING_MODEL
from antiphon.engines.registry import Registry
from antiphon.errors import APIError, ConfigurationError
from antiphon.settings import Settings
from antiphon.tables import ModelConfig

if TYPE_CHECKING:
    from antiphon.corpus.upstreams import UpstreamEmbedder
    from antiphon.engines.upstream.client import UpstreamTarget

__all__ = ["document_embedder", "reranker", "vectors_possible"]

NONE: Final = "none"
_SCHEMES: Final = ("http://", "https://")


@cache
def vectors_possible() -> bool:
    """Whether the libraries for vectors are installed (extra `corpus`)."""
    return all(importlib.util.find_spec(name) is not None for name in ("numpy", "gguf"))


def document_embedder(settings: Settings, registry: Registry) -> TextEmbedder | None:
    """What `document_embedding` names; None for 'none', and where the libraries for vectors are not installed.

    Who is told of the registry's models is told of this one too.

    Raises:
        ConfigurationError: it names no model that is served, or the upstream cannot be used.
    """
    name = settings.document_embedding
    if name == NONE or not vectors_possible():
        return None
    if name.startswith(_SCHEMES):
        return _upstream_embedder(settings)
    if settings.document_embedding_model is not None or settings.document_embedding_key_env is not None:
        raise ConfigurationError(
            "--document-embedding-model and its key belong to a --document-embedding that is a URL."
        )
    if name in registry.names():
        try:
            registry.resolve_embedder(name)
        except APIError as error:
            raise ConfigurationError(f"--document-embedding: {error.message}") from None
        return ServedEmbedder(name, lambda: registry.resolve_embedder(name)[1])
    if name == EMBEDDING_MODEL:
        return OwnEmbedder(name, catalogue_model(settings, registry.on_event), on_event=registry.on_event)
    raise ConfigurationError(
        f"--document-embedding {name}: no embedding model of that name is served; it may also be "
        f"'{EMBEDDING_MODEL}', the URL of an upstream, or '{NONE}'."
    )


def _upstream_embedder(settings: Settings) -> UpstreamEmbedder:
    from antiphon.corpus.upstreams import UpstreamEmbedder

    model = settings.document_embedding_model
    if not model:
        raise ConfigurationError("--document-embedding is a URL: --document-embedding-model says which model is asked.")
    target = _target("--document-embedding", settings.document_embedding, settings.document_embedding_key_env)
    return UpstreamEmbedder(target, model)


def reranker(settings: Settings, registry: Registry) -> Reranker | None:
    """The reranker that is set, if one is.

    Raises:
        ConfigurationError: it cannot be used.
    """
    if settings.reranker is None:
        if settings.reranker_model is not None or settings.reranker_key_env is not None:
            raise ConfigurationError("--reranker-model and its key are of no use without --reranker.")
        return None
    name = settings.reranker
    if name.startswith(_SCHEMES):
        from antiphon.corpus.upstreams import UpstreamReranker

        return UpstreamReranker(_target("--reranker", name, settings.reranker_key_env), settings.reranker_model)
    if settings.reranker_model is not None or settings.reranker_key_env is not None:
        raise ConfigurationError("--reranker-model and its key belong to a --reranker that is a URL.")
    try:
        registry.resolve(name)
    except APIError as error:
        raise ConfigurationError(f"--reranker: {error.message}") from None
    return ServedReranker(lambda: registry.resolve(name)[1])


def _target(flag: str, url: str, key_env: str | None) -> UpstreamTarget:
    from antiphon.engines.upstream.config import upstream_target

    return upstream_target(ModelConfig(base_url=url, api_key_env=key_env), flag)
