"""The names by which a model knows tools: one flat list, in which every name stands for one tool. Pure.

A tool of a namespace is `namespace__name`. The name is a matter of those two alone, so that calls of the past are told
by the same name as tools of the present, whatever else is declared; where it would be too long, hold characters that
model families and upstreams do not take, or could be read in two ways, its end is a digest of the two.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

__all__ = ["MAX_FLAT_NAME", "SEPARATOR", "fits", "flat_name", "other_name"]

SEPARATOR: Final = "__"

MAX_FLAT_NAME: Final = 64
"""Characters of a name that is made here; a function that is in no namespace keeps its own name."""

_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_DIGEST_DIGITS = 8


def flat_name(namespace: str | None, name: str) -> str:
    """The name of a tool for a model; no two pairs have the same.

    A namespace that is named like its tool is none: calls of deferred tools come back with it (recorded).
    """
    if not namespace or namespace == name:
        return name
    joined = f"{namespace}{SEPARATOR}{name}"
    clear = SEPARATOR not in namespace and SEPARATOR not in name
    clear = clear and not namespace.endswith("_") and not name.startswith("_")
    if clear and len(joined) <= MAX_FLAT_NAME and _UNFIT.search(joined) is None:
        return joined
    return _with_digest(joined, f"{len(namespace)}:{joined}")


def fits(name: str) -> bool:
    """Whether model families and upstreams take a name as it is."""
    return len(name) <= MAX_FLAT_NAME and _UNFIT.search(name) is None


def other_name(name: str, identity: str) -> str:
    """Another name for a tool whose own is taken; `identity` is what it is."""
    return _with_digest(name, identity)


def _with_digest(name: str, identity: str) -> str:
    digest = hashlib.sha256(identity.encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"{_UNFIT.sub('_', name)[: MAX_FLAT_NAME - _DIGEST_DIGITS - 1]}_{digest}"
