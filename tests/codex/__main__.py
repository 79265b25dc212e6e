"""`python -m tests.codex`: real runs of the Codex CLI, one line each; the exit code is 1 where one fails."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from tests.support.server import running_server

HERE = Path(__file__).parent
CODEX = HERE / "node_modules" / ".bin" / "codex"
SECONDS = 90
LONG = '!CALL exec_command {"cmd": "seq 1 4000"}'
MADE = '!CALL exec_command {"cmd": "echo made > made.txt"}'

CONFIG = """
model = "scripted"
model_provider = "local"
check_for_update_on_startup = false
[model_providers.local]
name = "{name}"
base_url = "{url}"
wire_api = "responses"
env_key = "LOCAL_KEY"
request_max_retries = 1
stream_max_retries = 1
stream_idle_timeout_ms = 20000
supports_websockets = {websockets}
"""


@dataclass
class Codex:
    """One home and one folder of the CLI, and what its runs said."""

    url: str
    folder: Path
    name: str = "local"
    websockets: bool = False
    items: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def run(self, words: str, *arguments: str) -> None:
        """`codex exec`, with these words at the end."""
        home, work = self.folder / "home", self.folder / "work"
        for made in (home, work):
            made.mkdir(exist_ok=True)
        config = CONFIG.format(name=self.name, url=self.url, websockets="true" if self.websockets else "false")
        (home / "config.toml").write_text(config)
        command = [str(CODEX), "exec", *_first(arguments), "--skip-git-repo-check"]
        command += ["--dangerously-bypass-approvals-and-sandbox", "--json", *_rest(arguments), words]
        done = subprocess.run(
            command,
            cwd=work,
            env={**os.environ, "CODEX_HOME": str(home), "LOCAL_KEY": "none"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        self.errors = [event["message"] for event in events if event["type"] == "error"]
        self.items = [event["item"] for event in events if event["type"] == "item.completed"]
        if done.returncode != 0:
            raise AssertionError(f"codex ended with {done.returncode}: {done.stdout[-800:]} {done.stderr[-800:]}")

    @property
    def said(self) -> str:
        """The last message of the agent."""
        return [item["text"] for item in self.items if item["type"] == "agent_message"][-1]

    @property
    def commands(self) -> int:
        """How many commands it ran."""
        return sum(item["type"] == "command_execution" for item in self.items)


def _first(arguments: tuple[str, ...]) -> tuple[str, ...]:
    return arguments[:1] if arguments[:1] == ("resume",) else ()


def _rest(arguments: tuple[str, ...]) -> tuple[str, ...]:
    return arguments[1:] if arguments[:1] == ("resume",) else arguments


def hello(codex: Codex) -> None:
    """A message."""
    codex.run("!TEXT hello from here")
    assert codex.said == "hello from here"


def tool_loop(codex: Codex) -> None:
    """A command is run, and its output comes back."""
    codex.run(MADE)
    assert (codex.folder / "work" / "made.txt").read_text() == "made\n"
    assert codex.said.startswith("FINAL: ")


def parallel_calls(codex: Codex) -> None:
    """Two calls in one turn, after some thinking."""
    codex.run('!REASON Let me see.\n!CALL exec_command {"cmd": "echo a"}\n!CALL exec_command {"cmd": "echo b"}')
    assert codex.commands == 2


def web_socket(codex: Codex) -> None:
    """The same over a WebSocket: a warm-up, and chained turns with `store: false`."""
    codex.websockets = True
    before = _requests(codex.url)
    codex.run(MADE)
    assert (codex.folder / "work" / "made.txt").read_text() == "made\n"
    assert _requests(codex.url)["GET"] > before["GET"], "no WebSocket was opened"
    assert _requests(codex.url)["POST"] == before["POST"], "it went over HTTP"


def local_compaction(codex: Codex) -> None:
    """A long thread is summed up by an ordinary request, and goes on."""
    codex.run(LONG)
    codex.run("!TEXT after local compaction", "resume", "--last", "-c", "model_auto_compact_token_limit=8000")
    assert codex.said == "after local compaction"


def remote_compaction(codex: Codex) -> None:
    """A provider named OpenAI is asked for a `compaction` item, and opens it again in the next turn."""
    codex.name = "OpenAI"
    codex.run(LONG)
    before = _requests(codex.url)["POST"]
    codex.run("!TEXT after remote compaction", "resume", "--last", "-c", "model_auto_compact_token_limit=8000")
    assert codex.said == "after remote compaction"
    assert _requests(codex.url)["POST"] >= before + 2, "nothing was compacted"


def failures(codex: Codex) -> None:
    """A failed response is told as one, and asked for again."""
    codex.run("!FAIL")
    assert any("The scripted engine failed" in message for message in codex.errors), codex.errors
    assert codex.said == "Hello from scripted."


FLOWS: tuple[Callable[[Codex], None], ...] = (
    hello,
    tool_loop,
    parallel_calls,
    web_socket,
    local_compaction,
    remote_compaction,
    failures,
)


def _requests(url: str) -> dict[str, float]:
    """How many requests to /responses the server has had, by method."""
    text = httpx2.get(url.removesuffix("/v1") + "/metrics").text
    found = {"GET": 0.0, "POST": 0.0}
    for line in text.splitlines():
        for method in found:
            if line.startswith(f'http_requests_total{{handler="/responses",method="{method}"'):
                found[method] += float(line.rsplit(" ", 1)[1])
    return found


def main() -> int:
    """Run every flow."""
    if not CODEX.exists():
        print("The Codex CLI is not installed: run `make codex`.")
        return 1
    failed = 0
    store = "memory" if len(sys.argv) < 2 else sys.argv[1]
    with running_server(["--model", "scripted", "--store", store]) as server:
        for flow in FLOWS:
            folder = Path(tempfile.mkdtemp(prefix="antiphon-codex-"))
            try:
                flow(Codex(server.base_url, folder))
                print("ok    ", flow.__name__, flush=True)
            except (AssertionError, subprocess.TimeoutExpired, IndexError, OSError) as error:
                failed += 1
                print("FAILED", flow.__name__, str(error)[:2000], flush=True)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
