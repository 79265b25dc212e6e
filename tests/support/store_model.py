"""A store that is too simple to be wrong: every rule by looking at all rows."""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.store.base import EventBatch, FinishedResponse, NewResponse, StoredItem, StoreLimits
from support.stores import Clock

__all__ = ["ModelStore", "ModelTalk", "RefusedError"]

FOREVER = float("inf")


class RefusedError(Exception):
    """A call that a store answers with an error; `code` is the error's."""

    def __init__(self, code: str | None) -> None:
        super().__init__(code)
        self.code = code


class ModelRow:
    """A response."""

    def __init__(self, new: NewResponse, ttl: float | None, now: float) -> None:
        self.name, self.parent, self.talk = new.id, new.parent_id, new.conversation_id
        self.status, self.snapshot = new.status, new.snapshot
        self.owner, self.plan, self.fence = new.owner, new.plan, 1
        self.keep = new.keep_seconds
        self.expires = FOREVER if ttl is None or self.keep is not None else now + ttl
        self.ended = FOREVER
        self.inputs, self.outputs = list(new.input_items), list[StoredItem]()
        self.batches: list[EventBatch] = list(new.events)
        self.events_expired = False
        self.gone = False
        self.used = 0

    @property
    def running(self) -> bool:
        return self.status in {"queued", "in_progress"}

    @property
    def last(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1


class ModelTalk:
    """A conversation."""

    def __init__(self, metadata: bytes) -> None:
        self.metadata = metadata
        self.items: list[str] = []
        self.expires = FOREVER
        self.used = 0


class ModelStore:
    """All rows of one tenant."""

    def __init__(self, limits: StoreLimits, clock: Clock) -> None:
        self.limits, self.clock = limits, clock
        self.rows: dict[str, ModelRow] = {}
        self.talks: dict[str, ModelTalk] = {}
        self.bodies: dict[str, bytes] = {}
        self.records: dict[str, tuple[str, float]] = {}
        self.tick = 0

    # Responses

    def live(self, name: str | None) -> ModelRow | None:
        row = self.rows.get(name or "")
        return None if row is None or row.gone else row

    def owned(self, name: str, fence: int) -> ModelRow | None:
        row = self.live(name)
        return row if row is not None and row.running and row.fence == fence else None

    def use(self, name: str | None) -> None:
        row = self.live(name)
        if row is not None and not row.running:
            row.used = self.next_tick()

    def next_tick(self) -> int:
        self.tick += 1
        return self.tick

    def create(self, new: NewResponse, finished: FinishedResponse | None = None) -> None:
        record = new.idempotency
        if record is not None and self.record(record.key) is not None:
            raise RefusedError("idempotency_key_in_use")
        if new.conversation_id is not None and any(
            row.talk == new.conversation_id and row.running for row in self.rows.values()
        ):
            raise RefusedError("conversation_locked")
        if record is not None:
            self.records[record.key] = (record.response_id, record.expires_at)
        self.rows[new.id] = ModelRow(new, self.limits.ttl_seconds, self.clock())
        self.keep_bodies(new.input_items)
        self.use(new.parent_id)
        if finished is not None:
            self.end(self.rows[new.id], finished)
        self.settle()

    def record(self, key: str) -> str | None:
        name, expires = self.records.get(key, ("", 0.0))
        return name if expires > self.clock() else None

    def append(self, name: str, batch: EventBatch, fence: int, status: str | None) -> bool:
        row = self.owned(name, fence)
        if row is None:
            return False
        if batch.first_sequence != row.last + 1:
            raise RefusedError(None)
        row.batches.append(batch)
        row.status = status or row.status
        self.settle()
        return True

    def finish(self, finished: FinishedResponse) -> bool:
        row = self.owned(finished.id, finished.fence)
        if row is None:
            return False
        if finished.events[0].first_sequence != row.last + 1:
            raise RefusedError(None)
        self.end(row, finished)
        self.settle()
        return True

    def end(self, row: ModelRow, finished: FinishedResponse) -> None:
        row.status, row.snapshot, row.plan = finished.status, finished.snapshot, b""
        row.outputs = list(finished.output_items)
        row.batches += finished.events
        row.ended = self.clock()
        if row.keep is not None:
            row.expires = row.ended + row.keep
        self.keep_bodies(finished.output_items)
        if finished.to_conversation and row.talk is not None:
            self.add(row.talk, [*row.inputs, *row.outputs])
        self.use(row.name)

    def claim(self, name: str, fence: int, owner: str) -> ModelRow | None:
        row = self.owned(name, fence)
        if row is not None:
            row.fence, row.owner = row.fence + 1, owner
        return row

    def delete(self, name: str) -> bool:
        row = self.live(name)
        if row is None:
            return False
        if row.running:
            raise RefusedError("response_in_progress")
        row.gone = True
        self.prune()
        return True

    def delete_chain(self, name: str) -> list[str]:
        if self.live(name) is None:
            return []
        family = [row for row in self.rows.values() if self.root(row.name) == self.root(name) and not row.gone]
        if any(row.running for row in family):
            raise RefusedError("response_in_progress")
        for row in family:
            row.gone = True
        self.prune()
        return [row.name for row in family]

    def root(self, name: str) -> str:
        parent = self.rows[name].parent
        return name if parent is None or parent not in self.rows else self.root(parent)

    def chain(self, name: str) -> list[tuple[str, list[bytes]]]:
        turns: list[tuple[str, list[bytes]]] = []
        row = self.rows.get(name)
        while row is not None:
            turns.insert(0, (row.name, [self.bodies[item.id] for item in (*row.inputs, *row.outputs)]))
            row = self.rows.get(row.parent or "")
        return turns

    def running(self) -> list[tuple[str, str, int]]:
        return [(row.name, row.owner, row.fence) for row in self.rows.values() if row.running and not row.gone]

    # Conversations

    def create_talk(self, name: str, metadata: bytes, items: list[StoredItem]) -> None:
        if name in self.talks:
            raise RefusedError(None)
        self.talks[name] = ModelTalk(metadata)
        self.add(name, items)
        self.touch(self.talks.get(name))
        self.settle()

    def touch(self, talk: ModelTalk | None) -> None:
        """A conversation that is made or gets items is younger again."""
        ttl = self.limits.conversation_ttl_seconds
        if talk is not None and ttl is not None:
            talk.expires = self.clock() + ttl

    def add(self, name: str, items: list[StoredItem]) -> bool:
        talk = self.used_talk(name)
        if talk is None:
            return False
        new = dict.fromkeys(item.id for item in items if item.id not in talk.items)
        self.keep_bodies(items)
        talk.items += new
        if new:
            self.touch(talk)
        return True

    def used_talk(self, name: str) -> ModelTalk | None:
        talk = self.talks.get(name)
        if talk is not None:
            talk.used = self.next_tick()
        return talk

    def talk_bytes(self) -> int:
        return sum(len(self.bodies[item]) for talk in self.talks.values() for item in talk.items)

    # Limits

    def keep_bodies(self, items: Iterable[StoredItem]) -> None:
        for item in items:
            self.bodies.setdefault(item.id, item.body)

    def settle(self) -> None:
        """Expire, evict and remove until every limit holds."""
        now = self.clock()
        for row in self.rows.values():
            if not row.running and row.expires <= now:
                row.gone = True
        self.talks = {name: talk for name, talk in self.talks.items() if talk.expires > now}
        self.prune()
        while self.too_much():
            evictable = [row for row in self.rows.values() if not row.gone and not row.running]
            if not evictable:
                break
            min(evictable, key=lambda row: row.used).gone = True
            self.prune()
        while self.too_many_talks():
            del self.talks[min(self.talks, key=lambda name: self.talks[name].used)]
            self.prune()

    def sweep(self) -> None:
        ttl = self.limits.event_ttl_seconds
        self.settle()
        for row in self.rows.values():
            if ttl is not None and not row.gone and row.ended + ttl <= self.clock():
                row.batches, row.events_expired = [], True

    def too_much(self) -> bool:
        most, most_bytes = self.limits.max_entries, self.limits.max_bytes
        own = {item.id for row in self.rows.values() for item in (*row.inputs, *row.outputs)}
        size = self.own_bytes() + sum(len(self.bodies[name]) for name in own)
        return (most is not None and self.totals()[0] > most) or (most_bytes is not None and size > most_bytes)

    def too_many_talks(self) -> bool:
        most, most_bytes = self.limits.max_conversations, self.limits.max_conversation_bytes
        return bool(self.talks) and (
            (most is not None and len(self.talks) > most) or (most_bytes is not None and self.talk_bytes() > most_bytes)
        )

    def prune(self) -> None:
        while True:
            parents = {row.parent for row in self.rows.values()}
            unneeded = [name for name, row in self.rows.items() if row.gone and name not in parents]
            for name in unneeded:
                del self.rows[name]
            if not unneeded:
                break
        for row in self.rows.values():
            if row.gone:
                row.snapshot, row.batches = b"", []
        kept = {item.id for row in self.rows.values() for item in (*row.inputs, *row.outputs)}
        kept.update(item for talk in self.talks.values() for item in talk.items)
        self.bodies = {name: body for name, body in self.bodies.items() if name in kept}

    def own_bytes(self) -> int:
        return sum(len(row.snapshot) + sum(len(one.body) for one in row.batches) for row in self.rows.values())

    def totals(self) -> tuple[int, int, int]:
        responses = sum(not row.gone for row in self.rows.values())
        return responses, len(self.bodies), self.own_bytes() + sum(map(len, self.bodies.values()))
