"""WebSocket connections over real sockets: handshakes, bad frames, bounds, silence, stops and clients that vanish."""

from __future__ import annotations

import json
import signal
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from wsproto import events
from wsproto.connection import Connection, ConnectionType

from support.raw_http import RawConnection, raw_connection
from support.server import RunningServer, running_server, wait_until

SLOW = 1.0
KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
HEAD = b"Host: localhost\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\n"
NAMED = HEAD + b"Sec-WebSocket-Key: " + KEY + b"\r\n"
ASK = b"GET /v1/responses HTTP/1.1\r\n"
TERMINAL = ("response.completed", "response.incomplete", "response.failed")


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A server that has little patience, and little room for messages."""
    arguments = ["--model", "scripted", "--store", "memory", "--keep-alive-seconds", str(SLOW)]
    arguments += ["--receive-timeout", str(SLOW), "--write-timeout", str(SLOW), "--drain-timeout", "5"]
    arguments += ["--max-body-bytes", "4000000", "--max-buffered-bytes", "6000000"]
    with running_server(arguments) as running:
        yield running


@pytest.fixture(scope="module")
def patient_server() -> Iterator[RunningServer]:
    """A server that has as little room, and the usual patience."""
    arguments = ["--model", "scripted", "--store", "memory", "--receive-timeout", "60"]
    with running_server([*arguments, "--max-body-bytes", "4000000", "--max-buffered-bytes", "6000000"]) as running:
        yield running


@contextmanager
def client(server: RunningServer, **options: Any) -> Iterator[ClientConnection]:
    """A connection of the `websockets` library."""
    url = server.base_url.replace("http://", "ws://") + "/responses"
    with connect(url, compression=None, max_size=None, open_timeout=30, **options) as connection:
        yield connection


class Raw:
    """A WebSocket by hand, over a connection whose handshake is done."""

    def __init__(self, connection: RawConnection) -> None:
        self.connection = connection
        connection.send(ASK + NAMED + b"\r\n")
        head, _, self._left = connection.read_until(b"\r\n\r\n").partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n"), head
        self._state = Connection(ConnectionType.CLIENT)
        self._state.receive_data(self._left)

    def send(self, event: events.Event) -> None:
        """Send a frame."""
        self.connection.send(self._state.send(event))

    def ask(self, **fields: Any) -> None:
        """Send a request to the scripted model."""
        body = {"type": "response.create", "model": "scripted", **fields}
        self.send(events.TextMessage(data=json.dumps(body)))

    def event(self) -> events.Event | None:
        """The next frame; None where the connection has ended without one."""
        while True:
            for event in self._state.events():
                return event
            chunk = self.connection.socket.recv(65_536)
            if not chunk:
                return None
            self._state.receive_data(chunk)

    def closed(self) -> int:
        """The code that the server ends the connection with."""
        event = self.event()
        while not isinstance(event, events.CloseConnection):
            assert event is not None, "ended without a code"
            event = self.event()
        return int(event.code)


@pytest.fixture
def raw(server: RunningServer) -> Iterator[Raw]:
    """A WebSocket by hand."""
    with raw_connection(server.base_url) as connection:
        yield Raw(connection)


def ask(connection: ClientConnection, said: str, **fields: Any) -> None:
    connection.send(json.dumps({"type": "response.create", "model": "scripted", "input": said, **fields}))


def until(connection: ClientConnection, *types: str) -> dict[str, Any]:
    """The first frame of one of these types."""
    while True:
        frame = json.loads(connection.recv(timeout=30))
        if frame["type"] in types:
            return frame


def completes(server: RunningServer) -> None:
    """The server still answers over a new connection, and nothing else runs or is held."""
    with client(server) as connection:
        ask(connection, "hi")
        assert until(connection, *TERMINAL)["type"] == "response.completed"


def running(server: RunningServer) -> float:
    """The responses that the server says are running."""
    for line in httpx2.get(f"{server.root}/metrics").text.splitlines():
        if line.startswith('antiphon:num_requests_running{model_name="scripted"}'):
            return float(line.rpartition(" ")[2])
    return 0.0


def close_code(connection: ClientConnection) -> int | None:
    """The code that the server ends the connection with; what it sends before is not looked at."""
    with pytest.raises(ConnectionClosed) as caught:
        while True:
            connection.recv(timeout=30)
    received = caught.value.rcvd
    return received.code if received is not None else None


@pytest.mark.requirement("websocket:handshake")
@pytest.mark.parametrize("path", [b"/v1/responses", b"/responses", b"/v1/responses?beta=true"])
def test_a_proper_request_is_taken(server: RunningServer, path: bytes):
    with raw_connection(server.base_url) as connection:
        connection.send(b"GET " + path + b" HTTP/1.1\r\n" + NAMED + b"\r\n")
        head = connection.read_until(b"\r\n\r\n").lower()
        assert head.startswith(b"http/1.1 101 switching protocols\r\n")
        for line in (
            b"upgrade: websocket",
            b"connection: upgrade",
            b"sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=",
            b"x-request-id: req_",
            b"openai-version: 2020-10-01",
        ):
            assert line in head
        assert b"extensions" not in head


@pytest.mark.requirement("websocket:handshake", "http:upgrade")
@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /v1/models HTTP/1.1\r\n" + NAMED, 200),
        (b"GET /v1/responses/x HTTP/1.1\r\n" + NAMED, 404),
        (b"GET /v1/responses HTTP/1.0\r\n" + NAMED, 405),
        (b"POST /v1/responses HTTP/1.1\r\n" + NAMED, 400),
        (ASK + HEAD, 405),
        (ASK + NAMED + b"Sec-WebSocket-Key: twice\r\n", 405),
        (ASK + NAMED.replace(b"Version: 13", b"Version: 12"), 405),
        (ASK + NAMED.replace(b"WebSocket\r\n", b"h2c\r\n"), 405),
        (ASK + NAMED + b"Content-Length: 2\r\n", 405),
        (b"GET /v1/%ff\xff HTTP/1.1\r\n" + NAMED, 400),
    ],
)
def test_any_other_request_is_answered_as_if_it_had_not_asked(server: RunningServer, head: bytes, status: int):
    with raw_connection(server.base_url) as connection:
        connection.send(head + b"\r\n" + (b"{}" if b"Content-Length" in head else b""))
        assert connection.read_until(b"}").startswith(b"HTTP/1.1 %d " % status)
        assert b"x-request-id" in connection.received


@pytest.mark.requirement("websocket:handshake")
def test_frames_before_the_answer_are_refused(server: RunningServer):
    frame = Connection(ConnectionType.CLIENT).send(events.TextMessage(data="{}"))
    with raw_connection(server.base_url) as connection:
        connection.send(ASK + NAMED + b"\r\n" + frame)
        status, error = connection.refusal()
        assert (status, error["code"]) == (400, "invalid_http")


@pytest.mark.requirement("websocket:handshake")
def test_an_answer_is_finished_before_the_connection_changes(server: RunningServer):
    with raw_connection(server.base_url) as connection:
        connection.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connection.read_until(b'"ok"}')
        connection.received = b""
        Raw(connection).ask(input="hi")
        connection.received = b""
        assert b"response.created" in connection.read_until(b"response.completed")
    with raw_connection(server.base_url) as connection:
        connection.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + ASK + NAMED + b"\r\n")
        assert b'"ok"}HTTP/1.1 405 ' in connection.read_until(b"method_not_allowed")


@pytest.mark.requirement("websocket:access")
def test_a_refusal_is_an_http_answer():
    with running_server(["--model", "scripted", "--store", "memory", "--api-key", "sk-one"]) as server:
        for headers, expected in (({}, "missing_api_key"), ({"Authorization": "Bearer no"}, "invalid_api_key")):
            with pytest.raises(InvalidStatus) as caught, client(server, additional_headers=headers):
                pass
            response = caught.value.response
            assert response.status_code == 401
            assert response.headers["www-authenticate"] == "Bearer"
            assert json.loads(response.body or b"")["error"]["code"] == expected
        with client(server, additional_headers={"Authorization": "Bearer sk-one"}) as connection:
            ask(connection, "hi")
            assert until(connection, *TERMINAL)["type"] == "response.completed"


@pytest.mark.requirement("websocket:access")
def test_a_foreign_page_cannot_connect(server: RunningServer):
    with pytest.raises(InvalidStatus) as caught, client(server, origin="https://evil.example"):
        pass
    assert caught.value.response.status_code == 403
    assert json.loads(caught.value.response.body or b"")["error"]["code"] == "origin_not_allowed"
    with client(server, origin="http://localhost:3000"):
        pass


@pytest.mark.requirement("websocket:bounds:message")
def test_a_large_message_comes_in_and_one_that_is_too_large_ends_the_connection(server: RunningServer):
    with client(server) as connection:
        ask(connection, "äöü " * 200_000)
        assert until(connection, *TERMINAL)["type"] == "response.completed"
        connection.send(json.dumps({"type": "response.create", "input": "x" * 4_000_000}))
        assert close_code(connection) == 1009
    completes(server)


@pytest.mark.requirement("websocket:bounds:message")
def test_many_small_pieces_are_one_message(raw: Raw):
    text = json.dumps({"type": "response.create", "model": "scripted", "input": "!TEXT ä" + "ö" * 2000})
    for letter in text[:-1]:
        raw.send(events.TextMessage(data=letter, message_finished=False))
    raw.send(events.Ping(payload=b"between"))
    raw.send(events.TextMessage(data=text[-1]))
    pong = raw.event()
    assert isinstance(pong, events.Pong)
    assert bytes(pong.payload) == b"between"
    frame = raw.event()
    assert isinstance(frame, events.TextMessage)
    assert json.loads(frame.data)["type"] == "response.created"


@pytest.mark.requirement("websocket:bounds:message")
def test_a_message_that_does_not_come_in_time_ends_the_connection(raw: Raw):
    raw.send(events.TextMessage(data='{"type":', message_finished=False))
    began = time.monotonic()
    assert raw.closed() == 1008
    assert time.monotonic() - began < 10 * SLOW


@pytest.mark.requirement("websocket:bounds:message")
def test_messages_share_the_room_with_bodies_and_give_it_back(patient_server: RunningServer):
    half = "x" * 3_500_000
    with raw_connection(patient_server.base_url) as one, raw_connection(patient_server.base_url) as two:
        first, second = Raw(one), Raw(two)
        first.send(events.TextMessage(data=half, message_finished=False))
        # It is all there when what follows it is answered.
        first.send(events.Ping())
        assert isinstance(first.event(), events.Pong)
        second.send(events.TextMessage(data=half, message_finished=False))
        assert second.closed() == 1013
        body = {"model": "scripted", "input": half}
        assert httpx2.post(f"{patient_server.base_url}/responses", json=body, timeout=30).status_code == 503
    with client(patient_server) as connection:
        for _ in range(3):
            ask(connection, half)
            assert until(connection, *TERMINAL)["type"] == "response.completed"


@pytest.mark.requirement("websocket:bounds:reader", "websocket:leave")
def test_a_client_that_does_not_read_is_cut_off(server: RunningServer):
    with raw_connection(server.base_url, receive_buffer=4096) as connection:
        Raw(connection).ask(input="!COUNT 100000")
        wait_until(lambda: running(server) == 1)
        wait_until(lambda: running(server) == 0, 30)
        with pytest.raises((ConnectionError, EOFError)):
            for _ in range(1000):
                connection.send(b"\x89\x80\0\0\0\0")
                connection.read_until(b"response.completed")
    completes(server)


@pytest.mark.requirement("websocket:bounds:reader", "websocket:ping")
def test_whoever_pings_and_does_not_read_gets_no_heap_of_answers(server: RunningServer):
    ping = Connection(ConnectionType.CLIENT).send(events.Ping(payload=b"x" * 100))
    with raw_connection(server.base_url, receive_buffer=4096) as connection:
        raw = Raw(connection)
        raw.ask(input="!SLOW 1\n!COUNT 100000")
        with pytest.raises((ConnectionError, TimeoutError)):
            for _ in range(1_000_000):
                connection.send(ping * 100)
    wait_until(lambda: running(server) == 0, 30)
    completes(server)


@pytest.mark.requirement("websocket:ping")
def test_a_silent_client_is_pinged_and_cut_off_where_it_does_not_answer(raw: Raw):
    began = time.monotonic()
    ping = raw.event()
    assert isinstance(ping, events.Ping)
    raw.send(ping.response())
    assert isinstance(raw.event(), events.Ping)
    assert time.monotonic() - began >= 1.5 * SLOW
    assert not isinstance(raw.event(), events.CloseConnection)
    assert time.monotonic() - began < 20 * SLOW


@pytest.mark.requirement("websocket:ping")
def test_a_client_that_answers_pings_stays(server: RunningServer):
    with client(server, ping_interval=None) as connection:
        with pytest.raises(TimeoutError):
            connection.recv(timeout=5 * SLOW)
        ask(connection, "hi")
        assert until(connection, *TERMINAL)["type"] == "response.completed"


def masked(first: int, payload: bytes, second: int | None = None) -> bytes:
    return bytes([first, 0x80 | (len(payload) if second is None else second)]) + b"\0\0\0\0" + payload


@pytest.mark.requirement("websocket:bounds:frames")
@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x81\x02{}", 1002),
        (masked(0xC1, b"{}"), 1002),
        (masked(0x83, b"{}"), 1002),
        (masked(0x80, b"{}"), 1002),
        (masked(0x09, b"x"), 1002),
        (b"\x89\xfe" + struct.pack("!H", 200) + b"\0\0\0\0", 1002),
        (masked(0x01, b"{") + masked(0x81, b"}"), 1002),
        (masked(0x81, b"\xff"), 1007),
        (masked(0x82, b"\xff"), 1007),
        (masked(0x88, b"\x03\xe8bye"), 1000),
        (masked(0x88, b"x"), 1002),
        (b"\x81\xff" + struct.pack("!Q", 2**62) + b"\0\0\0\0" + b"x" * 4_100_000, 1009),
    ],
)
def test_frames_that_break_the_rules_end_the_connection(raw: Raw, frame: bytes, code: int):
    raw.connection.send(frame)
    assert raw.closed() == code


@pytest.mark.requirement("websocket:bounds:frames")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.binary(max_size=40), st.binary(max_size=30).map(lambda data: masked(0x81, data)))))
def test_no_bytes_bring_the_server_down(server: RunningServer, pieces: list[bytes]):
    with raw_connection(server.base_url) as connection:
        raw = Raw(connection)
        try:
            for piece in pieces:
                connection.send(piece)
            raw.send(events.CloseConnection(code=1000))
        except ConnectionError:
            pass
    assert httpx2.get(f"{server.root}/health").status_code == 200
    assert not any("Traceback" in line for line in server.lines)


@pytest.mark.requirement("websocket:message:create")
def test_a_binary_message_is_read_as_text(raw: Raw):
    raw.send(events.BytesMessage(data=b'{"type":"response.create","model":"scripted","input":"hi"}'))
    frame = raw.event()
    assert isinstance(frame, events.TextMessage)
    assert json.loads(frame.data)["type"] == "response.created"


@pytest.mark.requirement("websocket:leave")
@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_vanishes_frees_what_runs(server: RunningServer, how: str):
    with client(server) as connection:
        ask(connection, "!SLOW 5\n!COUNT 100000")
        identity = until(connection, "response.created")["response"]["id"]
        ask(connection, "!SLOW 5\n!COUNT 100000", stream_id="b")
        wait_until(lambda: running(server) == 2)
        if how == "reset":
            linger = struct.pack("ii", 1, 0)
            connection.socket.setsockopt(1, 13, linger)  # SOL_SOCKET, SO_LINGER
            connection.socket.shutdown(0)
            connection.socket.close()
    wait_until(lambda: running(server) == 0)
    assert httpx2.get(f"{server.base_url}/responses/{identity}").json()["status"] == "cancelled"


@pytest.mark.requirement("websocket:stop")
def test_at_a_signal_what_runs_is_finished_and_all_are_told_to_come_again():
    with (
        running_server(["--model", "scripted", "--store", "memory"]) as server,
        client(server) as busy,
        client(server) as idle,
    ):
        ask(busy, "!SLOW 20\n!COUNT 60")
        until(busy, "response.output_text.delta")
        ask(busy, "!TEXT waits")
        server.process.send_signal(signal.SIGTERM)
        assert close_code(idle) == 1012
        assert until(busy, "error")["status"] == 503
        with pytest.raises(InvalidStatus) as caught, client(server):
            pass
        assert caught.value.response.status_code == 503
        assert until(busy, *TERMINAL)["type"] == "response.completed"
        assert close_code(busy) == 1012
        stops_cleanly(server)


@pytest.mark.requirement("websocket:stop")
def test_what_runs_too_long_gets_its_end_before_the_connection_does():
    arguments = ["--model", "scripted", "--store", "memory", "--drain-timeout", "0.2"]
    with running_server(arguments) as server, client(server) as busy, raw_connection(server.base_url) as still:
        Raw(still)
        ask(busy, "!SLOW 20\n!COUNT 100000")
        until(busy, "response.output_text.delta")
        server.process.send_signal(signal.SIGTERM)
        assert until(busy, *TERMINAL)["response"]["status"] == "cancelled"
        assert close_code(busy) == 1012
        stops_cleanly(server)


def stops_cleanly(server: RunningServer) -> None:
    assert server.process.wait(20) == 0
    wait_until(lambda: server.lines[-1] == "Stopped.\n")
    text = "".join(server.lines)
    assert not any(word in text for word in ("Traceback", "Cancelled", "ERROR", "error"))


@pytest.mark.requirement("http:connections", "websocket:handshake")
def test_connections_count_with_all_others():
    limit = "resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))"
    program = f"import resource\nfrom antiphon.cli.main import main\n{limit}\nmain()"
    with (
        running_server(["--model", "scripted", "--store", "memory"], program=["-c", program]) as server,
        ExitStack() as opened,
    ):
        statuses: list[int] = []
        for _ in range(20):
            try:
                opened.enter_context(client(server))
            except InvalidStatus as error:
                statuses.append(error.response.status_code)
        assert 0 < len(statuses) < 20
        assert set(statuses) == {503}
