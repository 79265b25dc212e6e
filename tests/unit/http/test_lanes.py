"""The lanes of a WebSocket connection, without one: what is started when, sent where, kept and given back."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from antiphon.errors import InvalidRequestError, NotFoundError
from antiphon.http.lanes import MAX_ACTIVE, MAX_NAMED_LANES, MAX_QUEUED, MAX_STEER_BYTES, MAX_STEERS, Lanes
from antiphon.http.tickets import EXPIRED, STOPPED, Close, Closing, Effect, Ended, Interrupt, Leave, Send, Start, Ticket
from antiphon.protocol.request import CreateResponse, decode_create_response

STUB = {"type": "function_call_output", "call_id": "call_1", "name": "look"}
REQUEST = b'{"model":"scripted","input":"hi"}'


class Kept(dict[str, str]):
    """Histories without a bound."""

    def put(self, response_id: str, turn: str) -> None:
        self[response_id] = turn

    def drop(self, response_id: str) -> None:
        self.pop(response_id, None)


class Connection:
    """A client and a runtime of lanes: says what happens, and remembers what was to be done."""

    def __init__(self) -> None:
        self.kept = Kept()
        self.lanes: Lanes[str] = Lanes(self.kept)
        self.frames: list[dict[str, Any]] = []
        self.starts: list[Start[str]] = []
        self.interrupted: list[Ticket] = []
        self.left: list[Ticket] = []
        self.closed: int | None = None
        self.responses = 0

    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            assert self.closed is None, "nothing comes after the end"
            if isinstance(effect, Send):
                self.frames.append(json.loads(effect.data))
            elif isinstance(effect, Start):
                self.starts.append(effect)
            elif isinstance(effect, Interrupt):
                self.interrupted.append(effect.ticket)
            elif isinstance(effect, Leave):
                self.left.append(effect.ticket)
            else:
                assert isinstance(effect, Close)
                self.closed = effect.code

    def send(self, **fields: Any) -> None:
        self.do(self.lanes.receive(json.dumps(fields).encode()))

    def create(self, stream_id: str | None = None, parent: str | None = None, **fields: Any) -> None:
        named = {"stream_id": stream_id, "previous_response_id": parent}
        present = {key: value for key, value in named.items() if value is not None}
        self.send(type="response.create", model="scripted", **present, **fields)

    def steer(self, response_id: str, text: Any = "more") -> None:
        self.send(type="response.steer", previous_response_id=response_id, input=text)

    def started(self) -> Start[str]:
        """The one start that there is."""
        (start,) = self.starts
        self.starts.clear()
        return start

    def begin(self, ticket: Ticket, *, steerable: bool = True) -> str:
        self.responses += 1
        response_id = f"resp_{self.responses}"
        request = ticket.settings or decode_create_response(REQUEST)
        self.do(self.lanes.began(ticket, response_id, request, steerable=steerable))
        return response_id

    def end(self, ticket: Ticket, status: str = "completed", *, required: bool = False, stored: bool = False) -> None:
        turn = None if stored or status not in ("completed", "incomplete") else f"history of {ticket.response_id}"
        self.do(self.lanes.ended(ticket, Ended(status, [STUB] if required else [], turn)))

    def whole(self, stream_id: str | None = None, parent: str | None = None, **end: Any) -> str:
        """A response from its request to its end; the only one that starts."""
        self.create(stream_id, parent)
        ticket = self.started().ticket
        response_id = self.begin(ticket)
        self.end(ticket, **end)
        return response_id

    def last(self) -> dict[str, Any]:
        """The one frame that was sent."""
        (frame,) = self.frames
        self.frames.clear()
        return frame


@pytest.fixture
def connection() -> Connection:
    """A connection."""
    return Connection()


def texts(start: Start[str]) -> list[str]:
    """The texts of the steers that are committed with a response."""
    return [item.content[0].text for steer in start.ticket.steers for item in steer.items]  # type: ignore[union-attr]


@pytest.mark.requirement("websocket:lanes:fifo")
def test_a_lane_runs_one_after_the_other(connection: Connection):
    connection.create("a", input="1")
    connection.create("a", input="2")
    first = connection.started().ticket
    connection.begin(first)
    assert connection.starts == []
    connection.end(first)
    second = connection.started().ticket
    assert second.message is not None
    assert json.loads(second.message.body)["input"] == "2"


@pytest.mark.requirement("websocket:lanes:parallel")
def test_lanes_run_side_by_side(connection: Connection):
    connection.create()
    connection.create("a")
    connection.create("b")
    assert [start.ticket.stream_id for start in connection.starts] == [None, "a", "b"]


@pytest.mark.requirement("websocket:lanes:active")
def test_the_seventeenth_waits_for_the_first_that_ends(connection: Connection):
    for number in range(MAX_ACTIVE + 2):
        connection.create(f"s{number}")
    assert len(connection.starts) == MAX_ACTIVE
    running = connection.starts[:]
    connection.starts.clear()
    connection.begin(running[3].ticket)
    connection.end(running[3].ticket)
    assert connection.started().ticket.stream_id == f"s{MAX_ACTIVE}"
    connection.do(connection.lanes.refused(running[5].ticket, InvalidRequestError("No.")))
    assert connection.started().ticket.stream_id == f"s{MAX_ACTIVE + 1}"


@pytest.mark.requirement("websocket:lanes:names", "websocket:stream-id:echo")
def test_a_thirty_third_name_is_refused_and_the_known_ones_go_on(connection: Connection):
    for number in range(MAX_NAMED_LANES):
        connection.create(f"s{number}")
    connection.create("one-too-many")
    frame = connection.last()
    assert (frame["status"], frame["stream_id"]) == (400, "one-too-many")
    assert (frame["error"]["code"], frame["error"]["param"]) == ("websocket_stream_limit_reached", "stream_id")
    connection.create("s0")
    connection.create()
    assert connection.frames == []


@pytest.mark.requirement("websocket:lanes:queue")
def test_a_lane_has_room_for_so_many(connection: Connection):
    for _ in range(MAX_QUEUED + 1):
        connection.create("a")
    assert connection.frames == []
    connection.create("a")
    frame = connection.last()
    assert (frame["status"], frame["stream_id"]) == (429, "a")
    assert frame["error"]["code"] == "websocket_stream_queue_full"
    connection.create("b")
    assert connection.frames == []


@pytest.mark.requirement("websocket:cache:latest")
def test_a_lane_goes_on_from_its_latest_and_forgets_the_one_before(connection: Connection):
    one = connection.whole()
    connection.create(parent=one)
    start = connection.started()
    assert start.parent == f"history of {one}"
    two = connection.begin(start.ticket)
    connection.end(start.ticket, "incomplete")
    assert set(connection.kept) == {two}
    connection.create(parent=one)
    assert connection.started().parent is None


@pytest.mark.requirement("websocket:cache:latest")
def test_a_stored_or_failed_response_is_not_kept(connection: Connection):
    for end in ({"stored": True}, {"status": "failed"}, {"status": "cancelled"}):
        response_id = connection.whole(**end)
        connection.create(parent=response_id)
        start = connection.started()
        assert start.parent is None
        connection.do(connection.lanes.refused(start.ticket, NotFoundError("None.")))
    assert connection.kept == {}


@pytest.mark.requirement("websocket:cache:evict")
@pytest.mark.parametrize("how", ["refused", "failed", "cancelled"])
def test_a_failing_continuation_of_the_lane_evicts_its_parent(connection: Connection, how: str):
    one = connection.whole("a")
    connection.create("a", parent=one)
    ticket = connection.started().ticket
    if how == "refused":
        connection.do(connection.lanes.refused(ticket, InvalidRequestError("No.", code="no")))
        assert connection.last()["stream_id"] == "a"
    else:
        connection.begin(ticket)
        connection.end(ticket, how)
    assert connection.kept == {}
    connection.create("a", parent=one)
    assert connection.started().parent is None


@pytest.mark.requirement("websocket:cache:evict")
@pytest.mark.parametrize("other", [None, "resp_unknown"])
def test_a_failing_request_that_names_another_or_none_evicts_nothing(connection: Connection, other: str | None):
    one = connection.whole("a")
    connection.create("a", parent=other)
    connection.do(connection.lanes.refused(connection.started().ticket, InvalidRequestError("No.")))
    connection.create("a", parent=one)
    assert connection.started().parent == f"history of {one}"


@pytest.mark.requirement("websocket:cache:evict", "websocket:cache:fork")
@pytest.mark.parametrize("how", ["refused", "failed"])
def test_a_failing_fork_evicts_nothing(connection: Connection, how: str):
    one = connection.whole("a")
    connection.create("b", parent=one)
    start = connection.started()
    assert start.parent == f"history of {one}"
    if how == "refused":
        connection.do(connection.lanes.refused(start.ticket, InvalidRequestError("No.")))
    else:
        connection.begin(start.ticket)
        connection.end(start.ticket, "failed")
    connection.create("a", parent=one)
    assert connection.started().parent == f"history of {one}"


@pytest.mark.requirement("websocket:cache:fork")
def test_a_fork_of_a_running_response_waits_for_its_end(connection: Connection):
    connection.create("a")
    ticket = connection.started().ticket
    one = connection.begin(ticket)
    connection.create("b", parent=one)
    connection.create(parent=one)
    assert connection.starts == []
    connection.create("c")
    assert connection.started().ticket.stream_id == "c"
    connection.end(ticket)
    assert [(start.ticket.stream_id, start.parent) for start in connection.starts] == [
        ("b", f"history of {one}"),
        (None, f"history of {one}"),
    ]


@pytest.mark.requirement("websocket:cache:fork")
def test_what_a_waiting_fork_needs_is_kept_when_its_lane_goes_on(connection: Connection):
    one = connection.whole("a")
    connection.create("b")
    busy = connection.started().ticket
    connection.begin(busy)
    connection.create("b", parent=one)
    two = connection.whole("a", parent=one)
    assert set(connection.kept) == {one, two}
    connection.end(busy)
    assert connection.started().parent == f"history of {one}"
    assert one not in connection.kept


@pytest.mark.requirement("websocket:bounds:message")
def test_what_waits_is_counted_until_its_response_begins(connection: Connection):
    connection.create("a", input="x" * 100)
    connection.create("a", input="x" * 100)
    size = connection.lanes.held // 2
    assert size > 100
    connection.begin(connection.started().ticket)
    assert connection.lanes.held == size
    connection.do(connection.lanes.close(STOPPED))
    assert connection.lanes.held == 0


@pytest.mark.requirement("websocket:leave")
def test_an_abandoned_connection_keeps_nothing(connection: Connection):
    one = connection.whole("a")
    connection.create("b")
    connection.begin(connection.started().ticket)
    connection.create("b", parent=one)
    connection.whole("a", parent=one)
    assert len(connection.kept) == 2
    connection.lanes.abandon()
    assert connection.kept == {}


@pytest.mark.requirement("websocket:lifetime")
def test_an_idle_connection_is_told_and_closed(connection: Connection):
    connection.whole("a")
    connection.do(connection.lanes.close(EXPIRED))
    frame = connection.last()
    assert (frame["status"], frame["error"]["code"]) == (400, "websocket_connection_limit_reached")
    assert "stream_id" not in frame
    assert connection.closed == 1000
    assert connection.lanes.receive(b"{}") == []


@pytest.mark.requirement("websocket:lifetime")
def test_what_runs_may_end_what_waits_is_told_and_what_comes_too(connection: Connection):
    connection.create("a")
    ticket = connection.started().ticket
    one = connection.begin(ticket)
    connection.create("a")
    connection.create("b", parent=one)
    connection.do(connection.lanes.close(EXPIRED))
    assert [frame["stream_id"] for frame in connection.frames] == ["a", "b"]
    connection.frames.clear()
    connection.create("c")
    assert connection.last()["error"]["code"] == "websocket_connection_limit_reached"
    connection.steer(one)
    assert connection.last()["error"]["code"] == "response_not_active"
    assert connection.closed is None
    connection.do(connection.lanes.cut())
    assert connection.left == [ticket]
    connection.end(ticket, "cancelled")
    assert connection.last()["error"]["code"] == "websocket_connection_limit_reached"
    assert connection.closed == 1000


@pytest.mark.requirement("websocket:lifetime")
def test_what_begins_after_its_time_is_left_at_once(connection: Connection):
    connection.create("a")
    ticket = connection.started().ticket
    connection.do(connection.lanes.close(EXPIRED))
    connection.do(connection.lanes.cut())
    connection.begin(ticket)
    assert connection.left == [ticket]


@pytest.mark.requirement("websocket:stop")
def test_a_stop_closes_with_1012_and_refuses_with_503(connection: Connection):
    connection.create("a")
    ticket = connection.started().ticket
    connection.create("a")
    connection.do(connection.lanes.close(STOPPED))
    assert connection.last()["status"] == 503
    assert connection.lanes.close(EXPIRED) == []
    connection.begin(ticket)
    connection.end(ticket)
    assert (connection.frames, connection.closed) == ([], 1012)


@pytest.mark.requirement("websocket:steer:successor")
@pytest.mark.parametrize("status", ["incomplete", "completed"])
def test_a_steered_response_is_followed_by_one_with_the_input(connection: Connection, status: str):
    connection.create("a", input="first")
    ticket = connection.started().ticket
    one = connection.begin(ticket)
    ticket.sequence = 5
    connection.create("a", input="waits")
    connection.steer(one, "more")
    accepted = connection.last()
    assert (accepted["type"], accepted["sequence_number"], accepted["stream_id"]) == ("response.steer.accepted", 5, "a")
    assert accepted["steer"]["id"].startswith("steer_")
    assert accepted["steer"]["previous_response_id"] == one
    connection.steer(one, "and more")
    connection.frames.clear()
    assert connection.interrupted == [ticket, ticket]
    connection.end(ticket, status)
    start = connection.started()
    assert (start.ticket.parent_id, start.parent) == (one, f"history of {one}")
    assert isinstance(start.ticket.settings, CreateResponse)
    assert (start.ticket.settings.model, start.ticket.settings.items) == ("scripted", [])
    assert texts(start) == ["more", "and more"]
    two = connection.begin(start.ticket)
    connection.steer(two)
    assert connection.last()["type"] == "response.steer.accepted"
    connection.end(start.ticket, "incomplete")
    third = connection.started()
    assert texts(third) == ["more"]
    connection.begin(third.ticket)
    connection.end(third.ticket)
    waited = connection.started().ticket
    assert waited.message is not None
    assert json.loads(waited.message.body)["input"] == "waits"


@pytest.mark.requirement("websocket:steer:pending")
def test_a_steer_waits_for_the_outputs_of_calls_and_goes_before_them(connection: Connection):
    connection.create("a")
    ticket = connection.started().ticket
    one = connection.begin(ticket)
    connection.steer(one, "1")
    connection.steer(one, "2")
    connection.frames.clear()
    connection.end(ticket, required=True)
    assert connection.starts == []
    assert [frame["type"] for frame in connection.frames] == ["response.steer.pending"] * 2
    assert connection.frames[0]["required_input"] == [STUB]
    connection.frames.clear()
    connection.steer(one)
    assert connection.last()["error"]["code"] == "response_already_completed"
    connection.create("a", parent=one)
    start = connection.started()
    assert texts(start) == ["1", "2"]
    assert start.ticket.message is not None, "with its own settings"
    two = connection.begin(start.ticket)
    connection.end(start.ticket)
    connection.create("a", parent=two)
    assert texts(connection.started()) == []
    assert connection.frames == []


@pytest.mark.requirement("websocket:steer:failed", "websocket:steer:pending")
def test_a_waiting_steer_comes_back_when_its_lane_goes_on_without_it(connection: Connection):
    connection.create("a")
    ticket = connection.started().ticket
    connection.steer(connection.begin(ticket))
    connection.end(ticket, required=True)
    connection.frames.clear()
    connection.create("a")
    other = connection.started().ticket
    connection.begin(other)
    assert connection.frames == []
    connection.end(other)
    failed = connection.last()
    assert (failed["type"], failed["error"]["code"]) == ("response.steer.failed", "successor_creation_failed")
    assert (failed["steer"]["input"], failed["stream_id"]) == ("more", "a")


@pytest.mark.requirement("websocket:steer:failed")
def test_steers_that_cannot_be_committed_come_back(connection: Connection):
    connection.create()
    ticket = connection.started().ticket
    one = connection.begin(ticket)
    connection.steer(one)
    identity = connection.last()["steer"]["id"]
    connection.end(ticket, "incomplete")
    connection.do(connection.lanes.refused(connection.started().ticket, InvalidRequestError("Too long.")))
    failed = connection.last()
    assert failed["error"] == {
        "type": "invalid_request_error",
        "code": "successor_creation_failed",
        "message": "Too long.",
    }
    assert failed["steer"] == {"id": identity, "previous_response_id": one, "input": "more"}
    connection.create(parent=one)
    assert connection.started().parent == f"history of {one}", "the client may send its input again"


@pytest.mark.requirement("websocket:steer:failed")
@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_steers_of_a_response_that_fails_come_back(connection: Connection, status: str):
    connection.create()
    ticket = connection.started().ticket
    connection.steer(connection.begin(ticket))
    connection.frames.clear()
    connection.end(ticket, status)
    assert connection.last()["error"]["code"] == "successor_creation_failed"
    assert connection.starts == []


@pytest.mark.requirement("websocket:steer:failed", "websocket:stop")
def test_steers_come_back_when_the_connection_ends(connection: Connection):
    connection.create("a")
    waiting = connection.started().ticket
    connection.steer(connection.begin(waiting))
    connection.end(waiting, required=True)
    connection.create("b")
    running = connection.started().ticket
    connection.steer(connection.begin(running))
    connection.frames.clear()
    connection.do(connection.lanes.close(STOPPED))
    assert connection.last()["stream_id"] == "a"
    connection.end(running, "incomplete")
    assert connection.last()["stream_id"] == "b"
    assert connection.closed == 1012


@pytest.mark.requirement("websocket:steer:failed")
def test_a_steer_that_cannot_be_taken_says_why(connection: Connection):
    connection.steer("resp_0")
    failed = connection.last()
    assert failed["error"]["code"] == "response_not_found"
    assert failed["steer"] == {"previous_response_id": "resp_0", "input": "more"}
    assert "stream_id" not in failed
    connection.create("a")
    ticket = connection.started().ticket
    one = connection.begin(ticket)
    connection.steer(one, [])
    assert (connection.frames[0]["error"]["code"], connection.frames[0]["stream_id"]) == ("invalid_input", "a")
    connection.frames.clear()
    for _ in range(MAX_STEERS):
        connection.steer(one)
    assert {frame["type"] for frame in connection.frames} == {"response.steer.accepted"}
    connection.frames.clear()
    connection.steer(one)
    assert connection.last()["error"]["code"] == "too_many_pending_steers"
    done = connection.whole("b")
    connection.steer(done)
    assert connection.last()["error"]["code"] == "response_already_completed"
    cut = connection.whole("c", status="incomplete")
    connection.steer(cut)
    assert connection.last()["error"]["code"] == "response_not_active"
    connection.create("d")
    fixed = connection.begin(connection.started().ticket, steerable=False)
    connection.steer(fixed)
    assert connection.last()["error"]["code"] == "steering_not_supported"


@pytest.mark.requirement("websocket:steer:failed")
def test_steers_are_bounded_by_their_bytes(connection: Connection):
    connection.create()
    one = connection.begin(connection.started().ticket)
    connection.steer(one, "x" * (MAX_STEER_BYTES - 10))
    assert connection.last()["type"] == "response.steer.accepted"
    connection.steer(one, "x" * 10)
    assert connection.last()["error"]["code"] == "too_many_pending_steers"


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens, in whatever order: the bounds hold, and every request and every steer has one end."""

    def __init__(self) -> None:
        super().__init__()
        self.client = Connection()
        self.starting: list[Start[str]] = []
        self.running: list[Ticket] = []
        self.asked: dict[str | None, deque[int]] = {}
        self.asked_total = self.answered = 0
        self.accepted: set[str] = set()
        self.committed: set[str] = set()
        self.returned: set[str] = set()
        self.pending: set[str] = set()
        self.closing: Closing | None = None
        self.told = False

    def look(self) -> None:
        client = self.client
        if client.closed is not None and not self.told:
            self.told = True
            if self.closing is EXPIRED:
                assert "stream_id" not in client.frames.pop()
        for start in client.starts:
            lane = start.ticket.stream_id
            assert lane not in {ticket.stream_id for ticket in self.running}, "one at a time in a lane"
            assert lane not in {other.ticket.stream_id for other in self.starting}
            if start.ticket.message is not None:
                number = json.loads(start.ticket.message.body)["metadata"]
                assert self.asked[lane].popleft() == number, "in their order"
            self.starting.append(start)
        client.starts.clear()
        for frame in client.frames:
            self.see(frame)
        client.frames.clear()

    def see(self, frame: dict[str, Any]) -> None:
        if frame["type"] == "error":
            self.answered += 1
            return
        identity = frame["steer"].get("id")
        if frame["type"] == "response.steer.accepted":
            assert identity not in self.accepted
            self.accepted.add(identity)
        elif frame["type"] == "response.steer.pending":
            assert identity not in self.pending | self.committed | self.returned
            self.pending.add(identity)
        elif identity is not None:
            assert identity not in self.committed | self.returned
            self.returned.add(identity)

    @rule(lane=st.sampled_from([None, "s1", "s2", "s3"]), parent=st.integers(0, 8))
    def ask(self, lane: str | None, parent: int) -> None:
        self.create(lane, parent)

    def create(self, lane: str | None, parent: int) -> None:
        ids = [f"resp_{self.client.responses - back}" for back in range(8)]
        if self.client.closed is not None:
            return
        self.asked_total += 1
        refused = self.answered
        self.asked.setdefault(lane, deque()).append(self.asked_total)
        self.client.create(lane, ids[parent] if parent < 8 else None, metadata=self.asked_total)
        before = len(self.starting)
        if self.client.frames:
            self.asked[lane].pop()
        self.look()
        assert len(self.starting) - before <= 1
        assert self.answered - refused <= 1

    @rule(first=st.integers(0, 20), count=st.integers(1, 20))
    def burst(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            self.create(f"s{number}", 8)

    @precondition(lambda self: self.starting)
    @rule(data=st.data(), works=st.booleans(), steerable=st.booleans())
    def answer(self, data: st.DataObject, works: bool, steerable: bool) -> None:
        start = self.starting.pop(data.draw(st.integers(0, len(self.starting) - 1)))
        committed = {steer.id for steer in start.ticket.steers}
        assert committed <= self.accepted
        if works:
            assert not committed & (self.committed | self.returned)
            self.committed |= committed
            if start.ticket.message is not None:
                self.answered += 1
            self.running.append(start.ticket)
            self.client.begin(start.ticket, steerable=steerable)
        else:
            self.client.do(self.client.lanes.refused(start.ticket, InvalidRequestError("No.")))
        self.look()

    @precondition(lambda self: self.running)
    @rule(
        data=st.data(),
        status=st.sampled_from(["completed", "incomplete", "failed", "cancelled"]),
        required=st.booleans(),
        stored=st.booleans(),
    )
    def end(self, data: st.DataObject, status: str, required: bool, stored: bool) -> None:
        ticket = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.client.end(ticket, status, required=required, stored=stored)
        self.look()

    @precondition(lambda self: self.client.responses)
    @rule(back=st.integers(0, 4))
    def steer(self, back: int) -> None:
        self.client.steer(f"resp_{self.client.responses - back}")
        assert self.client.closed is not None or len(self.client.frames) == 1
        self.look()

    @precondition(lambda self: self.asked_total > 25)
    @rule(why=st.sampled_from([EXPIRED, STOPPED]), cut=st.booleans())
    def close(self, why: Closing, cut: bool) -> None:
        self.closing = self.closing or why
        self.client.do(self.client.lanes.close(why))
        if cut:
            self.client.do(self.client.lanes.cut())
        self.asked = {}
        self.look()

    @invariant()
    def bounds_hold(self) -> None:
        lanes = self.client.lanes
        assert lanes.active == len(self.starting) + len(self.running) <= MAX_ACTIVE
        assert lanes.held >= 0
        assert len(self.client.kept) <= MAX_NAMED_LANES + 1 + sum(map(len, self.asked.values()))
        if self.client.closed is None and not self.closing and lanes.active == 0:
            assert not any(self.asked.values()), "nothing waits while nothing runs"
        if self.closing and not lanes.active:
            assert self.client.closed is not None

    def teardown(self) -> None:
        """Everything comes to an end, and then nothing is left over."""
        while self.starting or self.running:
            while self.starting:
                ticket = self.starting.pop().ticket
                self.committed |= {steer.id for steer in ticket.steers}
                if ticket.message is not None:
                    self.answered += 1
                self.running.append(ticket)
                self.client.begin(ticket)
                self.look()
            self.client.end(self.running.pop(), stored=True)
            self.look()
        self.closing = self.closing or STOPPED
        self.client.do(self.client.lanes.close(STOPPED))
        self.look()
        assert self.client.lanes.held == 0
        assert self.answered == self.asked_total
        assert self.accepted == self.committed | self.returned
        self.client.lanes.abandon()
        assert self.client.kept == {}


@pytest.mark.requirement(
    "websocket:lanes:fifo",
    "websocket:lanes:active",
    "websocket:cache:latest",
    "websocket:steer:failed",
    "websocket:steer:successor",
)
def test_every_request_and_every_steer_has_one_end_in_any_order():
    run_state_machine_as_test(AnyOrder, settings=settings(max_examples=60, stateful_step_count=50, deadline=None))
