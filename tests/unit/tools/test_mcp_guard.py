"""Where MCP servers of requests may be: nothing else of the network is reached, whatever they are called."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from antiphon.settings import Settings
from antiphon.tools.mcp.provider import McpProvider
from support.denied import DENIED_NAMES, DENIED_URLS, Names
from support.mcp_stub import Request, answer, mcp_stub
from support.mcp_use import entry, use
from support.receiver import Receiver, addresses_dialled, receiver

requirement = pytest.mark.requirement

pytest.importorskip("mcp")


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    return addresses_dialled(monkeypatch)


@pytest.fixture
async def listener() -> AsyncIterator[Receiver]:
    """What must see nothing: all addresses of version 4 of this machine."""
    async with receiver("0.0.0.0") as found:
        yield found


async def listed(url: str, *allow: str, names: Names | None = None) -> dict[str, Any]:
    """The list item of a server."""
    provider = McpProvider(Settings(), allow, lookup=names or Names(["127.0.0.1"]))
    found = await use(provider, entry(url, authorization="secret-token"))
    await provider.close()
    return found.items[0]


@requirement("mcp:guard")
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_no_denied_url_is_asked(scheme: str, listener: Receiver, dialled: list[Any]) -> None:
    for label, url in DENIED_URLS.items():
        item = await listed(url.replace("http", scheme, 1).replace("PORT", str(listener.port)))
        # An empty one is none, and names a server of the operator.
        assert item["error"], label
        assert item["tools"] == [], label
    assert (listener.connections, dialled) == (0, [])


@requirement("mcp:guard")
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_no_name_of_a_denied_address_is_asked(scheme: str, listener: Receiver, dialled: list[Any]) -> None:
    for host, addresses in DENIED_NAMES.items():
        names = Names(*[addresses] * 8)
        item = await listed(f"{scheme}://{host}:{listener.port}/mcp", names=names)
        assert item["error"], host
        assert not any(address in item["error"] for address in addresses), host
        assert names.asked, host
    assert (listener.connections, dialled) == (0, [])


@requirement("mcp:guard:plain")
async def test_without_https_only_what_the_operator_named_is_asked(dialled: list[Any]) -> None:
    for url in ("http://public.example/mcp", "http://93.184.216.34/mcp"):
        item = await listed(url, names=Names(*[["93.184.216.34"]] * 8))
        assert "allow-outbound" in item["error"]
    assert dialled == []


@requirement("mcp:guard:redirects")
@pytest.mark.parametrize("method", ["initialize", "tools/list"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_leads_out_of_the_origin(method: str, status: int) -> None:
    async with mcp_stub() as stub, receiver("127.0.0.2") as other:

        async def redirects(request: Request) -> bytes:
            return answer(status, b"", f"location: http://127.0.0.2:{other.port}/mcp")

        stub.behaviours[method] = redirects
        item = await listed(stub.url, "127.0.0.1", "127.0.0.2")
        assert "redirects" in item["error"]
        assert other.connections == 0


@requirement("mcp:guard:redirects")
async def test_a_redirect_within_the_origin_is_followed() -> None:
    async with mcp_stub() as stub:
        stub.moved["/begin"] = "/mcp"
        item = await listed(stub.url.replace("/mcp", "/begin"), "127.0.0.1")
        assert "error" not in item
        assert {request.path for request in stub.asked} == {"/begin", "/mcp"}
        assert {request.headers["authorization"] for request in stub.asked} == {"Bearer secret-token"}


@requirement("mcp:guard:rebinding")
async def test_a_name_that_changes_its_address_gains_nothing(dialled: list[Any]) -> None:
    async with mcp_stub() as stub, receiver("127.0.0.2", stub.port) as inner:
        names = Names(["127.0.0.1"], *[["127.0.0.2"]] * 8)
        item = await listed(f"http://rebinding.example:{stub.port}/mcp", "127.0.0.1", names=names)
        assert item["error"]
        assert (stub.connections, inner.connections) == (1, 0)
        assert {address[0] for address in dialled} == {"127.0.0.1"}


@requirement("mcp:guard")
@pytest.mark.parametrize("endpoint", ["http://127.0.0.2:PORT/post", "//127.0.0.2:PORT/post", "https://127.0.0.1:PORT/"])
async def test_an_sse_server_leads_to_no_other(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The library waits for ever for another word.
    monkeypatch.setattr("antiphon.tools.mcp.link.CONNECT_SECONDS", 0.1)
    async with mcp_stub() as stub, receiver("127.0.0.2", stub.port) as other:
        told = endpoint.replace("PORT", str(stub.port))

        async def opens(request: Request) -> bytes:
            return answer(200, f"event: endpoint\ndata: {told}\n\n".encode(), content_type="text/event-stream")

        stub.behaviours["GET"] = opens
        item = await listed(stub.url.replace("/mcp", "/sse"), "127.0.0.1", "127.0.0.2")
        assert item["error"]
        assert other.connections == 0
