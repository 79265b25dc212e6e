"""Every family on the real llama.cpp: a random model at temperature 1, so that grammar and parser carry it alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.settings import Settings
from support.dialect_table import COLUMNS, PAGE, asked, measure, page
from support.families import FAMILIES, model_of
from support.local_engine import running

CALLS, BESIDE = 20, 3


@pytest.mark.requirement("engine:dialect:forced", "engine:dialect:table")
@pytest.mark.parametrize("name", FAMILIES)
async def test_every_column_of_the_table_holds(name: str, tmp_path: Path) -> None:
    row = await measure(name, tmp_path, CALLS, BESIDE)
    assert row.faults == []
    assert [column for column in COLUMNS if not row.holds(column)] == []
    assert row.asked["required"] == CALLS


@pytest.mark.requirement("engine:dialect:table")
def test_the_page_says_what_the_tests_hold() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(lambda name, column: True)


@pytest.mark.requirement("prompt:dialect:detect")
@pytest.mark.parametrize("name", FAMILIES)
async def test_a_template_is_known_and_takes_a_conversation_with_a_call(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    async with running(model_of(family, tmp_path), settings=Settings(threads=1)) as engine:
        assert engine._dialect.name == family.dialect
        turn = await engine.prepare(asked(0, "auto"))
    assert "Oslo" in turn.rendered
    assert "Rain." in turn.rendered
    assert "And the time?" in turn.rendered
