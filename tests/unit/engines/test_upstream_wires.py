"""The connections to an upstream: which of them serve again, and what of a bad one is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon.engines.upstream.wires import (
    BrokenError,
    ExhaustedError,
    GarbledError,
    SilentError,
    UnreachableError,
    WireError,
    Wires,
)

Served = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class _Server:
    """Answers each request with the next of its answers; `connections` counts those that were made."""

    def __init__(self, *answers: bytes | Served) -> None:
        self.answers = list(answers)
        self.asked: list[bytes] = []
        self.connections = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0)
                self.asked.append(head + await reader.readexactly(size))
                answer = self.answers.pop(0)
                if not isinstance(answer, bytes):
                    await answer(reader, writer)
                    break
                writer.write(answer)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def _wired(*answers: bytes | Served, **more: Any) -> AsyncIterator[tuple[Wires, _Server]]:
    served = _Server(*answers)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    limits = {"most": 4, "connect_timeout": 2.0, "idle_timeout": 2.0, "kept": 4.0, **more}
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    wires = Wires(served.url, {"accept": "*/*"}, **limits)
    try:
        yield wires, served
    finally:
        await wires.close()
        server.close()


async def _got(wires: Wires, **more: Any) -> bytes:
    """The whole body of an answer."""
    answer = await wires.ask("POST", "/v1/path?a=b", b"{}", **more)
    try:
        body = b""
        while data := await answer.read():
            body += data
    finally:
        answer.leave()
    return body


@pytest.mark.requirement("upstream:wires")
async def test_a_connection_whose_answer_came_to_its_end_serves_again():
    trailer = CHUNKED + b"1\r\na\r\n2\r\nbc\r\n0\r\nx: y\r\n\r\n"
    early = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK
    async with _wired(OK, trailer, early, b"HTTP/1.1 204 No Content\r\n\r\n", OK) as (wires, server):
        assert [await _got(wires) for _ in range(5)] == [b"ok", b"abc", b"ok", b"", b"ok"]
        assert server.connections == 1
    head = server.asked[0].decode()
    assert head.startswith("POST /v1/path?a=b HTTP/1.1\r\nhost: 127.0.0.1:")
    assert "\r\naccept: */*\r\n" in head
    assert head.endswith("\r\ncontent-length: 2\r\n\r\n{}")


@pytest.mark.requirement("upstream:wires")
@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (OK + b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nsorry", b"ok"),
        (OK.replace(b"content-length: 2", b"content-length: 2\r\nconnection: close"), b"ok"),
        (OK.replace(b"HTTP/1.1", b"HTTP/1.0"), b"ok"),
    ],
)
async def test_no_other_connection_serves_again(answer: bytes, body: bytes):
    async with _wired(answer, OK) as (wires, server):
        assert [await _got(wires), await _got(wires)] == [body, b"ok"]
        assert server.connections == 2


@pytest.mark.requirement("upstream:wires")
async def test_an_answer_without_a_length_ends_with_its_connection():
    async def ends(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")

    async def breaks(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK[:-1])

    async with _wired(ends, breaks) as (wires, _):
        assert await _got(wires) == b"all of it"
        answer = await wires.ask("GET", "/")
        # What came is read before the fault is told.
        assert await answer.read() == b"o"
        with pytest.raises(BrokenError):
            await answer.read()
        answer.leave()


@pytest.mark.requirement("upstream:wires")
async def test_the_end_of_an_answer_is_waited_for_where_its_last_event_has_come():
    gate, read = asyncio.Event(), asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + b"2\r\nok\r\n")
        await gate.wait()
        writer.write(b"0\r\n\r\n")
        await reader.readuntil(b"{}")
        read.set()
        writer.write(OK)

    async with _wired(late, OK) as (wires, server):
        answer = await wires.ask("POST", "/", b"{}")
        assert await answer.read() == b"ok"
        answer.leave(ended=True)
        gate.set()
        async with asyncio.timeout(20):
            while not answer.usable:
                await asyncio.sleep(0)
        assert await _got(wires) == b"ok"
        assert read.is_set()
        assert server.connections == 1


@pytest.mark.requirement("upstream:wires")
async def test_leaving_in_the_middle_closes_the_connection():
    gone = asyncio.Event()

    async def long(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + b"2\r\nok\r\n")
        await reader.read()
        gone.set()

    async with _wired(long) as (wires, _):
        answer = await wires.ask("GET", "/")
        answer.leave()
        async with asyncio.timeout(20):
            await gone.wait()
        assert not answer.usable


@pytest.mark.requirement("upstream:wires")
@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", GarbledError),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000, GarbledError),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n", GarbledError),
        (b"", SilentError),
        (b"HTTP/1.1 100 Continue\r\n\r\n", SilentError),
    ],
)
async def test_an_answer_without_a_head_is_none(answer: bytes, fault: type[WireError]):
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await reader.read()

    async with _wired(silent, OK, idle_timeout=0.1) as (wires, _):
        with pytest.raises(fault):
            await wires.ask("GET", "/")
        assert await _got(wires) == b"ok"


@pytest.mark.requirement("upstream:wires")
async def test_who_does_not_read_makes_the_upstream_wait_and_it_is_not_silent_then():
    # More than the kernel takes in for either side.
    whole = 32 * 1024 * 1024
    sent = 0

    async def long(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % whole)
        for _number in range(whole // 65536):
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async with _wired(long, OK) as (wires, server):
        answer = await wires.ask("GET", "/")
        async with asyncio.timeout(20):
            while not answer.paused:
                await asyncio.sleep(0)
        assert sent < whole
        answer.look(asyncio.get_running_loop().time() + 60, idle=1.0, kept=1.0)
        size = 0
        while data := await answer.read():
            size += len(data)
        answer.leave()
        assert size == whole
        assert server.connections == 1


@pytest.mark.requirement("upstream:wires")
async def test_more_requests_than_connections_wait_for_one():
    async with _wired(*[OK] * 6, most=2) as (wires, server):
        assert await asyncio.gather(*(_got(wires) for _ in range(6))) == [b"ok"] * 6
        assert server.connections == 2


@pytest.mark.requirement("upstream:wires")
async def test_who_waits_for_a_connection_waits_no_longer_than_for_an_answer():
    done = asyncio.Event()

    async def talking(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        while not done.is_set():
            writer.write(b"1\r\nx\r\n")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), 0.02)

    async with _wired(talking, OK, most=1, idle_timeout=0.3) as (wires, _):
        first = await wires.ask("POST", "/path", b"{}")
        reading = asyncio.create_task(first.read())
        with pytest.raises(ExhaustedError):
            await wires.ask("POST", "/path", b"{}")
        assert await reading
        first.leave()
        done.set()
        assert await _got(wires) == b"ok"


@pytest.mark.requirement("upstream:wires")
async def test_nothing_is_asked_over_what_was_closed():
    async with _wired(OK, OK) as (wires, served):
        assert await _got(wires) == b"ok"
        await wires.close()
        with pytest.raises(UnreachableError):
            await _got(wires)
        assert served.connections == 1


@pytest.mark.requirement("upstream:wires")
async def test_a_connection_that_waits_too_long_or_hears_something_is_closed():
    async with _wired(OK, OK + b"more", OK) as (wires, server):
        answer = await wires.ask("GET", "/")
        assert await answer.read() == b"ok"
        answer.leave()
        assert answer.usable
        answer.look(asyncio.get_running_loop().time() + 5, idle=1.0, kept=4.0)
        assert not answer.usable
        await _got(wires)
        await _got(wires)
        assert server.connections == 3


@pytest.mark.requirement("upstream:wires")
async def test_what_cannot_be_connected_to_says_why():
    async with _wired(OK) as (wires, server):
        port = server.url.rpartition(":")[2].partition("/")[0]
        for url, fault in (("http://127.0.0.1:9/v1", UnreachableError), (f"https://127.0.0.1:{port}", WireError)):
            other = Wires(url, {}, most=1, connect_timeout=0.2, idle_timeout=1.0, kept=1.0)
            with pytest.raises(fault):
                await other.ask("GET", "/")
            await other.close()
        with pytest.raises(ValueError, match="printable"):
            await wires.ask("GET", "/", headers={"x-session": "a\r\nx-other: b"})


async def _gone(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads the request, and ends the connection as one does that had waited too long."""
    writer.close()


@pytest.mark.requirement("upstream:pool")
async def test_a_request_that_met_the_end_of_a_connection_that_had_served_is_sent_once_more():
    async with _wired(OK, OK, _gone, OK) as (wires, server):
        held = [await wires.ask("POST", "/path", b"{}") for _ in range(2)]
        for answer in held:
            await answer.read()
            answer.leave()
        assert await _got(wires) == b"ok"
        # Nor is the other one trusted that had waited even longer.
        assert server.connections == 3
        assert len(server.asked) == 4


@pytest.mark.requirement("upstream:pool")
@pytest.mark.parametrize(
    "answers", [[_gone], [OK, _gone, _gone]], ids=["a new connection", "the connection after the one that had served"]
)
async def test_no_request_is_sent_once_more_where_a_new_connection_ends(answers: list[bytes | Served]):
    async with _wired(*answers) as (wires, server):
        for _ in range(answers.count(OK)):
            assert await _got(wires) == b"ok"
        with pytest.raises(BrokenError):
            await _got(wires)
        assert server.answers == []


@pytest.mark.requirement("upstream:pool")
async def test_a_request_whose_answer_had_begun_is_not_sent_once_more():
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK[:20])
        await _gone(reader, writer)

    async with _wired(OK, half) as (wires, server):
        assert await _got(wires) == b"ok"
        with pytest.raises(BrokenError):
            await _got(wires)
        assert len(server.asked) == 2


@pytest.mark.requirement("upstream:pool")
async def test_a_request_that_waits_when_all_is_closed_is_not_sent_once_more():
    waits = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        waits.set()
        await reader.read()

    async with _wired(OK, silent) as (wires, server):
        assert await _got(wires) == b"ok"
        asking = asyncio.create_task(_got(wires))
        await waits.wait()
        await wires.close()
        with pytest.raises(BrokenError):
            await asking
        assert len(server.asked) == 2


@pytest.mark.requirement("upstream:pool")
async def test_a_connection_whose_request_was_not_taken_in_does_not_serve_again():
    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)

    connections: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(early, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    wires = Wires(url, {}, most=4, connect_timeout=2.0, idle_timeout=2.0, kept=4.0)
    for _ in range(2):
        answer = await wires.ask("POST", "/", bytes(32 * 2**20))
        assert await answer.read() == b"ok"
        answer.leave()
    assert len(connections) == 2
    await wires.close()
    server.close()
    for writer in connections:
        writer.transport.abort()
    await asyncio.sleep(0)
