"""llama.cpp behind an actor: what is bound by a grammar is bound there too, and drawn again where a node is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from antiphon.engines.ray.engine import Group, RayEngine
from antiphon.engines.ray.wire import EngineOptions
from antiphon.engines.replicas.engine import ReplicatedEngine
from antiphon.prompt.prompt import Affinity, Sampling
from antiphon.protocol.request import TextFormat
from support import tiny_gguf
from support.local_engine import ask, text_of
from support.near_actor import NearActor

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {"type": "integer"}, "minItems": 8, "maxItems": 8}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.requirement("ray:engine", "ray:lost")
async def test_what_is_bound_is_bound_there_and_drawn_again_where_a_node_is_lost(tmp_path: Path) -> None:
    options = EngineOptions(path=str(tiny_gguf.build(tmp_path)), name="tiny", threads=1)
    actors, group = [NearActor(options), NearActor(options)], Group("tiny", 2)
    engines = [RayEngine("tiny", actor, group, number, load_timeout=60) for number, actor in enumerate(actors)]
    engine = ReplicatedEngine("tiny", engines)
    await engine.start()
    try:
        for each in engines:
            assert await each.wait_ready(60)
        answer_format = TextFormat("json_schema", name="s", schema=SCHEMA, strict=True)
        sampling = Sampling(temperature=1.0, seed=4)
        asked = ask("A list.", max_output_tokens=200, sampling=sampling, format=answer_format)
        turn = await engine.prepare(replace(asked, affinity=Affinity("k")))
        assert turn.constrained
        whole = text_of([delta async for some in engine.generate(turn) for delta in some])
        assert len(json.loads(whole)["a"]) == 8
        first = engine.placement.preferred("k", [0, 1])[0]
        actors[first].breaks_after = 1
        deltas = [delta async for some in engine.generate(turn) for delta in some]
        assert [actor.lost for actor in actors] == [number == first for number in range(2)]
        assert text_of(deltas) == whole
    finally:
        await engine.close()
        for actor in actors:
            await actor.actor._engine.close()
