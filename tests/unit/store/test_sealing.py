"""Sealing: what opens, what does not, and which keys can be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import ConfigurationError
from antiphon.settings import Settings
from antiphon.store.sealing import DataKey, MasterKey, UnsealableError, read_master_key

HEX = "00112233445566778899aabbccddeeff" * 2
MASTER = MasterKey(bytes.fromhex(HEX))


def data_key(tenant: str = "acme") -> DataKey:
    return MASTER.unwrap(tenant, MASTER.new_data_key(tenant))


@pytest.mark.requirement("encryption:seal")
@given(st.text(max_size=8), st.text(max_size=80), st.binary(max_size=200))
def test_what_was_sealed_opens_again(kind: str, identity: str, body: bytes) -> None:
    key = data_key()
    assert key.open(kind, identity, key.seal(kind, identity, body)) == body
    named = key.seal_named(kind, identity, body)
    assert key.open_named(kind, named) == key.open_named(kind, named, identity) == body


@pytest.mark.requirement("encryption:seal")
def test_a_body_is_never_sealed_twice_to_the_same_bytes_and_shows_nothing() -> None:
    key = data_key()
    sealed = {key.seal("item", "a", b"words words words") for _ in range(100)}
    assert len(sealed) == 100
    assert not any(b"words" in one for one in sealed)
    assert key.seal("item", "a", b"") == b""


@pytest.mark.requirement("encryption:moved")
def test_a_body_opens_only_for_its_own_row() -> None:
    key, other = data_key(), data_key("other")
    sealed, named = key.seal("item", "a", b"words"), key.seal_named("item", "a", b"words")
    again = MASTER.unwrap("acme", MASTER.new_data_key("acme"))
    for opened in (
        lambda: key.open("item", "b", sealed),
        lambda: key.open("event", "a", sealed),
        lambda: key.open("ite", "ma", sealed),
        lambda: other.open("item", "a", sealed),
        lambda: again.open("item", "a", sealed),
        lambda: key.open_named("item", named, "b"),
        lambda: key.open_named("event", named, "a"),
        lambda: other.open_named("item", named),
        lambda: key.open_named("item", named.replace(b"a", b"b", 1)),
    ):
        with pytest.raises(UnsealableError):
            opened()


@pytest.mark.requirement("encryption:changed")
def test_a_body_with_any_byte_changed_or_cut_does_not_open() -> None:
    key = data_key()
    sealed = key.seal("item", "a", b"words")
    named = key.seal_named("item", "a", b"words")
    for place in range(len(sealed)):
        with pytest.raises(UnsealableError):
            key.open("item", "a", sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :])
    for end in range(1, len(sealed)):
        with pytest.raises(UnsealableError):
            key.open("item", "a", sealed[:end])
    for end in range(len(named)):
        with pytest.raises(UnsealableError):
            key.open_named("item", named[:end])
    with pytest.raises(UnsealableError):
        key.open("item", "a", b'{"plain":"json"}')


@pytest.mark.requirement("encryption:keys")
def test_a_wrapped_key_opens_for_its_tenant_and_master_only() -> None:
    wrapped = MASTER.new_data_key("acme")
    MASTER.unwrap("acme", wrapped)
    for master, tenant, given_key in (
        (MASTER, "other", wrapped),
        (MasterKey(bytes(32)), "acme", wrapped),
        (MASTER, "acme", wrapped[:-1]),
        (MASTER, "acme", b""),
        (MASTER, "acme", b"\x02" + wrapped[1:]),
    ):
        with pytest.raises(UnsealableError):
            master.unwrap(tenant, given_key)
    with pytest.raises(ValueError, match="32 bytes"):
        MasterKey(bytes(16))


@pytest.mark.requirement("encryption:settings")
def test_the_master_key_comes_from_a_file_or_from_a_setting(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"\n {HEX.upper()} \n")
    assert read_master_key(Settings()) is None
    wrapped = MASTER.new_data_key("acme")
    for settings in (Settings(encryption_key_file=str(file)), Settings(encryption_key=HEX)):
        master = read_master_key(settings)
        assert master is not None
        master.unwrap("acme", wrapped)


@pytest.mark.requirement("encryption:settings")
@pytest.mark.parametrize("text", ["", "secret", HEX[:-2], HEX + "00", "zz" * 32, " ".join([HEX[:32]] * 2), "é" * 64])
def test_what_is_no_key_is_refused_without_being_repeated(tmp_path: Path, text: str) -> None:
    file = tmp_path / "key"
    file.write_text(text)
    for settings in (Settings(encryption_key_file=str(file)), Settings(encryption_key=text)):
        with pytest.raises(ConfigurationError, match="64 hexadecimal digits") as refusal:
            read_master_key(settings)
        assert not text or text not in str(refusal.value)


@pytest.mark.requirement("encryption:settings")
def test_a_key_that_is_missing_or_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        read_master_key(Settings(encryption_key_file=str(tmp_path / "none")))
    with pytest.raises(ConfigurationError, match="given twice"):
        read_master_key(Settings(encryption_key_file=str(tmp_path / "none"), encryption_key=HEX))
