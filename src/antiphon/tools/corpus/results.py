"""Chunks as the items of calls hold them, within the bounds of what the model may be given (hosted-search 3.3)."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from antiphon.corpus.library import FoundChunk, Match, chunk_id

__all__ = [
    "CHARACTERS_A_TOKEN",
    "annotation",
    "clipped",
    "corpus_result",
    "file_result",
    "match_result",
    "noted",
    "reference",
    "results_of",
    "seen_chunks",
]

CHARACTERS_A_TOKEN: Final = 4
LEAST_SHARE: Final = 512 * CHARACTERS_A_TOKEN
_CUT: Final = "\n[…]"


def file_result(found: FoundChunk) -> dict[str, Any]:
    """A result of `file_search`; what begins with an underscore no client sees."""
    return {
        "file_id": found.file.file_id,
        "filename": found.file.filename,
        "score": found.score if found.score is not None else 0.0,
        "text": _with_heading(found),
        "attributes": dict(found.attributes),
        "vector_store_id": found.store.id,
        "_chunk": found.index,
    }


def corpus_result(found: FoundChunk, text: str | None = None) -> dict[str, Any]:
    """A result of corpus search (hosted-search 3.1); without a score where nothing was scored."""
    file = found.file
    result: dict[str, Any] = {
        "chunk_id": chunk_id(file.file_id, found.index),
        "document_id": file.file_id,
        "chunk_index": found.index,
        "filename": file.filename,
        "file_title": str(found.detail.get("title") or file.filename),
        "mime_type": mimetypes.guess_type(file.filename)[0] or "text/plain",
        "text": found.text if text is None else text,
        "_store": found.store.id,
    }
    if file.external_id:
        result["external_id"] = file.external_id
    if found.score is not None:
        result["search_score"] = round(found.score, 4)
    if found.heading:
        result["context"] = found.heading
    if found.attributes:
        result["metadata"] = dict(found.attributes)
    return result


def noted(*notes: str) -> dict[str, Any]:
    """What searches did without, as a field of the item that is there only where it says something."""
    told = " ".join(dict.fromkeys(note for note in notes if note))
    return {"note": told} if told else {}


def match_result(match: Match) -> dict[str, Any]:
    """A result of a search by pattern: the windows around its matches."""
    return {**corpus_result(match.chunk, match.text), "matches": match.matches}


def reference(result: dict[str, Any]) -> dict[str, Any]:
    """A result that this run has given already, without its body."""
    kept = ("chunk_id", "document_id", "chunk_index", "filename", "search_score", "_store", "_number")
    return {**{name: result[name] for name in kept if name in result}, "seen": True}


def clipped(results: Sequence[dict[str, Any]], characters: int, each: int) -> list[dict[str, Any]]:
    """The results with their texts cut so that all fit: each has its share, and what short ones leave is for the rest.

    Those at the end that would get less than the least share are left out.
    """
    given: list[dict[str, Any]] = []
    left = characters
    for position, result in enumerate(results):
        text = str(result["text"])
        most = min(each, max(LEAST_SHARE, left // (len(results) - position)))
        if most > left:
            if given or left <= len(_CUT):
                break
            most = left
        if len(text) > most:
            text = text[: most - len(_CUT)] + _CUT
        left -= len(text)
        given.append({**result, "text": text})
    return given


def seen_chunks(evidence: Sequence[dict[str, Any]]) -> set[str]:
    """The ids of the chunks whose text these hosted items hold."""
    return {
        str(result["chunk_id"])
        for body in evidence
        for result in results_of(body)
        if "chunk_id" in result and "text" in result
    }


def results_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The results that an item holds; those that clients sent may be anything."""
    found: Any = body.get("results")
    entries = cast("list[Any]", found) if isinstance(found, list) else []
    return [cast("dict[str, Any]", entry) for entry in entries if isinstance(entry, dict)]


def annotation(result: Mapping[str, Any]) -> dict[str, Any]:
    """The citation of a result (B15); where it stands in the text is added when it is cited."""
    file_id = result.get("file_id") or result.get("document_id") or ""
    index = result.get("_chunk", result.get("chunk_index", 0))
    return {
        "type": "file_citation",
        "file_id": file_id,
        "filename": result.get("filename", ""),
        "chunk_id": chunk_id(file_id, index),
        "store_id": result.get("vector_store_id") or result.get("_store", ""),
    }


def _with_heading(found: FoundChunk) -> str:
    return f"{found.heading}\n\n{found.text}" if found.heading else found.text
