"""Free calls of families without markers: they open with the name of a tool, and are bound from there on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon.machine.deltas import Stop
from antiphon.prompt.prompt import ChatMessage, Prompt, ResolvedChoice, Sampling
from support import dialects, tiny_gguf
from support.families import FAMILIES, model_of
from support.local_engine import collect, running

TOOLS = dialects.TOOLS[:3]


def asked(seed: int) -> Prompt:
    return Prompt(
        [ChatMessage("user", "Hi")],
        tools=TOOLS,
        choice=ResolvedChoice("auto", ()),
        parallel_tool_calls=False,
        sampling=Sampling(temperature=1.0, seed=seed),
        max_output_tokens=1500,
    )


async def answer(family_name: str, script: list[str], directory: Path) -> list[Any]:
    """What comes of a model that writes this script, and then noise where a grammar keeps it from ending."""
    family = FAMILIES[family_name]
    async with running(model_of(family, directory)) as engine:
        start = (await engine.prepare(asked(0))).tokens[-1]
    path = tiny_gguf.build(
        directory, template=family.text(), specials=family.specials, end=family.end, script=script, start=start
    )
    async with running(path) as engine:
        deltas = await collect(engine, asked(1))
    return dialects.folded([delta for delta in deltas if not isinstance(delta, Stop)])


BARE = pytest.mark.parametrize(
    ("family", "opening"), [("llama3", '{"name": "search"'), ("llama4", '{"name": "search"'), ("pythonic", "[search(")]
)


@BARE
@pytest.mark.requirement("engine:dialect:bare-calls")
async def test_a_bare_call_is_bound_from_its_name_on(family: str, opening: str, tmp_path: Path) -> None:
    items = await answer(family, ["Well then.", "\n\n", opening], tmp_path)
    assert items[0] == "Well then."
    assert items[1][0] == "search"
    dialects.check_calls(items[1:], TOOLS)


@BARE
@pytest.mark.requirement("engine:dialect:bare-calls")
async def test_in_the_midst_of_a_line_nothing_is_bound(family: str, opening: str, tmp_path: Path) -> None:
    assert await answer(family, ["One writes", " ", opening], tmp_path) == [f"One writes {opening}"]
