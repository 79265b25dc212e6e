"""Random programs of deltas, for properties of the machine."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from antiphon.machine.assembler import Assembler
from antiphon.machine.deltas import (
    AnnotationDelta,
    CallItemDelta,
    CommandStart,
    Delta,
    MessageStart,
    PatchStart,
    RawItemDelta,
    ReasoningDelta,
    RefusalDelta,
    ShellLimits,
    ShellStart,
    Stop,
    SummaryDelta,
    TextDelta,
    ThoughtEnd,
    TokenUsage,
    ToolCallDelta,
    ToolCallStart,
)
from antiphon.machine.log import EventLog
from antiphon.protocol.events import Event, RawEvent, decode_event
from antiphon.protocol.parts import Logprob, TopLogprob
from antiphon.protocol.response import Response, ResponseError
from antiphon.protocol.sse import SSEParser

__all__ = ["endings", "events_of", "programs", "run_program"]

texts = st.text(max_size=12)
logprobs = st.builds(
    lambda token, value: [
        Logprob(token, list(token.encode()), value, [TopLogprob(token, list(token.encode()), value)])
    ],
    st.text(min_size=1, max_size=4),
    st.floats(max_value=0, min_value=-20),
)
deltas: st.SearchStrategy[Delta] = st.one_of(
    st.builds(TextDelta, texts, st.none() | logprobs),
    st.builds(ReasoningDelta, texts),
    st.builds(RefusalDelta, texts),
    st.builds(SummaryDelta, texts, st.booleans()),
    st.builds(ThoughtEnd, st.sampled_from(["", "sealed"])),
    st.builds(MessageStart, st.none() | st.just("commentary")),
    st.builds(AnnotationDelta, st.just({"type": "url_citation", "url": "u", "title": "t"})),
    st.builds(ToolCallStart, st.sampled_from(["f", "g"]), st.booleans(), st.none() | st.just("ns")),
    st.builds(ToolCallDelta, texts),
    st.just(ShellStart()),
    st.just(CommandStart()),
    st.builds(ShellLimits, st.none() | st.just(1000), st.none() | st.just(10)),
    st.builds(PatchStart, st.sampled_from(["create_file", "update_file", "delete_file"]), st.sampled_from("ab")),
    st.builds(
        CallItemDelta,
        st.sampled_from(
            [
                {"type": "tool_search_call", "execution": "server", "arguments": {"query": "q"}},
                {"type": "tool_search_call", "execution": "client", "arguments": {}},
                {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"], "env": {}}},
            ]
        ),
    ),
    st.builds(RawItemDelta, st.just({"type": "file_search_call", "queries": ["q"], "status": "completed"})),
)
programs = st.lists(st.lists(deltas, max_size=8), max_size=8)
"""Lists of lists of deltas: what an engine yields before its `Stop`."""

endings = st.sampled_from(["stop", "length", "fail", "cancel"])
"""How a program ends."""

USAGE = TokenUsage(input_tokens=7, output_tokens=11, cached_tokens=3, reasoning_tokens=2)


def run_program(
    program: Sequence[Sequence[Delta]],
    ending: str,
    *,
    parallel: bool = True,
    logprobs: bool = True,
    dialect: str = "openai",
    whole_parts: bool = False,
) -> EventLog:
    """The log of a program: opened, fed and ended."""
    log = EventLog(Response(id="resp_test", created_at=1, model="m"), dialect)
    log.open()
    assembler = Assembler(log, logprobs=logprobs, parallel_tool_calls=parallel, whole_parts=whole_parts)
    for batch in program:
        assembler.feed(batch)
    if ending == "fail":
        assembler.fail(ResponseError("server_error", "It broke."))
    elif ending == "cancel":
        assembler.cancel()
    else:
        assembler.feed([Stop(ending, USAGE)])
        assembler.finish(2)
    return log


def events_of(frames: Sequence[bytes]) -> list[Event | RawEvent]:
    """The events of frames, parsed from their bytes."""
    return [decode_event(event.data) for event in SSEParser().feed(b"".join(frames))]
