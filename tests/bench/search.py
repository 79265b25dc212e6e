"""`python -m tests.bench.search`: how good and how fast the search in documents is, over SQLite and the real model.

Quality is measured on the Cranfield collection, of which `--cranfield` names the folder (`cran.all.1400.xml`,
`cran.qry.xml`, `cranqrel.trec.txt`), and on the questions of our own tests: nDCG@10 and recall@100 of words alone, of
vectors alone and of both. The embedding model is the catalogue's, in the data directory (`antiphon models pull
all-minilm-l6-v2`). What is not there is skipped, and said to be. `--chunks` is how many synthetic vectors are searched;
with `--postgres`, the address of an empty database, in PostgreSQL instead: compared in this process, and, where it has
pgvector, in the database, one by one and by a graph. Nothing else is measured then.
`--reranker` is a model of the data directory or a GGUF file that ranks what was found for our own questions again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from xml.sax.saxutils import unescape

sys.path.insert(0, str(Path(__file__).parents[1]))

from msgspec.structs import replace
from tests.bench.report import Figure, table

from antiphon.corpus.embedding import TextEmbedder, embedded_text
from antiphon.corpus.librarian import Librarian
from antiphon.corpus.library import Ranking
from antiphon.corpus.localmodel import OwnEmbedder, catalogue_model
from antiphon.corpus.numbers import numpy
from antiphon.corpus.reranking import Reranker, ServedReranker
from antiphon.engines.catalog import EMBEDDING_MODEL, locate
from antiphon.engines.registry import build_registry
from antiphon.settings import Settings, load_settings
from antiphon.store import postgres_points
from antiphon.store.base import Store
from antiphon.store.corpora import CorpusLimits, CorpusStore, NewChunk
from antiphon.store.postgres import PostgresStore
from antiphon.store.rows import StoreLimits
from antiphon.store.sqlite import SQLiteStore
from support.corpora import claimed, new_file, new_store, upload
from support.questions import PASSAGES, QUESTIONS, ndcg, recall
from support.stores import OURS

np = numpy()
ROOM = CorpusLimits(most_stores=10, most_files=100_000)
WIDTH = 384
CHUNKS_A_FILE = 1_000
SEARCHES = 200
ASKED = (10, 5_000)
"""Which of the made-up words are asked for, by their rank: from one in a fifth of all chunks to one in hardly any."""
BATCH = 64
METHODS = {
    "words": Ranking(vector_weight=0.0),
    "vectors": Ranking(text_weight=0.0),
    "both": Ranking(),
}
RERANKED = {"both": Ranking(rerank=False), "both, reranked": Ranking()}
RERANKING_SECONDS = 300.0
AIMS = {"words": 0.386, "vectors": 0.393, "both": 0.425}
"""What nDCG@10 on Cranfield is to be (local-engine 6)."""

OWN_AIMS = {"words": 0.59, "vectors": 0.88, "both": 0.9}
"""What it is to be on the questions of our own tests."""

Documents = dict[str, tuple[str, str]]
Questions = Sequence[tuple[str, dict[str, int]]]


def main() -> int:
    """Measure; the exit code is 1 where an aim is missed."""
    parser = argparse.ArgumentParser(prog="tests.bench.search", description=__doc__)
    parser.add_argument("--cranfield", type=Path, help="folder of the Cranfield collection")
    parser.add_argument("--chunks", type=int, default=100_000, help="synthetic vectors that are searched; 0 for none")
    parser.add_argument("--postgres", help="address of an empty PostgreSQL database")
    parser.add_argument("--data-dir", help="where the embedding model is")
    parser.add_argument("--reranker", help="a model that ranks what was found again, by its name or its file")
    arguments = parser.parse_args()
    settings = load_settings({"data_dir": arguments.data_dir} if arguments.data_dir else None)
    if arguments.postgres is not None:
        figures = asyncio.run(_large_in_postgres(settings, arguments.chunks, arguments.postgres))
    else:
        figures = asyncio.run(_measured(settings, arguments.cranfield, arguments.chunks, arguments.reranker))
    print("\n" + table(figures))
    return 1 if any(figure.met is False for figure in figures) else 0


async def _measured(settings: Settings, cranfield: Path | None, chunks: int, reranker: str | None) -> list[Figure]:
    figures: list[Figure] = []
    if locate(settings.data_path, EMBEDDING_MODEL) is None:
        print(f"Skipped: quality. There is no {EMBEDDING_MODEL}: antiphon models pull {EMBEDDING_MODEL}.")
    else:
        figures += await _quality(settings, "our own", PASSAGES, QUESTIONS, OWN_AIMS)
        if reranker is not None:
            figures += await _reranked(settings, reranker)
        if cranfield is None:
            print("Skipped: Cranfield. Name its folder with --cranfield.")
        else:
            figures += await _quality(settings, "Cranfield", *read_cranfield(cranfield), AIMS)
    if chunks:
        figures += await _large(settings, chunks)
    return figures


def read_cranfield(folder: Path) -> tuple[Documents, Questions]:
    """The abstracts, and the questions with what is relevant to each.

    The judgements count the questions in the order of the file, whatever number they have there, and what is judged
    at all with more than nothing is relevant.
    """
    text = (folder / "cran.all.1400.xml").read_text()
    documents = {
        _field(each, "docno"): (_field(each, "title"), _body(each))
        for each in re.findall(r"<doc>(.*?)</doc>", text, re.S)
    }
    tops = re.findall(r"<top>(.*?)</top>", (folder / "cran.qry.xml").read_text(), re.S)
    good: list[dict[str, int]] = [{} for _ in tops]
    for line in (folder / "cranqrel.trec.txt").read_text().splitlines():
        question, _, document, value = line.split()
        if int(value) > 0 and document in documents:
            good[int(question) - 1][document] = 1
    return documents, [(_field(top, "title"), each) for top, each in zip(tops, good, strict=True) if each]


def _field(text: str, name: str) -> str:
    found = re.search(rf"<{name}>(.*?)</{name}>", text, re.S)
    return "" if found is None else " ".join(unescape(found.group(1)).split())


def _body(text: str) -> str:
    """The text of an abstract, which begins with its title."""
    return _field(text, "text")


async def _reranked(settings: Settings, name: str) -> list[Figure]:
    """A quarter of our own questions, without and with a model that ranks again what was found."""
    registry = build_registry(replace(settings, model=(name,)))
    await registry.start()
    try:
        engine = registry.resolve(registry.first())[1]
        reranker = ServedReranker(lambda: engine, RERANKING_SECONDS)
        return await _quality(settings, "a quarter of our own", PASSAGES, QUESTIONS[::4], {}, reranker)
    finally:
        await registry.close()


async def _quality(
    settings: Settings,
    title: str,
    documents: Documents,
    questions: Questions,
    aims: dict[str, float],
    reranker: Reranker | None = None,
) -> list[Figure]:
    embedder = OwnEmbedder(EMBEDDING_MODEL, catalogue_model(settings))
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder) / "a.db", StoreLimits())
        await store.open()
        library = Librarian(store, embedder, settings, reranker)
        try:
            await embedder.embed(["begin"])
            began = time.perf_counter()
            await _fill(store, embedder, documents)
            spent = time.perf_counter() - began
            figures.append(_figure(f"{title}: indexing", len(documents) / spent, "chunks/s"))
            rows = await library.stores(OURS, ["vs-1"])
            for method, ranking in (METHODS if reranker is None else RERANKED).items():
                gains, parts, times = [], [], []
                for question, good in questions:
                    start = time.perf_counter()
                    found = await library.search(OURS, rows, [question], most=100, ranking=ranking)
                    times.append(time.perf_counter() - start)
                    if found.note and method != "words":
                        raise SystemExit(f"the search did without something: {found.note}")
                    names = [chunk.file.file_id.removeprefix("file-") for chunk in found.chunks]
                    gains.append(ndcg(names, good))
                    parts.append(recall(names, good))
                aim = aims.get(method)
                figures += [
                    _figure(f"{title}: {method}, nDCG@10", float(np.mean(gains)), "", digits=4, aim=aim),
                    _figure(f"{title}: {method}, recall@100", float(np.mean(parts)), "", digits=3),
                    _figure(f"{title}: {method}, a search, median", _part(times, 50), "ms", more=False, digits=1),
                ]
        finally:
            await library.close()
            await embedder.close()
            await store.close()
    return figures


async def _fill(store: SQLiteStore, embedder: OwnEmbedder, documents: Documents) -> None:
    """Put each document into the vector store, as a file of one chunk."""
    await store.create_vector_store(OURS, new_store(), ROOM)
    names = list(documents)
    for start in range(0, len(names), BATCH):
        some = names[start : start + BATCH]
        vectors = await embedder.embed([embedded_text(*documents[name]) for name in some])
        for name, vector in zip(some, vectors, strict=True):
            heading, text = documents[name]
            await _put(store, f"file-{name}", [NewChunk(0, heading, text, b"{}", vector)])


async def _put(store: Store, file_id: str, chunks: Sequence[NewChunk]) -> None:
    await upload(store, file_id)
    assert await store.add_store_files(OURS, "vs-1", [new_file(file_id)], ROOM) == []
    ingestion = await claimed(store)
    assert await store.add_chunks(ingestion, chunks)
    assert await store.finish_ingestion(ingestion, None)


class _Synthetic(TextEmbedder):
    """Random vectors."""

    name = "synthetic"

    def __init__(self) -> None:
        self._random = np.random.default_rng(7)

    def rows(self, count: int) -> Any:
        """So many rows of length 1."""
        rows = self._random.standard_normal((count, WIDTH), np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        return [row.tobytes() for row in self.rows(len(texts))]

    async def close(self) -> None:
        """Nothing to free."""


async def _large(settings: Settings, chunks: int) -> list[Figure]:
    """Search in a store with many chunks."""
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder) / "a.db", StoreLimits())
        await store.open()
        figures = [await _many(store, chunks)]
        figures += await _asked(settings, store, f"{chunks:,} chunks", 150.0 if chunks == 100_000 else None)
        await store.close()
    return figures


async def _large_in_postgres(settings: Settings, chunks: int, url: str) -> list[Figure]:
    """The same in PostgreSQL: vectors compared here, and in the database, where that can be."""
    store = PostgresStore(url, StoreLimits())
    await store.open()
    figures = [await _many(store, chunks)]
    if await store.search_vectors(OURS, "vs-1", [bytes(4 * WIDTH)], 1) is None:
        start = time.perf_counter()
        copying = getattr(store, "_copying", None)
        if copying is None:
            print("Skipped: pgvector, which this database does not have.")
            figures += await _asked(settings, store, f"{chunks:,} chunks, here", None)
            await store.close()
            return figures
        await copying
        figures.append(_figure("pgvector: copied", chunks / (time.perf_counter() - start), "chunks/s"))
    postgres_points.EXACT_MOST = chunks
    figures += await _asked(settings, store, f"{chunks:,} chunks, pgvector, all compared", None)
    questions = await _Synthetic().embed([""] * 50)
    exact = await store.search_vectors(OURS, "vs-1", questions, 50)
    postgres_points.EXACT_MOST = 0
    start = time.perf_counter()
    await store.search_vectors(OURS, "vs-1", questions[:1], 50)
    making = getattr(store, "_graph_making", None)
    if making is not None:
        await making
        figures.append(_figure("pgvector: the graph", time.perf_counter() - start, "s", more=False))
    near = await store.search_vectors(OURS, "vs-1", questions, 50)
    assert exact is not None
    assert near is not None
    places = [
        len({(hit.file_id, hit.index) for hit in one} & {(hit.file_id, hit.index) for hit in other}) / 50
        for one, other in zip(exact.hits, near.hits, strict=True)
    ]
    figures.append(_figure("pgvector: recall@50 of the graph", float(np.mean(places)), "", digits=3))
    figures += await _asked(settings, store, f"{chunks:,} chunks, pgvector, by a graph", None)
    store.search_vectors = partial(CorpusStore.search_vectors, store)
    figures += await _asked(settings, store, f"{chunks:,} chunks, compared here", None)
    await store.close()
    return figures


WORDS = [f"word{number}" for number in range(20_000)]


async def _many(store: Store, chunks: int) -> Figure:
    """Keep many chunks: synthetic vectors, and words of a made-up language by their frequency."""
    embedder = _Synthetic()
    random = np.random.default_rng(3)
    await store.create_vector_store(OURS, new_store(), ROOM)
    began = time.perf_counter()
    for start in range(0, chunks, CHUNKS_A_FILE):
        drawn = np.minimum(random.zipf(1.3, (CHUNKS_A_FILE, 40)), len(WORDS)) - 1
        rows = embedder.rows(CHUNKS_A_FILE)
        new = [
            NewChunk(at, "", " ".join(WORDS[each] for each in drawn[at]), b"{}", rows[at].tobytes())
            for at in range(CHUNKS_A_FILE)
        ]
        await _put(store, f"file-{start // CHUNKS_A_FILE:04}", new)
    return _figure(f"{chunks:,} chunks: kept", chunks / (time.perf_counter() - began), "chunks/s")


async def _asked(settings: Settings, store: Store, name: str, aim: float | None) -> list[Figure]:
    """Search for words, for vectors and for both, and what memory that takes in this process."""
    random = np.random.default_rng(5)
    figures: list[Figure] = []
    before = _resident()
    library = Librarian(store, _Synthetic(), settings)
    rows = await library.stores(OURS, ["vs-1"])
    start = time.perf_counter()
    await library.search(OURS, rows, ["word5 word700"], most=10)
    figures.append(_figure(f"{name}: first search", time.perf_counter() - start, "s", more=False, digits=2))
    for title, ranking in METHODS.items():
        times: list[float] = []
        spent: list[float] = []
        for _ in range(SEARCHES):
            question = " ".join(WORDS[int(each)] for each in np.exp(random.uniform(*np.log(ASKED), 6)))
            start, used = time.perf_counter(), time.process_time()
            await library.search(OURS, rows, [question], most=10, ranking=ranking)
            times.append(time.perf_counter() - start)
            spent.append(time.process_time() - used)
        of = f"{name}: {title}, a search"
        figures.append(_figure(f"{of}, median", _part(times, 50), "ms", more=False, digits=1))
        bound = aim if title == "both" else None
        figures.append(_figure(f"{of}, p99", _part(times, 99), "ms", more=False, digits=1, aim=bound))
        figures.append(_figure(f"{of}, CPU, p99", _part(spent, 99), "ms", more=False, digits=1))
    figures.append(_figure(f"{name}: memory more", _resident() - before, "MB", more=False))
    figures.append(_figure(f"{name}: memory", _resident(), "MB", more=False))
    await library.close()
    return figures


def _figure(
    title: str, value: float, unit: str, *, more: bool = True, digits: int = 0, aim: float | None = None
) -> Figure:
    return Figure(title, title, unit, more_is_better=more, aim=aim, digits=digits, samples=[value])


def _part(times: Sequence[float], percent: int) -> float:
    """A percentile, in milliseconds."""
    return float(np.percentile(times, percent)) * 1000


def _resident() -> float:
    """Memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    sys.exit(main())
