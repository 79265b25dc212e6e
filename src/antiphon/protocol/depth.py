"""A bound on the nesting of JSON that is kept as it came: items, tools and schemas (faults B2 14).

Typed fields nest as deep as their types. What is kept whole could nest as deep as the decoder goes, which is deeper
than what an encoder, a template or a grammar later takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from antiphon.errors import InvalidRequestError

__all__ = ["MAX_DEPTH", "check_value", "too_deep"]

MAX_DEPTH = 128


def check_value(value: Any, path: str) -> None:
    """Refuse a decoded value that nests deeper than the bound; costs one step a value, however long its strings.

    Raises:
        InvalidRequestError: it nests deeper than the bound.
    """
    level = _containers([value])
    for _ in range(MAX_DEPTH):
        if not level:
            return
        level = [inner for node in level for inner in _containers(_children(node))]
    if level:
        raise too_deep(path)


def _children(node: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return node.values() if isinstance(node, dict) else node


def _containers(values: Iterable[Any]) -> list[dict[str, Any] | list[Any]]:
    return [value for value in values if isinstance(value, dict | list)]


def too_deep(path: str) -> InvalidRequestError:
    """The 400 for JSON at that path that nests too deeply."""
    return InvalidRequestError(
        f"Invalid '{path}': JSON of at most {MAX_DEPTH} levels is expected.", param=path, code="invalid_json"
    )
