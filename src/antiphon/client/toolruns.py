"""The tool loop: a model is asked, its calls of local functions are made, and their results sent, until it answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self, TypeAlias, Unpack, cast

import anyio
import msgspec
from msgspec import Struct

from antiphon.client.chunks import Chunk
from antiphon.client.context import Context, ToolCall, tool_result
from antiphon.client.encode import Conversation, as_context
from antiphon.client.errors import DriverError
from antiphon.client.options import Options
from antiphon.client.response import Response, ToolUsage, Usage, UsageReported
from antiphon.client.streams import AsyncStream, Stream
from antiphon.client.structured import STRUCTURED_OUTPUT
from antiphon.client.toolcalls import Outcome, PlannedCall, Toolbox, is_asynchronous

__all__ = [
    "Asks",
    "AsksAsync",
    "AsyncToolStream",
    "Stopped",
    "ToolLimits",
    "ToolRun",
    "ToolStream",
    "run_tools",
    "run_tools_async",
    "stream_tools",
    "stream_tools_async",
]

Stopped: TypeAlias = Literal["answer", "refusal", "length", "problem", "pending", "rounds", "calls"]
"""Why a run ended: the model answered or refused, its answer was cut or failed, it called what nobody here can run, or
a limit was reached."""

Functions: TypeAlias = Mapping[str, Callable[..., Any]]
"""What runs for tools that are not Python functions themselves, by their names."""

Approve: TypeAlias = Callable[[ToolCall], Any]
"""What says whether the endpoint may make a call of an MCP server: true or false, in time or awaited."""

_EARLY: Final[Mapping[str, Stopped]] = {"content_filter": "refusal", "length": "length", "error": "problem"}


class ToolLimits(Struct, frozen=True):
    """How far a run goes.

    `rounds` is how often the model is asked at most, `calls` how many calls are made in all, `seconds` how long one may
    take (None: as long as it likes, and in the caller's own thread), `parallel` how many of one turn run at once where
    the run is asynchronous.
    """

    rounds: int = 20
    calls: int = 100
    seconds: float | None = 120.0
    parallel: int = 8


DEFAULT_LIMITS: Final = ToolLimits()


class ToolRun(Struct):
    """How a run went.

    `response` is the last answer, `responses` are all of them, `outcomes` what came of each call. `context` is the
    whole conversation with it, to go on from; where `pending` calls are left, their results are to be added first.
    """

    response: Response
    responses: list[Response]
    outcomes: list[Outcome]
    context: Context
    stopped: Stopped
    usage: Usage

    @property
    def text(self) -> str:
        """The text of the last answer."""
        return self.response.text

    @property
    def object(self) -> Any:
        """The structured answer, where one was asked for."""
        return self.response.object

    @property
    def pending(self) -> list[ToolCall]:
        """The calls of the last answer that wait for a result."""
        return [] if self.stopped in ("answer", "refusal", "problem") else self.response.local_tool_calls


class Asks(Protocol):
    """What is asked: a `Client`, or a session of one."""

    def respond(self, context: Conversation, *, model: str | None = None, **options: Unpack[Options]) -> Response:
        """The whole answer."""
        ...

    def stream(self, context: Conversation, *, model: str | None = None, **options: Unpack[Options]) -> Stream:
        """The answer as it comes."""
        ...


class AsksAsync(Protocol):
    """What is asked: an `AsyncClient`, or a session of one."""

    async def respond(self, context: Conversation, *, model: str | None = None, **options: Unpack[Options]) -> Response:
        """The whole answer."""
        ...

    def stream(self, context: Conversation, *, model: str | None = None, **options: Unpack[Options]) -> AsyncStream:
        """The answer as it comes."""
        ...


class _Rounds:
    """Where a run stands, without I/O: what to ask next, and what to make of the answer."""

    def __init__(
        self,
        conversation: Conversation,
        functions: Functions | None,
        limits: ToolLimits,
        options: Options,
        approve: Approve | None,
    ) -> None:
        self.limits = limits
        self.approve = approve
        self.options: Options = {**options}
        self.context = as_context(conversation).copy()
        # Results beside the context belong before what comes next, in every round (#455).
        for output in self.options.pop("tool_outputs", None) or ():
            if output.get("call_id"):
                self.context.append(tool_result(str(output["call_id"]), output.get("output")))
        self.toolbox = Toolbox(self.options.get("tools") or (), functions)
        wanted = self.options.get("text_format") or self.options.get("response_format")
        self._structured = wanted is not None and STRUCTURED_OUTPUT not in self.toolbox.functions
        self._responses: list[Response] = []
        self._outcomes: list[Outcome] = []
        self._stopped: Stopped = "answer"

    def take(self, response: Response) -> list[PlannedCall] | None:
        """The calls that are to be made now; None where the run has ended."""
        self._responses.append(response)
        planned, self._stopped = self._plan(response)
        if self._stopped != "problem":
            self.context.append(response.message)
        if planned is None and self._stopped == "answer":
            # A call without a result could not be gone on from (#455).
            taken = [tool_result(call.id, "This was taken as the answer.") for call in response.local_tool_calls]
            self.context.append(*taken)
        return planned

    def give(self, outcomes: Sequence[Outcome]) -> None:
        """What came of them."""
        self._outcomes += outcomes
        self.context.append(*(outcome.message for outcome in outcomes))
        last = self._responses[-1].response_id
        # Who named an answer to go on from goes on from the next; the encoder sees to all others (#421).
        if self.options.get("previous_response_id") and self.options.get("chain") is not False and last:
            self.options["previous_response_id"] = last
        self.options["tool_choice"] = _no_longer_forced(self.options.get("tool_choice"))

    def result(self) -> ToolRun:
        """The run as it stands."""
        usage = _sum([response.usage for response in self._responses])
        response = self._responses[-1]
        return ToolRun(response, self._responses, self._outcomes, self.context, self._stopped, usage)

    def _plan(self, response: Response) -> tuple[list[PlannedCall] | None, Stopped]:
        calls = response.local_tool_calls
        early = _EARLY.get(response.finish_reason)
        if early is not None:
            return None, early
        if response.status == "cancelled":
            return None, "problem"
        requests = response.approval_requests
        if not (calls or requests) or (self._structured and any(call.name == STRUCTURED_OUTPUT for call in calls)):
            return None, "answer"
        planned = [self.toolbox.plan(call) for call in calls]
        if None in planned or (requests and self.approve is None):
            return None, "pending"
        if self.approve is not None:
            planned += [PlannedCall(request, partial(self.approve, request)) for request in requests]
        if len(self._responses) >= self.limits.rounds:
            return None, "rounds"
        if len(self._outcomes) + len(planned) > self.limits.calls:
            return None, "calls"
        return cast("list[PlannedCall]", planned), "answer"


def run_tools(
    asked: Asks,
    context: Conversation,
    *,
    functions: Functions | None = None,
    limits: ToolLimits = DEFAULT_LIMITS,
    approve: Approve | None = None,
    model: str | None = None,
    **options: Unpack[Options],
) -> ToolRun:
    """Ask with `tools`, make the calls of those that are functions, and send the results, until there is an answer.

    `asked` is a client or a session. `functions` are those of tools given as types or mappings, by name. What a
    function raises, and a call that is none, the model is told as data. Calls that the endpoint executed are left
    alone. Where it asks first whether it may call a tool of an MCP server, `approve` is called with that call, and what
    it raises, or anything but True, means no. A `tool_choice` counts for the first round. The conversation that is
    given does not change.

    Raises:
        DriverError: as `respond` does; a function is asynchronous.
    """
    rounds = _synchronous(_Rounds(context, functions, limits, options, approve))
    while True:
        planned = rounds.take(asked.respond(rounds.context, model=model, **rounds.options))
        if planned is None:
            return rounds.result()
        rounds.give([call.run(limits.seconds) for call in planned])


async def run_tools_async(
    asked: AsksAsync,
    context: Conversation,
    *,
    functions: Functions | None = None,
    limits: ToolLimits = DEFAULT_LIMITS,
    approve: Approve | None = None,
    model: str | None = None,
    **options: Unpack[Options],
) -> ToolRun:
    """As `run_tools`; the calls of one turn run at once, and functions may be asynchronous.

    Raises:
        DriverError: as `respond` does.
    """
    rounds = _Rounds(context, functions, limits, options, approve)
    while True:
        planned = rounds.take(await asked.respond(rounds.context, model=model, **rounds.options))
        if planned is None:
            return rounds.result()
        rounds.give(await _at_once(planned, limits))


def stream_tools(
    asked: Asks,
    context: Conversation,
    *,
    functions: Functions | None = None,
    limits: ToolLimits = DEFAULT_LIMITS,
    approve: Approve | None = None,
    model: str | None = None,
    **options: Unpack[Options],
) -> ToolStream:
    """As `run_tools`, as it comes: the chunks of every round, and what came of each call.

    Raises:
        DriverError: a function is asynchronous.
    """
    return ToolStream(asked, _synchronous(_Rounds(context, functions, limits, options, approve)), model)


def stream_tools_async(
    asked: AsksAsync,
    context: Conversation,
    *,
    functions: Functions | None = None,
    limits: ToolLimits = DEFAULT_LIMITS,
    approve: Approve | None = None,
    model: str | None = None,
    **options: Unpack[Options],
) -> AsyncToolStream:
    """As `run_tools_async`, as it comes: the chunks of every round, and what came of each call."""
    return AsyncToolStream(asked, _Rounds(context, functions, limits, options, approve), model)


class ToolStream:
    """A run as it comes. Iterate it for chunks and outcomes; `result()` is the run. Who leaves early calls `close`."""

    def __init__(self, asked: Asks, rounds: _Rounds, model: str | None) -> None:
        self._rounds = rounds
        self._events = self._play(asked, model)
        self._ended = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Chunk | Outcome:
        return next(self._events)

    def result(self) -> ToolRun:
        """The run; what nobody has taken yet is passed over.

        Raises:
            DriverError: as the stream itself does; it was left before its end.
        """
        for _ in self._events:
            pass
        if not self._ended:
            raise _left_early()
        return self._rounds.result()

    def close(self) -> None:
        """Leave."""
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _play(self, asked: Asks, model: str | None) -> Generator[Chunk | Outcome]:
        rounds = self._rounds
        while True:
            with asked.stream(rounds.context, model=model, **rounds.options) as stream:
                yield from stream
                planned = rounds.take(stream.response())
            if planned is None:
                self._ended = True
                return
            outcomes: list[Outcome] = []
            for call in planned:
                outcomes.append(call.run(rounds.limits.seconds))
                yield outcomes[-1]
            rounds.give(outcomes)


class AsyncToolStream:
    """A run as it comes. Iterate it for chunks and outcomes; `result()` is the run. Who leaves early calls `close`."""

    def __init__(self, asked: AsksAsync, rounds: _Rounds, model: str | None) -> None:
        self._rounds = rounds
        self._events = self._play(asked, model)
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk | Outcome:
        return await anext(self._events)

    async def result(self) -> ToolRun:
        """The run; what nobody has taken yet is passed over.

        Raises:
            DriverError: as the stream itself does; it was left before its end.
        """
        async for _ in self._events:
            pass
        if not self._ended:
            raise _left_early()
        return self._rounds.result()

    async def close(self) -> None:
        """Leave."""
        await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def _play(self, asked: AsksAsync, model: str | None) -> AsyncGenerator[Chunk | Outcome]:
        rounds = self._rounds
        while True:
            async with asked.stream(rounds.context, model=model, **rounds.options) as stream:
                async for chunk in stream:
                    yield chunk
                planned = rounds.take(await stream.response())
            if planned is None:
                self._ended = True
                return
            outcomes = await _at_once(planned, rounds.limits)
            for outcome in outcomes:
                yield outcome
            rounds.give(outcomes)


def _no_longer_forced(choice: Any) -> Any:
    """The choice for later rounds: what was forced once would be forced for ever."""
    if isinstance(choice, Mapping) and cast("Mapping[str, Any]", choice).get("type") == "allowed_tools":
        return {**cast("Mapping[str, Any]", choice), "mode": "auto"}
    return choice if choice in (None, "none") else "auto"


def _left_early() -> DriverError:
    return DriverError("The run was left before its end.")


def _synchronous(rounds: _Rounds) -> _Rounds:
    called = {**rounds.toolbox.functions, **({} if rounds.approve is None else {"approve": rounds.approve})}
    for name, function in called.items():
        if is_asynchronous(function):
            raise DriverError(f"'{name}' is asynchronous: use run_tools_async or stream_tools_async.")
    return rounds


async def _at_once(planned: Sequence[PlannedCall], limits: ToolLimits) -> list[Outcome]:
    """The outcomes of all, in their order."""
    places = anyio.Semaphore(max(1, limits.parallel))
    outcomes: dict[int, Outcome] = {}

    async def run(place: int, call: PlannedCall) -> None:
        async with places:
            outcomes[place] = await call.run_async(limits.seconds)

    async with anyio.create_task_group() as tasks:
        for place, call in enumerate(planned):
            tasks.start_soon(run, place, call)
    return [outcomes[place] for place in range(len(planned))]


def _sum(usages: Sequence[Usage]) -> Usage:
    """The usage of all rounds together."""
    total = usages[0]
    for usage in usages[1:]:
        tools = dict(total.tool_usage)
        for name, used in usage.tool_usage.items():
            before = tools.get(name, ToolUsage(0, used.unit))
            tools[name] = ToolUsage(before.count + used.count, used.unit)
        created = [value for value in (total.cache_creation_tokens, usage.cache_creation_tokens) if value is not None]
        counts = {
            name: getattr(total, name) + getattr(usage, name)
            for name in ("input_tokens", "output_tokens", "total_tokens", "cached_tokens", "reasoning_tokens")
        }
        reported = UsageReported(
            total.usage_reported.input and usage.usage_reported.input,
            total.usage_reported.output and usage.usage_reported.output,
        )
        total = msgspec.structs.replace(
            total,
            **counts,
            cache_creation_tokens=sum(created) if created else None,
            usage_reported=reported,
            tool_usage=tools,
        )
    return total
