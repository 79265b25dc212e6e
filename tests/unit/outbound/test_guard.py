"""What the guarded client refuses to ask: nothing of it reaches the network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from ipaddress import ip_address
from typing import Any

import pytest

from antiphon.errors import ConfigurationError, OutboundError, OutboundRefusedError
from antiphon.outbound.addresses import AddressPolicy, is_public
from antiphon.outbound.client import OutboundClient
from support.denied import DENIED_NAMES, DENIED_URLS, Names
from support.receiver import Receiver, addresses_dialled, receiver


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    return addresses_dialled(monkeypatch)


@pytest.fixture
async def listener() -> AsyncIterator[Receiver]:
    """What must see nothing of a request that is denied: all addresses of version 4 of this machine."""
    async with receiver("0.0.0.0") as found:
        yield found


@pytest.mark.requirement("outbound:denied")
@pytest.mark.parametrize("url", DENIED_URLS.values(), ids=DENIED_URLS.keys())
async def test_a_denied_url_is_refused_before_a_packet_is_sent(
    url: str, listener: Receiver, dialled: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    names = Names(["127.0.0.1"])
    client = OutboundClient(lookup=names)
    try:
        with pytest.raises(OutboundRefusedError):
            await client.request("POST", url.replace("PORT", str(listener.port)), seconds=5, body=b"{}")
    finally:
        await client.close()
    assert (listener.connections, dialled, names.asked) == (0, [], [])


@pytest.mark.requirement("outbound:denied")
@pytest.mark.parametrize("host", DENIED_NAMES)
async def test_a_name_that_stands_for_a_denied_address_is_refused(
    host: str, listener: Receiver, dialled: list[Any]
) -> None:
    names = Names(DENIED_NAMES[host])
    client = OutboundClient(lookup=names)
    try:
        with pytest.raises(OutboundRefusedError) as caught:
            await client.request("GET", f"http://{host}:{listener.port}/", seconds=5)
    finally:
        await client.close()
    assert (listener.connections, dialled, len(names.asked)) == (0, [], 1)
    assert not any(address in str(caught.value) for address in DENIED_NAMES[host])


@pytest.mark.requirement("outbound:denied")
async def test_the_table_is_long_enough() -> None:
    assert len(DENIED_URLS) + len(DENIED_NAMES) >= 60


@pytest.mark.requirement("outbound:denied")
async def test_the_real_name_service_is_vetted_too(listener: Receiver, dialled: list[Any]) -> None:
    client = OutboundClient()
    with pytest.raises(OutboundRefusedError):
        await client.request("GET", f"http://localhost:{listener.port}/", seconds=5)
    await client.close()
    assert (listener.connections, dialled) == (0, [])


@pytest.mark.requirement("outbound:denied")
@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "172.15.0.1", "172.32.0.1", "2606:4700::1111", "2a00::1"])
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(ip_address(address))
    assert AddressPolicy().permits("public.example", address)


@pytest.mark.requirement("outbound:allowed")
@pytest.mark.parametrize(
    ("allow", "host", "addresses"),
    [
        ("127.0.0.1", "127.0.0.1", None),
        ("127.0.0.0/8", "127.0.0.1", None),
        ("127.0.0.0/8", "some.example", ["127.0.0.1"]),
        ("some.example", "some.example", ["127.0.0.1"]),
        ("Some.Example.", "SOME.example", ["127.0.0.1"]),
        ("localhost", "localhost", ["127.0.0.1"]),
    ],
)
async def test_what_is_named_may_be_asked(
    allow: str, host: str, addresses: Sequence[str] | None, listener: Receiver
) -> None:
    names = Names(addresses or [])
    client = OutboundClient([allow], lookup=names)
    answer = await client.request("POST", f"http://{host}:{listener.port}/a?b=c", seconds=5, body=b"{}")
    await client.close()
    assert (answer.status, listener.connections) == (200, 1)
    (asked,) = listener.requests
    assert (asked.method, asked.path, asked.body) == ("POST", "/a?b=c", b"{}")
    assert asked.headers["host"].lower() == f"{host.lower()}:{listener.port}"


@pytest.mark.requirement("outbound:allowed")
@pytest.mark.parametrize(
    ("allow", "host", "addresses"),
    [
        ("127.0.0.2", "127.0.0.1", None),
        ("10.0.0.0/8", "127.0.0.1", None),
        ("localhost", "127.0.0.1", None),
        ("some.example", "other.some.example", ["127.0.0.1"]),
        ("some.example", "some.example.evil.example", ["127.0.0.1"]),
        ("127.0.0.1", "[::ffff:127.0.0.1]", None),
        ("127.0.0.1", "mixed.example", ["127.0.0.1", "10.0.0.1"]),
    ],
)
async def test_what_is_named_opens_nothing_else(
    allow: str, host: str, addresses: Sequence[str] | None, listener: Receiver, dialled: list[Any]
) -> None:
    client = OutboundClient([allow], lookup=Names(addresses or []))
    with pytest.raises(OutboundRefusedError):
        await client.request("GET", f"http://{host}:{listener.port}/", seconds=5)
    await client.close()
    assert (listener.connections, dialled) == (0, [])


@pytest.mark.requirement("outbound:allowed")
@pytest.mark.parametrize(
    "entry", ["", "http://a.example", "10.0.0.0/33", "10.1.2.3/8", "300.1.1.1", "a b", "*", "ä.de"]
)
def test_an_entry_that_cannot_be_used_is_named(entry: str) -> None:
    with pytest.raises(ConfigurationError, match="--allow-outbound"):
        AddressPolicy([entry])


@pytest.mark.requirement("outbound:rebinding")
async def test_the_vetted_address_is_the_one_that_is_asked(dialled: list[Any]) -> None:
    async with receiver("127.0.0.1") as inner, receiver("127.0.0.2", inner.port) as outer:
        names = Names(["127.0.0.2"], ["127.0.0.1"])
        client = OutboundClient(["127.0.0.2"], lookup=names)
        url = f"http://rebinding.example:{outer.port}/"
        assert (await client.request("GET", url, seconds=5)).status == 200
        with pytest.raises(OutboundRefusedError):
            await client.request("GET", url, seconds=5)
        await client.close()
    assert (outer.connections, inner.connections, len(names.asked)) == (1, 0, 2)
    assert dialled == [("127.0.0.2", outer.port)]


@pytest.mark.requirement("outbound:denied")
async def test_a_name_without_an_address_is_an_error() -> None:
    client = OutboundClient(lookup=Names())
    with pytest.raises(OutboundError, match="reached"):
        await client.request("GET", "http://nowhere.example/", seconds=5)
    await client.close()
