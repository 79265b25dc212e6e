"""The gate of a model: who waits, and who waits until nobody else does."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.engines.gate import Gate


@pytest.mark.requirement("search:rerank:served")
async def test_who_is_patient_gets_no_slot_while_anyone_else_waits():
    gate = Gate()
    gate.limit(1)
    order: list[str] = []

    async def use(name: str, *, patient: bool) -> None:
        async with gate.slot(patient=patient):
            order.append(name)
            await asyncio.sleep(0)

    await gate.acquire()
    patient = [asyncio.create_task(use(name, patient=True)) for name in ("a", "b")]
    await asyncio.sleep(0)
    others = [asyncio.create_task(use(name, patient=False)) for name in ("c", "d")]
    await asyncio.sleep(0)
    assert (gate.waiting, gate.slots) == (4, 1)
    patient[1].cancel()
    await asyncio.sleep(0)
    assert gate.waiting == 3
    gate.release()
    await asyncio.gather(patient[0], *others)
    assert order == ["c", "d", "a"]
    assert gate.running == gate.waiting == 0
