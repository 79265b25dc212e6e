"""`python -m tests.everything`: the MCP reference server behind a real server; the exit code is 1 where a run fails.

It is asked over streamable HTTP and over SSE by its URL, and over standard input and output by its label.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
from tests.support.server import running_server

SERVER = Path(__file__).parent / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
CONFIG = """
model = "scripted"
allow_outbound = ["127.0.0.1"]
mcp_timeout = 5.0
[[mcp_servers]]
label = "everything"
command = "node"
args = ["{server}", "stdio"]
timeout = 5.0
"""
SUM = '!CALL get-sum {"a":2,"b":3}\n!THEN\n!TEXT done'

Entry = dict[str, Any]
Run = Callable[[openai.OpenAI, Entry], str]


def ask(client: openai.OpenAI, entry: Entry, asked: Any, **fields: Any) -> Any:
    """One response; `entry` is its server."""
    return client.responses.create(model="scripted", input=asked, tools=[entry], **fields)  # pyright: ignore[reportArgumentType, reportCallIssue]


def of(response: Any, kind: str) -> Any:
    """The first item of a type."""
    return next(item for item in response.output if item.type == kind)


def called(client: openai.OpenAI, entry: Entry, name: str, **arguments: Any) -> Any:
    """The item of a call that needs no approval."""
    asked = f"!CALL {name} {json.dumps(arguments)}\n!THEN\n!TEXT done"
    response = ask(client, {**entry, "require_approval": "never"}, asked)
    assert response.output_text == "done", response
    return of(response, "mcp_call")


def lists(client: openai.OpenAI, entry: Entry) -> str:
    response = ask(client, entry, "!TEXT done")
    item = of(response, "mcp_list_tools")
    assert item.error is None
    names = [tool.name for tool in item.tools]
    assert {"echo", "get-sum", "get-tiny-image"} <= set(names), names
    return f"{len(names)} tools"


def calls(client: openai.OpenAI, entry: Entry) -> str:
    began = time.monotonic()
    assert called(client, entry, "echo", message="hello").output == "Echo: hello"
    seconds = time.monotonic() - began
    assert called(client, entry, "get-sum", a=2, b=3).output == "The sum of 2 and 3 is 5."
    assert "image/png" in called(client, entry, "get-tiny-image").output
    assert "humidity" in called(client, entry, "get-structured-content", location="Chicago").output
    assert "demo://" in called(client, entry, "get-resource-links", count=2).output
    assert "plaintext" in called(client, entry, "get-resource-reference", resourceType="Text", resourceId=1).output
    assert "completed" in called(client, entry, "trigger-long-running-operation", duration=1, steps=4).output
    return f"7 calls; a response with one took {1000 * seconds:.0f} ms"


def fails(client: openai.OpenAI, entry: Entry) -> str:
    wrong = called(client, entry, "get-sum", a="x")
    assert (wrong.status, wrong.output) == ("failed", None), wrong
    late = called(client, entry, "trigger-long-running-operation", duration=600, steps=2)
    assert (late.status, late.error.type, late.error.code) == ("failed", "mcp_protocol_error", -32001), late
    return f"{wrong.error.type}; {late.error.message}"


def approved(client: openai.OpenAI, entry: Entry) -> str:
    first = ask(client, entry, SUM)
    assert [item.type for item in first.output] == ["mcp_list_tools", "mcp_approval_request"], first.output
    answer = {
        "type": "mcp_approval_response",
        "approval_request_id": of(first, "mcp_approval_request").id,
        "approve": True,
    }
    second = ask(client, entry, [answer], previous_response_id=first.id)
    call = of(second, "mcp_call")
    assert call.output == "The sum of 2 and 3 is 5.", call
    assert call.approval_request_id == answer["approval_request_id"]
    return " -> ".join(item.type for item in second.output)


def denied(client: openai.OpenAI, entry: Entry) -> str:
    first = ask(client, entry, SUM)
    request = of(first, "mcp_approval_request").id
    answer = {"type": "mcp_approval_response", "approval_request_id": request, "approve": False, "reason": "not now"}
    said = {"role": "user", "content": "!ECHO"}
    second = ask(client, entry, [answer, said], previous_response_id=first.id)
    assert "not now" in second.output_text
    assert not [item for item in second.output if item.type == "mcp_call"]
    return "not run, and the model was told"


def streams(client: openai.OpenAI, entry: Entry) -> str:
    with client.responses.stream(
        model="scripted",
        input=SUM,
        tools=[{**entry, "require_approval": "never"}],  # pyright: ignore[reportArgumentType]
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert "response.mcp_call.completed" in kinds
    assert of(final, "mcp_call").status == "completed"
    return f"{len(kinds)} events"


RUNS: tuple[Run, ...] = (lists, calls, streams, approved, denied, fails)


@contextmanager
def served(kind: str) -> Iterator[str]:
    """The reference server over HTTP; its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        ["node", str(SERVER), kind],
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise
                threading.Event().wait(0.05)
        yield f"http://127.0.0.1:{port}/{'sse' if kind == 'sse' else 'mcp'}"
    finally:
        process.kill()
        process.wait()


def killed(client: openai.OpenAI) -> str:
    """The server dies in the middle of a call; the response goes on."""
    with served("streamableHttp") as url:
        entry = {"type": "mcp", "server_label": "dies", "server_url": url, "require_approval": "never"}
        ask(client, entry, "!TEXT done")
        pid = int(subprocess.check_output(["pgrep", "-n", "-f", f"{SERVER} streamableHttp"], text=True))
        timer = threading.Timer(1.0, os.kill, (pid, signal.SIGKILL))
        timer.start()
        item = called(client, entry, "trigger-long-running-operation", duration=4, steps=2)
        timer.join()
    assert (item.status, item.error.type) == ("failed", "mcp_protocol_error"), item
    return item.error.message


def tried(name: str, run: Callable[[], str]) -> bool:
    """One line for a run; whether it did what it should."""
    try:
        told = run()
    except Exception as error:  # noqa: BLE001 - each run has its line
        print(f"FAILED  {name}: {type(error).__name__}: {error}")
        return False
    print(f"ok      {name}: {told}")
    return True


def main() -> int:
    """Every run over every transport."""
    done: list[bool] = []
    with tempfile.TemporaryDirectory() as folder, served("streamableHttp") as http, served("sse") as sse:
        config = Path(folder) / "antiphon.toml"
        config.write_text(CONFIG.format(server=SERVER))
        with running_server(
            ["--config", str(config)], environment={"ANTIPHON_DATA_DIR": str(Path(folder) / "data")}
        ) as server:
            client = openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0, timeout=120)
            for name, where in (("http", {"server_url": http}), ("sse", {"server_url": sse}), ("stdio", {})):
                entry = {"type": "mcp", "server_label": "everything", **where}
                for run in RUNS:
                    done.append(tried(f"{name} {run.__name__}", lambda run=run, entry=entry: run(client, entry)))
            done.append(tried("http killed", lambda: killed(client)))
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
