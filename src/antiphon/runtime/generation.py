"""What an engine generates for one response, turn after turn, made into events.

Deltas pass four stages: the router makes items of calls, and holds those that run here; marks of citations and links
to files become annotations, where there is something to cite; after a crash, the suppressor holds back what was told
before; the assembler makes the events, after the summaries of thinking where they are asked for. Between two turns the
tools that run here are run, and at the budget of their calls the model is told once to answer (B5, B6).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

from antiphon.engines.base import PreparedTurn, Sampled
from antiphon.errors import ContextOverflowError, EngineError
from antiphon.machine.assembler import Assembler
from antiphon.machine.citations import Citations
from antiphon.machine.deltas import Delta, RawItemDelta, Routed, Stop, TokenUsage
from antiphon.machine.links import Links
from antiphon.machine.log import EventLog
from antiphon.machine.router import CallRouter
from antiphon.machine.suppressor import Suppressor
from antiphon.machine.turn import Progress, Step, calls_here, next_step, waits_for_client
from antiphon.machine.usage import NOTHING_USED, usage_of
from antiphon.prompt.messages import Conversation
from antiphon.prompt.toolbox import Toolbox
from antiphon.protocol.items import Item, Message
from antiphon.protocol.parts import OutputText, Refusal
from antiphon.runtime.calls import Calls
from antiphon.runtime.early import EarlyTurn
from antiphon.runtime.edits import applied
from antiphon.runtime.hosted import Called
from antiphon.runtime.journal import Journal
from antiphon.runtime.keeper import Keeper, KeptCall
from antiphon.runtime.observer import Observer
from antiphon.runtime.outputs import items_of
from antiphon.runtime.plans import RunPlan
from antiphon.runtime.rounds import MOST_TURNS, Rounds
from antiphon.runtime.thoughts import Summaries
from antiphon.tools.code.citations import cited_files

__all__ = ["Generation"]


class Generation:
    """Generates one response into its log, up to its terminal event.

    `begun` is where an earlier life of the response stood, `kept` are the calls that it made, and `suppressor` keeps
    the turn from saying anything twice that it was in. `keeper` keeps the calls of this one. `published` is told that
    events were added.
    """

    def __init__(
        self,
        plan: RunPlan,
        log: EventLog,
        assembler: Assembler,
        *,
        begun: Progress,
        suppressor: Suppressor | None,
        kept: Sequence[KeptCall] = (),
        keeper: Keeper | None = None,
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
        self._citations: Citations | None = None
        self._links: Links | None = None
        self._number = begun.rounds
        self._first_item = begun.first_item
        self._kept = kept
        self._early: EarlyTurn | None = None
        self._left: Sequence[Called] = ()
        self._asked = False
        self._answering = False
        self._why = "max_tool_calls"
        self._calls: Calls | None = None
        if plan.hosted is not None:
            self._calls = Calls(plan.hosted, observer, keeper, self._tell)
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
        edits = self._edits()
        if edits is not None:
            self._log.response.context_management = edits
        assembler.finish(int(time.time()))

    def ask(self) -> None:
        """Have the engine begin with the first turn already; `close` is due then.

        Not where something comes before that turn, or where it has to wait for others.
        """
        plan = self._plan
        first = plan.generate and plan.compaction is None and plan.hosted is None and not plan.response.conversation
        if first and plan.engine.gate.most is None:
            self._early = EarlyTurn(plan.engine, plan.turn)

    async def close(self) -> None:
        """Give up what the engine was asked for and nobody has taken."""
        early, self._early = self._early, None
        if early is not None:
            await early.aclose()

    def _edits(self) -> dict[str, Any] | None:
        """What of its context was edited in this response (B14)."""
        hosted, turn = self._plan.hosted, self._generated
        if hosted is None or turn is None:
            return None
        items = items_of(hosted.in_full(self._log.items()))
        return applied(self._plan.parts, items, turn.prompt.edits or ())

    def abandon(self) -> None:
        """The turn that was generated last will not be gone on with."""
        if self._generated is not None:
            self._plan.engine.abandon(self._generated)

    async def _turns(self) -> None:
        """Generate turn after turn, with what runs here between them, until the assembler has stopped."""
        begun = self._begun
        turn, parts = await self._first()
        if begun.waiting or self._asked:
            self._wait()
            return
        if self._left:
            turn = await self._next(parts, self._left)
        elif begun.rounds:
            turn = await self._following(parts, self._plan.turn.sampled)
        while turn is not None:
            await self._turn(turn)
            if self._assembler.stopped is None or self._plan.rounds is None:
                return
            turn = await self._after(turn, parts)

    def _wait(self) -> None:
        """End here: the client has the word."""
        self._assembler.stopped = Stop("stop", NOTHING_USED)

    async def _first(self) -> tuple[PreparedTurn | None, Sequence[Conversation]]:
        """The first turn and the history that it is made from, after the compaction; None where that is the answer.

        What can only be done once the response has begun comes before it.
        """
        plan, begun = self._plan, self._begun
        turn, compaction = plan.turn, plan.compaction
        if self._calls is not None:
            # A model is not kept waiting for tools.
            async with plan.engine.gate.aside() if plan.late is not None else contextlib.nullcontext():
                before = await self._prologue(self._calls)
            if plan.late is not None and not self._asked:
                turn, compaction = await plan.late(items_of(before))
                # What the journal keeps, or an earlier life has drawn, is of the turn that is generated.
                turn.sampled = plan.turn.sampled
                self._assembler.begin_turn(turn.input_tokens)
        if compaction is None:
            return turn, plan.parts
        compacted = await compaction()
        self._assembler.spend(compacted.usage)
        if not (begun.rounds or self._left):
            self._feed([RawItemDelta(compacted.item)])
        if compacted.turn is None:
            self._feed([Stop("stop", NOTHING_USED)])
        else:
            compacted.turn.sampled = plan.turn.sampled
        return compacted.turn, compacted.parts

    async def _prologue(self, calls: Calls) -> list[Any]:
        """Open the tools that wait, and run what was approved; the items of this, in full.

        The calls that an earlier life has made are taken in, but for those that are not done.
        """
        hosted, rounds = calls.hosted, self._begun.rounds
        await hosted.open_later()
        told = self._log.items()
        calls.open(told)
        left = calls.left(self._kept, told)
        approved = [called for called in left if called.turn < 0] if left else calls.approved()
        if approved:
            self._asked = await calls.run(approved, self._assembler.spent)
        before = list(hosted.full.values())
        await calls.run([called for called in left if 0 <= called.turn < rounds], None)
        self._left = [called for called in left if called.turn == rounds]
        return before

    async def _after(self, turn: PreparedTurn, parts: Sequence[Conversation]) -> PreparedTurn | None:
        """The turn after one that has stopped; None where that was the last."""
        assembler, calls = self._assembler, self._calls
        stopped = assembler.stopped
        if stopped is None:
            return None
        held: Sequence[Called] = ()
        made = self._router.made if self._router is not None else []
        if calls is not None and made and not (stopped.cut or self._answering):
            used = turn.input_tokens + stopped.usage.output_tokens
            held = calls.honoured(made, turn.prompt, self._number, used)
        of_turn = self._log.items()[self._first_item :]
        if next_step(of_turn, stopped.reason, len(held)) is Step.FINISH:
            if self._answering and not (stopped.cut or assembler.answers or _says(of_turn)):
                assembler.stopped = Stop(self._why, stopped.usage)
            return None
        assembler.end_turn()
        return await self._next(parts, held, turn.prompt.toolbox)

    async def _next(
        self, parts: Sequence[Conversation], held: Sequence[Called], toolbox: Toolbox | None = None
    ) -> PreparedTurn | None:
        """The turn after the calls that the last one made; None where the client has the word."""
        rounds, calls = self._plan.rounds, self._calls
        items = self._log.items()
        of_turn = items[self._first_item :]
        waits = any(waits_for_client(item) for item in of_turn)
        searches = calls_here(of_turn)
        if rounds is not None and toolbox is not None and searches:
            outputs = rounds.run(toolbox, searches, items)
            self._feed([RawItemDelta(body, begins=True) for body in outputs])
        if calls is not None and held:
            async with self._plan.engine.gate.aside():
                waits = await calls.run(held, self._assembler.spent) or waits
        if waits:
            self._wait()
            return None
        self._first_item = len(self._log.items())
        return await self._following(parts)

    async def _following(self, parts: Sequence[Conversation], sampled: Sampled | None = None) -> PreparedTurn | None:
        """The turn that begins after the items so far; `sampled` is what an earlier life drew for it.

        None where there is no room for it, which ends the response as a limit does.
        """
        assembler, rounds, hosted = self._assembler, self._plan.rounds, self._plan.hosted
        items = self._log.items()[: self._first_item]
        before = items_of(items if hosted is None else hosted.in_full(items))
        if sampled is None:
            self._number += 1
        self._answering = hosted is not None and (hosted.exhausted or self._number >= MOST_TURNS)
        turn, reason = None, "length"
        if rounds is not None:
            try:
                turn = await rounds.turn(parts, before, assembler.spent.output_tokens, answer=self._answering)
            except ContextOverflowError:
                turn, reason = await self._answer(rounds, parts, before)
        if turn is None:
            assembler.stopped = Stop(reason, NOTHING_USED)
            return None
        assembler.begin_turn(turn.input_tokens, parallel_tool_calls=turn.prompt.parallel_tool_calls)
        if sampled is not None:
            turn.sampled = sampled
            return turn
        self._suppressor = None
        if self._journal is not None:
            self._journal.begin_turn(turn.sampled, self._number, assembler.spent)
        return turn

    async def _answer(
        self, rounds: Rounds, parts: Sequence[Conversation], before: Sequence[Item]
    ) -> tuple[PreparedTurn | None, str]:
        """The last turn of a response that does not fit any more, or why there is none.

        Without tools the model may still be able to answer. Searches for tools end as any limit does; what hosted tools
        gave is the server's own doing (B6).
        """
        if self._plan.hosted is None:
            return None, "length"
        if self._answering:
            return None, "context_window"
        self._answering, self._why = True, "context_window"
        turn = None
        with contextlib.suppress(ContextOverflowError):
            turn = await rounds.turn(parts, before, self._assembler.spent.output_tokens, answer=True)
        return turn, "context_window"

    async def _turn(self, turn: PreparedTurn) -> None:
        """Generate one turn, up to its `Stop`."""
        plan = self._plan
        self._generated = turn
        self._router = turn.prompt.toolbox.router(parallel=turn.prompt.parallel_tool_calls)
        sources = plan.hosted.session.sources if plan.hosted is not None else None
        self._citations = Citations(sources) if sources else None
        files = cited_files(plan.hosted.session.evidence) if plan.hosted is not None else None
        self._links = Links(files) if files else None
        if turn.constrained and turn.sampled.generated:
            # An engine starts a grammar anew with every call, so the turn is drawn again from its start.
            turn.sampled = Sampled()
            if self._journal is not None:
                self._journal.draw_again(turn.sampled)
        early, self._early = self._early, None
        async with aclosing(early or plan.engine.generate(turn)) as batches:
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
        if self._citations is not None:
            routed = self._citations.feed(routed)
        if self._links is not None:
            routed = self._links.feed(routed)
        if self._suppressor is not None:
            routed = self._suppressor.feed(routed)
        ended = (self._summaries or self._assembler).feed(routed)
        if not ended:
            self._published()
        return ended

    def _tell(self, routed: Sequence[Routed]) -> None:
        """Tell of what runs here, which is no part of what a model says."""
        self._assembler.feed(routed)
        self._published()


def _says(items: Sequence[Any]) -> bool:
    """Whether there is any text for the client among items."""
    return any(
        (part.refusal if isinstance(part, Refusal) else part.text).strip()
        for item in items
        if isinstance(item, Message)
        for part in item.content
        if isinstance(part, OutputText | Refusal)
    )
