"""Calls as steps, without a connection: what is asked for, again or further, and what becomes of the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.client.chunks import Chunk, ContentChunk
from antiphon.client.context import Context, assistant, user
from antiphon.client.driver import Driver, StreamCall
from antiphon.client.errors import BodyError, ContextError, EndpointError, StreamCutError, TransportError
from antiphon.client.profiles import ANTIPHON, GENERIC, MIXEDBREAD, OPENAI, Profile
from antiphon.client.request import Request
from antiphon.client.response import Response
from antiphon.client.retries import RetryPolicy
from antiphon.client.routes import Routes
from antiphon.client.steps import Answer, Ask, Emit, Pause, Player, Read, Steps
from antiphon.protocol.sse import SSEParser

requirement = pytest.mark.requirement
BASE = "http://host/v1"
SSE = {"content-type": "text/event-stream"}
ID = "resp_1"


def body_of(text: str = "hi", **fields: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    return {"id": ID, "object": "response", "status": "completed", "model": "m", "output": [item], **fields}


def answer(body: Any, status: int = 200, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, named, msgspec.json.encode(body))


def refusal(status: int, code: str | None = None, **headers: str) -> Answer:
    return answer({"error": {"message": "no", "type": "t", "param": None, "code": code}}, status, **headers)


def events_of(words: list[str], **fields: Any) -> list[dict[str, Any]]:
    """The events of a whole stream."""
    begun = {"id": ID, "object": "response", "status": "in_progress", "model": "m", "output": [], **fields}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}
    whole = body_of("".join(words), **fields)
    found: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        *({"type": "response.output_text.delta", "delta": word, **place} for word in words),
        {"type": "response.output_text.done", "text": "".join(words), **place},
        {"type": "response.output_item.done", "output_index": 0, "item": whole["output"][0]},
        {"type": "response.completed", "response": whole},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(found)]


def wire(events: list[dict[str, Any]], *, done: bool = True) -> bytes:
    frames = [
        b"event: " + event["type"].encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n" for event in events
    ]
    return b"".join(frames) + (b"data: [DONE]\n\n" if done else b"")


class Shell:
    """Plays a call against a list of answers; what is open is read in pieces, and may break off."""

    def __init__(self, *script: Answer | TransportError | bytes | tuple[bytes, TransportError | None]) -> None:
        self.script = list(script)
        self.asked: list[Ask] = []
        self.pauses: list[float] = []
        self.chunks: list[Chunk] = []
        self.piece = 37
        self._open: Iterator[bytes] = iter(())

    def play(self, steps: Steps[Any]) -> Any:
        player = Player(steps)
        result: Any = None
        failure: TransportError | None = None
        while (step := player.next(result, failure)) is not None:
            result = failure = None
            if isinstance(step, Emit):
                self.chunks += step.chunks
            elif isinstance(step, Pause):
                self.pauses.append(step.seconds)
            else:
                try:
                    result = next(self._open, b"") if isinstance(step, Read) else self._answer(step)
                except TransportError as error:
                    failure = error
        return player.value

    def _answer(self, ask: Ask) -> Answer:
        self.asked.append(ask)
        found = self.script.pop(0)
        if isinstance(found, TransportError):
            raise found
        if isinstance(found, Answer):
            return found
        data, end = found if isinstance(found, tuple) else (found, None)
        self._open = self._pieces(data, end)
        return Answer(200, SSE, open=True)

    def _pieces(self, data: bytes, end: TransportError | None) -> Iterator[bytes]:
        for start in range(0, len(data), self.piece):
            yield data[start : start + self.piece]
        if end is not None:
            raise end

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(ask.body) for ask in self.asked if ask.body]


BROKEN = TransportError("it broke off")


def driver(profile: Profile = ANTIPHON, **options: Any) -> Driver:
    policy = RetryPolicy(max_retries=2, chance=lambda: 0.0)
    return Driver(profile, Routes(BASE), {"authorization": "Bearer k"}, policy=policy, **options)


def request(profile: Profile = ANTIPHON, context: Any = "hi", **options: Any) -> Request:
    return Request(profile, context, options, "m")


def streaming(profile: Profile = ANTIPHON, context: Any = "hi", resume: bool = True, **options: Any) -> StreamCall:
    return StreamCall(driver(profile, resume=resume), request(profile, context, **{"stream": True, **options}))


def texts(chunks: list[Chunk]) -> list[str]:
    return [chunk.text for chunk in chunks if isinstance(chunk, ContentChunk)]


@requirement("driver:requests")
def test_a_whole_answer_is_asked_for_once() -> None:
    shell = Shell(answer(body_of()))
    found: Response = shell.play(driver().respond(request()))
    assert found.text == "hi"
    [ask] = shell.asked
    assert (ask.method, ask.url, ask.streamed) == ("POST", f"{BASE}/responses", False)
    assert ask.headers["authorization"] == "Bearer k"
    assert ask.headers["content-type"] == ask.headers["accept"] == "application/json"
    assert ask.headers["user-agent"].startswith("antiphon/")
    assert "idempotency-key" not in ask.headers


@requirement("driver:retries")
def test_it_is_sent_again_after_a_status_and_a_failure() -> None:
    shell = Shell(refusal(503, retry_after_ms="20"), BROKEN, answer(body_of()))
    assert shell.play(driver().respond(request())).text == "hi"
    assert shell.pauses == [0.02, 1.0]
    assert len({ask.body for ask in shell.asked}) == 1


@requirement("driver:retries")
@pytest.mark.parametrize("last", [refusal(500), BROKEN])
def test_the_last_failure_is_the_callers(last: Answer | TransportError) -> None:
    shell = Shell(BROKEN, refusal(500), last)
    with pytest.raises(TransportError if isinstance(last, TransportError) else EndpointError):
        shell.play(driver().respond(request()))
    assert len(shell.asked) == 3


@requirement("driver:retries")
def test_a_refusal_is_not_sent_again() -> None:
    shell = Shell(refusal(400, "invalid_value"))
    with pytest.raises(EndpointError) as caught:
        shell.play(driver().respond(request()))
    assert (caught.value.status, caught.value.code, caught.value.message) == (400, "invalid_value", "no")


@requirement("driver:requests")
def test_what_is_no_answer_is_told() -> None:
    with pytest.raises(BodyError):
        Shell(Answer(200, {}, b"<html>")).play(driver().respond(request()))


@requirement("driver:requests")
def test_what_is_not_json_is_not_sent() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    for options in ({"instructions": "half \ud83d"}, {"extra_body": {"x": object()}}, {"extra_body": {"x": deep}}):
        shell = Shell()
        with pytest.raises(ContextError, match="not JSON"):
            shell.play(driver().respond(request(**options)))
        with pytest.raises(ContextError, match="not JSON"):
            shell.play(streaming(**options).steps())
        assert shell.asked == []


@requirement("driver:background")
def test_a_response_in_the_background_is_asked_for_until_it_has_ended() -> None:
    running = answer(body_of(status="in_progress", output=[]))
    slower = answer(body_of(status="in_progress", output=[]), openai_poll_after_ms="700")
    shell = Shell(answer(body_of(status="queued", output=[])), running, slower, running, answer(body_of()))
    assert shell.play(driver().respond(request(background=True))).text == "hi"
    assert [ask.method for ask in shell.asked] == ["POST", "GET", "GET", "GET", "GET"]
    assert {ask.url for ask in shell.asked[1:]} == {f"{BASE}/responses/{ID}"}
    assert shell.pauses == [0.1, 0.7, pytest.approx(0.225)]
    assert shell.asked[0].headers["idempotency-key"]


@requirement("driver:background")
def test_one_may_begin_it_and_come_back() -> None:
    shell = Shell(answer(body_of(status="queued", output=[])), answer(body_of()), answer(body_of()), answer(body_of()))
    own = driver()
    begun: Response = shell.play(own.respond(request(background=True), wait=False))
    assert (begun.status, begun.response_id) == ("queued", ID)
    assert shell.play(own.wait(ID)).text == shell.play(own.retrieve(ID)).text == shell.play(own.cancel(ID)).text == "hi"
    assert [(ask.method, ask.url.removeprefix(BASE)) for ask in shell.asked] == [
        ("POST", "/responses"),
        ("GET", f"/responses/{ID}"),
        ("GET", f"/responses/{ID}"),
        ("POST", f"/responses/{ID}/cancel"),
    ]


@requirement("driver:requests")
def test_a_response_is_deleted_or_it_is_told_why_not() -> None:
    shell = Shell(answer({"deleted": True}), refusal(404, "response_not_found"))
    assert shell.play(driver().delete(ID)) is None
    assert (shell.asked[0].method, shell.asked[0].url) == ("DELETE", f"{BASE}/responses/{ID}")
    with pytest.raises(EndpointError, match="404"):
        shell.play(driver().delete(ID))


@requirement("driver:requests")
def test_a_compacted_conversation_is_a_message_that_stands_for_it() -> None:
    block = {"type": "compaction", "id": "cmp_1", "encrypted_content": "zip"}
    shell = Shell(answer({"id": "resp_c", "object": "response.compaction", "output": [block]}))
    made: Response = shell.play(driver().compact([user("one"), assistant("two")], {}, "m"))
    assert shell.asked[0].url == f"{BASE}/responses/compact"
    again = request(ANTIPHON, [made.message, user("on")]).body
    assert again["input"][0] == block
    assert "previous_response_id" not in again


class Place(msgspec.Struct):
    name: str
    x: int = 0


@requirement("driver:objects")
def test_a_structured_answer_is_of_the_type_that_was_asked_for() -> None:
    shell = Shell(
        answer(body_of('{"name":"sea"}')), answer(body_of('{"x":1}')), wire(events_of(['{"name":', '"sea"}']))
    )
    assert shell.play(driver().respond(request(text_format=Place))).object == Place("sea")
    wrong: Response = shell.play(driver().respond(request(text_format=Place)))
    assert (wrong.object, wrong.object_error) == (None, "validation_failed")
    assert shell.play(streaming(text_format=Place).steps()).object == Place("sea")


@requirement("driver:objects")
def test_a_type_may_refuse_what_its_schema_takes() -> None:
    class Even(msgspec.Struct):
        n: int

        def __post_init__(self) -> None:
            if self.n % 2:
                raise ValueError("odd")

    shell = Shell(answer(body_of('{"n":2}')), answer(body_of('{"n":3}')), answer(body_of('{"n":2}')))
    assert shell.play(driver().respond(request(text_format=Even))).object == Even(2)
    wrong: Response = shell.play(driver().respond(request(text_format=Even)))
    assert (wrong.object, wrong.object_error) == (None, "validation_failed")
    assert wrong.provider_meta["object_parse_error"] == "validation_failed"
    plain: Response = shell.play(driver().respond(request(text_format="json_object")))
    assert plain.object == {"n": 2}


@requirement("driver:objects")
def test_who_knows_no_formats_answers_by_a_call() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "structured_output", "arguments": '{"name":"sea","x":2}'}
    shell = Shell(answer(body_of(output=[call])))
    assert shell.play(driver(MIXEDBREAD).respond(request(MIXEDBREAD, text_format=Place))).object == Place("sea", 2)


def chained() -> Context:
    message = assistant("yes")
    message.metadata.response_id = "resp_0"
    return Context([user("one"), message, user("two")])


@requirement("driver:fallbacks")
@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_that_the_endpoint_forgot_is_not_gone_on_from(streamed: bool) -> None:
    forgotten = refusal(400, "previous_response_not_found")
    if streamed:
        shell = Shell(forgotten, wire(events_of(["hi"])))
        found = shell.play(streaming(context=chained()).steps())
    else:
        shell = Shell(forgotten, answer(body_of()))
        found = shell.play(driver().respond(request(context=chained())))
    assert found.text == "hi"
    first, second = shell.bodies
    assert (first["previous_response_id"], len(first["input"])) == ("resp_0", 1)
    assert "previous_response_id" not in second
    assert len(second["input"]) == 3


@requirement("driver:fallbacks")
def test_what_the_caller_names_must_be_there() -> None:
    shell = Shell(refusal(400, "previous_response_not_found"))
    with pytest.raises(EndpointError):
        shell.play(driver().respond(request(context="on", previous_response_id="resp_0")))


@requirement("driver:fallbacks")
def test_where_nothing_is_stored_streams_are_not_in_the_background() -> None:
    shell = Shell(refusal(400, "response_storage_disabled"), wire(events_of(["hi"])))
    call = streaming()
    assert shell.play(call.steps()).text == "hi"
    assert [body.get("background") for body in shell.bodies] == [True, None]
    assert call.to_cancel is None
    with pytest.raises(EndpointError):
        Shell(refusal(400, "response_storage_disabled")).play(streaming(background=True).steps())


@requirement("driver:streams")
@pytest.mark.parametrize("profile", [ANTIPHON, OPENAI, GENERIC])
def test_a_stream_is_chunks_and_the_answer_of_the_same_bytes(profile: Profile) -> None:
    shell = Shell(wire(events_of(["a", "b"])))
    found = shell.play(streaming(profile).steps())
    assert texts(shell.chunks) == ["a", "b"]
    [ask] = shell.asked
    assert (ask.streamed, ask.headers["accept"]) == (True, "text/event-stream")
    assert msgspec.json.decode(ask.body or b"")["stream"] is True
    whole = Shell(answer(body_of("ab"))).play(driver(profile).respond(request(profile)))
    assert found == whole


@requirement("driver:streams")
def test_a_stream_ends_with_its_terminal_event_whatever_follows_or_does_not() -> None:
    for end in (None, BROKEN):
        shell = Shell((wire(events_of(["a"]), done=False) + b"data: {", end))
        assert shell.play(streaming(GENERIC).steps()).text == "a"


@requirement("driver:streams")
@pytest.mark.parametrize("end", [None, BROKEN])
@pytest.mark.parametrize("failed", [False, True])
def test_after_an_error_what_fails_may_still_say_more(failed: bool, end: TransportError | None) -> None:
    events = events_of(["a"])[:4]
    error = {"message": "boom", "code": "server_error"}
    events.append({"type": "error", "sequence_number": 4, "error": error})
    usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    if failed:
        body = body_of(status="failed", error=error, output=[], usage=usage)
        events.append({"type": "response.failed", "sequence_number": 5, "response": body})
    found: Response = Shell((wire(events, done=end is None), end)).play(streaming(GENERIC).steps())
    assert found.problem is not None
    assert (found.problem.message, found.usage.total_tokens) == ("boom", 3 if failed else 0)


@requirement("driver:streams")
def test_who_does_not_stream_gives_the_whole() -> None:
    shell = Shell(answer(body_of("whole")))
    assert shell.play(streaming(GENERIC).steps()).text == "whole"
    assert texts(shell.chunks) == ["whole"]
    cut = body_of("half", status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert Shell(answer(cut)).play(streaming(GENERIC).steps()).finish_reason == "length"


@requirement("driver:streams")
def test_garbage_is_no_stream() -> None:
    with pytest.raises(BodyError):
        Shell(b"data: \xff\n\n").play(streaming(GENERIC).steps())


@requirement("driver:streams")
def test_a_cut_that_cannot_be_mended_is_told_with_where_it_was() -> None:
    half = wire(events_of(["a", "b"])[:4], done=False)
    for call, end in (
        (streaming(GENERIC), None),
        (streaming(OPENAI), BROKEN),
        (streaming(ANTIPHON, resume=False), None),
    ):
        shell = Shell((half, end))
        with pytest.raises(StreamCutError) as caught:
            shell.play(call.steps())
        assert (caught.value.response_id, caught.value.last_sequence_number) == (ID, 3)
        assert texts(shell.chunks) == ["a"]
        assert len(shell.asked) == 1


@requirement("driver:resume")
def test_streams_are_in_the_background_where_they_can_be_taken_up_again() -> None:
    bodies = [
        Shell(wire(events_of(["a"]))).play(call.steps()) and call._request.body
        for call in (streaming(ANTIPHON), streaming(ANTIPHON, resume=False), streaming(OPENAI), streaming(GENERIC))
    ]
    assert [body.get("background") for body in bodies] == [True, None, None, None]
    assert streaming(store=False)._request.body.get("background") is None
    assert streaming(background=False)._request.body["background"] is False


@requirement("driver:resume")
def test_a_broken_stream_goes_on_after_the_last_event() -> None:
    events = events_of(["a", "b", "c"])
    for profile in (ANTIPHON, OPENAI):
        shell = Shell((wire(events[:5], done=False), BROKEN), wire(events[5:]))
        call = streaming(profile, background=True)
        assert shell.play(call.steps()).text == "abc"
        assert texts(shell.chunks) == ["a", "b", "c"]
        again = shell.asked[1]
        assert (again.method, again.streamed) == ("GET", True)
        assert again.url == f"{BASE}/responses/{ID}?stream=true&starting_after=4"
        assert shell.pauses == []


@requirement("driver:resume")
def test_one_that_broke_before_it_began_is_asked_for_again_with_its_key() -> None:
    shell = Shell((b"event: resp", BROKEN), BROKEN, wire(events_of(["a"])))
    assert shell.play(streaming().steps()).text == "a"
    assert [ask.method for ask in shell.asked] == ["POST"] * 3
    assert len({ask.headers["idempotency-key"] for ask in shell.asked}) == 1
    with pytest.raises(TransportError):
        Shell((b"event: resp", BROKEN)).play(streaming(OPENAI, background=True).steps())


@requirement("driver:resume")
def test_one_that_gets_no_further_is_given_up_after_pauses() -> None:
    half = wire(events_of(["a"])[:4], done=False)
    shell = Shell(half, b"", b": keep-alive\n\n", b"", b"")
    with pytest.raises(StreamCutError):
        shell.play(streaming().steps())
    assert shell.pauses == [0.5, 1.0]
    gone = Shell(half, refusal(404, "response_not_found"))
    with pytest.raises(StreamCutError) as caught:
        gone.play(streaming().steps())
    assert isinstance(caught.value.__cause__, EndpointError)


@requirement("driver:cancel")
def test_who_leaves_early_has_the_answer_cancelled_that_runs_for_the_stream_only() -> None:
    half = wire(events_of(["a"])[:4], done=False)
    for call, wanted in (
        (streaming(), ID),
        (streaming(background=True), None),
        (streaming(GENERIC), None),
    ):
        assert call.to_cancel is None
        with pytest.raises(StreamCutError):
            Shell(half, *[b""] * 4).play(call.steps())
        assert call.to_cancel == wanted
    ended = streaming()
    Shell(wire(events_of(["a"]))).play(ended.steps())
    assert ended.to_cancel is None


WORDS = [f"w{number} " for number in range(12)]
WHOLE = events_of(WORDS)
FRAMES = [wire([event], done=False) for event in WHOLE]
Cut = tuple[int, bool, int]


class Replaying(Shell):
    """An endpoint that has the whole log, and whose connections break after so many bytes, by an error or without."""

    def __init__(self, cuts: list[Cut], *, ignores_number: bool) -> None:
        super().__init__()
        self.cuts = cuts
        self.ignores_number = ignores_number

    def _answer(self, ask: Ask) -> Answer:
        self.asked.append(ask)
        after = -1
        if ask.method == "GET" and not self.ignores_number:
            after = int(ask.url.rpartition("=")[2])
        data = b"".join(FRAMES[after + 1 :]) + b"data: [DONE]\n\n"
        end: TransportError | None = None
        if self.cuts:
            length, broken, self.piece = self.cuts.pop()
            data, end = data[:length], BROKEN if broken else None
        self._open = self._pieces(data, end)
        return Answer(200, SSE, open=True)


@requirement("driver:resume")
@given(
    st.lists(st.tuples(st.integers(0, 5000), st.booleans(), st.integers(1, 900)), max_size=5),
    st.booleans(),
)
def test_wherever_a_stream_breaks_each_chunk_comes_once(cuts: list[Cut], ignores_number: bool) -> None:
    call = StreamCall(
        Driver(ANTIPHON, Routes(BASE), {}, policy=RetryPolicy(max_retries=9, chance=lambda: 0.0)),
        request(stream=True),
    )
    shell = Replaying(list(cuts), ignores_number=ignores_number)
    found = shell.play(call.steps())
    undisturbed = Shell(wire(WHOLE))
    assert found == undisturbed.play(streaming().steps())
    assert shell.chunks == undisturbed.chunks


def names(events: Mapping[str, Any] | list[Any], read: Callable[[Any], str]) -> list[str]:
    return [read(event) for event in events]


@requirement("driver:streams")
def test_these_events_are_a_stream_as_the_server_sends_it() -> None:
    frames = SSEParser().feed(wire(WHOLE))
    assert names(frames[:-1], lambda frame: frame.event) == names(WHOLE, lambda event: event["type"])
    assert frames[-1].data == "[DONE]"
