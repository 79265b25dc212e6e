"""The files of containers that an answer can link to, as their annotations (hosted-tools A1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

__all__ = ["cited_files"]


def cited_files(evidence: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The `container_file_citation` of each file that hosted items made, by its path; the last at a path counts.

    Where in the text they are linked is added by whoever finds them there. `evidence` is oldest first.
    """
    found: dict[str, dict[str, Any]] = {}
    for body in evidence:
        files: Any = body.get("_files")
        for file in cast("list[dict[str, Any]]", files) if isinstance(files, list) else []:
            found[str(file.get("path"))] = {
                "type": "container_file_citation",
                "container_id": _container(body),
                "file_id": file.get("file_id"),
                "filename": file.get("filename"),
            }
    return found


def _container(body: Mapping[str, Any]) -> Any:
    environment: Any = body.get("environment")
    if isinstance(environment, dict):
        return cast("dict[str, Any]", environment).get("container_id")
    return body.get("container_id")
