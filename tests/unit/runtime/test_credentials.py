"""Credentials of MCP servers: shown nowhere, and kept sealed only as long as a background response may need them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.protocol.request import decode_create_response
from antiphon.runtime.codec import Codec
from antiphon.runtime.credentials import revealed, veiled
from support.inprocess import inprocess_app
from support.stores import OURS, THEIRS

requirement = pytest.mark.requirement

SECRETS = ("tok-authorization-1", "tok-header-2", "tok-query-3")
ENTRY: dict[str, Any] = {
    "type": "mcp",
    "server_label": "deep",
    "server_url": f"https://mcp.example/mcp?key={SECRETS[2]}",
    "authorization": SECRETS[0],
    "headers": {"X-Key": SECRETS[1]},
    "require_approval": "never",
}
BODY = {
    "model": "scripted",
    "input": "hello",
    "background": True,
    "tools": [{"type": "function", "name": "f", "parameters": {}}, ENTRY],
}


@requirement("mcp:secrets:stored")
async def test_what_is_kept_of_a_request_opens_for_its_tenant_only() -> None:
    codec = Codec(None)
    await codec.load()
    sent = msgspec.json.encode(BODY)
    kept = veiled(codec, OURS, sent, decode_create_response(sent))
    assert not any(secret.encode() in kept for secret in SECRETS)
    assert msgspec.json.decode(await revealed(codec, OURS, kept)) == BODY
    foreign = msgspec.json.decode(await revealed(codec, THEIRS, kept))
    assert foreign["tools"][1] == {
        "type": "mcp",
        "server_label": "deep",
        "server_url": "https://mcp.example/mcp?<redacted>",
        "headers": None,
        "require_approval": "never",
    }
    without = msgspec.json.encode({"model": "m", "tools": [{"type": "mcp", "server_label": "x"}]})
    assert veiled(codec, OURS, without, decode_create_response(without)) is without
    assert await revealed(codec, OURS, without) is without


@requirement("mcp:secrets:echo", "mcp:secrets:stored")
@pytest.mark.parametrize("background", [False, True])
async def test_no_secret_of_an_entry_is_told_or_kept(
    background: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    async with inprocess_app(store="sqlite", tmp_path=tmp_path) as api:
        # The URL is of no host that may be asked here.
        entry = ENTRY | {"server_url": f"https://127.0.0.1:9/mcp?key={SECRETS[2]}"}
        events = await api.stream("!COUNT 3", tools=[entry], background=background)
        told = msgspec.json.encode(events).decode()
        echoed = events[0]["response"]["tools"]
        assert echoed[0]["headers"] is None
        assert echoed[0]["server_url"].endswith("?<redacted>")
        assert "authorization" not in echoed[0]
        found = (await api.client.get(f"/responses/{events[-1]['response']['id']}")).text
        kept = b"".join([file.read_bytes() for file in await asyncio.to_thread(list, tmp_path.iterdir())])
    printed = capsys.readouterr()
    for secret in SECRETS:
        assert secret not in told + found + caplog.text + printed.out + printed.err
        assert secret.encode() not in kept


@requirement("mcp:secrets:items")
async def test_an_item_that_would_keep_credentials_is_refused() -> None:
    async with inprocess_app() as api:
        item = {"type": "additional_tools", "role": "developer", "tools": [ENTRY]}
        error = await api.refused(400, [item, {"role": "user", "content": "hello"}])
    assert error["param"] == "input[0].tools[0]"
    assert "kept" in error["message"]
