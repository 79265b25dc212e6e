"""Which files of containers an answer names by links such as `sandbox:/mnt/data/plot.png` (hosted-tools A1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast
from urllib.parse import unquote

from antiphon.tools.code.sandbox import WORK_FOLDER

__all__ = ["container_citations"]

_LINK: Final = re.compile(rf"sandbox:({WORK_FOLDER}/[^\s()<>\[\]\"'`]+)")
_ENDS: Final = ".,;:!?*"
_MOST: Final = 100


def container_citations(text: str, evidence: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The `container_file_citation`s of a text, in its order; `evidence` are the hosted items before it, oldest first.

    The last file at a path is the one that is meant. Positions count characters, and are those of the link.
    """
    if "sandbox:" not in text:
        return []
    known: dict[str, tuple[Any, dict[str, Any]]] = {}
    for body in evidence:
        files: Any = body.get("_files")
        for file in cast("list[dict[str, Any]]", files) if isinstance(files, list) else []:
            known[str(file.get("path"))] = (_container(body), file)
    found: list[dict[str, Any]] = []
    for match in _LINK.finditer(text):
        written = match[1]
        link = next((way for way in (written, written.rstrip(_ENDS)) if unquote(way) in known), None)
        if link is None or len(found) >= _MOST:
            continue
        container_id, file = known[unquote(link)]
        found.append(
            {
                "type": "container_file_citation",
                "container_id": container_id,
                "file_id": file["file_id"],
                "filename": file["filename"],
                "start_index": match.start(),
                "end_index": match.start(1) + len(link),
            }
        )
    return found


def _container(body: Mapping[str, Any]) -> Any:
    environment: Any = body.get("environment")
    if isinstance(environment, dict):
        return cast("dict[str, Any]", environment).get("container_id")
    return body.get("container_id")
