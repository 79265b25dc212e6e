"""The words of a question: those that a text index is asked for, and how many of them a text holds. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Final

__all__ = ["MOST_WORDS", "share", "words"]

MOST_WORDS: Final = 64
"""Words that a store takes (`CorpusStore.search_text`)."""

_LONGEST: Final = 64
_LEAST_STEM: Final = 3
_ENDINGS: Final = ("ations", "ation", "ings", "ing", "edly", "ed", "ies", "es", "ly", "s", "e", "y")
_MOST_LETTERS: Final = 32_768

_LIST: Final = """
    a about above after again against all also although am among an and any are aren as at be became because been
    before being below between both but by can cannot could couldn did didn do does doesn doing don done down due during
    each either else ever for from further get gets give given go got had hadn has hasn have haven having he hence her
    here hers herself him himself his how however i if in into is isn it its itself just let ll may me might more most
    much must mustn my myself neither no nor not now of off often on once one only onto or other our ours ourselves out
    over own per perhaps please quite rather re s same shall she should shouldn so some such t than that the their
    theirs them themselves then there thereby these they this those though through thus to together too toward under
    until up upon us use used using ve very via was wasn we were weren what whatever when where whether which while who
    whom whose why will with within without won would wouldn yet you your yours yourself yourselves
"""
_STOP: Final = frozenset(_LIST.split())
"""English words without a meaning of their own. A question of nothing else keeps them."""


def words(text: str) -> list[str]:
    """The words of a text once each, in their order, in small letters and digits only; at most `MOST_WORDS`."""
    found = dict.fromkeys(_split(unicodedata.normalize("NFC", text[:_MOST_LETTERS]).lower()))
    telling = [word for word in found if word not in _STOP]
    return (telling or list(found))[:MOST_WORDS]


def share(asked: Sequence[str], text: str) -> float:
    """Which part of some words a text holds, in whatever form: from 0 to 1."""
    wanted = {_stem(word) for word in asked}
    there = {_stem(word) for word in _split(unicodedata.normalize("NFC", text[:_MOST_LETTERS]).lower())}
    return len(wanted & there) / len(wanted) if wanted else 0.0


def _stem(word: str) -> str:
    """A word without its ending: rough, and meant for comparing words with each other only."""
    for ending in _ENDINGS:
        if len(word) - len(ending) >= _LEAST_STEM and word.endswith(ending):
            return word[: -len(ending)]
    return word


def _split(text: str) -> list[str]:
    """The runs of letters and digits."""
    kept = "".join(letter if letter.isalnum() else " " for letter in text)
    return [word for word in kept.split() if len(word) <= _LONGEST]
