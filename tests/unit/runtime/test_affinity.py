"""Which history a turn is of: keys by precedence, and salts that every server of a store has."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from antiphon.prompt.prompt import Affinity, ChatMessage, Prompt
from antiphon.protocol.tools import FunctionTool
from antiphon.runtime.affinity import ROUTING_KEY_ID, Affinities
from antiphon.runtime.codec import Codec
from antiphon.store.base import Scope, StoreLimits
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SQLiteStore
from support.stores import OURS, THEIRS, Clock

FIRST = [ChatMessage("system", "Be kind."), ChatMessage("user", "Hi")]
LATER = [*FIRST, ChatMessage("assistant", "Hello"), ChatMessage("user", "More")]


@pytest.fixture
def affinities() -> Affinities:
    return Affinities(None)


def of(affinities: Affinities, prompt: Prompt, scope: Scope = OURS, model: str = "m", **fields: Any) -> Affinity:
    return affinities.of(scope, model, prompt, **fields)


@pytest.mark.requirement("routing:keys")
def test_the_most_telling_name_of_a_history_is_its_key(affinities: Affinities):
    every = {"cache_key": "user-1", "conversation": "conv_1", "root": "resp_1", "own": "resp_9"}
    keys: list[str] = []
    for left_out in ([], ["cache_key"], ["cache_key", "conversation"], ["cache_key", "conversation", "root"]):
        fields = {name: value for name, value in every.items() if name not in left_out}
        key = of(affinities, Prompt(LATER), **fields).key
        # Only what is more telling than the rest counts, whatever else the turn says.
        other = Prompt([ChatMessage("system", "Be short."), *LATER[1:]]) if "root" in fields else Prompt(LATER[:3])
        assert of(affinities, other, **{**fields, "own": "resp_8"}).key == key
        assert of(affinities, Prompt(LATER), THEIRS, **fields).key != key
        keys.append(key)
    assert len(set(keys)) == 4
    assert all(len(key) == 32 and key.isalnum() for key in keys)


@pytest.mark.requirement("routing:keys")
def test_a_history_that_is_sent_anew_is_known_by_what_it_begins_with(affinities: Affinities):
    key = of(affinities, Prompt(LATER), own="resp_2").key
    assert of(affinities, Prompt([*LATER, ChatMessage("assistant", "x"), ChatMessage("user", "y")])).key == key
    tool = FunctionTool("f")
    others = [
        of(affinities, Prompt(LATER), model="other"),
        of(affinities, Prompt(LATER, tools=[tool])),
        of(affinities, Prompt([ChatMessage("system", "Be short."), *LATER[1:]])),
        of(affinities, Prompt([LATER[0], ChatMessage("user", "Ho"), *LATER[2:]])),
        of(affinities, Prompt(LATER), THEIRS),
    ]
    assert len({key, *(other.key for other in others)}) == 6


@pytest.mark.requirement("routing:keys")
def test_a_first_turn_is_found_again_by_its_id_and_by_what_it_begins_with(affinities: Affinities):
    first = of(affinities, Prompt(FIRST), own="resp_1")
    assert first.key == of(affinities, Prompt(LATER), root="resp_1", own="resp_2").key
    assert first.again == of(affinities, Prompt(LATER), own="resp_2").key
    # Others that begin alike are other histories.
    assert of(affinities, Prompt(FIRST), own="resp_5").key != first.key
    # Where there is no id to name, what it begins with is all there is.
    assert of(affinities, Prompt(FIRST)) == Affinity(first.again, first.cache_salt)


@pytest.mark.requirement("routing:keys")
def test_a_bare_text_is_known_by_its_beginning(affinities: Affinities):
    text = "Once upon a time " * 40
    key = affinities.of_text(OURS, "m", text).key
    assert affinities.of_text(OURS, "m", text + "there was").key == key
    assert affinities.of_text(OURS, "m", "No. " + text).key != key
    assert affinities.of_text(OURS, "m", text, cache_key="k").key != key
    tokens = list(range(300))
    assert affinities.of_text(OURS, "m", tokens).key == affinities.of_text(OURS, "m", [*tokens, 7]).key


@pytest.mark.requirement("routing:salt")
async def test_each_tenant_has_one_salt_on_all_servers_of_a_store_and_after_a_restart(tmp_path: Path):
    def store() -> SQLiteStore:
        return SQLiteStore(tmp_path / "a.db", StoreLimits(), Clock())

    first = store()
    await first.open()
    one, other = Affinities(first), Affinities(first)
    await asyncio.gather(one.load(), other.load())
    salts = [one.alone(scope).cache_salt for scope in (OURS, THEIRS)]
    assert [other.alone(scope).cache_salt for scope in (OURS, THEIRS)] == salts
    assert len(set(salts)) == 2
    assert all(OURS.tenant not in salt and THEIRS.tenant not in salt and len(salt) == 64 for salt in salts)
    turn = of(one, Prompt(LATER), cache_key="k")
    assert turn.cache_salt == salts[0]
    await first.close()
    again = store()
    await again.open()
    restarted = Affinities(again)
    await restarted.load()
    assert of(restarted, Prompt(LATER), cache_key="k") == turn
    await again.close()
    stranger = Affinities(None)
    await stranger.load()
    assert of(stranger, Prompt(LATER), cache_key="k") != turn


@pytest.mark.requirement("routing:salt")
async def test_nothing_is_sealed_with_the_secret_of_routing():
    store = MemoryStore(StoreLimits(), Clock())
    await Affinities(store).load()
    codec = Codec(store)
    await codec.load()
    assert len(await store.codec_keys()) == 2
    blob = codec.seal(OURS, "reasoning", b"thought")
    routing = next(key for key in await store.codec_keys() if key.id == ROUTING_KEY_ID)
    forged = Codec(None)
    forged._take([routing])
    assert forged._newest == ""
    assert await codec.open(OURS, "reasoning", blob) == b"thought"


@pytest.mark.requirement("routing:salt")
def test_a_server_keeps_few_salts(affinities: Affinities):
    first = affinities.alone(Scope("0")).cache_salt
    for number in range(5_000):
        affinities.alone(Scope(str(number)))
    assert affinities.alone(Scope("0")).cache_salt == first
