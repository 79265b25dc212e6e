"""An MCP server over standard input and output, of the standard library alone; its argument says how it misbehaves."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

KEY = "PROGRAM_KEY"


def result(message: dict[str, Any]) -> dict[str, Any]:
    """What a sound server answers."""
    if message["method"] == "initialize":
        return {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "program", "version": "1"},
        }
    if message["method"] == "tools/list":
        return {"tools": [{"name": "variables", "inputSchema": {"type": "object"}}]}
    text = json.dumps({"pid": os.getpid(), "names": sorted(os.environ), "key": os.environ.get(KEY)})
    return {"content": [{"type": "text", "text": text}]}


def main() -> None:
    """Answer every line."""
    mode = sys.argv[1]
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if mode == "dead":
        raise SystemExit(1)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        if message["method"] == "tools/call":
            misbehave(mode)
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result(message)}), flush=True)
        if mode == "tires" and message["method"] == "tools/call":
            return
    if mode == "stubborn":
        threading.Event().wait()


def misbehave(mode: str) -> None:
    """What is done before a call is answered."""
    if mode == "dies":
        raise SystemExit(1)
    if mode == "hangs":
        threading.Event().wait()
    if mode == "babbles":
        print("Starting up...\n{nope\n[1]", flush=True)
    if mode == "floods":
        while True:
            sys.stdout.write("x" * 1_000_000)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
