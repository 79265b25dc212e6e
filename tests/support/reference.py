"""Makes the reference pages, the map of the modules and the README's table from what they describe.

`make docs` writes them; a test holds the files against what this makes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path

import requirements
from antiphon.cli.options import GROUPS
from antiphon.settings import FIELDS, Field
from requirements import Requirement

__all__ = ["areas", "generated", "write"]

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "antiphon"
README = Path("README.md")
_SOURCE_NOTE = re.compile(r" \((?:[a-z-]+ [A-Z]?\d|M\d)[^()]*\)")
"""Where a sentence says what it follows: of use beside the code only."""

BEGIN = "<!-- supported: begin (made by `make docs`) -->"
END = "<!-- supported: end -->"

HEADINGS: Mapping[str, str] = {
    "WIRE": "The wire",
    "CORPUS_TOOLS": "Tools over documents",
    "VECTOR_STORES": "Vector stores",
    "MACHINE": "The event log",
    "PROMPT": "Prompts and tool calls",
    "LOCAL_ENGINE": "The local engine",
    "SCRIPTED_ENGINE": "The scripted engine",
    "STORE": "The store",
    "API": "The API",
    "CLIENTS": "Clients",
    "COMMAND_LINE": "The command line",
    "PROJECT": "The project",
    "RESUME": "Background and crashes",
    "BACKGROUND": "Background and crashes",
    "RUNTIME": "Background and crashes",
    "SCALE": "The store",
    "SHARED_STORES": "The store",
    "SQLITE": "The store",
    "POSTGRESQL": "The store",
    "WEBSOCKET": "The WebSocket mode",
    "KEYS": "Keys, tenants and encryption",
    "OUTBOUND": "Requests to elsewhere",
    "IDEMPOTENCY": "Requests that are sent again",
    "COMPACTION": "Compaction and counting",
    "DIALECTS_B": "Prompts and tool calls",
    "TOOLS": "Prompts and tool calls",
    "DIALECTS_A": "Dialects of tool calls",
    "CONSTRAINTS": "What is enforced",
    "CHAT": "Beside Responses",
    "FILES": "Files",
    "SAMPLING": "The local engine",
    "FLORENCE": "Florence-2",
    "DOCUMENTS": "Documents and images",
    "LOCAL_MEDIA": "The local engine",
    "ATTACKS": "Attacks",
    "PROBE": "What is enforced",
    "TEMPLATES": "Attacks",
    "LIBRARIES": "Clients",
    "RULES": "The API",
    "UPKEEP": "Fair shares and care",
    "ROUTING": "Routing",
    "UPSTREAMS": "Upstreams",
    "RESPONSES_UPSTREAMS": "Upstreams",
    "MEDIA": "Documents and images",
    "DRIVER_ENCODE": "The driver",
    "DRIVER_DECODE": "The driver",
    "DRIVER_STREAM": "The driver",
    "DRIVER_CALLS": "The driver",
    "DRIVER_TOOLS": "The driver",
    "ASK": "The command line",
    "CLUSTER": "In a cluster",
    "RAY": "On a Ray cluster",
    "REGISTRY": "The models of a server",
    "SEARCH": "Search in documents",
    "HOSTED": "Hosted items",
    "LOOP": "The loop of hosted tools",
    "MCP": "MCP servers and the web",
    "CORPUS_STORE": "Vector stores",
    "CODE": "Code in sandboxes",
    "INGEST": "Documents in vector stores",
}


EXAMPLES: Mapping[str, str] = {
    "Documents in vector stores": "chunks by headings, pages, rows and definitions; ingested once, whatever is killed",
    "Hosted items": "event orders of each type, results by include, evidence over chains, citations, pruned results",
    "The wire": "minimal forms, nulls and unknown fields are accepted; what is at fault is named by its path",
    "The event log": "one terminal event, stable ids, numbers without gaps; replayed bytes are the streamed bytes",
    "Prompts and tool calls": "system text anywhere, thinking, tool outputs with images, calls parsed while streamed",
    "The local engine": "several at once, prefix reuse, cancellation in mid-prompt, restarts",
    "The scripted engine": "every tool choice and output format, faults on demand",
    "The store": "memory, SQLite and PostgreSQL by the same tests: chains, limits, fences, full disks",
    "The API": "create, stream, retrieve, delete, cancel, input_items, models, health, metrics, keys",
    "Clients": "the openai package validates every object and event strictly; llm-comply",
    "The command line": "serve, chat, ask, models, keys, tenants, db, doctor; every setting as flag, variable and key",
    "The project": "docs that are run, a map of the modules, limits of size",
    "Background and crashes": "the same stream goes on with the next number; kills in mixed traffic lose nothing",
    "Requests to elsewhere": "nothing but public addresses unless named, no rebinding, no redirect unasked",
    "Webhooks": "signed, verified by the openai package, tried again for three days and over restarts",
    "Conversations": "the whole family, one response at a time, law 3; sessions of the Agents SDK",
    "Compaction and counting": "summaries in parts, open calls that stay open, sealed thinking, exact counts",
    "Requests that are sent again": "Idempotency-Key: the same object or stream, also while the first still runs",
    "The WebSocket mode": "lanes, chains that no store has, warm-ups, steering, bounds, the SDKs' own connections",
    "Keys, tenants and encryption": "keys with limits, no word of what is another's, bodies sealed for each tenant",
    "Dialects of tool calls": "eleven families of chat templates: their calls are read however cut, and bound",
    "What is enforced": "forced calls, schemas and formats by grammar, checked before and after",
    "Tools of all kinds": "namespaces, tool search, shells, patches, tools that items add, several turns",
    "Documents and images": "by data, URL or file; read in a process apart, within limits of size, time and memory",
    "Files": "kept in chunks for their tenant, within limits, whole or not there",
    "Beside Responses": "chat and text completions, embeddings, tokenize and detokenize on the same core",
    "Attacks": "hostile schemas, grammars, templates and numbers on a running server, each in two seconds",
    "Fair shares and care": "an endpoint that hangs holds up no other; what is sent again gets a true answer",
    "Upstreams": "any chat-completions endpoint as a model: calls and thinking in every shape, faults as `failed`",
    "The models of a server": "one file: names, defaults and limits by model, replicas, and changes while it runs",
    "Florence-2": "labels, boxes, corners and outlines in pixels, whatever the model generates",
    "The driver": "contexts to requests, answers and streams of any endpoint to one response, by rule",
    "In a cluster": "files for Compose, Kubernetes and systemd, a proxy before replicas, dashboards and alarms",
    "Search in documents": "words and vectors ranked together, patterns by RE2, filters, facets, all of it bounded",
    "Tools over documents": "file_search and corpus tools, within scopes that no model changes; citations, pruning",
    "Code in sandboxes": "no files, network or rights of the machine; time, memory and processes bounded; containers",
    "On a Ray cluster": "an engine on another node, its loss in mid-stream, a replica's start and end, `deploy ray`",
    "Vector stores": "their files, batches, chunks, words and vectors in every store, claimed, counted and bounded",
    "Routing": "a history stays where its prefix is cached; bounded load; a lost replica's histories move once",
    "MCP servers and the web": "servers by URL or of the operator, approvals, hostile servers, secrets kept secret",
    "The loop of hosted tools": "several turns in one response, budgets, approvals, and crashes in the middle of a run",
}
"""What a reader may know an area by."""


def areas() -> dict[str, tuple[Requirement, ...]]:
    """The behaviours under their headings, in the order of the manifest."""
    places = {item.id: place for place, item in enumerate(requirements.REQUIREMENTS)}
    groups: dict[str, tuple[Requirement, ...]] = {
        name: value
        for name, value in vars(requirements).items()
        if name.isupper() and name != "REQUIREMENTS" and isinstance(value, tuple) and value
    }
    found: dict[str, tuple[Requirement, ...]] = {}
    for name, value in sorted(groups.items(), key=lambda group: places.get(group[1][0].id, len(places))):
        heading = HEADINGS.get(name, name.replace("_", " ").capitalize())
        found[heading] = (*found.get(heading, ()), *value)
    return found


def generated() -> dict[Path, str]:
    """Every generated text, by its path in the project."""
    return {
        Path("docs/reference/supported.md"): _supported(),
        Path("docs/reference/settings.md"): _settings(),
        Path("docs/structure.md"): _structure(),
        README: _with_table((ROOT / README).read_text(encoding="utf-8")),
    }


def write() -> None:
    """Write every generated file."""
    for path, text in generated().items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text, encoding="utf-8")


def _supported() -> str:
    lines = [
        "# What is supported",
        "",
        "Made by `make docs` from the behaviour manifest, `tests/requirements.py`. Each behaviour that is built has a",
        "test that names its id; *differs* says where Antiphon knowingly does otherwise than its source, *not yet*",
        "why a behaviour is still to be built.",
    ]
    for heading, behaviors in areas().items():
        lines += ["", f"## {heading}", "", "| id | behaviour | |", "|---|---|---|"]
        lines += [f"| `{item.id}` | {_cell(item.behavior)} | {_cell(_status(item))} |" for item in behaviors]
    return "\n".join(lines) + "\n"


def _status(item: Requirement) -> str:
    if item.deferred is not None:
        return f"*not yet:* {item.deferred}"
    if item.divergence is not None:
        return f"*differs:* {item.divergence}"
    return "yes"


def _settings() -> str:
    lines = [
        "# Settings",
        "",
        "Made by `make docs` from the list in `src/antiphon/settings.py`. Every setting is a flag of `antiphon serve`,",
        "an environment variable, and a key of the TOML file that `--config` (or `ANTIPHON_CONFIG`) names; flags win",
        "over the environment, and the environment over the file. An environment variable of a repeatable setting",
        "separates its values by commas.",
    ]
    fields = {field.name: field for field in FIELDS}
    for heading, names in GROUPS.items():
        rows = [fields.pop(name) for name in names if name in fields]
        lines += ["", f"## {heading}", *_setting_table(rows)]
    if fields:
        lines += ["", "## In the file only", *_setting_table(fields.values())]
    return "\n".join(lines) + "\n"


def _setting_table(fields: Iterable[Field]) -> list[str]:
    rows = ["", "| flag or key | environment | default | |", "|---|---|---|---|"]
    for field in fields:
        name = f"`[[{field.name}]]`" if field.in_file_only else f"`{field.flag}`"
        variables = "" if field.in_file_only else ", ".join(f"`{variable}`" for variable in field.environment)
        default = "" if field.default in (None, ()) else f"`{field.default}`"
        rows.append(f"| {name} | {variables} | {default} | {_cell(field.description)} |")
    return rows


def _structure() -> str:
    lines = [
        "# Structure",
        "",
        "Made by `make docs` from the first sentence of each module. Imports point one way, and `make check` holds",
        "them to it: `protocol` ← `machine` ← `prompt` ← `engines`, `store`, `outbound` ← `runtime` ← `http` ← `cli`.",
        "The first three do no input or output.",
    ]
    for folder, modules in groupby(sorted(SOURCE.rglob("*.py"), key=_place), key=lambda path: path.parent):
        room = folder.relative_to(SOURCE).as_posix()
        lines += ["", f"## {'antiphon' if room == '.' else room}", ""]
        lines += [f"- `{path.relative_to(SOURCE).as_posix()}` — {_first_sentence(path)}" for path in modules]
    return "\n".join(lines) + "\n"


def _place(path: Path) -> tuple[str, str]:
    return path.parent.as_posix(), path.name


def _first_sentence(path: Path) -> str:
    paragraph = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]
    sentence = re.split(r"(?<=\.)\s", " ".join(paragraph.split()), maxsplit=1)[0]
    return _SOURCE_NOTE.sub("", sentence)


def _with_table(readme: str) -> str:
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("README.md has no markers for the table of what is supported")
    everything = [item for behaviors in areas().values() for item in behaviors]
    built = [item for item in everything if item.deferred is None]
    lines = [
        f"{len(built)} behaviours are built, each proven by a test that names it:",
        "",
        "| area | behaviours | for example |",
        "|---|---|---|",
    ]
    for heading, behaviors in areas().items():
        count = sum(item.deferred is None for item in behaviors)
        lines.append(f"| {heading} | {count} | {_cell(EXAMPLES[heading])} |")
    lines += ["", "Not yet:", ""]
    for item in everything:
        if item.deferred is not None and item.id.startswith("api:"):
            lines.append(f"- {item.behavior} *{item.deferred}*")
    return "\n".join([f"{before}{BEGIN}", "", *lines, "", f"{END}{after}"])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    write()
