"""Tool-call dialects: one module for each family of chat templates. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from antiphon.prompt.dialects.base import Dialect, Splitter, TurnParser
from antiphon.prompt.dialects.deepseek import DeepSeek
from antiphon.prompt.dialects.gemma3 import Gemma3
from antiphon.prompt.dialects.gemma4 import Gemma4
from antiphon.prompt.dialects.generic import Generic
from antiphon.prompt.dialects.glm import Glm
from antiphon.prompt.dialects.harmony import Harmony
from antiphon.prompt.dialects.hermes import Hermes
from antiphon.prompt.dialects.kimi import Kimi
from antiphon.prompt.dialects.llama3 import Llama3
from antiphon.prompt.dialects.mistral import Mistral
from antiphon.prompt.dialects.parser import CallParser
from antiphon.prompt.dialects.pieces import Piece
from antiphon.prompt.dialects.pythonic import Pythonic
from antiphon.prompt.dialects.qwen3_coder import Qwen3Coder

__all__ = ["DIALECTS", "CallParser", "Dialect", "Piece", "Splitter", "TurnParser", "detect", "named"]

_BY_TEMPLATE: Sequence[type[Dialect]] = (
    Qwen3Coder,
    Glm,
    Gemma4,
    Gemma3,
    Harmony,
    Mistral,
    Kimi,
    DeepSeek,
    Pythonic,
    Llama3,
    Hermes,
)
"""The dialects that a template can be known by; the first that fits is taken."""

DIALECTS: Mapping[str, type[Dialect]] = {kind.name: kind for kind in (*_BY_TEMPLATE, Generic)}
"""Every dialect by its name."""


def detect(template: str, caps: Mapping[str, bool]) -> Dialect:
    """The dialect of a chat template; `caps` is llama.cpp's `chat_template_caps`.

    A template whose form of calls is unknown gets the generic dialect, also when it could show tools: its own form
    could not be read back.
    """
    return next((kind for kind in _BY_TEMPLATE if kind.fits(template, caps)), Generic).of(template, caps)


def named(name: str, template: str = "", caps: Mapping[str, bool] | None = None) -> Dialect:
    """The dialect of this name, in the form that the template has.

    Raises:
        KeyError: there is none.
    """
    return DIALECTS[name].of(template, caps or {})
