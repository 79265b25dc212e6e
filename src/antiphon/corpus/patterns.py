"""Patterns that a caller wrote: RE2 only, on bytes, within limits of length and memory (faults B2 16, B3 38).

RE2 takes time in proportion to the text, whatever the pattern; it has no look-around and no references back.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from antiphon.errors import InvalidRequestError, UnsupportedError
from antiphon.protocol.json import quoted

__all__ = ["MOST_PATTERN", "compiled"]

MOST_PATTERN: Final = 1_024
"""Characters of a pattern (hosted-tools A3)."""

_MEMORY: Final = 8 * 2**20
"""Bytes that a pattern, and what is remembered while it runs, may take."""


def compiled(pattern: str, *, case_sensitive: bool, param: str = "pattern") -> Any:
    """A pattern of `re2` that searches in bytes of UTF-8.

    Raises:
        InvalidRequestError: it is empty, too long, no pattern of RE2, or takes too much memory.
        UnsupportedError: RE2 is not installed.
    """
    if not 1 <= len(pattern) <= MOST_PATTERN:
        raise InvalidRequestError(
            f"Invalid '{param}': a pattern has 1 to {MOST_PATTERN} characters.", param=param, code="invalid_value"
        )
    try:
        re2: Any = importlib.import_module("re2")
    except ImportError:
        raise UnsupportedError(
            "Patterns are not searched for here: the operator can install it with pip install 'antiphon[corpus]'.",
            param=param,
        ) from None
    options = re2.Options()
    options.case_sensitive = case_sensitive
    options.max_mem = _MEMORY
    options.log_errors = False
    options.encoding = re2.Options.Encoding.UTF8
    try:
        return re2.compile(pattern.encode(), options=options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args and not isinstance(error, UnicodeEncodeError) else "it is no text"
        words = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidRequestError(
            f"Invalid '{param}': not a regular expression of RE2 ({quoted(words)}).",
            param=param,
            code="invalid_value",
        ) from None
