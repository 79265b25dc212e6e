"""A server whose store is encrypted: nothing that was said lies open in its files, and all of it is there again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from antiphon.cli.main import cli
from antiphon.errors import ConfigurationError
from antiphon.settings import Settings
from support.inprocess import InProcess, inprocess_app, sse_events

KEY = "ab" * 32
WORDS = "The heron stands in the shallow water"


def settings(path: Path, **fields: Any) -> Settings:
    return Settings(store=str(path / "a.db"), **fields)


async def say_everything(api: InProcess) -> dict[str, Any]:
    """Have the words go into every kind of row; what comes back, by path."""
    first = await api.create(f"!TEXT {WORDS}", instructions=WORDS, metadata={"words": WORDS})
    second = await api.stream(f"!REASON {WORDS}\n!TEXT {WORDS}", previous_response_id=first["id"])
    third = sse_events(
        (
            await api.client.post(
                "/responses",
                json={"model": "scripted", "input": f"!TEXT {WORDS}", "background": True, "stream": True},
                headers={"Idempotency-Key": "once"},
            )
        ).content
    )
    talk = (
        await api.client.post(
            "/conversations",
            json={"metadata": {"words": WORDS}, "items": [{"role": "user", "content": WORDS}]},
        )
    ).json()
    await api.create(f"!TEXT {WORDS}", conversation=talk["id"])
    ids = [first["id"], second[-1]["response"]["id"], third[-1]["response"]["id"]]
    paths = [f"/responses/{identity}{end}" for identity in ids for end in ("", "/input_items", "?stream=true")]
    paths += [f"/conversations/{talk['id']}", f"/conversations/{talk['id']}/items"]
    return {path: (await api.client.get(path)).text for path in paths}


def written(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.iterdir())


@pytest.mark.requirement("encryption:files")
async def test_what_was_said_is_nowhere_in_the_files_and_all_there_after_a_restart(tmp_path: Path):
    sealed, plain = tmp_path / "sealed", tmp_path / "plain"
    async with inprocess_app(settings=settings(plain), store="as-set") as api:
        await say_everything(api)
        # The words are split into deltas in events, so that some of them are looked for apart.
        assert all(word in written(plain) for word in (WORDS.encode(), b"heron", b"shallow"))
    async with inprocess_app(settings=settings(sealed, encryption_key=KEY), store="as-set") as api:
        said = await say_everything(api)
        assert all(WORDS.split()[1] in text for text in said.values())
        assert not any(word in written(sealed) for word in (WORDS.encode(), b"heron", b"shallow"))
    async with inprocess_app(settings=settings(sealed, encryption_key=KEY), store="as-set") as api:
        assert {path: (await api.client.get(path)).text for path in said} == said
        (last,) = [path for path in said if path.startswith("/responses/")][3:4]
        answer = await api.create("!ECHO", previous_response_id=last.removeprefix("/responses/"))
        assert WORDS in answer["output_text"]
    assert not any(word in written(sealed) for word in (WORDS.encode(), b"heron", b"shallow"))


@pytest.mark.requirement("encryption:open")
async def test_a_store_opens_with_its_own_key_only(tmp_path: Path):
    sealed, plain = tmp_path / "sealed", tmp_path / "plain"
    for path, fields in ((sealed, {"encryption_key": KEY}), (plain, {})):
        async with inprocess_app(settings=settings(path, **fields), store="as-set") as api:
            await api.create("hi")
    for path, fields, words in (
        (sealed, {}, "The store is encrypted"),
        (sealed, {"encryption_key": "cd" * 32}, "encrypted with another key"),
        (plain, {"encryption_key": KEY}, "rows that are not encrypted"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            async with inprocess_app(settings=settings(path, **fields), store="as-set"):
                pass
        # The refusal left it closed, and as it was.
    for path, fields in ((sealed, {"encryption_key": KEY}), (plain, {})):
        async with inprocess_app(settings=settings(path, **fields), store="as-set") as api:
            assert api.service.store is not None
            assert (await api.service.store.status()).responses == 1


@pytest.mark.requirement("encryption:settings")
@pytest.mark.parametrize("command", [["serve"], ["doctor"]])
def test_a_key_that_cannot_be_used_is_a_clear_line_without_the_key(tmp_path: Path, command: list[str]):
    arguments = [*command, "--model", "scripted", "--store", str(tmp_path / "a.db"), "--encryption-key", "hunter2"]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert result.exit_code != 0
    assert "64 hexadecimal digits" in result.output
    assert "hunter2" not in result.output


@pytest.mark.requirement("encryption:memory")
async def test_a_store_in_memory_is_not_sealed_since_it_is_not_at_rest():
    async with inprocess_app(settings=Settings(encryption_key=KEY)) as api:
        assert api.service.store is not None
        assert not api.service.store.sealed
        await api.create("hi")


@pytest.mark.requirement("encryption:settings")
def test_the_start_says_that_the_store_is_encrypted(tmp_path: Path):
    from antiphon.store.open import describe, open_store

    chosen = settings(tmp_path, encryption_key=KEY)
    assert describe(open_store(chosen), chosen).startswith(f"Responses are kept in {tmp_path}/a.db, encrypted")
