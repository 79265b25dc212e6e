"""Fields of sampling beyond OpenAI's, by llama.cpp's names; each with its range (M29).

Every number that reaches an engine is bounded: a value that is out of range is a 400 that names its field. The names
that vLLM and mlxcel have for the same thing are taken too.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from antiphon.errors import InvalidRequestError

__all__ = ["MAX_TOKEN_ID", "MAX_WINDOW", "Samplers", "SamplingFields", "budget_of", "samplers_of"]

MAX_TOKEN_ID = 2**31 - 1
"""The largest token id that there can be."""

MAX_WINDOW = 65_536
"""Tokens that a penalty looks back over at most, and where -1 asks for as many as there are."""

MAX_BIASES = 1_024
MAX_BUDGET = 2**31 - 1
MAX_BREAKERS = 16
MAX_BREAKER = 40

Window = Annotated[int, Meta(ge=-1, le=MAX_WINDOW)]
Budget = Annotated[int, Meta(ge=-1, le=MAX_BUDGET)]


class Samplers(Struct, frozen=True, omit_defaults=True):
    """How tokens are drawn, beyond temperature and the like; what is unset is the engine's default.

    `logit_bias` maps token ids to what is added to their logits.
    """

    repeat_last_n: Window | UnsetType = UNSET
    typical_p: float | UnsetType = UNSET
    top_n_sigma: float | UnsetType = UNSET
    min_keep: int | UnsetType = UNSET
    dry_multiplier: float | UnsetType = UNSET
    dry_base: float | UnsetType = UNSET
    dry_allowed_length: int | UnsetType = UNSET
    dry_penalty_last_n: Window | UnsetType = UNSET
    dry_sequence_breakers: tuple[str, ...] | UnsetType = UNSET
    xtc_probability: float | UnsetType = UNSET
    xtc_threshold: float | UnsetType = UNSET
    mirostat: int | UnsetType = UNSET
    mirostat_tau: float | UnsetType = UNSET
    mirostat_eta: float | UnsetType = UNSET
    dynatemp_range: float | UnsetType = UNSET
    dynatemp_exponent: float | UnsetType = UNSET
    logit_bias: tuple[tuple[int, float], ...] | UnsetType = UNSET

    def named(self) -> dict[str, Any]:
        """The fields that are set, by name."""
        if self is _NO_SAMPLERS:
            return {}
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not UNSET}


class SamplingFields(Struct):
    """The fields as a body has them; null is the same as absent."""

    repeat_penalty: Annotated[float, Meta(ge=0.01, le=10)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=10)] | None = None
    repeat_last_n: Window | None = None
    typical_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_n_sigma: Annotated[float, Meta(ge=-1, le=100)] | None = None
    min_keep: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    dry_multiplier: Annotated[float, Meta(ge=0, le=100)] | None = None
    dry_base: Annotated[float, Meta(ge=1, le=100)] | None = None
    dry_allowed_length: Annotated[int, Meta(ge=0, le=MAX_WINDOW)] | None = None
    dry_penalty_last_n: Window | None = None
    dry_sequence_breakers: (
        Annotated[
            list[Annotated[str, Meta(min_length=1, max_length=MAX_BREAKER)]],
            Meta(min_length=1, max_length=MAX_BREAKERS),
        ]
        | None
    ) = None
    xtc_probability: Annotated[float, Meta(ge=0, le=1)] | None = None
    xtc_threshold: Annotated[float, Meta(ge=0, le=0.5)] | None = None
    mirostat: Annotated[int, Meta(ge=0, le=2)] | None = None
    mirostat_tau: Annotated[float, Meta(ge=0, le=100)] | None = None
    mirostat_eta: Annotated[float, Meta(ge=0, le=1)] | None = None
    dynatemp_range: Annotated[float, Meta(ge=0, le=2)] | None = None
    dynatemp_exponent: Annotated[float, Meta(ge=0, le=10)] | None = None
    logit_bias: Annotated[dict[str, Annotated[float, Meta(ge=-100, le=100)]], Meta(max_length=MAX_BIASES)] | None = None
    thinking_budget: Budget | None = None
    thinking_budget_tokens: Budget | None = None
    thinking_token_budget: Budget | None = None
    reasoning_budget_tokens: Budget | None = None


_BUDGETS: Final = ("thinking_budget", "thinking_budget_tokens", "thinking_token_budget", "reasoning_budget_tokens")
_NO_SAMPLERS: Final = Samplers()
_samplers_given: Callable[[SamplingFields], tuple[Any, ...]] = attrgetter(*Samplers.__struct_fields__)
_budgets_given: Callable[[SamplingFields], tuple[int | None, ...]] = attrgetter(*_BUDGETS)


def samplers_of(body: SamplingFields) -> tuple[float | None, Samplers]:
    """The repeat penalty, which has two names, and the other fields.

    Raises:
        InvalidRequestError: the two names of the penalty say different things, or a token of `logit_bias` is none.
    """
    penalty = body.repeat_penalty
    if body.repetition_penalty is not None:
        if penalty not in (None, body.repetition_penalty):
            raise InvalidRequestError(
                "'repetition_penalty' and 'repeat_penalty' are one field under two names: give one of them.",
                param="repetition_penalty",
                code="invalid_value",
            )
        penalty = body.repetition_penalty
    given = _samplers_given(body)
    if given.count(None) == len(given):
        return penalty, _NO_SAMPLERS
    values = dict(zip(Samplers.__struct_fields__, given, strict=True))
    for name in ("repeat_last_n", "dry_penalty_last_n"):
        # llama.cpp takes -1 on its command line only.
        values[name] = MAX_WINDOW if values[name] == -1 else values[name]
    if body.dry_sequence_breakers is not None:
        values["dry_sequence_breakers"] = tuple(body.dry_sequence_breakers)
    if body.logit_bias is not None:
        values["logit_bias"] = tuple((_token(name), bias) for name, bias in body.logit_bias.items()) or None
    return penalty, Samplers(**{name: value for name, value in values.items() if value is not None})


def budget_of(body: SamplingFields) -> int | None:
    """The tokens that thinking may take, -1 for as many as it likes, by whichever of its names they came.

    Those are llama.cpp's, vLLM's and mlxcel's.

    Raises:
        InvalidRequestError: two of the names say different things.
    """
    budget: int | None = None
    for name, given in zip(_BUDGETS, _budgets_given(body), strict=True):
        if given is not None and budget not in (None, given):
            raise InvalidRequestError(
                f"'{name}' says another budget of thinking than another field: give one of them.",
                param=name,
                code="invalid_value",
            )
        budget = budget if given is None else given
    return budget


def _token(name: str) -> int:
    # No more digits than the largest id has, of those that int() reads as the client wrote them.
    if name.isascii() and name.isdigit() and len(name) <= len(str(MAX_TOKEN_ID)) and int(name) <= MAX_TOKEN_ID:
        return int(name)
    raise InvalidRequestError(
        "Invalid 'logit_bias': its keys must be the ids of tokens.", param="logit_bias", code="invalid_value"
    )
