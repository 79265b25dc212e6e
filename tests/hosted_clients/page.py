"""The page of what each client took, and what is known to be wrong in clients themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "hosted-clients.md"
NAMES = ("file_search", "search_corpus", "mcp", "code_interpreter")

KNOWN: dict[tuple[str, str, bool], str] = {
    ("inspect_ai", "file_search", False): "It raises `Unexpected output type` at every `file_search_call`, as the only "
    "one of the clients.",
    **dict.fromkeys(
        (("LiteLLM, chat bridged", "file_search", False), ("LiteLLM, chat bridged", "search_corpus", False)),
        "Its message of a chat takes no annotation but a `url_citation`, and refuses an answer with a `file_citation`. "
        "Streamed it hands the text on.",
    ),
    ("Semantic Kernel", "search_corpus", True): "It refuses a tool of this type before it asks. Where the request was "
    "changed on its way, it takes the whole answer, and streamed it breaks at items of types that it does not know.",
}
"""What clients are known not to take, by client, case and whether it is streamed; and why, for the page."""

HEAD = """# Clients of hosted tools

What public clients made of the tools that the server runs ([Tools that the server runs](../guide/hosted-tools.md)).
`make hosted-clients ARGS=--page` has run each of them, whole and streamed, and has written this page. The server had
the scripted model, and a vector store with one document that was put in over the API.

- **file_search**: a search, and an answer with a citation.
- **search_corpus**: the same by the name of corpus search, whose call stands in `hosted_tool_calls` beside `output`.
- **mcp**: a call of a tool of an MCP server, with `require_approval: "never"`.
- **code_interpreter**: a call of the code interpreter.

"Yes" means that the client gave the right answer, whole and streamed. What it hands on besides stands behind it: the
call, the citation, and the history, where a second turn sent everything again as that client does. What is not said a
client may have in a form that was not looked at. inspect_ai was asked whole only. A client that has no tool of a type
got it into its request by what it offers for that, and where it offers nothing, by its HTTP client.

"""


def page(lines: Sequence[dict[str, Any]]) -> str:
    """The page."""
    rows: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for line in lines:
        rows.setdefault((line["client"], line["version"]), {}).setdefault(line["case"], []).append(line)
    notes: list[str] = []
    table = [f"| Client | Package | {' | '.join(NAMES)} |", "| --- " * (len(NAMES) + 2) + "|"]
    for (client, version), found in rows.items():
        cells = [_cell(found.get(name, []), notes) for name in NAMES]
        table.append(f"| {client} | {version} | {' | '.join(cells)} |")
    told = [f"{index}. {note}" for index, note in enumerate(notes, 1)]
    return "\n".join([HEAD + table[0], *table[1:], "", *told, ""])


def _cell(lines: Sequence[dict[str, Any]], notes: list[str]) -> str:
    words: list[str] = []
    shown = [tuple(sorted(line["shown"])) for line in lines if "shown" in line]
    sound = {line["stream"] for line in lines if "wrong" not in line}
    if len(sound) == len(lines):
        # One client is asked whole alone.
        words.append("yes" if len(lines) > 1 else "yes, whole only")
    else:
        words.append("no" if not sound else "streamed only" if True in sound else "whole only")
        for line in lines:
            if "wrong" in line:
                note = KNOWN.get((line["client"], line["case"], line["stream"]), f"It failed: `{line['wrong'][:200]}`.")
                if note not in notes:
                    notes.append(note)
                words[0] += f" ({notes.index(note) + 1})"
    common = [name for name in ("call", "citation", "history") if shown and all(name in each for each in shown)]
    return f"{words[0]}: {', '.join(common)}" if common else words[0]
