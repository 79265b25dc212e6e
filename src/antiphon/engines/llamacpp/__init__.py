"""llama.cpp as an engine: a supervised child process, spoken to over a Unix socket.

The engine is imported on first use, because the child process runs a module of this package and must not load the
server's libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.engines.llamacpp.embedding import LlamaCppEmbedder
    from antiphon.engines.llamacpp.engine import LlamaCppEngine

__all__ = ["LlamaCppEmbedder", "LlamaCppEngine"]


def __getattr__(name: str) -> object:
    if name == "LlamaCppEngine":
        from antiphon.engines.llamacpp.engine import LlamaCppEngine

        return LlamaCppEngine
    if name == "LlamaCppEmbedder":
        from antiphon.engines.llamacpp.embedding import LlamaCppEmbedder

        return LlamaCppEmbedder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
