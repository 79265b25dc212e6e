"""Fields of sampling at the real llama.cpp."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest

from antiphon.engines.llamacpp.engine import LlamaCppEngine
from antiphon.engines.llamacpp.generation import sampling_fields
from antiphon.prompt.prompt import Sampling
from antiphon.protocol.request import SharedFields, decode_create_response
from antiphon.protocol.sampling import Samplers
from antiphon.runtime.planning import sampling_of
from support.local_engine import ask, collect, running, text_of

requirement = pytest.mark.requirement

SENT: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.75,
    "top_k": 7,
    "min_p": 0.125,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "repeat_penalty": 1.25,
    "seed": 11,
    "stop": ["end"],
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
    "dynatemp_range": 0.25,
    "dynatemp_exponent": 2.0,
}


async def settings_of(engine: LlamaCppEngine, body: dict[str, Any]) -> dict[str, Any]:
    """What llama.cpp says that it draws with."""
    session = engine._client_now()._session  # pyright: ignore[reportPrivateUsage]
    async with session.post("/completion", json={"prompt": "Hello", "n_predict": 2, **body}) as answer:
        assert answer.status == 200, await answer.text()
        return (await answer.json())["generation_settings"]


@requirement("sampling:reaches", "engine:sampling")
async def test_every_field_reaches_llama_cpp(tiny: Callable[..., Path]) -> None:
    sent = {**SENT, "logit_bias": {"5": -1.5, "9": 2}}
    sampling = sampling_of(decode_create_response(msgspec.json.encode(sent)))
    assert set(Samplers.__struct_fields__) <= set(sent)
    async with running(tiny()) as engine:
        usual = await settings_of(engine, {})
        told = await settings_of(engine, sampling_fields(sampling))
    assert {name: told[name] for name in SENT} == SENT
    assert [name for name in SENT if usual[name] == SENT[name]] == []
    assert {entry["token"]: entry["bias"] for entry in told["logit_bias"]} == {5: -1.5, 9: 2}


@requirement("sampling:bias")
async def test_a_bias_decides_what_is_drawn(tiny: Callable[..., Path]) -> None:
    async with running(tiny()) as engine:
        (letter,) = await engine.tokenize("a", add_special=False, parse_special=False)
        sampling = Sampling(temperature=1.0, seed=3, samplers=Samplers(logit_bias=((letter.id, 100.0),)))
        drawn = await collect(engine, ask("Hello", sampling=sampling, max_output_tokens=6))
        assert text_of(drawn) == "a" * 6


@requirement("sampling:reaches", "sampling:bounds")
async def test_llama_cpp_takes_the_ends_of_every_range(tiny: Callable[..., Path]) -> None:
    ends: dict[str, tuple[float, float]] = {}
    for field in msgspec.structs.fields(SharedFields):
        kinds = [kind for kind in get_args(field.type) if get_origin(kind) is Annotated]
        for meta in (get_args(kind)[1] for kind in kinds):
            if meta.ge is not None:
                ends[field.name] = (meta.ge, meta.le)
    assert len(ends) == len(Samplers.__struct_fields__) - 2 + 9 + 4
    async with running(tiny()) as engine:
        for name, values in ends.items():
            for value in values:
                asked = decode_create_response(msgspec.json.encode({"dry_multiplier": 1, name: value}))
                await settings_of(engine, sampling_fields(sampling_of(asked)))
        await settings_of(engine, {"logit_bias": [[2**31 - 1, 1.0]]})
