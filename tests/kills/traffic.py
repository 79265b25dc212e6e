"""Mixed traffic: synchronous, streamed, background, deletes, cancellations, conversations and tool turns."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
from tests.kills.ledger import Deed, Ledger, event_of, frames_of

__all__ = ["Traffic"]

MODEL = "scripted"
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
CONVERSATIONS = 3


class Traffic:
    """Clients that go on through kills: one that loses its connection writes down what it was told, and begins anew."""

    def __init__(self, ledger: Ledger, client: Callable[[], httpx2.AsyncClient | None], seed: int) -> None:
        self._ledger = ledger
        self._client = client
        self._random = random.Random(seed)
        self._conversations: dict[str, list[str]] = {}
        self.stopped = False
        self.requests = 0
        self.refused: list[str] = []

    async def run(self, clients: int) -> None:
        """Be so many clients until `stopped`."""
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self._client_loop())

    async def _client_loop(self) -> None:
        kinds: list[tuple[int, Callable[[httpx2.AsyncClient], Awaitable[None]]]] = [
            (3, self._synchronous),
            (3, self._streamed),
            (4, self._background_stream),
            (3, self._background_polled),
            (1, self._deleted),
            (2, self._cancelled),
            (2, self._tool_turn),
            (2, self._in_conversation),
        ]
        weights = [weight for weight, _ in kinds]
        while not self.stopped:
            client = self._client()
            if client is None:
                await asyncio.sleep(0.02)
                continue
            _, kind = self._random.choices(kinds, weights)[0]
            self.requests += 1
            try:
                await kind(client)
            except (httpx2.HTTPError, httpx2.StreamError):
                await asyncio.sleep(0.02)

    def _count(self) -> tuple[str, str]:
        """A script that takes a while, and the text that it comes to."""
        last = self._random.randint(5, 120)
        pause = self._random.choice([0, 2, 5, 10])
        return f"!SLOW {pause}\n!COUNT {last}", " ".join(str(number) for number in range(1, last + 1))

    async def _post(self, client: httpx2.AsyncClient, said: Any, **fields: Any) -> dict[str, Any] | None:
        answer = await client.post("/responses", json={"model": MODEL, "input": said, **fields})
        if answer.status_code == 200:
            return answer.json()
        if answer.status_code not in (409, 503):
            self.refused.append(f"{answer.status_code} {answer.text[:200]}")
        return None

    async def _stream(self, client: httpx2.AsyncClient, deed: Deed, said: str, **fields: Any) -> None:
        content = b""
        body = {"model": MODEL, "input": said, "stream": True, **fields}
        async with client.stream("POST", "/responses", json=body) as answer:
            if answer.status_code != 200:
                return
            leave_at = self._random.randint(1, 4000) if self._random.random() < 0.2 and deed.background else None
            async for chunk in answer.aiter_bytes():
                content += chunk
                deed.frames = frames_of(content)
                if deed.frames and not deed.id:
                    deed.id = event_of(deed.frames[0])["response"]["id"]
                if leave_at is not None and len(content) > leave_at:
                    return

    async def _synchronous(self, client: httpx2.AsyncClient) -> None:
        body = await self._post(client, "!TEXT remember this")
        if body is not None:
            self._ledger.add(Deed("synchronous", body["id"], body=body))

    async def _streamed(self, client: httpx2.AsyncClient) -> None:
        said, expected = self._count()
        await self._stream(client, self._ledger.add(Deed("streamed", expected=expected)), said)

    async def _background_stream(self, client: httpx2.AsyncClient) -> None:
        said, expected = self._count()
        deed = self._ledger.add(Deed("background stream", background=True, expected=expected))
        await self._stream(client, deed, said, background=True)

    async def _background_polled(self, client: httpx2.AsyncClient) -> None:
        said, expected = self._count()
        body = await self._post(client, said, background=True)
        if body is None:
            return
        self._ledger.add(Deed("background", body["id"], background=True, expected=expected))
        for _ in range(self._random.randint(0, 5)):
            await client.get(f"/responses/{body['id']}")

    async def _deleted(self, client: httpx2.AsyncClient) -> None:
        body = await self._post(client, "forget this")
        if body is None:
            return
        deed = self._ledger.add(Deed("deleted", body["id"], body=body))
        deed.deleting = True
        answer = await client.delete(f"/responses/{body['id']}")
        deed.deleted = answer.status_code == 200

    async def _cancelled(self, client: httpx2.AsyncClient) -> None:
        body = await self._post(client, "!SLOW 10\n!COUNT 150", background=True)
        if body is None:
            return
        deed = self._ledger.add(Deed("cancelled", body["id"], background=True, cancelling=True))
        await asyncio.sleep(self._random.random() * 0.2)
        answer = await client.post(f"/responses/{body['id']}/cancel")
        if answer.status_code == 200:
            deed.cancelled = answer.json()

    async def _tool_turn(self, client: httpx2.AsyncClient) -> None:
        first = await self._post(client, "!CALL look {}", tools=[TOOL])
        if first is None:
            return
        self._ledger.add(Deed("tool call", first["id"], body=first))
        output = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "found"}
        background = self._random.random() < 0.5
        second = await self._post(
            client, [output], tools=[TOOL], previous_response_id=first["id"], background=background
        )
        if second is not None:
            deed = Deed("tool answer", second["id"], background=background, expected="FINAL: found")
            self._ledger.add(deed)
            deed.body = None if background else second

    async def _in_conversation(self, client: httpx2.AsyncClient) -> None:
        if len(self._conversations) < CONVERSATIONS:
            answer = await client.post("/conversations", json={})
            if answer.status_code == 200:
                self._conversations[answer.json()["id"]] = []
            return
        name = self._random.choice(list(self._conversations))
        said = f"!TEXT said {self.requests}"
        body = await self._post(client, said, conversation=name)
        if body is not None:
            self._conversations[name].append(body["id"])
            self._ledger.add(Deed("in a conversation", body["id"], body=body, conversation=name))

    async def check_conversations(self, client: httpx2.AsyncClient) -> None:
        """Every acknowledged turn is in its conversation, in order, and the conversation takes another one."""
        for name, turns in self._conversations.items():
            items: list[dict[str, Any]] = []
            after = ""
            while True:
                page = (await client.get(f"/conversations/{name}/items?order=asc&limit=100{after}")).json()
                items += page["data"]
                if not page["has_more"]:
                    break
                after = f"&after={page['last_id']}"
            said = [item["content"][0]["text"] for item in items if item.get("role") == "assistant"]
            for turn in turns:
                answer = await client.get(f"/responses/{turn}")
                assert answer.status_code == 200, (name, turn, answer.text)
                text = answer.json()["output_text"]
                assert text in said, f"conversation {name} has lost the turn {text!r}"
            body = await self._post(client, f"!TEXT checked {self.requests}", conversation=name)
            assert body is not None, f"conversation {name} takes no turn"
            self.requests += 1
