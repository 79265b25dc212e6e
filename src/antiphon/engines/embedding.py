"""The interface of a model that turns texts into vectors, for `/v1/embeddings` and for search by meaning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct

from antiphon.engines.gate import Gate
from antiphon.protocol.completions import RawPrompt

__all__ = ["Embedded", "Embedder"]


class Embedded(Struct, frozen=True):
    """One vector for each input, of length 1 and as little-endian 32-bit floats, and the tokens that were read."""

    vectors: Sequence[bytes]
    tokens: int


class Embedder(ABC):
    """One embedding model."""

    name: str
    """The model's own name: a GGUF's file stem."""

    @cached_property
    def gate(self) -> Gate:
        """Whether any request uses it."""
        return Gate()

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether it can be asked now."""

    @property
    @abstractmethod
    def dimensions(self) -> int:
        """Numbers in a vector; known once `start` has returned."""

    @property
    @abstractmethod
    def context_length(self) -> int:
        """The longest input, in tokens; known once `start` has returned."""

    @abstractmethod
    async def start(self) -> None:
        """Load the model.

        Raises:
            ConfigurationError: it cannot be loaded, or makes no vectors; the message says why.
        """

    @abstractmethod
    async def close(self) -> None:
        """Free everything; calls that wait for an answer fail."""

    @abstractmethod
    async def embed(self, inputs: Sequence[RawPrompt]) -> Embedded:
        """The vectors of texts, or of tokens, in their order.

        Raises:
            InvalidRequestError: an input is longer than the context, or a token is not in the vocabulary.
            EngineUnavailableError: the model cannot be asked now.
            EngineError: it failed.
        """
