"""Whole items of an upstream as what every reader of JSON takes. Pure."""

from __future__ import annotations

import math
from typing import Any, Final, cast

from antiphon.client.loose import well_formed
from antiphon.engines.upstream.words import INVALID
from antiphon.errors import EngineError

__all__ = ["plain"]

_MOST_LEVELS: Final = 64


def plain(body: dict[str, Any]) -> dict[str, Any]:
    """The object without halves of pairs, and with null for numbers that are none.

    Raises:
        EngineError: it is nested too deeply.
    """
    return cast("dict[str, Any]", _plain(body, _MOST_LEVELS))


def _plain(value: Any, levels: int) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if not isinstance(value, dict | list):
        return value
    if not levels:
        raise EngineError("The upstream sent an item that is nested too deeply.", code=INVALID)
    if isinstance(value, list):
        return [_plain(part, levels - 1) for part in cast("list[Any]", value)]
    fields = cast("dict[str, Any]", value)
    return {well_formed(name): _plain(part, levels - 1) for name, part in fields.items()}
