"""How keys are made and looked up."""

from __future__ import annotations

import hashlib

import pytest

from antiphon.runtime.keys import PREFIX, KeyRing, new_key
from antiphon.runtime.limits import KeyRules
from antiphon.store.base import ApiKey, StoreLimits
from antiphon.store.memory import MemoryStore
from support.stores import Clock

RULES = KeyRules(models=("small",), requests_per_minute=5)


class Counting(MemoryStore):
    """Counts the look-ups."""

    def __init__(self) -> None:
        super().__init__(StoreLimits())
        self.lookups = 0

    async def find_key(self, digest: bytes) -> ApiKey | None:
        self.lookups += 1
        return await super().find_key(digest)

    async def keys(self) -> list[ApiKey]:
        self.lookups += 1
        return await super().keys()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> Counting:
    return Counting()


@pytest.fixture
def ring(store: Counting, clock: Clock) -> KeyRing:
    return KeyRing(store, clock)


@pytest.mark.requirement("keys:secret")
def test_a_secret_is_256_random_bits_and_only_its_digest_is_kept() -> None:
    made = [new_key("ci", "acme", RULES, 1000.9) for _ in range(50)]
    assert len({secret for secret, _ in made}) == len({key.id for _, key in made}) == 50
    secret, key = made[0]
    assert secret.startswith(PREFIX)
    assert len(secret) - len(PREFIX) >= 43
    assert key.digest == hashlib.sha256(secret.encode()).digest()
    assert (key.name, key.tenant, key.created_at, key.revoked_at) == ("ci", "acme", 1000, None)
    assert key.limits == b'{"models":["small"],"requests_per_minute":5}'
    assert secret not in repr(key)


@pytest.mark.requirement("keys:lookup")
async def test_a_key_is_found_by_its_secret_with_one_look_up_a_second(
    store: Counting, ring: KeyRing, clock: Clock
) -> None:
    secret, key = new_key("ci", "acme", RULES, 0)
    await store.add_key(key)
    for _ in range(10):
        assert await ring.find(secret.encode()) == key
    assert store.lookups == 1
    clock.now += 1
    assert await ring.find(secret.encode()) == key
    assert store.lookups == 2


@pytest.mark.requirement("keys:revoked")
async def test_a_revoked_key_is_no_key_within_two_seconds(store: Counting, ring: KeyRing, clock: Clock) -> None:
    secret, key = new_key("ci", "acme", RULES, 0)
    await store.add_key(key)
    assert await ring.find(secret.encode()) is not None
    assert await store.revoke_key(key.id, 5)
    clock.now += 2
    assert await ring.find(secret.encode()) is None
    assert await ring.any()


@pytest.mark.requirement("keys:lookup:guesses")
async def test_guesses_cost_little_and_do_not_push_known_keys_out(store: Counting, ring: KeyRing) -> None:
    secret, key = new_key("ci", "acme", RULES, 0)
    await store.add_key(key)
    await ring.find(secret.encode())
    for number in range(10_000):
        assert await ring.find(b"sk-other-%d" % number) is None
    assert store.lookups == 1
    guess = f"{PREFIX}guess".encode()
    for _ in range(10):
        assert await ring.find(guess) is None
    assert store.lookups == 2
    for number in range(5000):
        assert await ring.find(guess + b"%d" % number) is None
    asked = store.lookups
    assert await ring.find(secret.encode()) == key
    assert store.lookups == asked
    assert len(ring._unknown._found) <= 4096


@pytest.mark.requirement("keys:any")
async def test_whether_there_are_keys_is_asked_once_a_second_until_there_is_one(
    store: Counting, ring: KeyRing, clock: Clock
) -> None:
    for _ in range(10):
        assert not await ring.any()
    assert store.lookups == 1
    _, key = new_key("ci", "acme", RULES, 0)
    await store.add_key(key)
    clock.now += 1
    assert await ring.any()
    await store.delete_tenant("acme")
    clock.now += 10
    assert await ring.any(), "a server that asked for keys does not stop to"
    assert store.lookups == 2


@pytest.mark.requirement("keys:any")
async def test_a_key_that_is_found_is_a_key(store: Counting, ring: KeyRing) -> None:
    assert not await ring.any()
    secret, key = new_key("ci", "acme", RULES, 0)
    await store.add_key(key)
    assert await ring.find(secret.encode()) == key
    assert await ring.any()


@pytest.mark.requirement("keys:any")
async def test_without_a_store_there_are_no_keys() -> None:
    ring = KeyRing(None)
    assert not await ring.any()
    assert await ring.find(f"{PREFIX}x".encode()) is None
