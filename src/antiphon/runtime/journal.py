"""The journal of a run: what it has logged goes to the store in batches, one write at a time.

A batch is written at once where an item begins or ends or 64 events wait, else after a short delay; while one is being
written the next one grows. What is left at the end goes into the transaction that ends the response.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from itertools import accumulate

import msgspec

from antiphon.engines.base import Sampled
from antiphon.machine.deltas import TokenUsage
from antiphon.machine.usage import NOTHING_USED, added
from antiphon.store.base import EventBatch, Scope, Store

__all__ = ["Journal", "batch_of", "batches_after", "frames_of", "sampled_of"]

MOST_EVENTS = 64
RETRY_SECONDS = 0.5
_BOUNDARY = b"event: response.output_item."

Mark = tuple[int, int, int, int, bytes]
"""How much of what was sampled is durable: tokens, pieces of text, tokens counted, of thinking, and what is kept."""


class _Increment(msgspec.Struct, array_like=True):
    """What was sampled for one batch; the counts are those at its end.

    `turn` is the number of the turn within its response, and `spent` the tokens of what came before it: input, output,
    cached and reasoning ones. `kept` is the whole of it.
    """

    tokens: list[int]
    text: str
    generated: int
    thinking: int
    turn: int = 0
    spent: tuple[int, int, int, int] = (0, 0, 0, 0)
    kept: bytes = b""


_decode_increment = msgspec.msgpack.Decoder(_Increment).decode
_encode_increment = msgspec.msgpack.Encoder().encode


def batch_of(frames: Sequence[bytes], first: int = 0, sampled: bytes = b"") -> EventBatch:
    """Frames from number `first` on as one batch; there must be at least one."""
    ends = accumulate(map(len, frames))
    return EventBatch(first, b"".join(frames), [0, *ends][:-1], sampled)


def frames_of(batches: Sequence[EventBatch]) -> list[bytes]:
    """The single frames of batches."""
    frames: list[bytes] = []
    for batch in batches:
        ends = [*batch.offsets[1:], len(batch.body)]
        frames += [batch.body[begin:end] for begin, end in zip(batch.offsets, ends, strict=True)]
    return frames


def batches_after(batches: Sequence[EventBatch], last: int) -> list[EventBatch]:
    """What of consecutive batches comes after the event of that number, as one batch."""
    first = batches[0].first_sequence if batches else 0
    frames = frames_of(batches)[max(0, last + 1 - first) :]
    return [batch_of(frames, max(first, last + 1))] if frames else []


def sampled_of(batches: Sequence[EventBatch], turn: int = 0) -> tuple[Sampled, TokenUsage]:
    """All that was sampled for the turn of that number in these batches, and the tokens that were spent before it."""
    whole, spent = Sampled(), NOTHING_USED
    for batch in batches:
        if not batch.sampled:
            continue
        increment = _decode_increment(batch.sampled)
        spent = TokenUsage(*increment.spent)
        if increment.turn != turn:
            # What the turn before it read is not known; what it wrote is.
            spent = added(spent, TokenUsage(0, increment.generated, reasoning_tokens=increment.thinking))
            continue
        whole.tokens += increment.tokens
        if increment.text:
            whole.text.append(increment.text)
        whole.generated, whole.thinking, whole.kept = increment.generated, increment.thinking, increment.kept
    return whole, spent


def _unheard(_: object) -> None:
    pass


class Journal:
    """Writes one run's events with its fence.

    `durable` is how many events are in the store; `told` is called whenever it grows, and once with None when the
    store says that the run is not its owner any more. `failed` is called once for each time that the store is away.
    `flush` says whether a batch must outlive the machine too. `status` goes with the next batch. `sampled` may be
    exchanged for that of another turn.
    """

    def __init__(
        self,
        store: Store,
        scope: Scope,
        response_id: str,
        frames: list[bytes],
        *,
        fence: int,
        delay: float,
        flush: bool,
        durable: int,
        told: Callable[[int | None], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._store = store
        self._scope = scope
        self._id = response_id
        self._frames = frames
        self._delay = delay
        self._flush = flush
        self._told: Callable[[int | None], None] = told
        self._failed: Callable[[Exception], None] = failed
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._mark: Mark = (0, 0, 0, 0, b"")
        self._tried: tuple[EventBatch, Mark, Sampled] | None = None
        self._failing = False
        self._turn = 0
        self._spent = NOTHING_USED
        self.sampled = Sampled()
        self.fence = fence
        self.durable = durable
        self.status: str | None = None
        self.lost = False

    def tell_nobody(self) -> None:
        """What becomes of the last write is nobody's concern any more."""
        self._told = self._failed = _unheard

    def begin_turn(self, sampled: Sampled, number: int = 0, spent: TokenUsage = NOTHING_USED) -> None:
        """From now on, batches carry what is sampled here; what is there already was logged by an earlier life.

        `number` is that of the turn within the response, and `spent` what was used before it.
        """
        self.sampled, self._turn, self._spent = sampled, number, spent
        self._mark = _mark(sampled)

    def draw_again(self, sampled: Sampled) -> None:
        """The turn is drawn from its start again, into this."""
        self.begin_turn(sampled, self._turn, self._spent)

    def note(self) -> None:
        """More has been logged."""
        if self._writing is not None or self._closing.is_set() or self.lost:
            return
        frames = self._frames
        if len(frames) - self.durable >= MOST_EVENTS or frames[-1].startswith(_BOUNDARY):
            self._begin()
        elif self._timer is None and len(frames) > self.durable:
            self._timer = asyncio.get_running_loop().call_later(self._delay, self._begin)

    async def settle(self) -> bool:
        """Write no more, and wait for what is being written; whether the run is still the owner.

        Raises:
            UnavailableError: the store cannot say what of the last attempt is there; ask again.
        """
        self._closing.set()
        self._cancel_timer()
        if self._writing is not None:
            await asyncio.wait({self._writing})
        await self._look_up()
        return not self.lost

    async def caught_up(self) -> None:
        """Return once all that has been logged is durable, or the run is not the owner any more or ends."""
        while self.durable < len(self._frames) and not (self.lost or self._closing.is_set()):
            self._begin()
            if self._writing is not None:
                await asyncio.wait({self._writing})

    def lose(self) -> None:
        """The store says that the run is not the owner any more."""
        if not self.lost:
            self.lost = True
            self._told(None)

    async def flush(self) -> bool:
        """Write all that is left now; whether that is durable."""
        with contextlib.suppress(Exception):
            if await self.settle() and len(self._frames) > self.durable:
                await self._append()
        return len(self._frames) == self.durable

    def rest(self) -> list[EventBatch]:
        """What is not durable yet, for the transaction that ends the response."""
        frames = self._frames[self.durable :]
        return [batch_of(frames, self.durable)] if frames else []

    def _begin(self) -> None:
        self._cancel_timer()
        if self._writing is None and not self._closing.is_set():
            self._writing = asyncio.create_task(self._write())

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _write(self) -> None:
        try:
            # What was logged since this was due may be the end, which is not for a batch.
            while not self._closing.is_set():
                try:
                    await self._look_up()
                    if not self._closing.is_set():
                        await self._append()
                except Exception as error:  # noqa: BLE001 - what is not written stays here and is tried again
                    if not self._failing:
                        self._failed(error)
                    self._failing = True
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._closing.wait(), RETRY_SECONDS)
                waiting = len(self._frames) - self.durable
                if self.lost or waiting < MOST_EVENTS:
                    return
        finally:
            self._writing = None
            if not self._closing.is_set() and not self.lost and len(self._frames) > self.durable:
                self._timer = asyncio.get_running_loop().call_later(self._delay, self._begin)

    async def _append(self) -> None:
        frames = self._frames[self.durable :]
        if not frames:
            return
        mark, status = _mark(self.sampled), self.status
        batch = batch_of(frames, self.durable, self._increment(mark))
        self._tried = batch, mark, self.sampled
        kept = await self._store.append_events(
            self._scope, self._id, batch, fence=self.fence, status=status, flush=self._flush
        )
        if not kept:
            self._tried = None
            self.lose()
            return
        self._kept(*self._tried)

    async def _look_up(self) -> None:
        """After an attempt that failed: it may have got through all the same, and must not be made twice."""
        if self._tried is None:
            return
        batch, mark, sampled = self._tried
        found = await self._store.events(self._scope, self._id, self.durable - 1)
        # By its bytes: what has these numbers may be another owner's.
        if found and (found[0].first_sequence, found[0].body) == (batch.first_sequence, batch.body):
            self._kept(batch, mark, sampled)
        self._tried = None

    def _kept(self, batch: EventBatch, mark: Mark, sampled: Sampled) -> None:
        self._tried = self.status = None
        self._failing = False
        if sampled is self.sampled:
            # Else another turn has begun while this was written.
            self._mark = mark
        self.durable = batch.last_sequence + 1
        self._told(self.durable)

    def _increment(self, mark: Mark) -> bytes:
        if mark == self._mark:
            return b""
        sampled, before, spent = self.sampled, self._mark, self._spent
        return _encode_increment(
            _Increment(
                sampled.tokens[before[0] : mark[0]],
                "".join(sampled.text[before[1] : mark[1]]),
                sampled.generated,
                sampled.thinking,
                self._turn,
                (spent.input_tokens, spent.output_tokens, spent.cached_tokens, spent.reasoning_tokens),
                mark[4],
            )
        )


def _mark(sampled: Sampled) -> Mark:
    return len(sampled.tokens), len(sampled.text), sampled.generated, sampled.thinking, sampled.kept
