"""From a decoded request to a plan: all that can refuse it, its history, and a turn that the engine has counted."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.engines.base import RESTART_PATIENCE, Engine, PreparedTurn
from antiphon.engines.terms import terms_of
from antiphon.errors import ContextOverflowError, EngineUnavailableError, InvalidRequestError, NotFoundError
from antiphon.machine.opening import open_response
from antiphon.prompt.additions import check_additions, configured
from antiphon.prompt.messages import EMPTY, Conversation, additions, settle
from antiphon.prompt.prompt import Prompt
from antiphon.protocol.hosted import HOSTED_ITEMS, made_here
from antiphon.protocol.ids import is_id, new_id
from antiphon.protocol.items import Item, decode_item
from antiphon.protocol.json import encode, loads, quoted
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.response import TERMINAL_STATUSES, Response, wire_item
from antiphon.runtime.affinity import Affinities
from antiphon.runtime.codec import Codec
from antiphon.runtime.compaction import Compaction, plan_turn
from antiphon.runtime.conversations import Conversations, conversation_id
from antiphon.runtime.credentials import veiled
from antiphon.runtime.history import History, Turn, convert
from antiphon.runtime.hosted import HostedTools
from antiphon.runtime.hosting import Hosting, asks
from antiphon.runtime.inputs import answered_calls, resolve_items, stored_items
from antiphon.runtime.limits import KeyLimits
from antiphon.runtime.media import Media
from antiphon.runtime.observer import Observer
from antiphon.runtime.planning import build_prompt, instructed, prepare
from antiphon.runtime.plans import RunPlan
from antiphon.runtime.rounds import Rounds
from antiphon.runtime.rules import (
    ENCRYPTED_REASONING,
    LOGPROBS,
    PATCH_DIFFS,
    check_media,
    check_request,
    check_substance,
    persistence_off,
)
from antiphon.runtime.templates import with_template
from antiphon.runtime.thoughts import summary_tokens
from antiphon.runtime.titles import title
from antiphon.runtime.unseal import REASONING, unseal
from antiphon.settings import Settings
from antiphon.store.base import Scope, Store, StoredItem

__all__ = ["Planner", "Reading", "ResumePlan", "previous_not_found", "require_store", "wait_ready"]

TEMPORARY_SECONDS = 600.0
"""How long a background response that is not stored is kept after its end for polling (issue 3, Background)."""


class ResumePlan(Struct, array_like=True):
    """What another process needs to run a background response: the request, and what it may not choose anew.

    `fingerprint` is of the engine that began it; `history` is the number of items that its conversation had;
    `instructions` are those that a prompt template gave it, as JSON, and `terms` those of its model.
    """

    request: bytes
    seed: int
    fingerprint: str
    dialect: str
    history: int | None = None
    instructions: bytes = b""
    terms: bytes = b""

    def told(self, request: CreateResponse) -> CreateResponse:
        """The request with the instructions that it began with, whatever has become of its template."""
        if not self.instructions:
            return request
        given: Any = loads(self.instructions)
        if isinstance(given, str):
            return msgspec.structs.replace(request, instructions=given)
        return msgspec.structs.replace(request, instruction_items=[decode_item(encode(item)) for item in given])


class Reading(Struct):
    """A request with its history, converted: what a turn, a count and a compaction are made from.

    `request` has the settings that its conversation has made.
    """

    request: CreateResponse
    model: str
    engine: Engine
    own: list[Item]
    new: Conversation
    parts: list[Conversation]
    before: Turn | None
    history_items: int | None
    title: str | None


class _Past(Struct):
    """The history that a request names; of a conversation, how many items it had; of a chain, its title (B23)."""

    turn: Turn | None = None
    items: int | None = None
    title: str | None = None


class _Titled(Struct):
    title: str | None = None


_titled = msgspec.json.Decoder(_Titled)


class Planner:
    """Plans responses over the models that each key may use, one store and one set of settings."""

    def __init__(
        self,
        settings: Settings,
        limits: KeyLimits,
        store: Store | None,
        history: History | None,
        conversations: Conversations | None,
        codec: Codec,
        observer: Observer,
        hosting: Hosting,
    ) -> None:
        self.settings = settings
        self.limits = limits
        self.store = store
        self.codec = codec
        self.media = Media(settings, store)
        self._observer = observer
        self.hosting = hosting
        self.affinities = Affinities(store)
        self._history = history
        self._conversations = conversations

    async def read(
        self,
        scope: Scope,
        request: CreateResponse,
        *,
        parent: Turn | None = None,
        patience: float = RESTART_PATIENCE,
        resumed: ResumePlan | None = None,
    ) -> Reading:
        """The request with its history as messages.

        Raises:
            APIError: the request is refused.
        """
        check_request(request, self.settings)
        model, engine = self.limits.resolve(scope, request.model)
        with engine.gate.place(bounded=False):
            return await self._read(scope, request, model, engine, parent, patience, resumed)

    async def _read(
        self,
        scope: Scope,
        request: CreateResponse,
        model: str,
        engine: Engine,
        parent: Turn | None,
        patience: float,
        resumed: ResumePlan | None,
    ) -> Reading:
        if resumed is None:
            request = engine.terms.applied(await with_template(self.store, scope, request))
        else:
            request = terms_of(resumed.terms).applied(resumed.told(request))
        await wait_ready(engine, patience)
        if parent is not None:
            past = _Past(parent, title=parent.title)
        else:
            past = await self._load(scope, request, resumed)
        before = past.turn
        limit = self.settings.max_body_bytes
        own = await resolve_items(self.store, scope, request.items, limit)
        check_additions(own)
        new = convert(await unseal(self.codec, scope, own), before.conversation if before is not None else EMPTY)
        if not request.compaction_trigger and not new.resets:
            _check_outputs(before, own)
        parts = [new] if before is None else [before.conversation, new]
        if request.instruction_items:
            standing = await resolve_items(self.store, scope, request.instruction_items, limit)
            parts.insert(0, convert(standing, EMPTY, whole=True))
        parts = settle(parts)
        if request.generate:
            check_substance(parts, request.instructions)
        check_media(request, parts, engine.capabilities)
        if engine.capabilities.inline_media:
            able = engine.capabilities
            parts = await self.media.resolve(scope, parts, request.items, fetched=able.fetches, native=able.hosted)
        _, settings = additions(parts)
        request = configured(request, settings)
        return Reading(request, model, engine, own, new, parts, before, past.items, past.title)

    async def plan(
        self,
        scope: Scope,
        request: CreateResponse,
        *,
        sent: bytes | CreateResponse = b"",
        parent: Turn | None = None,
        dialect: str | None = None,
        begun: Response | None = None,
        resumed: ResumePlan | None = None,
        patience: float = RESTART_PATIENCE,
    ) -> RunPlan:
        """A plan that can be run.

        `sent` is the request as it came, and `dialect` the one that it asks for in place of the settings'. `begun` and
        `resumed` are of a response that an earlier process began.

        Raises:
            APIError: the request is refused.
        """
        reading = await self.read(scope, request, parent=parent, patience=patience, resumed=resumed)
        # A model that is taken out of service meanwhile is closed only after this.
        with reading.engine.gate.place(bounded=False):
            return await self._plan(scope, reading, sent, parent, dialect or self.settings.dialect, begun, resumed)

    async def _plan(
        self,
        scope: Scope,
        reading: Reading,
        sent: bytes | CreateResponse,
        parent: Turn | None,
        dialect: str,
        begun: Response | None,
        resumed: ResumePlan | None,
    ) -> RunPlan:
        engine = reading.engine
        request = reading.request
        response_id = begun.id if begun is not None else new_id("resp")
        hosted = await self._hosted(scope, reading, response_id) if asks(request, reading.own) else None
        prompt = build_prompt(request, reading.parts, engine, hosted=hosted)
        if request.background:
            prompt = _with_seed(prompt, resumed.seed if resumed is not None else None)
        prompt = self.routed(scope, reading, prompt, response_id)
        earlier = [item for item in begun.output if not made_here(item, HOSTED_ITEMS)] if begun is not None else ()
        late = hosted is not None and hosted.late and request.generate
        if late:
            turn, compaction = PreparedTurn(prompt, 0), None
        else:
            told = instructed(request, reading.parts, hosted)
            turn, compaction = await self._turn(scope, told, reading.parts, engine, prompt, earlier)
        store = self.store if request.store or request.background else None
        parent_id, earlier_rows = await self._chained_to(scope, request, parent, store)
        response = begun or _opened(response_id, request, reading, stored=store is not None and request.store)
        return RunPlan(
            scope=scope,
            engine=engine,
            turn=turn,
            response=response,
            own=reading.new,
            before=reading.before,
            input_items=[*earlier_rows, *stored_items(reading.own)] if store is not None else [],
            items=reading.own if store is None else (),
            parent_id=parent_id,
            stream=request.stream,
            dialect=resumed.dialect if resumed is not None else dialect,
            diffs=PATCH_DIFFS in request.include,
            logprobs=LOGPROBS in request.include,
            store=store,
            begun=store is not None and (request.stream or request.background or request.conversation is not None),
            generate=request.generate,
            resume=self._resume_plan(scope, sent, dialect, prompt, reading)
            if request.background and not resumed
            else b"",
            keep_seconds=TEMPORARY_SECONDS if request.background and not request.store else None,
            codec=self.codec,
            seal=self._seal(scope) if ENCRYPTED_REASONING in request.include else None,
            compaction=compaction,
            parts=reading.parts,
            rounds=Rounds(engine, request, prompt, hosted) if prompt.toolbox.searches or hosted is not None else None,
            hosted=hosted,
            late=self._late(scope, reading, prompt, hosted, earlier) if late else None,
            summary_tokens=None if engine.capabilities.summaries else summary_tokens(request.reasoning),
        )

    async def _turn(
        self,
        scope: Scope,
        request: CreateResponse,
        parts: Sequence[Conversation],
        engine: Engine,
        prompt: Prompt,
        earlier: Sequence[Any],
    ) -> tuple[PreparedTurn, Compaction | None]:
        began = time.monotonic()
        try:
            planned = await plan_turn(self.codec, scope, engine, request, parts, prompt, begun=earlier)
        except InvalidRequestError as error:
            if request.generate or isinstance(error, ContextOverflowError):
                raise
            # A warm-up ends before there is a question, and some templates do not render that.
            planned = PreparedTurn(prompt, 0), None
        self._observer.prompt_prepared(engine.name, time.monotonic() - began)
        return planned

    async def _hosted(self, scope: Scope, reading: Reading, response_id: str) -> HostedTools | None:
        request, engine = reading.request, reading.engine
        return await self.hosting.tools(scope, request, engine, reading.own, reading.parts, response_id)

    def _late(
        self, scope: Scope, reading: Reading, first: Prompt, hosted: HostedTools | None, earlier: Sequence[Any]
    ) -> Callable[[Sequence[Item]], Awaitable[tuple[PreparedTurn, Compaction | None]]]:
        """Makes the first turn once the response has begun, after the items that come before it."""
        request, engine = reading.request, reading.engine

        async def turn(before: Sequence[Item]) -> tuple[PreparedTurn, Compaction | None]:
            parts = [*reading.parts, convert(before, reading.parts[-1])] if before else reading.parts
            prompt = build_prompt(request, parts, engine, hosted=hosted)
            prompt = msgspec.structs.replace(prompt, sampling=first.sampling, affinity=first.affinity)
            if hosted is not None and hosted.approved:
                # What was approved is no part of what a compaction would leave out.
                return await prepare(engine, prompt, request.truncation), None
            told = instructed(request, reading.parts, hosted)
            return await self._turn(scope, told, reading.parts, engine, prompt, earlier)

        return turn

    async def _chained_to(
        self, scope: Scope, request: CreateResponse, parent: Turn | None, store: Store | None
    ) -> tuple[str | None, Sequence[StoredItem]]:
        """The response that a row follows, and the items between the two that no store has.

        Raises:
            NotFoundError: the last response of that history that a store had was deleted.
        """
        named = request.previous_response_id
        if parent is None or parent.stored or store is None:
            return named, ()
        if parent.base is not None and await store.get_response(scope, parent.base) is None:
            raise previous_not_found(named or parent.id)
        return parent.base, parent.rows

    async def count(self, scope: Scope, request: CreateResponse) -> int:
        """The input tokens that the request would have.

        Raises:
            APIError: the request would be refused.
        """
        reading = await self.read(scope, request)
        hosted = await self._hosted(scope, reading, "") if asks(reading.request, reading.own) else None
        if hosted is not None:
            await hosted.open_later()
        prompt = build_prompt(reading.request, reading.parts, reading.engine, hosted=hosted)
        with reading.engine.gate.place(bounded=False):
            turn = await prepare(reading.engine, prompt, reading.request.truncation)
            return await reading.engine.count(turn)

    def routed(self, scope: Scope, reading: Reading, prompt: Prompt, own: str | None = None) -> Prompt:
        """The prompt with what it is routed by, where its engine makes use of that; `own` is the id of its response."""
        if not reading.engine.routed:
            return prompt
        before = reading.before
        affinity = self.affinities.of(
            scope,
            reading.engine.name,
            prompt,
            cache_key=reading.request.prompt_cache_key,
            conversation=conversation_id(reading.request),
            root=before.root or before.id if before is not None else None,
            own=own,
        )
        return msgspec.structs.replace(prompt, affinity=affinity)

    def _seal(self, scope: Scope) -> Callable[[str], str]:
        return lambda text: self.codec.seal(scope, REASONING, text.encode())

    def _resume_plan(
        self, scope: Scope, sent: bytes | CreateResponse, dialect: str, prompt: Prompt, reading: Reading
    ) -> bytes:
        seed = prompt.sampling.seed
        return msgspec.msgpack.encode(
            ResumePlan(
                request=veiled(self.codec, scope, sent, reading.request) if isinstance(sent, bytes) else b"",
                seed=0 if seed is None else seed,
                fingerprint=reading.engine.fingerprint,
                dialect=dialect,
                history=reading.history_items,
                instructions=_template_instructions(reading.request),
                terms=reading.engine.terms.kept(),
            )
        )

    async def _load(self, scope: Scope, request: CreateResponse, resumed: ResumePlan | None) -> _Past:
        identity = request.previous_response_id
        if identity is not None:
            return await self._load_chain(scope, identity, check=resumed is None)
        named = conversation_id(request)
        if named is None:
            return _Past()
        if self._conversations is None:
            raise persistence_off("conversation")
        found = await self._conversations.history(scope, named, most=resumed.history if resumed is not None else None)
        return _Past(found.turn, found.items, found.title)

    async def _load_chain(self, scope: Scope, identity: str, *, check: bool) -> _Past:
        store = require_store(self.store, "previous_response_id")
        if not is_id("resp", identity) or self._history is None:
            raise previous_not_found(identity)
        inherited = None
        if check:
            parent = await store.get_response(scope, identity)
            if parent is None or parent.temporary:
                raise previous_not_found(identity)
            if parent.status not in TERMINAL_STATUSES:
                raise InvalidRequestError(
                    f"Previous response '{identity}' has not ended yet.",
                    param="previous_response_id",
                    code="response_in_progress",
                )
            inherited = _titled.decode(parent.snapshot).title
        history = await self._history.upto(scope, identity)
        if history is None:
            raise previous_not_found(identity)
        return _Past(history, title=inherited)


async def wait_ready(engine: Engine, patience: float = RESTART_PATIENCE) -> None:
    """Return when the engine can generate.

    Raises:
        EngineUnavailableError: it is loading its first model, or was not restarted within that many seconds.
    """
    if not engine.ready and not await engine.wait_ready(patience):
        raise EngineUnavailableError(engine.not_ready, retry_after=2.0)


def _opened(response_id: str, request: CreateResponse, reading: Reading, *, stored: bool) -> Response:
    """The response of a request before anything of it is generated."""
    return open_response(
        request,
        stored=stored,
        response_id=response_id,
        model=reading.model,
        created_at=int(time.time()),
        conversation=conversation_id(request),
        title=(reading.title or title(reading.own)) if stored else None,
    )


def _template_instructions(request: CreateResponse) -> bytes:
    if request.prompt is None:
        return b""
    items = request.instruction_items
    return encode(request.instructions if items is None else [wire_item(item) for item in items])


def _with_seed(prompt: Prompt, seed: int | None) -> Prompt:
    """A prompt whose sampling can be repeated."""
    sampling = prompt.sampling
    if sampling.seed is not None and sampling.seed >= 0:
        return prompt
    fixed = secrets.randbelow(2**31) if seed is None else seed
    return msgspec.structs.replace(prompt, sampling=msgspec.structs.replace(sampling, seed=fixed))


def _check_outputs(history: Turn | None, own: Sequence[Item]) -> None:
    if history is None or not history.open_calls:
        return
    answered = answered_calls(own)
    for call_id in history.open_calls:
        if call_id not in answered:
            raise InvalidRequestError(
                f"No tool output found for function call {call_id}.", param="input", code="missing_tool_output"
            )


def require_store(store: Store | None, param: str | None = None) -> Store:
    """The store.

    Raises:
        InvalidRequestError: persistence is turned off.
    """
    if store is None:
        raise persistence_off(param)
    return store


def previous_not_found(response_id: str) -> NotFoundError:
    """The one answer for ids that cannot be chained to."""
    return NotFoundError(
        f"Previous response with id '{quoted(response_id)}' not found.",
        param="previous_response_id",
        code="previous_response_not_found",
    )
