"""Compaction: a conversation that is long goes on from a summary of it and from what the next turn needs (issue 3).

The summary is written by the model that serves the request, under a bound of tokens; a conversation that is longer
than the model's context is summarised piece by piece, the oldest first. What comes of it is sealed into one
`compaction` item, which the client sends back, or which a chain or a conversation keeps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, cast

import msgspec
from msgspec import Struct

from antiphon.engines.base import Engine, PreparedTurn
from antiphon.errors import ContextOverflowError, EngineError, InvalidRequestError
from antiphon.machine.deltas import Stop, TextDelta, TokenUsage
from antiphon.machine.usage import NOTHING_USED, added
from antiphon.prompt.assembly import assemble, renamed
from antiphon.prompt.compaction import (
    Kept,
    answered,
    decode_context,
    encode_context,
    keep,
    shorten,
    split_summary,
    summary_prompt,
    transcript,
)
from antiphon.prompt.messages import EMPTY, CompactedContext, Conversation, settle
from antiphon.prompt.prompt import Affinity, ChatMessage, Prompt
from antiphon.protocol.context import COMPACTION_TYPES, compactions, prunes
from antiphon.protocol.ids import new_id
from antiphon.protocol.request import CreateResponse
from antiphon.runtime.codec import MAX_PAYLOAD, Codec
from antiphon.runtime.history import convert
from antiphon.runtime.planning import prepare
from antiphon.runtime.unseal import COMPACTION
from antiphon.store.base import Scope

__all__ = ["Compacted", "Compaction", "Compactor", "plan_turn"]

MAX_SUMMARY_TOKENS = 2_048
MAX_KEPT_TOKENS = 8_192
MAX_PIECES = 32
"""Pieces that a conversation is summarised in; the texts of a longer one are shortened first."""

CHARACTERS_A_TOKEN = 3
"""Cautious, for budgets that are checked afterwards by counting."""

MIN_PIECE = 400
FALLBACK = 2_000
"""Characters of the record that stand for the summary of a model which wrote none."""

ATTEMPTS = (1, 4, 16)
"""By what the budgets are divided, one after another, until the new prompt fits."""


class Compacted(Struct, frozen=True):
    """The item, the tokens that its summary took, and the turn that goes on after it; None where it is all.

    `parts` is the history that this turn is made from.
    """

    item: dict[str, Any]
    usage: TokenUsage
    turn: PreparedTurn | None
    parts: Sequence[Conversation] = ()


Compaction = Callable[[], Awaitable[Compacted]]


async def plan_turn(
    codec: Codec,
    scope: Scope,
    engine: Engine,
    request: CreateResponse,
    parts: Sequence[Conversation],
    prompt: Prompt,
    *,
    begun: Sequence[Any] = (),
) -> tuple[PreparedTurn, Compaction | None]:
    """The turn of a request, and the compaction that is to be done before it, or instead of it.

    `parts` are settled, and `prompt` is made from them. With a compaction the turn is only the prompt, which is not
    generated. `begun` is the output of an earlier life of the response: its compaction item is used again.

    Raises:
        ContextOverflowError: the prompt does not fit, and nothing asks for a compaction.
        InvalidRequestError: the template refuses the conversation.
    """
    compactor = Compactor(codec, scope, engine, prompt.affinity)
    held = _held(begun)
    if held is not None or request.compaction_trigger:
        goal = None if request.compaction_trigger else _Goal(prompt, request)
        return PreparedTurn(prompt, 0), lambda: compactor.compact(parts, goal, held=held)
    threshold = _threshold(request, engine)
    if threshold is None:
        return await prepare(engine, prompt, request.truncation), None
    try:
        turn = await engine.prepare(prompt)
    except ContextOverflowError:
        turn = PreparedTurn(prompt, 0)
    else:
        if turn.input_tokens <= threshold or not answered(_messages(parts)):
            return turn, None
    return turn, lambda: compactor.compact(parts, _Goal(prompt, request, threshold))


class _Goal(Struct, frozen=True):
    """What is to be generated after a compaction."""

    prompt: Prompt
    request: CreateResponse
    threshold: int | None = None


class Compactor:
    """Compacts conversations for one tenant, whose `affinity` says how its texts are kept apart, on one engine."""

    def __init__(self, codec: Codec, scope: Scope, engine: Engine, affinity: Affinity) -> None:
        self._codec = codec
        self._scope = scope
        self._engine = engine
        # A summary is read nowhere but here, so that it may be written anywhere.
        self._affinity = Affinity(cache_salt=affinity.cache_salt)
        self._usage = NOTHING_USED

    async def compact(
        self, parts: Sequence[Conversation], goal: _Goal | None = None, *, held: dict[str, Any] | None = None
    ) -> Compacted:
        """The compaction of settled parts, and the turn of the goal after it.

        `held` is an item that an earlier life of the response has made of them.

        Raises:
            ContextOverflowError: not even what must be kept fits into the context.
            APIError: the engine failed.
        """
        if held is not None:
            return await self._resume(parts, goal, held)
        system = [text for part in parts if not part.pinned for text in part.system]
        earlier, messages = split_summary(_messages(parts))
        tail, users = self._budgets(goal)
        summary = await self._summarize(earlier, messages, keep(messages, tail, users))
        for divisor in ATTEMPTS:
            kept = keep(messages, tail // divisor, users // divisor)
            payload = encode_context(summary, system, kept.messages)
            turn = None
            if goal is not None:
                turn = await self._turn(parts, goal, _opened(payload), last=divisor == ATTEMPTS[-1])
            if len(payload) <= MAX_PAYLOAD and (turn is not None or goal is None):
                return Compacted(self._item(payload), self._usage, turn, _told(parts, _opened(payload)))
        raise InvalidRequestError(
            "What the conversation leaves open is too large to be kept.", param="input", code="request_too_large"
        )

    def _item(self, payload: bytes) -> dict[str, Any]:
        blob = self._codec.seal(self._scope, COMPACTION, payload)
        return {"id": new_id("cmp"), "type": "compaction", "encrypted_content": blob}

    def _budgets(self, goal: _Goal | None) -> tuple[int, int]:
        """Characters for what has to be kept, and for other messages of the user."""
        context = self._engine.capabilities.context_length
        users = min(context // 4, MAX_KEPT_TOKENS)
        if goal is not None and goal.threshold is not None:
            users = min(users, goal.threshold // 2)
        return context // 2 * CHARACTERS_A_TOKEN, users * CHARACTERS_A_TOKEN

    async def _turn(
        self, parts: Sequence[Conversation], goal: _Goal, context: CompactedContext, *, last: bool
    ) -> PreparedTurn | None:
        """The goal's turn over what is left of the parts; None where it does not fit, an error at the last attempt."""
        told = _told(parts, context)
        prompt = msgspec.structs.replace(
            goal.prompt,
            messages=renamed(
                assemble(told, goal.request.instructions, prunable=prunes(goal.request.context_management)),
                goal.prompt.toolbox.renames,
            ),
            media=frozenset[str]().union(*(part.media for part in told)),
        )
        try:
            return await prepare(self._engine, prompt, goal.request.truncation if last else "disabled")
        except ContextOverflowError:
            if last:
                raise
            return None

    async def _resume(self, parts: Sequence[Conversation], goal: _Goal | None, held: dict[str, Any]) -> Compacted:
        if goal is None:
            return Compacted(held, NOTHING_USED, None)
        payload = await self._codec.open(self._scope, COMPACTION, str(held.get("encrypted_content")))
        if payload is None:
            raise EngineError("The compaction item that the response began with cannot be opened.")
        context = _opened(payload)
        turn = await self._turn(parts, goal, context, last=True)
        return Compacted(held, NOTHING_USED, turn, _told(parts, context))

    async def _summarize(self, earlier: str, messages: Sequence[ChatMessage], kept: Kept) -> str:
        """A summary of the messages and of the summary before them, piece by piece where they are long."""
        context = self._engine.capabilities.context_length
        limit = max(1, min(MAX_SUMMARY_TOKENS, context // 4))
        size = max(MIN_PIECE, (context - 2 * limit) * CHARACTERS_A_TOKEN)
        rest = transcript(messages, kept.verbatim, size * MAX_PIECES)
        while True:
            piece = _piece(rest, size)
            prompt = msgspec.structs.replace(summary_prompt(earlier, piece, limit), affinity=self._affinity)
            try:
                turn = await self._engine.prepare(prompt)
            except ContextOverflowError:
                if size == MIN_PIECE and not earlier:
                    raise
                if size == MIN_PIECE:
                    earlier = shorten(earlier, len(earlier) // 2) if len(earlier) > MIN_PIECE else ""
                size = max(MIN_PIECE, size // 2)
                continue
            earlier = await self._generate(turn) or shorten(f"{earlier}\n\n{piece}".strip(), FALLBACK)
            rest = rest[len(piece) :]
            if not rest:
                return earlier

    async def _generate(self, turn: PreparedTurn) -> str:
        text: list[str] = []
        async with aclosing(self._engine.generate(turn)) as batches:
            async for deltas in batches:
                for delta in deltas:
                    if isinstance(delta, TextDelta):
                        text.append(delta.text)
                    elif isinstance(delta, Stop):
                        self._usage = added(self._usage, delta.usage)
        return "".join(text).strip()


def _held(output: Sequence[Any]) -> dict[str, Any] | None:
    """The compaction item that an output begins with."""
    first = output[0] if output else None
    if not isinstance(first, dict):
        return None
    body = cast("dict[str, Any]", first)
    return body if body.get("type") in COMPACTION_TYPES else None


def _threshold(request: CreateResponse, engine: Engine) -> int | None:
    """The most tokens that a prompt may have without a compaction; None where none is asked for."""
    asked = compactions(request.context_management)
    if not asked:
        return None
    # A quarter is left for the answer where the client leaves the choice to the server.
    ours = engine.capabilities.context_length * 3 // 4
    return min(ours if entry.compact_threshold is None else entry.compact_threshold for entry in asked)


def _messages(parts: Sequence[Conversation]) -> list[ChatMessage]:
    """The messages of settled parts, without system text and without standing instructions."""
    told = assemble([part for part in parts if not part.pinned], None)
    return [message for message in told if message.role != "system"]


def _piece(text: str, size: int) -> str:
    """The beginning of a text, which ends between two entries where one ends in its second half."""
    if len(text) <= size:
        return text
    end = text.rfind("\n\n", size // 2, size)
    return text[: size if end < 0 else end + 2]


def _told(parts: Sequence[Conversation], context: CompactedContext) -> list[Conversation]:
    """What is left of settled parts once this stands in their place."""
    return settle([*parts, convert([context], EMPTY)])


def _opened(payload: bytes) -> CompactedContext:
    context = decode_context(payload)
    if context is None:
        raise EngineError("The compaction item was made by another version of the server.")
    return context
