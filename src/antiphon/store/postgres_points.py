"""Vectors that are searched in PostgreSQL itself, where its extension pgvector is installed.

What is searched is a copy of the vectors, made when a search first needs it: so it does not matter when the extension
came, and where it is taken away the vectors are still there. All vectors of a vector store are compared; of a large one
a graph (HNSW) is made in the background. A sealed store never asks: what is kept of it here is sealed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import time
from array import array
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files as resources
from typing import Any

from asyncpg import exceptions as pg
from msgspec import Struct

from antiphon.errors import AntiphonError
from antiphon.store.corpora import NearVectors, TextHit
from antiphon.store.postgres_chunks import PostgresChunks
from antiphon.store.postgres_core import storable
from antiphon.store.postgres_database import Connection, connect
from antiphon.store.postgres_errors import is_lost, is_passing
from antiphon.store.postgres_sql import Query, number_parameters
from antiphon.store.queries import parse_queries
from antiphon.store.rows import Scope

__all__ = ["EXACT_MOST", "PostgresPoints"]

_log = logging.getLogger(__name__)

EXACT_MOST = 20_000
"""Vectors of a vector store that are compared one by one; beyond, a graph is made."""

_AT_ONCE = 2_000
"""Chunks whose vectors are copied while a search waits; more are copied in the background."""

_FILES_A_READ = 500
_VECTORS_A_STEP = 200
_WIDEST = 16_000
"""Numbers of a vector that the extension takes."""

_WIDEST_GRAPH = 2_000
_LEAST_BREADTH, _MOST_BREADTH = 200, 1_000
"""Vectors that a walk through a graph keeps in view; the extension takes no more."""

_AGAIN_SECONDS = 60.0
"""For so long it is not tried again what could not be done."""

_MOST_KNOWN = 1_000
_FAILED = "vectors are not searched in the database (%s)"
_GRAPH = "corpus_points_near_{store}_{width}"
_MAKE_GRAPH = (
    "CREATE INDEX CONCURRENTLY {name} ON corpus_points USING hnsw ((point::vector({width})) vector_ip_ops) "
    "WHERE store = {store}::bigint AND width = {width}"
)
# The numbers stand in the text, since a graph is of one vector store and one length.
_WALK = """
SELECT s.file_id, p.pos, -p.distance FROM (
  SELECT w.file, w.pos, w.point::vector({width}) <#> ($1::real[])::vector({width}) AS distance FROM corpus_points AS w
  WHERE w.store = {store}::bigint AND w.width = {width}
  ORDER BY w.point::vector({width}) <#> ($1::real[])::vector({width}) LIMIT $2::bigint
) AS p CROSS JOIN LATERAL (
  SELECT f.file_id FROM store_files AS f WHERE f.n = p.file AND f.status = 'completed' LIMIT 1
) AS s
"""


def _load() -> dict[str, Query]:
    text = (resources("antiphon.store") / "sql" / "postgres" / "near" / "points.sql").read_text("utf-8")
    return {name: number_parameters(statement) for name, statement in parse_queries(text).items()}


_QUERIES = _load()


class _Known(Struct, frozen=True):
    """What is known of a vector store at a version: how many vectors it has by their length, and which have a graph."""

    table: int
    version: int
    counts: Mapping[int, int]
    graphs: frozenset[int]


class PostgresPoints(PostgresChunks):
    """Searches vectors in the database, where it can."""

    _points_tried = -math.inf
    _points_there = False
    _finding_points: asyncio.Lock | None = None
    _points_reason = ""
    _graph_tried = -math.inf
    _graph_making: asyncio.Task[None] | None = None
    _copying: asyncio.Task[None] | None = None
    _known_points: OrderedDict[int, _Known] | None = None

    async def search_vectors(
        self,
        scope: Scope,
        vector_store_id: str,
        vectors: Sequence[bytes],
        most: int,
        files: Collection[str] | None = None,
    ) -> NearVectors | None:
        """For each vector of a question the nearest chunks; None where the database cannot search vectors now.

        Raises:
            UnavailableError: the database is away.
        """
        queries = [_numbers(vector) for vector in vectors]
        widths = {len(query or ()) for query in queries}
        if not storable(vector_store_id) or len(widths) != 1 or not 0 < min(widths) <= _WIDEST or most <= 0:
            return None
        if not self._points_there and not await self._find_points():
            return None
        held = None if files is None else [name for name in files if storable(name)]
        key = self._of_corpus(scope, vector_store_id)

        async def job(connection: Connection, _: bool) -> NearVectors | None:
            try:
                return await self._near(connection, key, [list(query or ()) for query in queries], most, held)
            except pg.PostgresError as error:
                if is_lost(error) or is_passing(error):
                    raise
                # The extension was taken away, or does not do what it should: nothing is lost by that.
                self._points_failed(error)
                return None

        return await self._run(job)

    async def _find_points(self) -> bool:
        """Whether the tables are there; makes them where they can be made, and does not try all the time."""
        self._finding_points = self._finding_points or asyncio.Lock()
        async with self._finding_points:
            if self._points_there or time.monotonic() - self._points_tried < _AGAIN_SECONDS:
                return self._points_there
            self._points_tried = time.monotonic()

            async def job(connection: Connection, _: bool) -> bool:
                try:
                    return await _made(connection)
                except pg.PostgresError as error:
                    if is_lost(error) or is_passing(error):
                        raise
                    self._points_failed(error)
                    return False

            self._points_there = await self._run(job)
            return self._points_there

    def _points_failed(self, error: pg.PostgresError) -> None:
        self._points_there, self._points_tried = False, time.monotonic()
        self._known_points = None
        reason = type(error).__name__
        # It is tried again all the time.
        _log.log(logging.DEBUG if reason == self._points_reason else logging.WARNING, _FAILED, reason)
        self._points_reason = reason

    async def _near(
        self,
        connection: Connection,
        key: dict[str, object],
        queries: Sequence[list[float]],
        most: int,
        files: list[str] | None,
    ) -> NearVectors | None:
        rows = await _fetch(connection, "store_to_point", **key)
        if not rows:
            return NearVectors([[] for _ in queries], 0)
        store, version, table = rows[0]
        width = len(queries[0])
        known = await self._know(connection, store, version, table)
        if known is None:
            return None
        count = known.counts.get(width, 0)
        large = files is None and count > EXACT_MOST
        if large and width not in known.graphs and width <= _WIDEST_GRAPH:
            self._begin_graph(store, width)
        found: list[list[TextHit]] = []
        for query in queries:
            hits: list[TextHit] | None = None
            if large and width in known.graphs and 2 * most <= _MOST_BREADTH:
                hits = await _walked(connection, store, query, most)
            if hits is None or len(hits) < min(most, count):
                hits = await _compared(connection, store, query, most, files)
            found.append(hits)
        return NearVectors(found, count)

    async def _know(self, connection: Connection, store: int, version: int, table: int | None) -> _Known | None:
        """What there is of a vector store, once all its vectors are there; None until then."""
        if table is None:
            self._points_there = False
            return None
        self._known_points = OrderedDict() if self._known_points is None else self._known_points
        known = self._known_points.get(store)
        if known is not None and known.version == version and known.table == table:
            self._known_points.move_to_end(store)
            return known
        waiting = await _fetch(connection, "unpointed", store=store, most=_FILES_A_READ)
        if len(waiting) == _FILES_A_READ or sum(row[1] for row in waiting) > _AT_ONCE:
            if self._copying is None:
                self._copying = asyncio.create_task(self._copy_all(store))
            return None
        for file, _ in waiting:
            await _copy(connection, store, file)
        counts = {row[0]: row[1] for row in await _fetch(connection, "count_points", store=store)}
        whole = [name.split("_")[3:] for name, valid in await _fetch(connection, "graphs") if valid]
        graphs = frozenset(int(width) for number, width in whole if int(number) == store)
        known = self._known_points[store] = _Known(table, version, counts, graphs)
        if len(self._known_points) > _MOST_KNOWN:
            self._known_points.popitem(last=False)
        return known

    async def _copy_all(self, store: int) -> None:
        """Copy the vectors of a large vector store, in the background."""
        try:
            while True:

                async def job(connection: Connection, _: bool) -> bool:
                    waiting = await _fetch(connection, "unpointed", store=store, most=1)
                    for file, _chunks in waiting:
                        await _copy(connection, store, file)
                    return bool(waiting)

                if not await self._run(job):
                    return
        except AntiphonError as error:
            self._points_there, self._points_tried = False, time.monotonic()
            _log.warning("vectors could not be copied to be searched in the database (%s)", type(error).__name__)
        finally:
            self._copying = None

    def _begin_graph(self, store: int, width: int) -> None:
        if self._graph_making is None and time.monotonic() - self._graph_tried >= _AGAIN_SECONDS:
            self._graph_tried = time.monotonic()
            self._graph_making = asyncio.create_task(self._make_graph(store, width))

    async def _make_graph(self, store: int, width: int) -> None:
        """Make the graph of a large vector store; one connection of all servers makes one at a time."""
        name = _GRAPH.format(store=store, width=width)
        try:
            connection = await connect(self.url, patient=True)
            try:
                if (await _fetch(connection, "try_lock_graphs"))[0][0]:
                    graphs = {row[0]: row[1] for row in await _fetch(connection, "graphs")}
                    if graphs.get(name) is False:
                        # Its making was cut short.
                        await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
                    if not graphs.get(name):
                        await _fetch(connection, "room_for_graph")
                        await connection.execute(_MAKE_GRAPH.format(name=name, store=store, width=width))
                    if self._known_points is not None:
                        self._known_points.pop(store, None)
            finally:
                # Where this is cancelled, the database may go on alone: the graph is there later, or is made anew.
                connection.terminate()
        except (pg.PostgresError, OSError, TimeoutError) as error:
            _log.warning("the graph of a vector store could not be made (%s)", type(error).__name__)
        finally:
            self._graph_making = None

    async def _expire_corpora(self, now: float) -> int:
        """Remove the vector stores whose time is up, all that is left of others, and their graphs."""
        removed = await super()._expire_corpora(now)
        if self._points_there:
            await self._run(_drop_lost)
        return removed

    async def _end_points(self) -> None:
        """End what goes on in the background."""
        tasks = [task for task in (self._copying, self._graph_making) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _fetch(connection: Connection, query: str, **parameters: object) -> Sequence[Sequence[Any]]:
    statement = _QUERIES[query]
    return await connection.fetch(statement.text, *statement.values(parameters))


async def _made(connection: Connection) -> bool:
    """Whether the tables are there, once they were made where they can be."""
    _table, whole, available = (await _fetch(connection, "points_there"))[0]
    if whole or not available:
        return bool(whole)
    async with connection.transaction():
        await _fetch(connection, "lock_points")
        _table, whole, _available = (await _fetch(connection, "points_there"))[0]
        if not whole:
            await _fetch(connection, "add_extension")
            for statement in ("drop_points", "make_points", "make_points_index", "make_pointed"):
                await _fetch(connection, statement)
    return True


async def _copy(connection: Connection, store: int, file: int) -> None:
    """Copy the vectors of a file, unless it is removed meanwhile."""
    try:
        await _copy_file(connection, store, file)
    except pg.ForeignKeyViolationError:
        _log.debug("a file was removed while its vectors were copied")


async def _copy_file(connection: Connection, store: int, file: int) -> None:
    """Copy the vectors of a file; those that the extension does not take are left out, and found by nobody."""
    counts: dict[int, int] = {0: 0}
    after = -1
    while rows := await _fetch(connection, "vectors_to_point", file=file, after=after, most=_VECTORS_A_STEP):
        by_width: dict[int, list[tuple[int, array[float]]]] = {}
        for place, vector in rows:
            numbers = _numbers(vector)
            if numbers is not None and 0 < len(numbers) <= _WIDEST:
                by_width.setdefault(len(numbers), []).append((place, numbers))
        for width, some in by_width.items():
            flat = [number for _, numbers in some for number in numbers]
            places = [place for place, _ in some]
            await _fetch(connection, "insert_points", file=file, store=store, width=width, places=places, numbers=flat)
            counts[width] = counts.get(width, 0) + len(some)
        after = rows[-1][0]
    await _fetch(connection, "insert_pointed", file=file, widths=list(counts), counts=list(counts.values()))


async def _walked(connection: Connection, store: int, query: list[float], most: int) -> list[TextHit]:
    """The chunks that the graph has near a question."""
    async with connection.transaction():
        await _fetch(connection, "walk_with", breadth=str(min(max(_LEAST_BREADTH, 4 * most), _MOST_BREADTH)))
        rows = await connection.fetch(_WALK.format(store=store, width=len(query)), query, 2 * most)
    hits = sorted((TextHit(*row) for row in rows), key=lambda hit: (-hit.score, hit.file_id, hit.index))
    return hits[:most]


async def _compared(
    connection: Connection, store: int, query: list[float], most: int, files: list[str] | None
) -> list[TextHit]:
    """The chunks that are nearest to a question, all of them compared."""
    asked: dict[str, object] = {"store": store, "width": len(query), "asked": query, "most": most}
    if files is None:
        rows = await _fetch(connection, "near_all", **asked)
    else:
        rows = await _fetch(connection, "near_some", **asked, files=files)
    return [TextHit(*row) for row in rows]


async def _drop_lost(connection: Connection, _: bool) -> None:
    """Drop the graphs of vector stores that are gone."""
    for (name,) in await _fetch(connection, "lost_graphs"):
        await connection.execute(f'DROP INDEX CONCURRENTLY IF EXISTS "{name}"')


def _numbers(vector: bytes) -> array[float] | None:
    """The numbers of a vector; None where it has none, or one that is no number."""
    if len(vector) % 4:
        return None
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers if math.isfinite(sum(numbers)) else None
