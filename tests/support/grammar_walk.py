"""Texts that a grammar lets through, without a model: drawn at random, or looked at one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

from llguidance import LLMatcher, LLTokenizer

__all__ = ["accepts", "complaints", "walk"]

_PRINTABLE = [*range(32, 127), 10]


@cache
def _tokenizer() -> LLTokenizer:
    """One token for each byte."""
    return LLTokenizer("byte")


def _matcher(grammar: str) -> LLMatcher:
    matcher = LLMatcher(_tokenizer(), LLMatcher.grammar_from_lark(grammar), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return matcher


def complaints(grammar: str) -> list[str]:
    """What llguidance has to say against a grammar, warnings included."""
    broken, messages = LLMatcher.validate_grammar_with_warnings(LLMatcher.grammar_from_lark(grammar), _tokenizer())
    assert not broken or messages
    return messages


def accepts(grammar: str, text: str) -> bool:
    """Whether this is a whole text of the grammar."""
    matcher = _matcher(grammar)
    tokens = list(text.encode())
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def walk(grammar: str, seed: int, *, endings: Sequence[str] = (), most: int = 3000) -> str | None:
    """A text that was drawn byte by byte out of what the grammar allows; None where it did not end in time.

    Printable bytes are preferred, so that texts are of many kinds and not mostly of odd characters. `endings` are texts
    that chance alone would hardly write; they are tried every now and then.
    """
    choose = random.Random(seed)
    matcher = _matcher(grammar)
    written = bytearray()
    for _ in range(most):
        if matcher.is_stopped():
            break
        for ending in endings if choose.random() < 0.1 else ():
            ahead = matcher.deep_copy()
            tokens = list(ending.encode())
            if ahead.try_consume_tokens(tokens) == len(tokens):
                matcher = ahead
                written += ending.encode()
        mask = matcher.compute_bitmask()
        allowed = [byte for byte in range(256) if mask[byte // 8] >> byte % 8 & 1]
        if not allowed or (matcher.is_accepting() and choose.random() < 0.3):
            break
        likely = [byte for byte in allowed if byte in _PRINTABLE]
        byte = choose.choice(likely if likely and choose.random() < 0.8 else allowed)
        assert matcher.consume_token(byte)
        written.append(byte)
    return written.decode() if matcher.is_accepting() else None
