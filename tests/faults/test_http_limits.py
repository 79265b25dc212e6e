"""Clients that send too much, too slowly or not at all, or that do not read; over real sockets."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from antiphon.protocol.json import encode, loads
from support.raw_http import RawConnection, raw_connection
from support.server import RunningServer, running_server, wait_until

HEAD = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n"
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
SLOW = 1.0
LIMITED = """
import resource
from antiphon.cli.main import main
resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))
main()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that has little patience, and little room for bodies."""
    arguments = ["--model", "scripted", "--store", str(tmp_path_factory.mktemp("limits") / "state.db")]
    arguments += ["--receive-timeout", str(SLOW), "--write-timeout", str(SLOW), "--drain-timeout", "5"]
    arguments += ["--max-body-bytes", "4000000", "--max-buffered-bytes", "6000000"]
    with running_server(arguments) as running:
        yield running


@pytest.fixture(scope="module")
def patient_server() -> Iterator[RunningServer]:
    """A server that has as little room for bodies, and the usual patience."""
    arguments = ["--model", "scripted", "--store", "memory", "--receive-timeout", "60"]
    with running_server([*arguments, "--max-body-bytes", "4000000", "--max-buffered-bytes", "6000000"]) as running:
        yield running


@pytest.fixture
def connection(server: RunningServer) -> Iterator[RawConnection]:
    """A connection to it."""
    with raw_connection(server.base_url) as connected:
        yield connected


@pytest.mark.requirement("http:head")
@pytest.mark.parametrize(
    "headers",
    [b"X: " + b"a" * 66_000 + b"\r\n", b"a: b\r\n" * 256, (b"X: " + b"a" * 1000 + b"\r\n") * 70],
    ids=["one", "number", "sum"],
)
def test_a_head_that_is_too_large_is_a_431(connection: RawConnection, headers: bytes):
    connection.send(GET + headers + b"\r\n")
    status, error = connection.refusal()
    assert (status, error["code"]) == (431, "headers_too_large")


@pytest.mark.requirement("http:head")
@pytest.mark.parametrize("start", [b"GET /", GET + b"X: "], ids=["url", "header"])
def test_a_head_without_an_end_is_a_431(connection: RawConnection, start: bytes):
    connection.send(start + b"a" * 1_000_000)
    assert connection.refusal()[0] == 431


@pytest.mark.requirement("http:head")
def test_lines_without_an_end_after_a_chunked_body_are_a_431(connection: RawConnection):
    connection.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nX: ")
    connection.send(b"a" * 1_000_000)
    assert connection.refusal()[0] == 431


@pytest.mark.requirement("http:head")
def test_a_head_within_the_limits_is_answered_however_it_is_cut(connection: RawConnection):
    whole = GET + b"a: b\r\n" * 200 + b"X: " + b"a" * 60_000 + b"\r\n\r\n"
    for start in range(0, len(whole), 7000):
        connection.send(whole[start : start + 7000])
    assert connection.read_until(b"ok").startswith(b"HTTP/1.1 200")
    body = encode({"model": "scripted", "input": "a" * 70_000})
    connection.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    connection.read_until(b"Hello from scripted.")


@pytest.mark.requirement("api:http-error")
def test_what_is_no_http_is_a_400_in_the_envelope(connection: RawConnection):
    connection.send(b"GET http://[ HTTP/1.1\r\n\r\n")
    assert connection.refusal()[0] == 400


@pytest.mark.requirement("http:slow:head")
@pytest.mark.parametrize("sent", [b"GET /hea", GET], ids=["line", "headers"])
def test_a_head_that_does_not_come_is_a_408(connection: RawConnection, sent: bytes):
    connection.send(sent)
    assert connection.refusal()[0] == 408


@pytest.mark.requirement("http:slow:head")
def test_empty_lines_after_a_request_do_not_hold_a_connection(connection: RawConnection):
    connection.send(GET + b"\r\n")
    connection.read_until(b"ok")
    connection.send(b"\r\n")
    assert connection.refusal()[0] == 408


@pytest.mark.requirement("http:slow:head")
def test_a_connection_that_says_nothing_is_closed(connection: RawConnection):
    assert connection.rest() == b""


@pytest.mark.requirement("http:slow:head")
def test_bytes_of_a_head_one_by_one_win_no_time(connection: RawConnection):
    connection.socket.settimeout(SLOW / 10)
    connection.send(GET + b"X: ")
    for _ in range(100):
        connection.send(b"a")
        with contextlib.suppress(TimeoutError):
            assert connection.read_until(b"}}").startswith(b"HTTP/1.1 408")
            return
    pytest.fail("it is still open")


@pytest.mark.requirement("http:slow:body")
@pytest.mark.parametrize("length", [b"Content-Length: 1000", b"Transfer-Encoding: chunked"])
def test_a_body_that_stops_is_a_408(connection: RawConnection, length: bytes):
    connection.send(HEAD + length + b"\r\n\r\n1\r\n{")
    status, error = connection.refusal()
    assert (status, error["code"]) == (408, "request_timeout")
    assert error["type"] == "invalid_request_error"


@pytest.mark.requirement("http:slow:body")
def test_the_rest_of_a_refused_body_is_not_waited_for(connection: RawConnection):
    connection.send(HEAD + b"Content-Length: 10000000\r\n\r\n{")
    assert connection.rest().startswith(b"HTTP/1.1 413")


@pytest.mark.requirement("http:slow:body")
def test_a_long_body_that_progresses_is_taken(connection: RawConnection):
    body = encode({"model": "scripted", "input": "a" * 16_000})
    connection.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(body))
    connection.socket.settimeout(SLOW / 4)
    for start in range(0, len(body), 2000):
        connection.send(body[start : start + 2000])
        with pytest.raises(TimeoutError):
            connection.read_until(b"never")
    connection.socket.settimeout(30)
    assert connection.read_until(b"Hello from scripted.").startswith(b"HTTP/1.1 200")


@pytest.mark.requirement("http:slow:head")
def test_an_answer_may_take_longer_than_a_request(connection: RawConnection):
    body = encode({"model": "scripted", "input": "!SLOW 100\n!COUNT 20"})
    connection.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body + b"\r\n")
    assert connection.read_until(b'"completed"').startswith(b"HTTP/1.1 200")


def _readable(*connections: RawConnection) -> list[RawConnection]:
    """Those of the connections that something came on, once something came on one of them."""
    sockets, _, _ = select.select([connection.socket for connection in connections], [], [], 30)
    return [connection for connection in connections if connection.socket in sockets]


@pytest.mark.requirement("http:bodies")
def test_more_bodies_than_there_is_room_for_are_a_503(patient_server: RunningServer):
    server = patient_server
    body = encode({"model": "scripted", "input": "a" * 3_500_000, "store": False})
    head = HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
    with raw_connection(server.base_url) as first, raw_connection(server.base_url) as second:
        for connection in (first, second):
            connection.send(head + body[:-1000])
        # Which of the two comes in whole is the machine's to say.
        (refused,) = _readable(first, second)
        taken = second if refused is first else first
        answer = refused.read_until(b"}}")
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1" in answer
        assert loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "server_busy"
        taken.send(body[-1000:])
        assert taken.read_until(b"Hello from scripted.").startswith(b"HTTP/1.1 200")
    with raw_connection(server.base_url) as after:
        after.send(head + body)
        assert after.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 200"), "what was held is given back"


@pytest.mark.requirement("http:slow:reader")
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_client_that_does_not_read_is_gone_and_has_left_its_response(server: RunningServer, stream: bool):
    # Long words, so that the buffers of both ends are soon full; then many, so that it is still running.
    words = "!TEXT " + " ".join(["a" * 4000] * 900) + "\n!COUNT 100000"
    body = encode({"model": "scripted", "input": f"!SLOW 1\n{words}" if stream else words, "stream": stream})
    with raw_connection(server.base_url, receive_buffer=4096) as connection:
        connection.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        head = connection.read_until(b"resp_")
        connection.read_until(b'"status"')
        response_id = connection.received[connection.received.index(b"resp_") :][:49].decode()
        assert head.startswith(b"HTTP/1.1 200")
        with httpx2.Client(base_url=server.base_url, timeout=30) as client:
            if stream:
                wait_until(lambda: client.get(f"/responses/{response_id}").json()["status"] == "cancelled", 60)
            wait_until(lambda: _is_cut(connection), 60)


def _is_cut(connection: RawConnection) -> bool:
    try:
        connection.send(b"\r\n")
    except OSError:
        return True
    return False


@pytest.mark.requirement("http:slow:reader")
def test_a_client_that_reads_slowly_but_reads_keeps_its_stream(server: RunningServer):
    body = encode({"model": "scripted", "input": "!COUNT 20000", "stream": True})
    with raw_connection(server.base_url, receive_buffer=4096) as connection:
        connection.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        tail = b""
        began = time.monotonic()

        def long_enough() -> bool:
            connection.socket.recv(2000)
            return time.monotonic() - began > 3 * SLOW

        wait_until(long_enough)
        while b"[DONE]" not in tail:
            chunk = connection.socket.recv(65_536)
            assert chunk, "cut off"
            tail = tail[-10:] + chunk


@pytest.mark.requirement("http:connections")
def test_more_connections_than_files_are_a_503_and_health_still_answers(tmp_path: Path):
    arguments = ["--model", "scripted", "--store", str(tmp_path / "state.db")]
    with running_server(arguments, program=["-c", LIMITED]) as server, ExitStack() as stack:
        # Of 80 files 64 are kept in reserve.
        idle = [stack.enter_context(raw_connection(server.base_url)) for _ in range(16)]
        idle[0].send(GET + b"\r\n")
        idle[0].read_until(b"ok")
        late = stack.enter_context(raw_connection(server.base_url))
        late.send(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        status, error = late.refusal()
        assert (status, error["code"]) == (503, "server_busy")
        assert b"retry-after: 1" in late.received
        probe = stack.enter_context(raw_connection(server.base_url))
        probe.send(GET + b"\r\n")
        assert probe.read_until(b"ok").startswith(b"HTTP/1.1 200")
        for _ in range(60):
            stack.enter_context(raw_connection(server.base_url))
        idle[1].send(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle[1].read_until(b"scripted").startswith(b"HTTP/1.1 200"), "those that were first are served"


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"


@pytest.mark.requirement("http:upgrade")
@pytest.mark.parametrize("cut", ["together", "body-later", "byte-by-byte"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_request_that_offers_an_upgrade_is_answered_as_it_stands(connection: RawConnection, cut: str, chunked: bool):
    body = encode({"model": "scripted", "input": "hi"})
    length = b"Transfer-Encoding: chunked\r\n" if chunked else b"Content-Length: %d\r\n" % len(body)
    head = HEAD + UPGRADE + length + b"\r\n"
    sent = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body
    pieces = {
        "together": [head + sent],
        "body-later": [head, sent],
        "byte-by-byte": [bytes([byte]) for byte in head + sent],
    }[cut]
    for piece in pieces:
        connection.send(piece)
    answer = connection.read_until(b'"title":"hi"}')
    assert answer.startswith(b"HTTP/1.1 200 OK")
    connection.received = b""
    connection.send(GET + b"\r\n")
    assert connection.read_until(b'"ok"}').startswith(b"HTTP/1.1 200 OK")


@pytest.mark.requirement("http:upgrade")
def test_an_improper_websocket_or_a_connect_request_is_an_answer_in_the_envelope(connection: RawConnection):
    connection.send(
        b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 8\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    assert connection.read_until(b"method_not_allowed").startswith(b"HTTP/1.1 405")
    connection.received = b""
    connection.send(b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert connection.refusal()[0] == 400


@pytest.mark.requirement("http:files")
def test_the_soft_limit_of_open_files_is_raised():
    program = "\n".join(
        [
            "import resource",
            "from antiphon.cli.main import main",
            "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)",
            "resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))",
            "main()",
        ]
    )
    arguments = ["--model", "scripted", "--store", "memory"]
    with running_server(arguments, program=["-c", program]) as running, ExitStack() as opened:
        for _ in range(200):
            one = opened.enter_context(raw_connection(running.base_url))
            one.send(GET + b"\r\n")
            assert one.read_until(b'"ok"}')
