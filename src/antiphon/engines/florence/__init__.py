"""Florence-2: a vision model that answers task prompts with text, boxes and outlines, in a child process.

The engine is imported on first use, because the child process runs a module of this package and must not load the
server's libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.engines.florence.engine import FlorenceEngine

__all__ = ["FlorenceEngine"]


def __getattr__(name: str) -> object:
    if name == "FlorenceEngine":
        from antiphon.engines.florence.engine import FlorenceEngine

        return FlorenceEngine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
