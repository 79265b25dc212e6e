"""A library of a few chunks that says what it was asked; for tests of the tools over one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from antiphon.corpus.library import RANKING, Facet, Found, FoundChunk, Library, Match, Ranking, split_chunk_id
from antiphon.errors import NotFoundError
from antiphon.store.base import Scope
from antiphon.store.corpora import StoredVectorStore, StoreFile

__all__ = ["GUIDE", "FakeLibrary", "chunk"]

GUIDE = StoredVectorStore("vs_guide", "guide", 1, 1, None, b'{"description":"How to"}')


def chunk(
    index: int, text: str, *, file: str = "file-a", score: float | None = None, heading: str = "", **attributes: Any
) -> FoundChunk:
    """A chunk of a Markdown file in `GUIDE`."""
    row = StoreFile("vs_guide", file, f"{file}.md", 1, "completed", b"{}", b"{}", external_id=f"{file}/x")
    return FoundChunk(GUIDE, row, index, heading, text, score, attributes, {})


class FakeLibrary(Library):
    """Gives all its chunks, in their order, but those that are to be left out; `asked` are the calls."""

    def __init__(self, chunks: Sequence[FoundChunk] = (), facets: Sequence[Facet] = ()) -> None:
        self.all = list(chunks)
        self.fields = facets
        self.note = ""
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def stores(self, scope: Scope, identifiers: Sequence[str]) -> Sequence[StoredVectorStore]:
        for identity in identifiers:
            if identity not in ("vs_guide", "guide") or scope.tenant != "t":
                raise NotFoundError(f"No vector store '{identity}'.")
        return [GUIDE for _ in identifiers]

    async def search(
        self,
        scope: Scope,
        stores: Sequence[StoredVectorStore],
        queries: Sequence[str],
        *,
        most: int,
        filters: Sequence[Mapping[str, Any]] = (),
        ranking: Ranking = RANKING,
        without: frozenset[str] = frozenset(),
    ) -> Found:
        self.asked.append(("search", {"queries": queries, "most": most, "filters": filters, "ranking": ranking}))
        return Found(
            [each for each in self.all if f"{each.file.file_id}:{each.index}" not in without][:most], self.note
        )

    async def grep(
        self,
        scope: Scope,
        stores: Sequence[StoredVectorStore],
        pattern: str,
        *,
        most: int,
        case_sensitive: bool = False,
        filters: Sequence[Mapping[str, Any]] = (),
    ) -> Sequence[Match]:
        self.asked.append(("grep", {"pattern": pattern, "most": most, "case": case_sensitive, "filters": filters}))
        return [Match(replace(each, score=None), each.text, 1) for each in self.all if pattern in each.text][:most]

    async def chunks(
        self,
        scope: Scope,
        stores: Sequence[StoredVectorStore],
        *,
        most: int,
        filters: Sequence[Mapping[str, Any]] = (),
        rank_by: str | None = None,
        descending: bool = True,
        after: str | None = None,
    ) -> Found:
        self.asked.append(("chunks", {"most": most, "filters": filters, "rank_by": rank_by, "down": descending}))
        return Found(self.all[:most])

    async def get(
        self, scope: Scope, stores: Sequence[StoredVectorStore], ids: Sequence[str]
    ) -> Sequence[FoundChunk | None]:
        there = {(each.file.file_id, each.index): each for each in self.all}
        return [there.get(split_chunk_id(identity) or ("", 0)) for identity in ids]

    async def facets(
        self,
        scope: Scope,
        stores: Sequence[StoredVectorStore],
        *,
        filters: Sequence[Mapping[str, Any]] = (),
        most_values: int = 8,
        most_fields: int = 64,
    ) -> Sequence[Facet]:
        self.asked.append(("facets", {"filters": filters, "most_values": most_values}))
        return self.fields

    async def listed(self, scope: Scope, *, limit: int, after: str = "") -> tuple[Sequence[StoredVectorStore], bool]:
        self.asked.append(("listed", {"limit": limit, "after": after}))
        return [GUIDE], not after
