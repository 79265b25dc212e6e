"""What every family of models is held to on the real llama.cpp, and the page that says so.

A tiny model with random weights is asked at temperature 1: what comes out well is the work of the grammar and of the
parser alone. `make dialects` measures two hundred calls of each family and writes the page; a test measures fewer and
holds the page against what it found.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from antiphon.engines.llamacpp.engine import LlamaCppEngine
from antiphon.errors import AntiphonError
from antiphon.machine.deltas import Delta, ReasoningDelta, Stop, TextDelta, ToolCallDelta, ToolCallStart
from antiphon.prompt.dialects import Dialect, named
from antiphon.prompt.prompt import ChatMessage, Prompt, ResolvedChoice, Sampling, ToolCall
from antiphon.protocol.tools import CustomTool
from antiphon.settings import Settings
from support import dialects, tiny_gguf
from support.families import FAMILIES, Family, model_of
from support.local_engine import collect, running

__all__ = ["COLUMNS", "HISTORY", "PAGE", "TOOLS", "Row", "asked", "items_of", "measure", "page", "text_before"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "dialects.md"

COLUMNS: Mapping[str, str] = {
    "auto": "text, then a call: it has a declared name and valid arguments",
    "none": "no call, and the model is shown no tools",
    "required": "nothing but calls, valid by their schemas",
    "named": "nothing but calls of the one function",
    "allowed_tools": "calls of the allowed tools alone, though all are shown",
    "parallel off": "one call",
    "streamed arguments": "arguments leave while they are generated",
    "leak-free": "no markup reaches text or arguments, also where a marker stands alone",
}
"""What the columns of the table stand for."""

TOOLS = (
    *dialects.TOOLS[:3],
    CustomTool(
        name="key",
        description="Looks a key up.",
        format={"type": "grammar", "syntax": "regex", "definition": "[a-f]{2,6}"},
    ),
)
NAMES = tuple(tool.name for tool in TOOLS)

HISTORY = (
    ChatMessage("system", "Be brief."),
    ChatMessage("user", "What is the weather in Oslo?"),
    ChatMessage("assistant", "", tool_calls=[ToolCall("c1", "get_weather", '{"city": "Oslo", "days": 2}')]),
    ChatMessage("tool", "Rain.", tool_call_id="c1"),
    ChatMessage("assistant", "It rains."),
    ChatMessage("user", "And the time?"),
)
"""A conversation with a call and its output in it."""

_MOST_TOKENS = 2500
_WELL = "Well then. "
_TEXT_CHANNEL = "<|channel|>final<|message|>"


@dataclass
class Row:
    """One family's results: for each column how many answers were as they should be, and how many were asked for."""

    family: str
    good: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COLUMNS, 0))
    asked: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COLUMNS, 0))
    faults: list[str] = field(default_factory=list[str])

    def count(self, column: str, fault: str) -> None:
        """One answer; an empty fault is a good one."""
        self.asked[column] += 1
        self.good[column] += not fault
        if fault:
            self.faults.append(f"{self.family}, {column}: {fault}")

    def holds(self, column: str) -> bool:
        """Whether all answers of a column were good; there must be one."""
        return self.good[column] == self.asked[column] > 0


def asked(seed: int, mode: str = "required", allowed: Sequence[str] = NAMES, **fields: Any) -> Prompt:
    """A prompt with a past call in it, at temperature 1."""
    known: dict[str, Any] = {
        "messages": HISTORY,
        "tools": TOOLS,
        "choice": ResolvedChoice(mode, tuple(allowed)),
        "sampling": Sampling(temperature=1.0, seed=seed),
        "max_output_tokens": _MOST_TOKENS,
        # Thinking of a random model has no end of its own.
        "reasoning_effort": "none",
    }
    return Prompt(**{**known, **fields})


async def measure(name: str, directory: Path, calls: int, beside: int) -> Row:
    """One family: so many forced calls, and so many answers for every other column."""
    family, row = FAMILIES[name], Row(name)
    async with running(model_of(family, directory), settings=Settings(threads=1)) as engine:
        for seed in range(calls):
            # Turns of many calls take long, and not all need be such.
            found = await _answer(engine, asked(seed, parallel_tool_calls=seed % 4 == 0))
            row.count("required", _fault(found))
            said = "" if isinstance(found, str) else "".join(d.text for d in found if isinstance(d, TextDelta))
            row.count("leak-free", f"text {said!r}" if said else "")
        for seed in range(beside):
            found = await _answer(engine, asked(seed, allowed=("search",)))
            row.count("named", _fault(found, {"search"}))
            _stream(row, found)
            found = await _answer(engine, asked(seed, allowed=("get_time", "key")))
            row.count("allowed_tools", _fault(found, {"get_time", "key"}))
            found = await _answer(engine, asked(seed, parallel_tool_calls=False))
            row.count("parallel off", _fault(found, most=1))
            await _none(row, engine, seed)
        start = (await engine.prepare(asked(0, "auto"))).tokens[-1]
    for seed in range(max(1, beside // 2)):
        await _auto(row, family, directory, seed, start)
    await _alone(row, family, directory, start)
    return row


async def _answer(engine: LlamaCppEngine, prompt: Prompt) -> list[Delta] | str:
    """An answer, or why there is none."""
    try:
        return await collect(engine, prompt)
    except AntiphonError as error:
        return f"{type(error).__name__}: {error.message}"


async def _none(row: Row, engine: LlamaCppEngine, seed: int) -> None:
    plain = [HISTORY[0], HISTORY[1]]
    prompt = asked(seed, "none", (), messages=plain, max_output_tokens=24)
    turn = await engine.prepare(prompt)
    shown = "get_weather" in turn.rendered or "Looks a key up" in turn.rendered
    found = [delta async for deltas in engine.generate(turn) for delta in deltas]
    called = any(isinstance(delta, ToolCallStart) for delta in found)
    row.count("none", "tools were shown" if shown else "a call" if called else "")


async def _auto(row: Row, family: Family, directory: Path, seed: int, start: int) -> None:
    """The model writes a word and the opening of a call by script; what it writes behind that is noise, but bound."""
    dialect = named(family.dialect, family.text())
    prompt = asked(seed, "auto", parallel_tool_calls=False)
    opening = next(iter(dialect.call_openings(prompt)), "")
    path = _scripted(family, directory, text_before(dialect) + opening, start)
    async with running(path, settings=Settings(threads=1)) as engine:
        found = await _answer(engine, prompt)
    items: list[Any] = [found] if isinstance(found, str) else items_of(found)
    text = items[0] if items and isinstance(items[0], str) else ""
    row.count("auto", f"{items}"[:300] if text != _WELL.strip() else _fault_of(items[1:]))


async def _alone(row: Row, family: Family, directory: Path, start: int) -> None:
    """The model writes the family's markers where none should be, by script."""
    dialect = named(family.dialect, family.text())
    markers = [marker for marker in dialect.markers if marker not in dialect.openings]
    words = [f"word{place} " for place in range(len(markers) + 1)]
    text = _TEXT_CHANNEL if dialect.name == "harmony" else ""
    text += words[0] + "".join(marker + word for marker, word in zip(markers, words[1:], strict=True))
    async with running(_scripted(family, directory, text, start), settings=Settings(threads=1)) as engine:
        found = await _answer(engine, asked(0, "auto"))
    said = found if isinstance(found, str) else "".join(str(item) for item in items_of(found))
    leaked = any(marker in said for marker in (*dialect.markers, *dialect.always))
    row.count("leak-free", f"{said!r}" if leaked or not all(word.strip() in said for word in words) else "")


def _scripted(family: Family, directory: Path, text: str, start: int) -> Path:
    return tiny_gguf.build(
        directory,
        template=family.text(),
        specials=family.specials,
        end=family.end,
        script=[piece for piece in _split(text, family) if piece],
        start=start,
        name="scripted",
    )


def text_before(dialect: Dialect) -> str:
    """A text, as this family writes one before a call."""
    if dialect.name == "harmony":
        return f"{_TEXT_CHANNEL}{_WELL}<|end|><|start|>assistant<|channel|>commentary "
    return _WELL + "\n"


def _split(text: str, family: Family) -> list[str]:
    """The text in pieces that can be tokens, the special tokens of the family by themselves, none of them twice."""
    tokens = sorted(family.specials, key=len, reverse=True)
    parts = re.split("(" + "|".join(map(re.escape, tokens)) + ")", text)
    pieces: list[str] = []
    for part in parts:
        # A piece that was there before is joined to the one before it.
        if part in pieces:
            pieces[-1] += part
        else:
            pieces.append(part)
    return pieces


def _stream(row: Row, found: Sequence[Delta] | str) -> None:
    """Whether the arguments of a call left bit by bit."""
    parts = longest = 0
    for delta in found if not isinstance(found, str) else ():
        parts = parts + 1 if isinstance(delta, ToolCallDelta) else 0
        longest = max(longest, parts)
    row.count("streamed arguments", "" if longest > 3 else f"{longest} deltas")


def items_of(found: Sequence[Delta]) -> list[Any]:
    """The texts and calls of a turn, without its thinking."""
    return dialects.folded([delta for delta in found if not isinstance(delta, Stop | ReasoningDelta)])


def _fault(found: Sequence[Delta] | str, names: set[str] | None = None, most: int | None = None) -> str:
    if isinstance(found, str):
        return found
    last, items = found[-1], items_of(found)
    if not isinstance(last, Stop) or last.reason != "stop":
        return f"it ended with {last}"
    if most is not None and len(items) > most:
        return f"{len(items)} calls"
    return _fault_of(items, names)


def _fault_of(items: Sequence[Any], names: set[str] | None = None) -> str:
    try:
        dialects.check_calls(items, TOOLS)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with an answer is its fault
        return f"{type(error).__name__} over {items}"[:300]
    return "" if names is None or {name for name, _ in items} <= names else f"another function: {items}"[:200]


def page(holds: Callable[[str, str], bool]) -> str:
    """The page of the docs; `holds` says of a family and a column whether it does."""
    lines = [
        "# Families of models",
        "",
        "Made by `make dialects`, and held by a test. Each row is a chat template of our own writing in the shape of",
        "one family, on the real llama.cpp, with the family's special tokens and a tiny model that writes noise: at",
        "temperature 1, the grammar and the parser carry it alone. `make dialects` asks for 200 forced calls of each",
        "family, the tests for 20.",
        "",
        *(f"- **{column}**: {meaning}" for column, meaning in COLUMNS.items()),
        "",
        f"| family | dialect | {' | '.join(COLUMNS)} |",
        "|---" * (len(COLUMNS) + 2) + "|",
    ]
    for name, family in sorted(FAMILIES.items()):
        cells = ["yes" if holds(name, column) else "**no**" for column in COLUMNS]
        lines.append(f"| {name} | `{family.dialect}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


async def _main(calls: int, beside: int, names: Sequence[str]) -> int:
    rows: dict[str, Row] = {}
    with tempfile.TemporaryDirectory() as directory:
        for name in names or sorted(FAMILIES):
            rows[name] = row = await measure(name, Path(directory), calls, beside)
            figures = ", ".join(f"{column} {row.good[column]}/{row.asked[column]}" for column in COLUMNS)
            print(f"{name}: {figures}", flush=True)
            for fault in row.faults[:5]:
                print(f"  {fault}", flush=True)
    if not names:
        PAGE.write_text(page(lambda name, column: rows[name].holds(column)), encoding="utf-8")
    return 0 if all(row.holds(column) for row in rows.values() for column in COLUMNS) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200, help="forced calls of each family")
    parser.add_argument("--beside", type=int, default=20, help="answers for every other column")
    parser.add_argument("families", nargs="*", help="all where none is named; then the page is written")
    options = parser.parse_args()
    sys.exit(asyncio.run(_main(options.calls, options.beside, options.families)))
