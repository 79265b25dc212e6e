"""What an engine generates for one response, turn after turn, made into events.

Deltas pass three stages: the router makes items of calls; after a crash, the suppressor holds back what was told
before; the assembler makes the events, after the summaries of thinking where they are asked for.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing

from antiphon.engines.base import PreparedTurn, Sampled
from antiphon.errors import ContextOverflowError, EngineError
from antiphon.machine.assembler import Assembler
from antiphon.machine.deltas import Delta, RawItemDelta, Routed, Stop, TokenUsage
from antiphon.machine.log import EventLog
from antiphon.machine.router import CallRouter
from antiphon.machine.suppressor import Suppressor
from antiphon.machine.turn import Progress, Step, calls_here, next_step, progress
from antiphon.machine.usage import NOTHING_USED, usage_of
from antiphon.prompt.messages import Conversation
from antiphon.runtime.journal import Journal
from antiphon.runtime.observer import Observer
from antiphon.runtime.outputs import output_items
from antiphon.runtime.plans import RunPlan
from antiphon.runtime.thoughts import Summaries

__all__ = ["Generation"]


class Generation:
    """Generates one response into its log, up to its terminal event.

    `begun` is where an earlier life of the response stood, and `suppressor` what keeps the turn from saying anything
    twice that it was in. `published` is told that events were added.
    """

    def __init__(
        self,
        plan: RunPlan,
        log: EventLog,
        assembler: Assembler,
        *,
        begun: Progress,
        suppressor: Suppressor | None,
        journal: Journal | None,
        observer: Observer,
        published: Callable[[], None],
    ) -> None:
        self._plan = plan
        self._log = log
        self._assembler = assembler
        self._begun = begun
        self._suppressor = suppressor
        self._journal = journal
        self._observer = observer
        self._published = published
        self._started_at = time.monotonic()
        self._came = False
        self._generated: PreparedTurn | None = None
        self._router: CallRouter | None = None
        self._summaries: Summaries | None = None
        if plan.summary_tokens is not None:
            self._summaries = Summaries(
                plan.engine, assembler, observer, plan.summary_tokens, plan.turn.prompt.affinity
            )

    async def run(self) -> None:
        """Generate to the end.

        Raises:
            APIError: the engine failed, or cannot go on.
        """
        plan, assembler = self._plan, self._assembler
        if not plan.generate:
            nothing = TokenUsage(input_tokens=plan.turn.input_tokens, output_tokens=0)
            self._log.complete(usage_of(Stop("stop", nothing)), int(time.time()))
            return
        try:
            await self._turns()
        finally:
            if self._summaries is not None:
                await self._summaries.close()
        if assembler.stopped is None:
            raise EngineError("The engine ended without saying why.")
        assembler.finish(int(time.time()))

    def abandon(self) -> None:
        """The turn that was generated last will not be gone on with."""
        if self._generated is not None:
            self._plan.engine.abandon(self._generated)

    async def _turns(self) -> None:
        """Generate turn after turn, with what runs here between them, until the assembler has stopped."""
        plan, assembler, begun = self._plan, self._assembler, self._begun
        turn, parts = await self._first()
        if begun.waiting:
            assembler.stopped = Stop("stop", NOTHING_USED)
            return
        first = begun.first_item
        if begun.rounds:
            turn = await self._following(parts, first, plan.turn.sampled)
        while turn is not None:
            await self._turn(turn)
            stopped, rounds = assembler.stopped, plan.rounds
            if stopped is None or rounds is None:
                return
            output = self._log.snapshot().output
            step, calls = next_step(output[first:], stopped.reason), calls_here(output[first:])
            if step is Step.FINISH:
                return
            assembler.end_turn()
            outputs = rounds.run(turn.prompt.toolbox, calls, output)
            self._feed([RawItemDelta(body, begins=True) for body in outputs])
            if step is Step.WAIT:
                assembler.stopped = Stop("stop", NOTHING_USED)
                return
            first = len(output)
            turn = await self._following(parts, first)

    async def _first(self) -> tuple[PreparedTurn | None, Sequence[Conversation]]:
        """The first turn and the history that it is made from, after the compaction; None where that is the answer."""
        plan = self._plan
        if plan.compaction is None:
            return plan.turn, plan.parts
        compacted = await plan.compaction()
        self._assembler.spend(compacted.usage)
        if not self._begun.first_item:
            self._feed([RawItemDelta(compacted.item)])
        turn = compacted.turn
        if turn is None:
            self._feed([Stop("stop", NOTHING_USED)])
        else:
            # What the journal keeps, or an earlier life has drawn, is of the turn that is generated.
            turn.sampled = plan.turn.sampled
        return turn, compacted.parts

    async def _following(
        self, parts: Sequence[Conversation], first: int, sampled: Sampled | None = None
    ) -> PreparedTurn | None:
        """The turn that begins with item `first`, after those before it; `sampled` is what an earlier life drew for it.

        None where there is no room for it, which ends the response as a limit does.
        """
        assembler, rounds = self._assembler, self._plan.rounds
        before = output_items(self._log.snapshot())[:first]
        turn = None
        with contextlib.suppress(ContextOverflowError):
            if rounds is not None:
                turn = await rounds.turn(parts, before, assembler.spent.output_tokens)
        if turn is None:
            assembler.stopped = Stop("length", NOTHING_USED)
            return None
        assembler.begin_turn(turn.input_tokens)
        if sampled is not None:
            turn.sampled = sampled
            return turn
        self._suppressor = None
        if self._journal is not None:
            self._journal.begin_turn(turn.sampled, progress(before).rounds, assembler.spent)
        return turn

    async def _turn(self, turn: PreparedTurn) -> None:
        """Generate one turn, up to its `Stop`."""
        plan = self._plan
        self._generated = turn
        self._router = turn.prompt.toolbox.router()
        if turn.constrained and turn.sampled.generated:
            # An engine starts a grammar anew with every call, so the turn is drawn again from its start.
            turn.sampled = Sampled()
            if self._journal is not None:
                self._journal.draw_again(turn.sampled)
        async with aclosing(plan.engine.generate(turn)) as batches:
            async for deltas in batches:
                if not self._came:
                    self._came = True
                    self._observer.first_token(plan.engine.name, time.monotonic() - self._started_at)
                if self._feed(deltas) or (self._router is not None and self._router.fault is not None):
                    break
        if self._summaries is not None:
            await self._summaries.settle()
        if self._router is not None and self._router.fault is not None:
            raise self._router.fault

    def _feed(self, deltas: Sequence[Delta]) -> bool:
        routed: Sequence[Routed] = deltas if self._router is None else self._router.feed(deltas)
        if self._suppressor is not None:
            routed = self._suppressor.feed(routed)
        ended = (self._summaries or self._assembler).feed(routed)
        if not ended:
            self._published()
        return ended
