"""Embedding models and rerankers that run elsewhere: `/v1/embeddings` and `/v1/rerank` of an upstream.

The operator names them, and they alone get their key. What they answer is bounded and checked.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.corpus.embedding import PiecedEmbedder, unit_vectors
from antiphon.corpus.reranking import Reranker
from antiphon.engines.upstream.client import UpstreamClient, UpstreamTarget
from antiphon.engines.upstream.wires import WireError
from antiphon.errors import EngineError, EngineUnavailableError, InvalidRequestError

__all__ = ["UpstreamEmbedder", "UpstreamReranker"]

_EMBEDDING_SECONDS: Final = 120.0
_RERANKING_SECONDS: Final = 20.0
_MOST_RERANKED: Final = 50
_MOST_ANSWER: Final = 64 * 2**20
_LETTERS: Final = 6_000
"""Characters of a piece: what a context of 2,048 tokens holds. A model that refuses them gets less."""

_TOO_LONG: Final = frozenset({400, 413, 422})
_GONE: Final = frozenset({429, 502, 503, 504})


class _Vector(Struct):
    index: int
    embedding: list[float]


class _Vectors(Struct):
    data: list[_Vector]


class _Rank(Struct):
    index: int
    relevance_score: float | None = None
    score: float | None = None


class _Ranks(Struct):
    results: list[_Rank]


_vectors = msgspec.json.Decoder(_Vectors)
_ranks = msgspec.json.Decoder(_Ranks)


class _Caller:
    """JSON questions to one upstream."""

    def __init__(self, target: UpstreamTarget) -> None:
        self._client = UpstreamClient(target)

    async def close(self) -> None:
        await self._client.close()

    async def ask(self, path: str, body: Mapping[str, Any], seconds: float) -> tuple[int, bytes]:
        """The status and the body of the answer.

        Raises:
            EngineUnavailableError: it cannot be reached or is too slow.
            EngineError: what it answers is no answer, or too long.
        """
        try:
            async with asyncio.timeout(seconds):
                answer = await self._client.ask(path, body)
                try:
                    found = bytearray()
                    while data := await answer.read():
                        found += data
                        if len(found) > _MOST_ANSWER:
                            raise EngineError("The upstream sent more than an answer can be.")
                    return answer.status, bytes(found)
                finally:
                    answer.leave()
        except WireError as error:
            raise EngineUnavailableError(self._client.broken(error).message) from None
        except TimeoutError:
            raise EngineUnavailableError("The upstream was too slow.") from None


def _refuse(status: int) -> None:
    if status in _GONE:
        raise EngineUnavailableError(f"The upstream is not available now: it answers {status}.")
    if status != 200:
        raise EngineError(f"The upstream refuses: it answers {status}.")


class UpstreamEmbedder(PiecedEmbedder):
    """Reads by the embedding model of an upstream."""

    def __init__(self, target: UpstreamTarget, model: str) -> None:
        self.name = model
        self._caller = _Caller(target)

    def letters(self) -> int:
        """See `PiecedEmbedder.letters`."""
        return _LETTERS

    async def close(self) -> None:
        """Close every connection."""
        await self._caller.close()

    async def ask(self, texts: Sequence[str]) -> Sequence[bytes]:
        """See `PiecedEmbedder.ask`."""
        body = {"model": self.name, "input": list(texts), "encoding_format": "float"}
        status, answer = await self._caller.ask("/embeddings", body, _EMBEDDING_SECONDS)
        if status in _TOO_LONG:
            # Upstreams name the reason in words of their own; halves that are refused too end it.
            raise InvalidRequestError("The upstream refused a text.", code="context_length_exceeded")
        _refuse(status)
        try:
            data = sorted(_vectors.decode(answer).data, key=lambda entry: entry.index)
        except msgspec.DecodeError:
            raise EngineError("The upstream sent no vectors.") from None
        if [entry.index for entry in data] != list(range(len(texts))):
            raise EngineError("The upstream sent vectors of other texts than it was given.")
        widths = {len(entry.embedding) for entry in data}
        if len(widths) != 1 or 0 in widths:
            raise EngineError("The upstream sent vectors of several lengths.")
        return unit_vectors([entry.embedding for entry in data])


class UpstreamReranker(Reranker):
    """Says how well texts answer a question, by an upstream."""

    most = _MOST_RERANKED

    def __init__(self, target: UpstreamTarget, model: str | None) -> None:
        self._caller = _Caller(target)
        self._model = model

    async def close(self) -> None:
        """Close every connection."""
        await self._caller.close()

    async def scores(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        """See `Reranker.scores`; scores of a model that go beyond 0 and 1 are taken for logits."""
        body: dict[str, Any] = {"query": question, "documents": list(texts), "top_n": len(texts)}
        if self._model is not None:
            body["model"] = self._model
        status, answer = await self._caller.ask("/rerank", body, _RERANKING_SECONDS)
        _refuse(status)
        try:
            ranks = _ranks.decode(answer).results
        except msgspec.DecodeError:
            raise EngineError("The reranker sent no scores.") from None
        found: dict[int, float] = {}
        for rank in ranks:
            score = rank.score if rank.relevance_score is None else rank.relevance_score
            if score is None or not math.isfinite(score):
                raise EngineError("The reranker sent no scores.")
            found[rank.index] = score
        if found.keys() != set(range(len(texts))):
            raise EngineError("The reranker sent scores of other texts than it was given.")
        if not all(0 <= score <= 1 for score in found.values()):
            found = {index: _logistic(score) for index, score in found.items()}
        return [found[index] for index in range(len(texts))]


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, value))))
