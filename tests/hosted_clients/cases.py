"""What each client asks for, and what it has to have of the answer; of the standard library alone."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.metadata
import inspect
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

MODEL = "scripted"
SECONDS = 60
MODES = (False, True)
ANSWER = "A revoked key is refused."
SOURCE = "keys.md"


@dataclass(frozen=True)
class Place:
    """The server up to its `/v1`, a vector store of it with a document, and an MCP server."""

    url: str
    store: str
    mcp: str


@dataclass(frozen=True)
class Case:
    """One tool: its entry of `tools`, what the model is told, the type of its item, and what `include` asks for.

    `beside` says that the item stands in `hosted_tool_calls`, and `cited` that the answer has a citation.
    """

    name: str
    tool: dict[str, Any]
    asked: str
    item: str
    include: tuple[str, ...] = ()
    beside: bool = False
    cited: bool = False


@dataclass
class Taken:
    """What a client made of an answer; None where it does not hand that on."""

    text: str
    items: list[str] | None = None
    beside: list[str] | None = None
    citations: list[str] | None = None
    notes: list[str] = field(default_factory=list[str])


Ask = Callable[[Place, Case, bool], Taken | Awaitable[Taken]]
"""Asks for a case at a place, streamed or not."""


def cases(place: Place) -> tuple[Case, ...]:
    """Every tool that is tried."""
    query = json.dumps({"queries": ["revoked key"]})
    cited = f'!THEN\n!TEXT {ANSWER}<cite i="1"/>'
    files = {"type": "file_search", "vector_store_ids": [place.store]}
    corpus = {"type": "search_corpus", "store_identifiers": [place.store], "citations": True}
    server = {"type": "mcp", "server_label": "stub", "server_url": place.mcp, "require_approval": "never"}
    code = {"type": "code_interpreter", "container": {"type": "auto"}}
    return (
        Case(
            "file_search",
            files,
            f"!CALL file_search {query}\n{cited}",
            "file_search_call",
            include=("file_search_call.results",),
            cited=True,
        ),
        Case(
            "search_corpus",
            corpus,
            f"!CALL search_corpus {query}\n{cited}",
            "search_corpus_call",
            beside=True,
            cited=True,
        ),
        Case("mcp", server, f'!CALL echo {{"text":"a"}}\n!THEN\n!TEXT {ANSWER}', "mcp_call"),
        Case(
            "code_interpreter",
            code,
            f'!CALL code_interpreter {{"code":"6*7"}}\n!THEN\n!TEXT {ANSWER}',
            "code_interpreter_call",
            include=("code_interpreter_call.outputs",),
        ),
    )


def check(case: Case, taken: Taken) -> list[str]:
    """Hold what a client has against the case; what it hands on beside the text.

    Raises:
        AssertionError: it is another.
    """
    assert taken.text == ANSWER, f"the text is {taken.text!r}"
    shown = list(taken.notes)
    if not case.beside and taken.items is not None:
        assert case.item in taken.items, f"{case.item} is not among {taken.items}"
        shown.append("call")
    if case.beside and taken.items is not None:
        assert case.item not in taken.items, f"{case.item} is in the output"
    if case.beside and taken.beside is not None:
        assert taken.beside == [case.item], f"beside the output are {taken.beside}"
        shown.append("call")
    if case.cited and taken.citations is not None:
        assert taken.citations == [SOURCE], f"the citations are {taken.citations}"
        shown.append("citation")
    return shown


def kinds(entries: Any) -> list[str]:
    """The types of items, which are objects or mappings; a type may be a word of an enumeration."""
    return [str(value(entry, "type")) for entry in entries or ()]


def names(annotations: Any) -> list[str]:
    """The files that annotations name, which are objects or mappings."""
    return [str(value(entry, "filename")) for entry in annotations or ()]


def value(entry: Any, name: str) -> Any:
    """A field of an object or a mapping."""
    return entry.get(name) if isinstance(entry, Mapping) else getattr(entry, name, None)


def of_response(response: Any) -> Taken:
    """What the `openai` package's response has, or what is shaped like it."""
    output = value(response, "output")
    parts = [part for item in output if value(item, "type") == "message" for part in value(item, "content")]
    return Taken(
        "".join(value(part, "text") for part in parts),
        kinds(output),
        kinds(value(response, "hosted_tool_calls")),
        [name for part in parts for name in names(value(part, "annotations"))],
    )


async def _asked(ask: Ask, place: Place, case: Case, stream: bool) -> Taken:
    if inspect.iscoroutinefunction(ask):
        async with asyncio.timeout(SECONDS):
            return await ask(place, case, stream)
    return await asyncio.wait_for(asyncio.to_thread(ask, place, case, stream), SECONDS)  # type: ignore[arg-type]


def run(clients: Mapping[str, tuple[str, Ask] | tuple[str, Ask, tuple[bool, ...]]]) -> None:
    """Ask each client, by its distribution's name, in every case; one line of JSON for each.

    Some have one mode alone.
    """
    place = Place(*sys.argv[1:4])
    for name, (distribution, ask, *modes) in clients.items():
        version = f"{distribution} {importlib.metadata.version(distribution)}"
        for case in cases(place):
            for stream in modes[0] if modes else MODES:
                line: dict[str, Any] = {"client": name, "version": version, "case": case.name, "stream": stream}
                try:
                    line["taken"] = dataclasses.asdict(asyncio.run(_asked(ask, place, case, stream)))
                except Exception as error:  # noqa: BLE001 - whatever goes wrong with a client is its result
                    line["wrong"] = f"{type(error).__name__}: {error}"[:600]
                print("RESULT " + json.dumps(line), flush=True)
