"""The chat templates of real models on the real llama.cpp: each is known or gets the generic dialect, and forces calls.

They are in the source distribution of llama-cpp-python on the package index and are taken from there when this is run;
nothing of them is kept. The model is a tiny one that writes noise, in which what looks like a special token in a
template is one.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from antiphon.engines.llamacpp import template
from antiphon.engines.llamacpp.engine import LlamaCppEngine
from antiphon.errors import AntiphonError, InvalidRequestError
from antiphon.machine.deltas import Stop
from antiphon.prompt.dialects import DIALECTS
from antiphon.prompt.prompt import ChatMessage, ToolCall
from antiphon.settings import Settings
from support import dialect_table, dialects, tiny_gguf
from support.dialect_table import HISTORY, TOOLS, asked
from support.local_engine import running

__all__ = ["CONVERSATIONS", "Outcome", "attempt", "templates"]

PACKAGE = "llama-cpp-python==0.3.36"

_MOST_TOKENS = 6000
"""Tokens in which also thinking that chance alone must end has ended."""

_LATER = (
    ChatMessage("user", "Compare Oslo and Rome."),
    ChatMessage(
        "assistant",
        "I look both up.",
        reasoning="Two calls.",
        tool_calls=[
            ToolCall("c1", "get_weather", '{"city": "Oslo"}'),
            ToolCall("c2", "get_weather", '{"city": "Rome"}'),
        ],
    ),
    ChatMessage("tool", "Rain.", tool_call_id="c1"),
    ChatMessage("tool", "Sun.", tool_call_id="c2"),
)

CONVERSATIONS: Mapping[str, Sequence[ChatMessage]] = {
    "a question": (ChatMessage("user", "What is the weather in Oslo?"),),
    "a system text": (ChatMessage("system", "Be brief."), ChatMessage("user", "What is the weather in Oslo?")),
    "a call that was answered": HISTORY,
    "two calls and their outputs": _LATER,
}
"""What each template is asked to render, with tools."""


class Outcome:
    """What came of one template."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dialect = ""
        self.refused: list[str] = []
        self.faults: list[str] = []
        self.calls = 0

    def line(self) -> str:
        """One line about it."""
        said = [f"{self.name}: {self.dialect}, {self.calls} calls"]
        said += [f"refuses {conversation}" for conversation in self.refused]
        said += [f"FAULT {fault}" for fault in self.faults]
        return "; ".join(said)


def templates(directory: Path) -> Iterator[tuple[str, str]]:
    """The name and the text of each chat template in the source distribution, which is fetched into the directory."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    name = PACKAGE.partition("==")[0]
    subprocess.run([*command, "--no-binary", name, "--dest", str(directory), PACKAGE], check=True)
    [archive] = directory.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        for member in opened:
            if member.name.endswith(".jinja") and "/models/templates/" in member.name:
                file = opened.extractfile(member)
                assert file is not None
                yield Path(member.name).stem, file.read().decode()


async def attempt(name: str, text: str, directory: Path, calls: int) -> Outcome:
    """One template with every conversation, and so many forced calls in each."""
    outcome = Outcome(name)
    specials = {"<|endoftext|>": tiny_gguf.CONTROL}
    for token in template.special_candidates(text):
        plain = token.startswith("</") or token[1:-1].replace("_", "").isalpha()
        specials[token] = tiny_gguf.USER_DEFINED if plain else tiny_gguf.CONTROL
    path = tiny_gguf.build(directory, template=text, specials=specials, end="<|endoftext|>")
    try:
        async with running(path, settings=Settings(threads=1)) as engine:
            outcome.dialect = engine._dialect.name
            for conversation, messages in CONVERSATIONS.items():
                await _converse(outcome, engine, conversation, messages, calls)
    except AntiphonError as error:
        outcome.faults.append(f"does not start: {error.message}")
    if outcome.dialect not in DIALECTS:
        outcome.faults.append("no dialect")
    if len(outcome.refused) == len(CONVERSATIONS):
        outcome.faults.append("refuses everything")
    return outcome


async def _converse(
    outcome: Outcome, engine: LlamaCppEngine, conversation: str, messages: Sequence[ChatMessage], calls: int
) -> None:
    for seed in range(calls):
        prompt = asked(seed, messages=messages, parallel_tool_calls=seed % 2 == 0, max_output_tokens=_MOST_TOKENS)
        try:
            turn = await engine.prepare(prompt)
            missing = [m.text() for m in messages if m.role == "user" and m.text() not in turn.rendered]
            if missing:
                outcome.faults.append(f"{conversation}: the prompt lacks {missing}")
            found = [delta async for deltas in engine.generate(turn) for delta in deltas]
            last = found[-1]
            if not isinstance(last, Stop) or last.reason != "stop":
                outcome.faults.append(f"{conversation}: ended with {last}")
                continue
            dialects.check_calls(dialect_table.items_of(found), TOOLS)
            outcome.calls += 1
        except InvalidRequestError as error:
            if error.code != "template_error":
                outcome.faults.append(f"{conversation}: {error.message}")
            outcome.refused.append(f"{conversation} ({error.message.rpartition(': ')[2][:80]})")
            return
        except Exception as error:  # noqa: BLE001 - whatever goes wrong with a template is its result
            outcome.faults.append(f"{conversation}: {type(error).__name__} {error}"[:300])


async def _main(calls: int, only: str, source: Path | None) -> int:
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        found = (
            templates(directory)
            if source is None
            else ((p.stem, p.read_text()) for p in sorted(source.glob("*.jinja")))
        )
        for name, text in found:
            if only in name:
                outcomes.append(await attempt(name, text, directory, calls))
                print(outcomes[-1].line(), flush=True)
    known = sum(outcome.dialect != "generic" for outcome in outcomes)
    faulty = sum(bool(outcome.faults) for outcome in outcomes)
    refusals = sum(len(outcome.refused) for outcome in outcomes)
    made = sum(outcome.calls for outcome in outcomes)
    print(
        f"{len(outcomes)} templates: {known} of a known family, {len(outcomes) - known} with the generic dialect; "
        f"{made} forced calls, all valid; {refusals} conversations refused with a 400; {faulty} templates with faults"
    )
    return 1 if faulty or not outcomes else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=3, help="forced calls in each conversation")
    parser.add_argument("--only", default="", help="templates whose names hold this")
    parser.add_argument("--source", type=Path, help="a folder with templates, instead of the package index")
    options = parser.parse_args()
    sys.exit(asyncio.run(_main(options.calls, options.only, options.source)))
