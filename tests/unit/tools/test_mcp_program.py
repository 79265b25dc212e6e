"""MCP servers that are programs of the operator's: what they are given, how they end, and how they go wrong."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from antiphon.cli.main import cli
from antiphon.settings import Settings
from antiphon.tool_settings import McpServerConfig
from antiphon.tools.mcp.program import bound
from antiphon.tools.mcp.provider import McpProvider
from support.mcp_use import Use, use
from support.server import wait_until

requirement = pytest.mark.requirement

PROGRAM = str(Path(__file__).parents[2] / "support" / "mcp_program.py")


@asynccontextmanager
async def programs(mode: str, command: str = sys.executable) -> AsyncIterator[Callable[[], Awaitable[Use]]]:
    """The tools of a program that misbehaves so, for each response anew."""
    table = McpServerConfig(
        label="program",
        command=command,
        args=("-I", PROGRAM, mode),
        env={"PROGRAM_KEY": "OUR_KEY"},
        require_approval="never",
        timeout=0.5,
    )
    provider = McpProvider(Settings(mcp_servers=(table,)), environment={"OUR_KEY": "key-7654321"})
    try:
        yield lambda: use(provider, {"type": "mcp", "server_label": "program"})
    finally:
        await provider.close()


def told(item: dict[str, Any]) -> dict[str, Any]:
    assert item["status"] == "completed", item
    return json.loads(item["output"])


@requirement("mcp:program")
async def test_a_program_runs_once_for_many_calls_and_ends_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_API_KEY", "not for programs")
    async with programs("sound") as open_tools:
        first = await open_tools()
        second = await open_tools()
        answers = [told(await found.call("variables", "{}")) for found in (first, second, first)]
        assert len({answer["pid"] for answer in answers}) == 1
        # It has its key, which does not come back in what it says, and nothing else of the server's.
        assert answers[0]["key"] == "<redacted>"
        assert "PROGRAM_KEY" in answers[0]["names"]
        assert not [name for name in answers[0]["names"] if name.startswith(("ANTIPHON", "OUR_"))]
        pid = answers[0]["pid"]
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)


@requirement("mcp:program")
async def test_a_program_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.tools.mcp.program.ENDING_SECONDS", 0.1)
    async with programs("stubborn") as open_tools:
        pid = told(await (await open_tools()).call("variables", "{}"))["pid"]
    assert not psutil.pid_exists(pid)


@requirement("mcp:program:hostile")
@pytest.mark.parametrize(("mode", "code"), [("dies", -32000), ("hangs", -32001), ("floods", -32000)])
async def test_a_program_that_goes_wrong_fails_its_call_and_is_begun_anew(
    mode: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.tools.mcp.program.ENDING_SECONDS", 0.1)
    async with programs(mode) as open_tools:
        found = await open_tools()
        for _ in range(1 if mode == "hangs" else 2):
            async with asyncio.timeout(20):
                done = await found.call("variables", "{}")
            assert (done["status"], done["error"]["type"], done["error"]["code"]) == (
                "failed",
                "mcp_protocol_error",
                code,
            )
    assert not [child for child in psutil.Process().children() if PROGRAM in child.cmdline()]


@requirement("mcp:program")
async def test_a_program_that_ended_between_two_calls_is_begun_anew() -> None:
    async with programs("tires") as open_tools:
        found = await open_tools()
        first = told(await found.call("variables", "{}"))["pid"]
        async with asyncio.timeout(10):
            while psutil.pid_exists(first) and psutil.Process(first).status() != psutil.STATUS_ZOMBIE:
                await asyncio.sleep(0.005)
            for _ in range(10):
                # The end of its output, too, is seen.
                await asyncio.sleep(0)
        assert told(await found.call("variables", "{}"))["pid"] != first


@requirement("mcp:program")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is what binds them")
def test_a_program_ends_with_a_server_that_is_killed() -> None:
    # One that heeds nothing but a signal, under a parent that dies of another.
    command = [*bound(), sys.executable, "-I", "-c", "import signal; print('up', flush=True); signal.pause()"]
    parent = (
        f"import subprocess, signal; child = subprocess.Popen({command!r}, stdout=subprocess.PIPE);"
        "child.stdout.readline(); print(child.pid, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        child = psutil.Process(int(server.stdout.readline()))
        server.kill()
        server.wait()
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


@requirement("mcp:program:hostile")
async def test_lines_that_are_no_messages_are_passed_over() -> None:
    async with programs("babbles") as open_tools:
        assert told(await (await open_tools()).call("variables", "{}"))["pid"]


@requirement("mcp:program:hostile")
@pytest.mark.parametrize("command", [sys.executable, "/nowhere/at/all"])
async def test_a_program_that_does_not_start_is_an_error_of_its_list(command: str) -> None:
    async with programs("dead", command) as open_tools:
        (item,) = (await open_tools()).items
    assert item["tools"] == []
    assert item["error"]
    assert "nowhere" not in item["error"]


@requirement("mcp:doctor")
def test_doctor_says_what_the_servers_of_the_operator_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = "".join(
        f'[[mcp_servers]]\nlabel = "{mode}"\ncommand = "{sys.executable}"\nargs = ["-I", "{PROGRAM}", "{mode}"]\n'
        for mode in ("sound", "dead")
    )
    config = tmp_path / "antiphon.toml"
    config.write_text(f'model = "scripted"\nstore = "memory"\nport = 0\nweb_search = "brave"\n{tables}')
    monkeypatch.setenv("ANTIPHON_WEB_SEARCH_KEY", "key-7654321")
    told = CliRunner().invoke(cli, ["doctor", "--config", str(config)], catch_exceptions=False)
    assert "sound has 1 tools" in told.stdout
    assert re.search("warn  mcp +dead: The connection to the server ended", told.stdout)
    assert "web_search asks brave" in told.stdout
    assert not [secret for secret in ("key-7654321", PROGRAM) if secret in told.stdout]
    config.write_text('model = "scripted"\nstore = "memory"\nport = 0\nweb_search = "searxng"\n')
    assert "--web-search-url" in CliRunner().invoke(cli, ["doctor", "--config", str(config)]).stdout
