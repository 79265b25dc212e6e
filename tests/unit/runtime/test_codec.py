"""The codec: blobs open for whom they were made for, and are nothing to anyone else."""

from __future__ import annotations

import asyncio
import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.runtime import codec as codecs
from antiphon.runtime.codec import MAX_BLOB, MAX_PAYLOAD, Codec
from antiphon.store.base import CodecKey, StoreLimits
from antiphon.store.memory import MemoryStore
from support.stores import OURS, THEIRS, Clock

requirement = pytest.mark.requirement


class CountingStore(MemoryStore):
    """A store that counts how often its keys are read."""

    def __init__(self) -> None:
        super().__init__(StoreLimits(), Clock())
        self.reads = 0

    async def codec_keys(self) -> list[CodecKey]:
        """All keys, and one more reading."""
        self.reads += 1
        return await super().codec_keys()


async def loaded(store: MemoryStore | None = None) -> Codec:
    codec = Codec(store)
    await codec.load()
    return codec


@pytest.fixture
async def codec() -> Codec:
    return await loaded()


@requirement("compaction:codec")
@given(payload=st.binary(max_size=2_000))
def test_what_was_sealed_opens_in_its_tenant_and_as_its_kind_only(payload: bytes) -> None:
    async def check() -> None:
        codec = await loaded()
        blob = codec.seal(OURS, "reasoning", payload)
        assert blob.replace("-", "").replace("_", "").isalnum()
        assert await codec.open(OURS, "reasoning", blob) == payload
        assert codec.open_known(OURS, "reasoning", blob) == payload
        assert await codec.open(THEIRS, "reasoning", blob) is None
        assert await codec.open(OURS, "compaction", blob) is None

    asyncio.run(check())


@requirement("compaction:codec")
async def test_a_payload_cannot_be_read_in_its_blob_and_no_two_blobs_are_equal(codec: Codec) -> None:
    first, second = (codec.seal(OURS, "reasoning", b"the word is heron") for _ in range(2))
    assert first != second
    raw = base64.urlsafe_b64decode(first + "==")
    assert b"heron" not in raw
    assert zlib.compress(b"the word is heron")[2:-4] not in raw


@requirement("compaction:codec")
async def test_a_blob_that_was_changed_at_any_place_is_foreign(codec: Codec) -> None:
    blob = codec.seal(OURS, "reasoning", b"the word is heron")
    raw = base64.urlsafe_b64decode(blob + "=" * (-len(blob) % 4))
    for place in range(len(raw)):
        changed = bytearray(raw)
        changed[place] ^= 1
        assert await codec.open(OURS, "reasoning", base64.urlsafe_b64encode(changed).decode()) is None
    for cut in (0, 4, 20, len(blob) - 4):
        assert await codec.open(OURS, "reasoning", blob[:cut]) is None


@requirement("compaction:codec")
@pytest.mark.parametrize("blob", ["", "gAAAAABo", "not base64!", "é", "YW50AQ", "x" * (MAX_BLOB + 1), "A" * 1_000])
async def test_what_no_codec_made_is_foreign(codec: Codec, blob: str) -> None:
    assert await codec.open(OURS, "reasoning", blob) is None


@requirement("compaction:codec:bounds")
async def test_the_largest_payload_fits_and_a_larger_one_is_not_sealed(codec: Codec) -> None:
    largest = b"\x00\x9f" * (MAX_PAYLOAD // 2)
    blob = codec.seal(OURS, "compaction", largest)
    assert len(blob) < 100_000
    assert await codec.open(OURS, "compaction", blob) == largest
    with pytest.raises(ValueError, match="too large"):
        codec.seal(OURS, "compaction", largest + b"\x00")


@requirement("compaction:codec:bounds")
async def test_a_blob_that_inflates_beyond_the_bound_is_not_opened(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = codec.seal(OURS, "compaction", b"a" * 5_000)
    monkeypatch.setattr(codecs, "MAX_PAYLOAD", 4_999)
    assert await codec.open(OURS, "compaction", blob) is None


@requirement("compaction:codec:keys")
async def test_nothing_is_sealed_before_the_keys_are_there() -> None:
    with pytest.raises(LookupError):
        Codec(None).seal(OURS, "reasoning", b"")


@requirement("compaction:codec:keys")
async def test_the_first_codec_of_a_store_makes_its_key_and_the_next_ones_share_it() -> None:
    store = CountingStore()
    first = await loaded(store)
    second = await loaded(store)
    assert len(await store.codec_keys()) == 1
    assert await second.open(OURS, "reasoning", first.seal(OURS, "reasoning", b"a")) == b"a"


@requirement("compaction:codec:keys")
async def test_keys_of_other_replicas_are_found_and_the_newest_one_seals() -> None:
    store = CountingStore()
    first = await loaded(store)
    old = first.seal(OURS, "reasoning", b"old")
    await store.add_codec_key(CodecKey("ab" * 8, b"k" * 32, 2_000_000_000))
    second = await loaded(store)
    new = second.seal(OURS, "reasoning", b"new")
    assert base64.urlsafe_b64decode(new + "==")[4:12].hex() == "ab" * 8
    assert await second.open(OURS, "reasoning", old) == b"old"
    assert first.open_known(OURS, "reasoning", new) is None
    assert await first.open(OURS, "reasoning", new) == b"new"
    assert first.open_known(OURS, "reasoning", new) == b"new"


@requirement("compaction:codec:keys")
async def test_unknown_keys_are_asked_for_once_and_at_most_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    store = CountingStore()
    clock = Clock()
    codec = Codec(store, clock)
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)
        clock.now += seconds

    monkeypatch.setattr(codecs.asyncio, "sleep", wait)
    await codec.load()
    before = store.reads
    strangers = [(await loaded()).seal(OURS, "reasoning", b"a") for _ in range(2)]
    for _ in range(3):
        assert [await codec.open(OURS, "reasoning", blob) for blob in strangers] == [None, None]
    assert store.reads == before + 2
    assert waited == [1.0, 1.0]
    assert clock.now == Clock().now + 2


@requirement("compaction:codec:keys")
async def test_many_that_wait_for_the_keys_read_them_once() -> None:
    store = CountingStore()
    clock = Clock()
    codec = Codec(store, clock)
    await codec.load()
    clock.now += codecs.RELOAD_SECONDS
    before = store.reads
    stranger = await loaded()
    blobs = [stranger.seal(OURS, "reasoning", b"a") for _ in range(20)]
    assert set(await asyncio.gather(*(codec.open(OURS, "reasoning", blob) for blob in blobs))) == {None}
    assert store.reads == before + 1
