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
    "MACHINE": "The event log",
    "PROMPT": "Prompts and tool calls",
    "LOCAL_ENGINE": "The local engine",
    "SCRIPTED_ENGINE": "The scripted engine",
    "STORE": "The store",
    "API": "The API",
    "CLIENTS": "Clients",
    "COMMAND_LINE": "The command line",
    "PROJECT": "The project",
}


def areas() -> dict[str, tuple[Requirement, ...]]:
    """The behaviours under their headings, in the order of the manifest."""
    found: dict[str, tuple[Requirement, ...]] = {}
    for name, value in vars(requirements).items():
        if name.isupper() and name != "REQUIREMENTS" and isinstance(value, tuple) and value:
            found[HEADINGS.get(name, name.replace("_", " ").capitalize())] = value
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
        "them to it: `protocol` ← `machine` ← `prompt` ← `engines`, `store` ← `runtime` ← `http` ← `cli`. The first",
        "three do no input or output.",
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
    rows = ["| | built and tested | differs | not yet |", "|---|---|---|---|"]
    for heading, behaviors in areas().items():
        built = [item for item in behaviors if item.deferred is None]
        differing = [item for item in built if item.divergence is not None]
        missing = [item for item in behaviors if item.deferred is not None]
        cells = (f"{len(built)}: {_features(built)}", _features(differing), _features(missing))
        rows.append(f"| {heading} | {' | '.join(cells)} |")
    return "\n".join([f"{before}{BEGIN}", "", *rows, "", f"{END}{after}"])


def _features(behaviors: Iterable[Requirement]) -> str:
    """The features that the ids name, once each: `api:create:stream` is of `create`; a rule's number names none."""
    names = [item.id.split(":")[1] for item in behaviors]
    return ", ".join(dict.fromkeys(name.replace("-", " ") for name in names if not re.fullmatch(r"[A-Z]?\d+", name)))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    write()
