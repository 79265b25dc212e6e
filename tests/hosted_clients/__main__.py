"""`python -m tests.hosted_clients`: public clients with the tools that a server runs, one line for each.

A scripted server has one document in a vector store that was filled over its API, and an MCP server stands beside it.
The exit code is 1 where a client does not take what it is known to take. Where packages could not be installed, their
clients are named and left out. `--page` writes `docs/reference/hosted-clients.md`.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
sys.path[:0] = [str(ROOT / "tests"), str(HERE)]

from cases import Case, Place, Taken, cases, check  # noqa: E402
from page import KNOWN, PAGE, page  # noqa: E402

from support.mcp_stub import mcp_stub  # noqa: E402
from support.server import running_server  # noqa: E402

ENVIRONMENTS = ROOT / ".venv" / "hosted-clients"
NODE = HERE / "node"
SECONDS = 300
DOCUMENT = b"# Keys\n\n## Revoking\n\nA revoked key is refused within two seconds.\n"
ARGUMENTS = [
    *("--model", "scripted", "--alias", "gpt-4o-mini=scripted", "--store", "memory"),
    *("--document-embedding", "none", "--allow-outbound", "127.0.0.1"),
]

Line = dict[str, Any]


@contextmanager
def mcp_server() -> Iterator[str]:
    """The URL of an MCP server, in a thread with a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    served = mcp_stub()
    try:
        stub = asyncio.run_coroutine_threadsafe(served.__aenter__(), loop).result(10)
        yield stub.url
        asyncio.run_coroutine_threadsafe(served.__aexit__(None, None, None), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def filled(url: str) -> str:
    """A vector store with the document, which went in over the API."""
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        store = client.vector_stores.create(name="handbook")
        file = client.vector_stores.files.upload_and_poll(
            vector_store_id=store.id, file=("keys.md", DOCUMENT), poll_interval_ms=50
        )
        if file.status != "completed":
            raise RuntimeError(f"The document did not come in: {file.last_error}")
        return store.id


def programs() -> dict[str, tuple[list[str], Path]]:
    """The command of each program of clients and its folder; those whose packages are missing are named."""
    found = {"ours.py": ([sys.executable, "ours.py"], HERE)}
    for name in ("older", "newer"):
        python = ENVIRONMENTS / name / "bin" / "python"
        if (ENVIRONMENTS / name / ".installed").exists():
            found[f"{name}.py"] = ([str(python), f"{name}.py"], HERE)
        else:
            print(f"skipped {name}.py: its packages could not be installed (tests/hosted_clients/{name}.txt)")
    node = shutil.which("node")
    if node is not None and (NODE / "node_modules" / "ai").is_dir():
        found["clients.mjs"] = ([node, "clients.mjs"], NODE)
    else:
        print("skipped clients.mjs: Node.js or its packages are missing")
    return found


def told(command: list[str], folder: Path, place: Place, tools: Sequence[Case]) -> list[Line]:
    """What a program of clients told; where it broke off, that too."""
    arguments = [*command, *dataclasses.astuple(place)]
    if folder == NODE:
        arguments.append(json.dumps([dataclasses.asdict(case) for case in tools]))
    done = subprocess.run(arguments, check=False, capture_output=True, text=True, timeout=SECONDS, cwd=folder)
    found: list[Line] = [
        json.loads(line.removeprefix("RESULT ")) for line in done.stdout.splitlines() if line.startswith("RESULT ")
    ]
    if done.returncode:
        broken = {"client": command[-1], "version": "", "case": "all", "stream": False, "wrong": done.stderr[-2000:]}
        found.append(broken)
    return found


def judged(line: Line, tools: Sequence[Case]) -> Line:
    """The line with what the client hands on, or with what is wrong."""
    if "wrong" in line:
        return line
    try:
        case = next(case for case in tools if case.name == line["case"])
        return {**line, "shown": check(case, Taken(**line["taken"]))}
    except AssertionError as error:
        return {**line, "wrong": str(error)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every client."""
    parser = argparse.ArgumentParser(prog="hosted-clients")
    parser.add_argument("--page", action="store_true", help="write docs/reference/hosted-clients.md")
    options = parser.parse_args(arguments)
    lines: list[Line] = []
    failed = 0
    with mcp_server() as mcp, running_server(ARGUMENTS) as server:
        place = Place(server.base_url, filled(server.base_url), mcp)
        tools = cases(place)
        found = programs()
        for command, folder in found.values():
            for line in (judged(line, tools) for line in told(command, folder, place, tools)):
                lines.append(line)
                mode = "streamed" if line["stream"] else "whole"
                name = f"{line['client']} ({line['version']}), {line['case']}, {mode}"
                if "wrong" not in line:
                    print(f"ok      {name}: {', '.join(line['shown']) or 'the answer'}", flush=True)
                    continue
                known = (line["client"], line["case"], line["stream"]) in KNOWN
                failed += not known
                print(f"{'known ' if known else 'FAILED'}  {name}: {line['wrong']}", flush=True)
    if options.page:
        if len(found) < 4:
            print("The page is not written: clients are missing.")
            return 1
        PAGE.write_text(page(lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
