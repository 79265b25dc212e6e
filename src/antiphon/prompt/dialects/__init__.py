"""Tool-call dialects: one module for each family of chat templates. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.prompt.dialects.base import Dialect, Splitter, TurnParser
from antiphon.prompt.dialects.generic import Generic
from antiphon.prompt.dialects.hermes import Hermes
from antiphon.prompt.dialects.parser import CallParser
from antiphon.prompt.dialects.pieces import Piece

__all__ = ["DIALECTS", "CallParser", "Dialect", "Piece", "Splitter", "TurnParser", "detect", "named"]

DIALECTS: Mapping[str, type[Dialect]] = {kind.name: kind for kind in (Hermes, Generic)}
"""Every dialect by its name."""


def detect(template: str, caps: Mapping[str, bool]) -> Dialect:
    """The dialect of a chat template; `caps` is llama.cpp's `chat_template_caps`.

    A template whose form of calls is unknown gets the generic dialect, also when it could show tools: its own form
    could not be read back.
    """
    return Hermes() if Hermes.fits(template, caps) else Generic()


def named(name: str) -> Dialect:
    """The dialect of this name.

    Raises:
        KeyError: there is none.
    """
    return DIALECTS[name]()
