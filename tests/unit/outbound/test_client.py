"""How the guarded client asks: redirects, proxies, time, sizes, credentials and certificates."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from antiphon.errors import OutboundError, OutboundRefusedError
from antiphon.outbound.client import OutboundClient, OutboundResponse
from support.receiver import Receiver, receiver, reply


@pytest.fixture
async def first() -> AsyncIterator[Receiver]:
    async with receiver() as found:
        yield found


@pytest.fixture
async def second() -> AsyncIterator[Receiver]:
    async with receiver() as found:
        yield found


@pytest.fixture
async def client() -> AsyncIterator[OutboundClient]:
    found = OutboundClient(["127.0.0.1"])
    yield found
    await found.close()


def to(location: str, status: int = 302) -> bytes:
    return reply(status, b"", f"location: {location}")


async def get(client: OutboundClient, url: str, redirects: int = 3) -> OutboundResponse:
    return await client.request(
        "GET", url, seconds=5, headers={"authorization": "Bearer secret"}, max_bytes=100, redirects=redirects
    )


@pytest.mark.requirement("outbound:redirects")
async def test_a_redirect_is_an_answer(client: OutboundClient, first: Receiver, second: Receiver) -> None:
    first.answers = [to(f"{second.url}/"), to(f"{second.url}/")]
    assert (await get(client, first.url, redirects=0)).status == 302
    answer = await client.request("POST", first.url, seconds=5, body=b"{}", redirects=5)
    assert (answer.status, second.connections) == (302, 0)


@pytest.mark.requirement("outbound:redirects")
async def test_a_redirect_that_may_be_followed_keeps_headers_within_its_origin(
    client: OutboundClient, first: Receiver, second: Receiver
) -> None:
    first.answers = [to("/next?u=http://x.example/"), to(f"{second.url}/other", 308)]
    second.answers = [reply(200, b"there")]
    assert (await get(client, f"{first.url}/begin")).body == b"there"
    assert [asked.path for asked in first.requests] == ["/begin", "/next?u=http://x.example/"]
    assert [asked.headers["authorization"] for asked in first.requests] == ["Bearer secret"] * 2
    assert [asked.path for asked in second.requests] == ["/other"]
    assert "authorization" not in second.requests[0].headers


@pytest.mark.requirement("outbound:redirects")
async def test_redirects_end(client: OutboundClient, first: Receiver) -> None:
    first.answers = [to("/again") for _ in range(5)]
    assert (await get(client, first.url, redirects=3)).status == 302
    assert len(first.requests) == 4


@pytest.mark.requirement("outbound:redirects")
@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.2:PORT/",
        "//127.0.0.2:PORT/",
        "http://2130706433:PORT/",
        "http://[::ffff:127.0.0.1]:PORT/",
        "http://a@127.0.0.1:PORT/",
        "\\\\127.0.0.1:PORT/",
        "file:///etc/passwd",
        "http://[",
    ],
)
async def test_every_hop_is_vetted(location: str, first: Receiver) -> None:
    client = OutboundClient(["127.0.0.1"])
    async with receiver("127.0.0.2") as other:
        first.answers = [to(location.replace("PORT", str(other.port)))]
        with pytest.raises(OutboundRefusedError):
            await get(client, first.url)
        await client.close()
        assert (len(first.requests), other.connections) == (1, 0)


@pytest.mark.requirement("outbound:environment")
async def test_proxies_and_credentials_of_the_environment_are_not_used(
    first: Receiver, second: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, second.url)
    client = OutboundClient(["127.0.0.1"])
    await client.request("GET", first.url, seconds=5)
    await client.close()
    assert (first.connections, second.connections) == (1, 0)
    assert "authorization" not in first.requests[0].headers


@pytest.mark.requirement("outbound:environment")
async def test_cookies_are_not_kept(client: OutboundClient, first: Receiver) -> None:
    first.answers = [reply(200, b"", "set-cookie: a=b")]
    await get(client, first.url)
    await get(client, first.url)
    assert "cookie" not in first.requests[1].headers


@pytest.mark.requirement("outbound:bounded")
async def test_an_answer_that_does_not_come_is_given_up(client: OutboundClient, first: Receiver) -> None:
    first.answers = [None]
    with pytest.raises(OutboundError, match="slow"):
        await client.request("GET", first.url, seconds=0.2)


@pytest.mark.requirement("outbound:bounded")
async def test_a_name_that_is_not_found_in_time_is_given_up() -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    client = OutboundClient(lookup=never)
    with pytest.raises(OutboundError, match="slow"):
        await client.request("GET", "http://slow.example/", seconds=0.2)
    await client.close()


@pytest.mark.requirement("outbound:bounded")
async def test_a_body_is_taken_up_to_its_bound(client: OutboundClient, first: Receiver) -> None:
    first.answers = [reply(200, b"x" * 100), reply(200, b"x" * 101), reply(200, b"x" * 10_000_000)]
    assert (await get(client, first.url)).body == b"x" * 100
    with pytest.raises(OutboundError, match="100 bytes"):
        await get(client, first.url)
    answer = await client.request("GET", first.url, seconds=5)
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.requirement("outbound:bounded")
async def test_a_compressed_body_stays_as_it_is(client: OutboundClient, first: Receiver) -> None:
    first.answers = [reply(200, b"not gzip", "content-encoding: gzip")]
    assert (await get(client, first.url)).body == b"not gzip"
    assert first.requests[0].headers["accept-encoding"] == "identity"


@pytest.mark.requirement("outbound:errors")
@pytest.mark.parametrize(
    "answer",
    [b"", b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nshort", b"HTTP/1.1 200 OK\r\nx: "],
)
async def test_what_is_not_an_answer_is_one_error_without_secrets(
    answer: bytes, client: OutboundClient, first: Receiver
) -> None:
    first.answers = [answer, answer]
    with pytest.raises(OutboundError) as caught:
        await get(client, f"{first.url}/path?token=secret")
    told = str(caught.value)
    assert not any(word in told for word in ("secret", "127.0.0.1", str(first.port), "path"))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.requirement("outbound:errors")
async def test_nobody_there_is_an_error(client: OutboundClient, first: Receiver) -> None:
    async with receiver() as gone:
        url = gone.url
    with pytest.raises(OutboundError, match="reached"):
        await get(client, url)


@pytest.mark.requirement("outbound:errors")
async def test_a_header_cannot_be_smuggled_in(client: OutboundClient, first: Receiver) -> None:
    with pytest.raises(OutboundError):
        await client.request("GET", first.url, seconds=5, headers={"x": "a\r\ny: b"})
    assert first.requests == []


def _certificate(name: str, folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "certificate.pem"
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
async def secure(tmp_path: Path) -> AsyncIterator[tuple[int, Path]]:
    """A TLS server for `right.example` that answers 204: its port and its certificate."""
    certificate = _certificate("right.example", tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    found = Receiver("127.0.0.1", answers=[reply(204)])
    server = await asyncio.start_server(found.handle, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1], certificate
    server.close()
    await server.wait_closed()


@pytest.fixture
def secure_client(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], OutboundClient]:
    """A client that trusts one certificate and finds every name at 127.0.0.1."""

    async def lookup(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    def make(certificate: Path) -> OutboundClient:
        context = ssl.create_default_context(cafile=str(certificate))
        monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", context)
        return OutboundClient(["127.0.0.1"], lookup=lookup)

    return make


@pytest.mark.requirement("outbound:certificate")
async def test_the_certificate_is_checked_by_the_name_though_an_address_is_asked(
    secure: tuple[int, Path], secure_client: Callable[[Path], OutboundClient]
) -> None:
    port, certificate = secure
    client = secure_client(certificate)
    assert (await client.request("GET", f"https://right.example:{port}/", seconds=5)).status == 204
    with pytest.raises(OutboundError, match="certificate"):
        await client.request("GET", f"https://wrong.example:{port}/", seconds=5)
    await client.close()


@pytest.mark.requirement("outbound:certificate")
async def test_a_certificate_of_nobody_is_refused(secure: tuple[int, Path]) -> None:
    client = OutboundClient(["127.0.0.1"])
    with pytest.raises(OutboundError, match="certificate"):
        await client.request("GET", f"https://127.0.0.1:{secure[0]}/", seconds=5)
    await client.close()
