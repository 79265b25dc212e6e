"""What is told of an upstream's own words: little, and nothing of where it is or how it is asked. Pure."""

from __future__ import annotations

import re
from typing import Any, Final, cast

from antiphon.client.loose import well_formed
from antiphon.errors import EngineError
from antiphon.protocol.response import ERROR_CODES

__all__ = ["INVALID", "UPSTREAM_ERROR", "told_words", "upstream_fault"]

UPSTREAM_ERROR: Final = "upstream_error"
"""The code of what an upstream says went wrong with it."""

INVALID: Final = "upstream_invalid"
"""The code of an answer that is none."""

_MOST_READ: Final = 2_000
_MOST_TOLD: Final = 200
_HIDDEN: Final = "…"
_CODES: Final = frozenset({"context_length_exceeded", "rate_limit_exceeded"})
"""Codes, and types, of an upstream that mean the same here."""

_OWN_CODES: Final = frozenset({"model_changed", "resume_diverged", "server_restarted"})
"""Codes that say what became of a response of ours."""

_SECRETS: Final = re.compile(
    r"\b[a-z][a-z0-9+.-]{0,20}://[^\s'\"]*"  # an address of the web
    r"|\b(?:bearer|basic)\s+[^\s'\"]+"
    r"|\b(?:sk|pk|hf|gsk|key)[-_][^\s'\"]{4,}"
    r"|(?<![\w/])(?:[a-z]:)?[/\\][^\s'\"]*"  # a path
    r"|\b0x[0-9a-f]{4,}"
    r"|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"
    r"|\[?[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){3,7}\]?(?::\d+)?"
    r"|\b[\w.-]+:\d{2,5}\b",
    re.IGNORECASE,
)


def told_words(text: str) -> str:
    """The first line of a text, bounded, without addresses, paths, keys and places in memory."""
    line = well_formed(text[:_MOST_READ]).strip().partition("\n")[0]
    return _SECRETS.sub(_HIDDEN, line)[:_MOST_TOLD]


def upstream_fault(said: Any, *, lead: str = "The upstream failed") -> EngineError:
    """The error for what an upstream says went wrong: a text, or an object with `message` and `code`."""
    code = UPSTREAM_ERROR
    message: Any = said
    if isinstance(said, dict):
        fields = cast("dict[str, Any]", said)
        message = fields.get("message") or fields.get("detail") or fields.get("error") or ""
        said_code, said_type = fields.get("code"), fields.get("type")
        if isinstance(said_code, str) and said_code in ERROR_CODES - _OWN_CODES:
            code = said_code
        elif isinstance(said_type, str) and said_type in _CODES:
            code = said_type
    words = told_words(message) if isinstance(message, str) else ""
    return EngineError(f"{lead}: {words}" if words else f"{lead}, and does not say why.", code=code)
