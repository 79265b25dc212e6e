"""The guide of MCP servers: its configuration is read, its program runs, and its approval goes through."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec
import pytest

from antiphon.settings import Settings, load_settings
from antiphon.tool_settings import McpServerConfig
from support.inprocess import inprocess_app

pytest.importorskip("mcp")

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "mcp.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    return found


@pytest.mark.requirement("mcp:guide")
async def test_the_program_of_the_guide_runs_and_its_call_is_approved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.py").write_text(block("py"))
    (tmp_path / "antiphon.toml").write_text(block("toml"))
    monkeypatch.setenv("TICKETS_AUTHORIZATION", "Bearer secret")
    settings: Settings = load_settings(environment={}, config=tmp_path / "antiphon.toml")
    notes, tickets = settings.mcp_servers
    assert tickets.allowed_tools == ("find", "show")
    here = msgspec.structs.replace(notes, command=sys.executable, args=(str(tmp_path / "notes.py"),))
    async with inprocess_app(settings=msgspec.structs.replace(settings, mcp_servers=(here, tickets))) as api:
        tools = [{"type": "mcp", "server_label": "notes"}]
        asked = '!CALL remember {"text": "milk"}\n!THEN\n!TEXT Remembered.'
        first = await api.create(asked, tools=tools)
        request = first["output"][-1]
        assert request["type"] == "mcp_approval_request", first["output"]
        granted = [{"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}]
        second = await api.create(granted, tools=tools, previous_response_id=first["id"])
    assert [item["output"] for item in second["output"] if item["type"] == "mcp_call"] == ["1 remembered"]
    assert second["output_text"] == "Remembered."


@pytest.mark.requirement("mcp:guide")
def test_the_guide_tells_every_field_of_a_table() -> None:
    table = GUIDE[GUIDE.index("## Servers of the operator") :]
    told = set(re.findall(r"`([a-z_]+)`", table))
    assert {field.name for field in msgspec.structs.fields(McpServerConfig)} <= told
