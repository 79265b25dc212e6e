"""API keys: how they are made, and which one a secret stands for (issue 3, Keys and tenants).

A store holds the SHA-256 digest of a secret, never the secret. That is enough without salt or stretching, since a
secret is 256 random bits that no one can guess or look up.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from antiphon.protocol.ids import new_id
from antiphon.runtime.limits import KeyRules
from antiphon.store.base import ApiKey
from antiphon.store.registers import Registers

__all__ = ["FRESH_SECONDS", "PREFIX", "KeyRing", "digest", "new_key"]

PREFIX = "sk-antiphon-"
"""What every secret of ours begins with, so that scanners of code find one that was left there."""

FRESH_SECONDS = 1.0
"""How long an answer of the store is believed: that long, a revoked key goes on working."""

_RANDOM_BYTES = 32
_MOST_KNOWN = 4096


def new_key(name: str, tenant: str, rules: KeyRules, now: float) -> tuple[str, ApiKey]:
    """A new secret, which is told once, and the row that is kept; `now` in seconds since the epoch."""
    secret = PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
    encoded = msgspec.json.encode(rules)
    return secret, ApiKey(new_id("key"), tenant, name, digest(secret.encode()), int(now), encoded)


def digest(secret: bytes) -> bytes:
    """The SHA-256 digest of a secret, by which it is kept, looked up and compared."""
    return hashlib.sha256(secret).digest()


class _Recent:
    """Answers of the store by digest, for a second: so many at most, those that were asked for longest ago go first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._found: OrderedDict[bytes, tuple[float, ApiKey | None]] = OrderedDict()

    def get(self, wanted: bytes) -> tuple[float, ApiKey | None] | None:
        found = self._found.get(wanted)
        return found if found is not None and self._clock() < found[0] + FRESH_SECONDS else None

    def put(self, wanted: bytes, asked_at: float, key: ApiKey | None) -> None:
        self._found[wanted] = (asked_at, key)
        self._found.move_to_end(wanted)
        if len(self._found) > _MOST_KNOWN:
            self._found.popitem(last=False)


class KeyRing:
    """The keys of a store, looked up by digest; without a store there are none.

    What the store said is believed for a second, so that a busy key costs one look-up a second and a revoked one stops
    working within two. Unknown secrets are remembered apart from known ones: guesses do not push those out.
    """

    def __init__(self, registers: Registers | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._registers = registers
        self._clock = clock
        self._known = _Recent(clock)
        self._unknown = _Recent(clock)
        self._any = False
        self._looked_at: float | None = None

    async def any(self) -> bool:
        """Whether there is, or ever was while this process runs, a key in the store; revoked ones count.

        Raises:
            UnavailableError: the store cannot be read now.
        """
        if self._any or self._registers is None:
            return self._any
        now = self._clock()
        if self._looked_at is None or now >= self._looked_at + FRESH_SECONDS:
            self._any = bool(await self._registers.keys())
            self._looked_at = now
        return self._any

    async def find(self, secret: bytes) -> ApiKey | None:
        """The key that a secret stands for; None where there is none or it was revoked.

        Raises:
            UnavailableError: the store cannot be read now.
        """
        if self._registers is None or not secret.startswith(PREFIX.encode()):
            return None
        wanted = digest(secret)
        recent = self._known.get(wanted) or self._unknown.get(wanted)
        if recent is not None:
            return recent[1]
        asked_at = self._clock()
        key = await self._registers.find_key(wanted)
        self._any = self._any or key is not None
        if key is not None and key.revoked_at is not None:
            key = None
        (self._unknown if key is None else self._known).put(wanted, asked_at, key)
        return key
