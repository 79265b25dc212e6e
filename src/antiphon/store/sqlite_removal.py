"""How the SQLite writer removes responses: they become gone, and their rows go when nothing descends from them.

Everything here runs inside a transaction, one thread at a time.
"""

from __future__ import annotations

from antiphon.errors import APIError
from antiphon.store.queries import QUERIES
from antiphon.store.refusals import response_in_progress
from antiphon.store.sqlite_ledger import Key, Ledger

__all__ = ["Removal"]

_FIND_RESPONSE = QUERIES["find_response"]


class Removal:
    """Removes the responses of one database."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._execute = ledger.execute
        self.retained: dict[Key, int] = {}
        self.held_back: dict[Key, None] = {}
        """Gone rows that nothing but `retained` keeps; no key gets in that names no row."""
        self._let_go: list[Key] = []

    def committed(self) -> None:
        """What the transaction did stands."""
        self._let_go.clear()

    def rolled_back(self) -> None:
        """What the transaction did not remove is due again."""
        self.held_back.update(dict.fromkeys(self._let_go))
        self._let_go.clear()

    def delete(self, key: Key) -> bool | APIError:
        """Make a live response gone; an error where it runs."""
        values = {"tenant": key[0], "id": key[1], "now": self._ledger.clock()}
        found = self._execute(QUERIES["find_live"], values).fetchone()
        if found is None:
            return False
        number, running = found
        if running:
            return response_in_progress()
        self.set_gone(key, number)
        return True

    def delete_chain(self, key: Key) -> list[str] | APIError:
        """Make gone all that share a live response's oldest ancestor, that one included; the ids of the live ones."""
        now = self._ledger.clock()
        found = self._execute(QUERIES["find_live"], {"tenant": key[0], "id": key[1], "now": now}).fetchone()
        if found is None:
            return []
        kin = self._execute(QUERIES["find_kin"], {"n": found[0], "now": now}).fetchall()
        if any(running for _, _, running, _ in kin):
            return response_in_progress()
        for number, name, _, _ in kin:
            self.set_gone((key[0], name), number)
        return [name for _, name, _, live in kin if live]

    def expire(self, now: float, most: int) -> tuple[int, int]:
        """Make gone at most so many responses whose time is up: how many, and how many rows were removed."""
        expired = self._execute(QUERIES["find_expired"], (now, most)).fetchall()
        return len(expired), sum(self.set_gone((tenant, name), number) for number, tenant, name in expired)

    def expire_logs(self, ended_before: float, most: int) -> tuple[int, int]:
        """Remove the event logs of at most so many responses: how many they were, and no row of a response."""
        old = self._execute(QUERIES["find_old_logs"], (ended_before, most)).fetchall()
        for number, size in old:
            self._execute(QUERIES["delete_batches"], (number,))
            self._execute(QUERIES["set_log_expired"], (number,))
            self._ledger.bytes -= size
        return len(old), 0

    def enforce_limits(self) -> None:
        """Evict what the limits do not allow."""
        ledger = self._ledger
        most_entries, most_bytes = ledger.limits.max_entries, ledger.limits.max_bytes
        while len(ledger.uses) and (
            (most_entries is not None and ledger.totals.responses + ledger.responses > most_entries)
            or (most_bytes is not None and self._bytes() > most_bytes)
        ):
            key = ledger.uses.take_oldest()
            found = self._execute(_FIND_RESPONSE, key).fetchone()
            self.set_gone(key, found[0])

    def _bytes(self) -> int:
        """What counts against the limit of responses; conversations have their own."""
        ledger = self._ledger
        return ledger.totals.bytes + ledger.bytes - ledger.totals.loose_bytes - ledger.loose_bytes

    def remove_all_unneeded(self) -> int:
        """Remove gone rows that an earlier process had retained; the number of rows removed."""
        unneeded = self._execute(QUERIES["find_unneeded"]).fetchall()
        return sum(self._remove_unneeded(number) for (number,) in unneeded)

    def remove_held_back(self) -> int:
        """Remove the gone rows that were retained and are not any more; the number of rows removed."""
        removed = 0
        for key in [key for key in self.held_back if key not in self.retained]:
            # First, since it may be retained again by now, and is then noted anew.
            del self.held_back[key]
            self._let_go.append(key)
            found = self._execute(_FIND_RESPONSE, key).fetchone()
            if found is not None:
                removed += self._remove_unneeded(found[0])
        return removed

    def set_gone(self, key: Key, number: int) -> int:
        """Make a response gone; the number of rows that this removed."""
        self._count_out(key, number)
        self._execute(QUERIES["delete_batches"], (number,))
        self._execute(QUERIES["set_gone"], (number,))
        return self._remove_unneeded(number)

    def remove_of_tenant(self, tenant: str, most: int) -> int:
        """Remove at most so many responses of a tenant, running and needed ones too; how many they were."""
        found = self._execute(QUERIES["of_tenant"], (tenant, most)).fetchall()
        for number, name, gone in found:
            if not gone:
                self._count_out((tenant, name), number)
            for query in ("delete_plan", "delete_samples", "delete_batches"):
                self._execute(QUERIES[query], (number,))
            self._remove(number)
        return len(found)

    def _count_out(self, key: Key, number: int) -> None:
        self._ledger.uses.leave(key)
        self._ledger.responses -= 1
        self._ledger.bytes -= self._execute(QUERIES["own_size"], (number,)).fetchone()[0]

    def _remove(self, number: int) -> None:
        items = self._execute(QUERIES["items_of"], (number,)).fetchall()
        self._execute(QUERIES["delete_response_items"], (number,))
        self._ledger.drop_items(items, loose=False)
        self._execute(QUERIES["delete_response"], (number,))

    def _remove_unneeded(self, number: int | None) -> int:
        """Remove a gone row that nothing needs, and then those of its ancestors that were kept for it alone."""
        removed = 0
        while number is not None:
            row = self._execute(QUERIES["removable"], (number,)).fetchone()
            if row is None:
                break
            if (row[0], row[1]) in self.retained:
                self.held_back[row[0], row[1]] = None
                break
            self._remove(number)
            removed += 1
            number = row[2]
        return removed
