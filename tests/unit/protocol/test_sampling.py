"""Fields of sampling: their ranges, their names, and what becomes of numbers beyond all bounds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import InvalidRequestError
from antiphon.protocol.chat import decode_chat_request
from antiphon.protocol.completions import decode_completion_request
from antiphon.protocol.request import CreateResponse, decode_create_response
from antiphon.protocol.sampling import Samplers

requirement = pytest.mark.requirement

NUMBERS = [
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "repeat_penalty",
    "repetition_penalty",
    *(name for name in Samplers.__struct_fields__ if name not in ("dry_sequence_breakers", "logit_bias")),
]
WITHIN: dict[str, Any] = {
    "repeat_last_n": 32,
    "typical_p": 0.5,
    "top_n_sigma": 1.5,
    "min_keep": 2,
    "dry_multiplier": 0.5,
    "dry_base": 1.5,
    "dry_allowed_length": 3,
    "dry_penalty_last_n": 16,
    "dry_sequence_breakers": ["\n", "."],
    "xtc_probability": 0.25,
    "xtc_threshold": 0.125,
    "mirostat": 2,
    "mirostat_tau": 4.0,
    "mirostat_eta": 0.25,
    "dynatemp_range": 0.5,
    "dynatemp_exponent": 2.0,
    "logit_bias": {"5": -100, "2147483647": 0.5},
}


def response(fields: dict[str, Any]) -> CreateResponse:
    return decode_create_response(msgspec.json.encode(fields))


@requirement("sampling:request", "subset:M29")
def test_every_field_is_taken_on_every_route() -> None:
    assert set(WITHIN) == set(Samplers.__struct_fields__)
    asked = response(WITHIN)
    named = asked.samplers.named()
    assert named.pop("logit_bias") == ((5, -100.0), (2147483647, 0.5))
    assert named.pop("dry_sequence_breakers") == ("\n", ".")
    assert named == {name: WITHIN[name] for name in named}
    assert len(named) == len(WITHIN) - 2
    chat = decode_chat_request(msgspec.json.encode({**WITHIN, "messages": [{"role": "user", "content": "Hi"}]}))
    text = decode_completion_request(msgspec.json.encode({**WITHIN, "prompt": "Hi"}))
    assert chat.request.samplers == text.request.samplers == asked.samplers


@requirement("sampling:request", "subset:M29")
def test_null_is_the_engines_default() -> None:
    assert response(dict.fromkeys(WITHIN)).samplers == response({"logit_bias": {}}).samplers == Samplers()


@requirement("sampling:request", "subset:M29")
@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("repetition_penalty", [0, 10.5]),
        ("repeat_last_n", [-2, 65537, 1.5]),
        ("typical_p", [-0.1, 1.1]),
        ("top_n_sigma", [-1.5, 101]),
        ("min_keep", [-1, 1000001]),
        ("dry_multiplier", [-1, 101]),
        ("dry_base", [0.9, 101]),
        ("dry_allowed_length", [-1, 65537]),
        ("dry_penalty_last_n", [-2, 65537]),
        ("dry_sequence_breakers", [[], [""], ["x" * 41], ["x"] * 17, "x"]),
        ("xtc_probability", [-0.1, 1.1]),
        ("xtc_threshold", [-0.1, 0.6]),
        ("mirostat", [-1, 3]),
        ("mirostat_tau", [-1, 101]),
        ("mirostat_eta", [-0.1, 1.1]),
        ("dynatemp_range", [-1, 2.5]),
        ("dynatemp_exponent", [-1, 11]),
        (
            "logit_bias",
            [{"-1": 1}, {"x": 1}, {"1": 101}, {"1": None}, {"2147483648": 1}, {"9" * 5000: 1}, {"²": 1}, []],
        ),
    ],
)
def test_a_value_out_of_range_is_named(field: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InvalidRequestError) as caught:
            response({field: value})
        assert (caught.value.param or "").startswith(field), value
        assert caught.value.code == "invalid_value"


@requirement("sampling:names")
def test_the_repeat_penalty_has_two_names_that_may_not_contradict() -> None:
    assert response({"repetition_penalty": 1.25}).repeat_penalty == 1.25
    assert response({"repetition_penalty": 1.25, "repeat_penalty": 1.25}).repeat_penalty == 1.25
    with pytest.raises(InvalidRequestError) as caught:
        response({"repetition_penalty": 1.25, "repeat_penalty": 1.5})
    assert caught.value.param == "repetition_penalty"


@requirement("sampling:bounds")
@given(
    name=st.sampled_from(NUMBERS),
    number=st.integers(-(2**63), 2**63).map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.sampled_from(["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e400", "99999999999999999999999"]),
)
def test_no_number_beyond_its_range_gets_through(name: str, number: str) -> None:
    try:
        asked = decode_create_response(f'{{"{name}":{number}}}'.encode())
    except InvalidRequestError as error:
        assert error.param in (name, None)
        # What is no JSON number at all is at fault by itself; any other is named.
        assert error.param == name or error.code == "invalid_json"
        return
    given_value = asked.samplers.named().get(name, getattr(asked, name.replace("repetition", "repeat"), None))
    assert given_value is not None
    assert -1 <= given_value <= (2**32 - 1 if name == "seed" else 1_000_000) or name.endswith("y_penalty")
    assert -(2**31) <= given_value <= 2**32 - 1


@requirement("thinking:budget:names")
def test_a_budget_of_thinking_has_several_names_that_may_not_contradict() -> None:
    for name in ("thinking_budget", "thinking_budget_tokens", "thinking_token_budget", "reasoning_budget_tokens"):
        assert response({name: 7}).thinking_budget == response({name: 7, "thinking_budget": 7}).thinking_budget == 7
        for value in (-2, 2**31, 1.5, "many"):
            with pytest.raises(InvalidRequestError) as caught:
                response({name: value})
            assert caught.value.param == name
    assert response({}).thinking_budget is None
    with pytest.raises(InvalidRequestError) as caught:
        response({"thinking_budget": 7, "thinking_token_budget": 8})
    assert caught.value.param == "thinking_token_budget"
