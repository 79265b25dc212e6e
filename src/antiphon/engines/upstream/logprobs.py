"""Log probabilities as an upstream writes them, made finite and well-formed where they are not. Pure."""

from __future__ import annotations

from typing import Any, Final

from antiphon.client.loose import as_dict, as_dicts, as_list, as_str, well_formed
from antiphon.protocol.parts import Logprob, TopLogprob

__all__ = ["read_logprobs", "read_token_lists"]

_LEAST: Final = -9999.0
"""What stands for a token that is all but impossible: JSON has no number for minus infinity."""

_MOST_BYTE: Final = 255


def read_logprobs(given: Any) -> list[Logprob]:
    """The entries of a list that are of a token; what is missing of them, or no number, is made up for."""
    found: list[Logprob] = []
    for entry in as_dicts(given):
        token = as_str(entry.get("token"))
        if token is not None:
            token = well_formed(token)
            others = [_alternative(other) for other in as_dicts(entry.get("top_logprobs"))]
            found.append(Logprob(token, _bytes(token, entry.get("bytes")), _number(entry.get("logprob")), others))
    return found


def read_token_lists(tokens: Any, logprobs: Any, alternatives: Any) -> list[Logprob]:
    """The entries of a text completion, which has a list of each kind; alternatives are an object for each token."""
    numbers, others = as_list(logprobs), as_list(alternatives)
    found: list[Logprob] = []
    for place, given in enumerate(as_list(tokens)):
        token = as_str(given)
        if token is not None:
            token = well_formed(token)
            top = as_dict(others[place]) if place < len(others) else {}
            listed = [_alternative({"token": name, "logprob": number}) for name, number in top.items()]
            number = numbers[place] if place < len(numbers) else None
            found.append(Logprob(token, list(token.encode()), _number(number), listed))
    return found


def _alternative(entry: dict[str, Any]) -> TopLogprob:
    token = well_formed(as_str(entry.get("token")) or "")
    return TopLogprob(token, _bytes(token, entry.get("bytes")), _number(entry.get("logprob")))


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LEAST > value > _LEAST:
        return _LEAST
    return float(value)


def _bytes(token: str, given: Any) -> list[int]:
    listed = as_list(given)
    if isinstance(given, list) and all(type(byte) is int and 0 <= byte <= _MOST_BYTE for byte in listed):
        return listed
    return list(token.encode())
