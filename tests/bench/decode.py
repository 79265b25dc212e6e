"""The probe of requests: decoding and checking one of 200 items, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.bench.probe import MODEL, Bench, Probe

from antiphon.engines.registry import build_registry
from antiphon.protocol.json import encode
from antiphon.protocol.request import decode_create_response
from antiphon.runtime.service import Service
from antiphon.settings import Settings
from antiphon.store.base import Scope

__all__ = ["Decode", "request_of_items"]

ITEMS = 200
SENTENCE = "The quick brown fox jumps over the lazy dog while the band plays on. "


def request_of_items() -> bytes:
    """A request of 200 items of about 450 bytes: messages of both sides, thinking, calls and their outputs."""
    text = SENTENCE * 5
    turn = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]},
        {"role": "user", "content": text},
        {
            "type": "message",
            "id": "msg_0000",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text[:280], "annotations": [], "logprobs": []}],
        },
        {"type": "reasoning", "id": "rs_0000", "summary": [], "content": [{"type": "reasoning_text", "text": text}]},
        {
            "type": "function_call",
            "call_id": "call_1",
            "name": "look_up",
            "arguments": '{"text": "' + text[:310] + '"}',
        },
        {"type": "function_call_output", "call_id": "call_1", "output": text},
    ]
    items = [turn[index % len(turn)] for index in range(ITEMS)]
    return encode({"model": MODEL, "input": items, "store": False})


class Decode(Probe):
    """Decoding, checking, and all that a request goes through before its response begins."""

    name = "decode"

    def __init__(self) -> None:
        super().__init__()
        more = {"more_is_better": False, "digits": 3}
        self._decode = self.figure(
            "decode and check 200 items", "CPU ms", aim=0.5, beside="0.21 decoding alone", **more
        )
        self._service = self.figure("the rest of Service.create: rules, messages, opening", "CPU ms", **more)

    async def prepare(self, bench: Bench) -> None:
        settings = Settings(model=(MODEL,))
        self._body = request_of_items()
        self._times = 25 if bench.quick else 200
        self._creator = Service(settings, build_registry(settings), None)
        await self._creator.start()
        _fastest(self._times // 10, lambda: decode_create_response(self._body))
        await self._create()

    async def round(self, bench: Bench) -> None:
        decoding = _fastest(self._times, lambda: decode_create_response(self._body))
        creating = min([await self._create() for _ in range(self._times)])
        self._decode.samples.append(decoding * 1000)
        self._service.samples.append(max(0.0, creating - decoding) * 1000)

    async def _create(self) -> float:
        began = time.thread_time()
        run = await self._creator.create(Scope("bench"), self._body)
        spent = time.thread_time() - began
        await self._creator.launch(run)
        return spent


def _fastest(times: int, work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(times):
        began = time.thread_time()
        work()
        best = min(best, time.thread_time() - began)
    return best
