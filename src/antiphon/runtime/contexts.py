"""Contexts apart from responses: how many tokens a request has, and a compaction that no response is made of.

Both read a request as `POST /v1/responses` does, and neither keeps anything (responses-api 2.3 and 2.4).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext

import msgspec
from msgspec import Struct

from antiphon.errors import ContextOverflowError, InvalidRequestError
from antiphon.machine.assembler import usage_of
from antiphon.machine.deltas import Stop
from antiphon.protocol.ids import is_id, new_id
from antiphon.protocol.items import Item, Message, decode_stored_item, encode_item
from antiphon.protocol.json import decode_body, encode
from antiphon.protocol.request import CreateResponse, decode_create_response
from antiphon.runtime.compaction import Compactor
from antiphon.runtime.service import Service
from antiphon.store.base import Scope

__all__ = ["Contexts"]


class _Model(Struct):
    model: str | None


_model = msgspec.json.Decoder(_Model)


class Contexts:
    """Counts and compacts over one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def count(self, scope: Scope, body: bytes) -> int:
        """The tokens that the request of a JSON body has as input; also where they are more than the context takes.

        Raises:
            APIError: the request would be refused for another reason.
        """
        request = self._read(body)
        with self._service.beside.place(scope):
            try:
                return await self._service.planner.count(scope, request)
            except ContextOverflowError as error:
                if error.estimated:
                    raise
                return error.input_tokens

    async def compact(self, scope: Scope, body: bytes) -> bytes:
        """The JSON of a compacted context: the user's messages, and one item that stands for all the rest.

        Raises:
            APIError: the request is refused, or the engine failed.
        """
        decode_body(_model, body)
        request = self._read(body)
        # As for a trigger, calls may be open; what only a response has is of no meaning here.
        request.compaction_trigger = True
        request.conversation = None
        request.background = False
        with self._service.beside.place(scope):
            store, parent = self._service.store, request.previous_response_id
            named = store is not None and parent is not None and is_id("resp", parent)
            with store.retain(scope, parent) if store is not None and parent is not None and named else nullcontext():
                return await self._compact(scope, request)

    async def _compact(self, scope: Scope, request: CreateResponse) -> bytes:
        service = self._service
        reading = await service.planner.read(scope, request)
        if not any(part.substance for part in reading.parts if not part.pinned):
            raise InvalidRequestError(
                "There is nothing to compact: give 'input' or 'previous_response_id'.",
                param="input",
                code="empty_input",
            )
        with reading.engine.gate.place():
            said = [*await self._chain(scope, request.previous_response_id), *reading.own]
            async with reading.engine.gate.slot():
                alone = service.planner.affinities.alone(scope)
                compacted = await Compactor(service.codec, scope, reading.engine, alone).compact(reading.parts)
        usage = usage_of(Stop("stop", compacted.usage))
        service.limits.spent(scope, usage.total_tokens)
        return encode(
            {
                "id": new_id("resp"),
                "object": "response.compaction",
                "created_at": int(time.time()),
                "output": [*_user_messages(said, service.settings.max_body_bytes), compacted.item],
                "usage": usage,
            }
        )

    async def _chain(self, scope: Scope, response_id: str | None) -> list[Item]:
        store = self._service.store
        if store is None or response_id is None:
            return []
        turns = await store.chain(scope, response_id)
        return [decode_stored_item(body) for turn in turns for body in turn.input_items]

    def _read(self, body: bytes) -> CreateResponse:
        """The request; without a model it is for the first one, since these bodies need not name any."""
        request = decode_create_response(body)
        if not request.model and self._service.registry.default_model is None:
            request.model = self._service.registry.first()
        return request


def _user_messages(items: Sequence[Item], most: int) -> list[msgspec.Raw]:
    """The user's messages as items, in order, without the oldest where a client could not send all of them back."""
    told: dict[str, msgspec.Raw] = {}
    for item in reversed(items):
        if isinstance(item, Message) and item.role == "user":
            body = encode_item(item)
            most -= len(body)
            if most < 0:
                break
            told.setdefault(item.id or "", msgspec.Raw(body))
    return list(told.values())[::-1]
