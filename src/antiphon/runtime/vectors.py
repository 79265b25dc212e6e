"""Vectors of texts, and the tokens of a model, as plain async methods; nothing of either is kept."""

from __future__ import annotations

from antiphon.engines.base import Engine, Token
from antiphon.errors import UnsupportedError
from antiphon.protocol.embeddings import (
    Embedding,
    EmbeddingsAnswer,
    EmbeddingsUsage,
    TokenEntry,
    decode_detokenize_request,
    decode_embedding_request,
    decode_tokenize_request,
    shown_vector,
)
from antiphon.protocol.json import encode
from antiphon.runtime.service import Service
from antiphon.store.base import Scope

__all__ = ["Vectors"]


class Vectors:
    """Embeds and tokenizes over one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def embed(self, scope: Scope, body: bytes) -> bytes:
        """The JSON of the vectors of a request.

        Raises:
            APIError: the request is refused, or the model failed.
        """
        asked = decode_embedding_request(body)
        service = self._service
        with service.beside.place(scope):
            name, embedder = service.limits.resolve_embedder(scope, asked.model)
            if asked.dimensions not in (None, embedder.dimensions):
                raise UnsupportedError(
                    f"The vectors of this model have {embedder.dimensions} dimensions, and cannot be made shorter.",
                    param="dimensions",
                )
            with embedder.gate.place():
                found = await embedder.embed(asked.inputs)
            service.limits.spent(scope, found.tokens)
            return encode(
                EmbeddingsAnswer(
                    data=[
                        Embedding(index, shown_vector(vector, encoded=asked.base64))
                        for index, vector in enumerate(found.vectors)
                    ],
                    model=name,
                    usage=EmbeddingsUsage(found.tokens, found.tokens),
                )
            )

    async def tokenize(self, scope: Scope, body: bytes) -> bytes:
        """The JSON of the tokens of a text.

        Raises:
            APIError: the request is refused, or the model does not show its tokens.
        """
        asked = decode_tokenize_request(body)
        with self._service.beside.place(scope):
            engine = self._engine(scope, asked.model)
            with engine.gate.place(bounded=False):
                tokens = await engine.tokenize(
                    asked.content, add_special=asked.add_special, parse_special=asked.parse_special
                )
        return encode({"tokens": [_entry(token) if asked.with_pieces else token.id for token in tokens]})

    async def detokenize(self, scope: Scope, body: bytes) -> bytes:
        """The JSON of the text of tokens; raises what `tokenize` does."""
        asked = decode_detokenize_request(body)
        with self._service.beside.place(scope):
            engine = self._engine(scope, asked.model)
            with engine.gate.place(bounded=False):
                return encode({"content": await engine.detokenize(asked.tokens)})

    def _engine(self, scope: Scope, model: str | None) -> Engine:
        """The engine of that name; without one the first, since llama.cpp's requests name none."""
        if not model and self._service.settings.default_model is None:
            model = self._service.registry.first()
        return self._service.limits.resolve(scope, model)[1]


def _entry(token: Token) -> TokenEntry:
    try:
        return TokenEntry(token.id, token.piece.decode())
    except UnicodeDecodeError:
        return TokenEntry(token.id, list(token.piece))
