"""Models that run elsewhere, behind a Responses endpoint.

The engine is imported on first use, since most servers have no upstream.
"""

from __future__ import annotations

from antiphon.engines.responses.config import responses_engine

__all__ = ["responses_engine"]
