"""MCP servers that mean harm or are broken: each fault is a failed item, in time and within bounds, and no more."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from antiphon.settings import Settings
from antiphon.tools.mcp.provider import McpProvider
from support.mcp_stub import Behaviour, McpStub, Request, answer, mcp_stub, result, sse, tool
from support.mcp_use import entry, use

requirement = pytest.mark.requirement

pytest.importorskip("mcp")

EVENTS = "text/event-stream"


@pytest.fixture
async def stub() -> AsyncIterator[McpStub]:
    async with mcp_stub() as found:
        yield found


@pytest.fixture
async def provider() -> AsyncIterator[McpProvider]:
    """One that waits for a call not long."""
    found = McpProvider(Settings(mcp_timeout=0.4), ["127.0.0.1"])
    yield found
    await found.close()


def says(*args: Any, **fields: Any) -> Behaviour:
    """The same answer always."""

    async def behave(request: Request) -> bytes:
        return answer(*args, **fields)

    return behave


def gives(value: Any, how: Callable[[Request, Any], bytes] = result) -> Behaviour:
    """The same result always."""

    async def behave(request: Request) -> bytes:
        return how(request, value)

    return behave


def writes(*pieces: bytes) -> Behaviour:
    """Bytes as they are, and then the end of the connection."""

    async def behave(request: Request) -> None:
        for piece in pieces:
            await request.send(piece)

    return behave


class Silent:
    """Never answers; `release` ends it with its test."""

    def __init__(self, stub: McpStub, head: bytes = b"", drip: bytes = b"") -> None:
        self.stub = stub
        self.head = head
        self.drip = drip

    async def __call__(self, request: Request) -> None:
        await request.send(self.head)
        while not self.stub.release.is_set():
            try:
                await asyncio.wait_for(self.stub.release.wait(), 0.01 if self.drip else None)
            except TimeoutError:
                await request.send(self.drip)


class Endless:
    """Sends without end, and counts what was taken."""

    def __init__(self, head: bytes, piece: bytes) -> None:
        self.head = head
        self.piece = piece
        self.sent = 0

    async def __call__(self, request: Request) -> None:
        await request.send(self.head)
        while self.sent < 100_000_000:
            await request.send(self.piece)
            self.sent += len(self.piece)


def head(content_type: str, *more: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"content-type: {content_type}", "connection: close", *more]
    return "\r\n".join([*lines, "", ""]).encode()


DRIP = b": still here\n\n"
EMPTY = {"content": [{"type": "text", "text": "x"}]}
FAULTS: dict[str, tuple[Callable[[McpStub], Behaviour], str, int | None]] = {
    "hang": (Silent, "mcp_protocol_error", -32001),
    "slow drip of events": (lambda stub: Silent(stub, head(EVENTS), DRIP), "mcp_protocol_error", -32001),
    "500": (lambda _: says(500, b"Traceback"), "http_error", 500),
    "401": (lambda _: says(401, b"{}"), "http_error", 401),
    "403 as a page": (lambda _: says(403, b"<html>", content_type="text/html"), "http_error", 403),
    "429": (lambda _: says(429), "http_error", 429),
    "a redirect elsewhere": (lambda _: says(307, b"", "location: http://127.0.0.2/mcp"), "http_error", 307),
    "an endless redirect": (lambda stub: says(308, b"", f"location: {stub.url}"), "http_error", 308),
    "no JSON": (lambda _: says(200, b"{nope"), "mcp_protocol_error", -32700),
    "no UTF-8": (lambda _: says(200, b'{"jsonrpc":"\xff"}'), "mcp_protocol_error", -32700),
    "JSON, not JSON-RPC": (lambda _: says(200, b"[1,2]"), "mcp_protocol_error", -32700),
    "deep JSON": (lambda _: says(200, b"[" * 200_000), "mcp_protocol_error", -32700),
    "a page": (lambda _: says(200, b"<html>", content_type="text/html"), "mcp_protocol_error", -32600),
    "accepted": (lambda _: says(202), "mcp_protocol_error", -32600),
    "nothing": (lambda _: says(200), "mcp_protocol_error", -32700),
    "events that end": (lambda _: says(200, b": bye\n\n", content_type=EVENTS), "mcp_protocol_error", -32000),
    "events that end again and again": (
        lambda _: says(200, b"id: 1\nretry: 0\ndata:\n\n", content_type=EVENTS),
        "mcp_protocol_error",
        -32000,
    ),
    "half a character": (
        lambda _: says(200, b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"\\ud800"}]}}'),
        "mcp_protocol_error",
        -32700,
    ),
    "an event that is no JSON": (
        lambda _: says(200, b"data: {nope\n\n", content_type=EVENTS),
        "mcp_protocol_error",
        -32700,
    ),
    "the answer to another": (
        lambda _: says(200, json.dumps({"jsonrpc": "2.0", "id": "other", "result": EMPTY}).encode()),
        "mcp_protocol_error",
        -32001,
    ),
    "wrong types": (lambda _: gives({"content": "text", "tools": "none"}), "mcp_protocol_error", -32700),
    "wrong types within": (
        lambda _: gives({"content": [{"type": "text", "text": 5}], "tools": [{"name": 5}]}),
        "mcp_protocol_error",
        -32700,
    ),
    "no object": (lambda _: gives("result"), "mcp_protocol_error", -32700),
    "compressed": (
        lambda _: says(200, zlib.compress(b"0" * 1_000_000), "content-encoding: deflate"),
        "mcp_protocol_error",
        -32000,
    ),
    "death at once": (lambda _: writes(), "mcp_protocol_error", -32000),
    "death in the head": (lambda _: writes(b"HTTP/1.1 200 OK\r\ncont"), "mcp_protocol_error", -32000),
    "death in the body": (
        lambda _: writes(head("application/json", "content-length: 1000"), b'{"jsonrpc"'),
        "mcp_protocol_error",
        -32000,
    ),
    "death in an event": (
        lambda _: writes(head(EVENTS, "transfer-encoding: chunked"), b"7\r\ndata: {\r\n"),
        "mcp_protocol_error",
        -32000,
    ),
    "no HTTP": (lambda _: writes(b"220 mail.example ESMTP\r\n"), "mcp_protocol_error", -32000),
}


def error_of(item: dict[str, Any]) -> tuple[str, int | None]:
    return item["error"]["type"], item["error"].get("code")


@requirement("mcp:hostile:call")
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_call_that_goes_wrong_is_a_failed_item(fault: str, stub: McpStub, provider: McpProvider) -> None:
    make, kind, code = FAULTS[fault]
    found = await use(provider, entry(stub.url))
    stub.behaviours["tools/call"] = stub.behaviours["GET"] = make(stub)
    async with asyncio.timeout(10):
        done = await found.call("echo")
    assert (done["status"], done["output"], *error_of(done)) == ("failed", None, kind, code)
    assert "127.0.0." not in done["error"]["message"]
    assert len([request for request in stub.asked if request.method == "GET"]) <= 3
    stub.behaviours.clear()
    # It goes on, and what failed was not sent again.
    assert (await found.call("echo"))["output"] == '{"text": "hello"}'
    assert stub.methods().count("tools/call") in (2, 22)


LATE = [fault for fault, (_, _, code) in FAULTS.items() if code == -32001]
WAITED = [("initialize", "slow drip of events"), ("tools/list", "hang")]


@requirement("mcp:hostile:list")
@pytest.mark.parametrize(
    ("method", "fault"),
    [*WAITED, *((method, fault) for method in ("initialize", "tools/list") for fault in FAULTS if fault not in LATE)],
)
async def test_a_list_that_goes_wrong_says_so(
    method: str, fault: str, stub: McpStub, provider: McpProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.behaviours[method] = FAULTS[fault][0](stub)
    with monkeypatch.context() as soon:
        if fault in LATE:
            soon.setattr("antiphon.tools.mcp.link.CONNECT_SECONDS", 0.2)
            soon.setattr("antiphon.tools.mcp.link.LIST_SECONDS", 0.2)
        async with asyncio.timeout(10):
            found = await use(provider, entry(stub.url))
    (item,) = found.items
    assert (item["type"], item["server_label"], item["tools"], found.tools) == ("mcp_list_tools", "stub", [], {})
    assert item["error"]
    assert "127.0.0." not in item["error"]
    del stub.behaviours[method]
    assert "error" not in (await use(provider, entry(stub.url))).items[0]


@requirement("mcp:hostile:bounds")
@pytest.mark.parametrize(
    ("content_type", "start", "piece"),
    [
        ("application/json", b'{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"', b"x" * 65_536),
        (EVENTS, b"data: ", b"x" * 65_536),
        (EVENTS, b"", b": nothing but a comment, and another one\n\n" * 1_000),
    ],
    ids=["JSON", "one event", "comments"],
)
async def test_a_result_of_100_mb_is_cut_off_while_it_comes(
    content_type: str, start: bytes, piece: bytes, stub: McpStub
) -> None:
    provider = McpProvider(Settings(mcp_timeout=30), ["127.0.0.1"])
    found = await use(provider, entry(stub.url))
    endless = Endless(head(content_type) + start, piece)
    stub.behaviours["tools/call"] = endless
    async with asyncio.timeout(30):
        done = await found.call("echo")
    assert (done["status"], done["output"]) == ("failed", None)
    assert done["error"]["type"] == "mcp_protocol_error"
    assert endless.sent < 30_000_000
    await provider.close()


@requirement("mcp:hostile:bounds")
@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ([tool(f"tool_{index}") for index in range(10_000)], "more than 1024 tools"),
        ([{**tool("huge"), "inputSchema": {"type": "object", "enum": ["x" * 1_000] * 70}}], "more than 65536 bytes"),
        ([tool(f"t{index}", "x" * 16_000) for index in range(200)], "more than 2097152 bytes"),
        ([tool("long", "x" * 16_385)], "too long"),
        ([tool("x" * 129)], "too long"),
        ([tool("")], "too long"),
        ([tool("twice"), tool("twice")], "two tools by one name"),
    ],
    ids=["10,000 tools", "a huge schema", "a huge list", "a long description", "a long name", "no name", "two names"],
)
async def test_a_list_beyond_its_bounds_is_an_error(tools: list[dict[str, Any]], words: str, stub: McpStub) -> None:
    provider = McpProvider(Settings(), ["127.0.0.1"])
    stub.tools = tools
    found = await use(provider, entry(stub.url))
    assert found.tools == {}
    assert words in found.items[0]["error"]
    await provider.close()


@requirement("mcp:hostile:bounds")
async def test_a_schema_of_any_depth_is_an_error(stub: McpStub) -> None:
    provider = McpProvider(Settings(), ["127.0.0.1"])
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(200):
        schema = {"type": "object", "properties": {"a": schema}}
    stub.tools = [{"name": "deep", "inputSchema": schema}]
    assert (await use(provider, entry(stub.url))).items[0]["error"]
    await provider.close()


@requirement("mcp:hostile:bounds")
async def test_a_list_without_end_is_an_error(stub: McpStub) -> None:
    provider = McpProvider(Settings(), ["127.0.0.1"])

    async def listed(request: Request) -> bytes:
        return sse(request, {"tools": [], "nextCursor": "more"})

    stub.behaviours["tools/list"] = listed
    found = await use(provider, entry(stub.url))
    assert "more than 64 pages" in found.items[0]["error"]
    assert stub.methods().count("tools/list") == 64
    await provider.close()


@requirement("mcp:hostile:one")
async def test_a_server_that_fails_takes_no_other_with_it(
    stub: McpStub, provider: McpProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.tools.mcp.link.CONNECT_SECONDS", 0.2)
    async with mcp_stub() as broken:
        broken.behaviours["initialize"] = Silent(broken)
        await use(provider, entry(stub.url, server_label="sound"))
        found = await use(provider, entry(broken.url, server_label="broken"), entry(stub.url, server_label="sound"))
        assert ["error" in item for item in found.items] == [True, False]
        assert (await found.call("echo"))["status"] == "completed"


@requirement("mcp:hostile:one")
async def test_calls_that_run_beside_one_that_hangs_end(stub: McpStub, provider: McpProvider) -> None:
    found = await use(provider, entry(stub.url))
    silent = Silent(stub)

    async def called(request: Request) -> bytes | None:
        if request.message["params"]["name"] == "echo":
            await silent(request)
            return None
        return result(request, EMPTY)

    stub.behaviours["tools/call"] = called
    async with asyncio.timeout(10):
        hung, *sound = await asyncio.gather(found.call("echo"), *(found.call("look") for _ in range(8)))
    assert hung["status"] == "failed"
    assert [item["status"] for item in sound] == ["completed"] * 8


@requirement("mcp:hostile:bounds")
async def test_a_server_that_asks_its_client_without_end_is_not_answered_without_end(
    stub: McpStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.tools.mcp.transport.MOST_ASKED", 20)
    provider = McpProvider(Settings(mcp_timeout=20), ["127.0.0.1"])
    found = await use(provider, entry(stub.url))

    async def asks(request: Request) -> bytes:
        asked = b'data: {"jsonrpc":"2.0","id":"%d","method":"ping"}\n\n'
        done = result(request, EMPTY).partition(b"\r\n\r\n")[2]
        body = b"".join(asked % number for number in range(60)) + b"data: " + done + b"\n\n"
        return answer(200, body, content_type=EVENTS)

    stub.behaviours["tools/call"] = asks
    before = stub.connections
    assert (await found.call("echo"))["status"] == "completed"
    await provider.close()
    assert stub.connections - before <= 25
