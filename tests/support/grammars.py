"""Help for tests of grammars: what llguidance accepts, and texts drawn from a grammar without a model."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from llguidance import LLMatcher, LLTokenizer

__all__ = ["accepts", "draw", "fault"]


@cache
def _bytes() -> Any:
    """A tokenizer of which each token is a byte."""
    return LLTokenizer("byte")


def _matcher(grammar: str) -> LLMatcher:
    matcher = LLMatcher(_bytes(), LLMatcher.grammar_from_lark(grammar), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return matcher


def fault(grammar: str) -> str:
    """What llguidance has against a grammar, or nothing."""
    return LLMatcher(_bytes(), LLMatcher.grammar_from_lark(grammar), log_level=0).get_error()


def accepts(grammar: str, text: str) -> bool:
    """Whether the grammar allows the text, as a whole."""
    matcher = _matcher(grammar)
    tokens = _bytes().tokenize_str(text)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def draw(grammar: str, seed: int, most: int = 4000) -> str | None:
    """A text that a model without sense would write, byte by byte, under the grammar; None where it does not end."""
    matcher = _matcher(grammar)
    chance = random.Random(seed)
    data = bytearray()
    while not matcher.is_stopped():
        if len(data) > most:
            return None
        mask = matcher.compute_bitmask()
        allowed = [token for token in range(256) if mask[token // 8] >> (token % 8) & 1]
        if matcher.is_accepting() and (not allowed or chance.random() < 0.3):
            break
        token = chance.choice(allowed)
        assert matcher.consume_token(token)
        data.append(token)
    return data.decode()
