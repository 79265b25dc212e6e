"""Model files that lie about themselves: the start says so, and neither hangs nor takes the machine's memory."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from antiphon.engines.llamacpp import LlamaCppEngine
from antiphon.errors import ConfigurationError
from antiphon.settings import Settings

Make = Callable[..., Path]

SECONDS = 30.0
"""What a refused start may take: a second where nothing else runs."""


def behind(data: bytes, name: str) -> int:
    """The place behind a name in a header."""
    sized = struct.pack("<Q", len(name)) + name.encode()
    return data.index(sized) + len(sized)


def changed(data: bytes, place: int, form: str, number: int) -> bytes:
    return data[:place] + struct.pack(form, number) + data[place + struct.calcsize(form) :]


def lies(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The file with one lie each."""
    yield "tensors", changed(data, 8, "<Q", 2**64 - 1)
    yield "entries", changed(data, 16, "<Q", 2**40)
    tensor = behind(data, "token_embd.weight")
    # Number of dimensions, the two of them, type and place.
    yield "dimensions", changed(data, tensor, "<I", 200)
    yield "width", changed(data, tensor + 4, "<Q", 2**62)
    yield "height", changed(data, tensor + 12, "<Q", 2**63)
    yield "type", changed(data, tensor + 20, "<I", 99)
    yield "place", changed(data, tensor + 24, "<Q", 2**64 - 32)
    for key, number in (
        ("context_length", 2**31),
        ("context_length", 2**32 - 1),
        ("embedding_length", 0),
        ("attention.head_count", 0),
        ("attention.head_count_kv", 2**31),
        ("rope.dimension_count", 3),
    ):
        yield f"{key}-{number}", changed(data, behind(data, f"llama.{key}") + 4, "<I", number)


async def refusal(path: Path) -> str:
    engine = LlamaCppEngine(path, Settings(threads=1))
    began = time.monotonic()
    with pytest.raises(ConfigurationError) as caught:
        await engine.start()
    assert time.monotonic() - began < SECONDS
    message = str(caught.value)
    assert message.startswith(f"The model {path} cannot be loaded: ")
    assert "\n" not in message
    assert "Traceback" not in message
    return message.partition("cannot be loaded: ")[2]


@pytest.mark.requirement("engine:load:lies")
async def test_a_file_that_lies_is_refused(tiny: Make, tmp_path: Path) -> None:
    broken = dict(lies(tiny().read_bytes()))
    paths = [tmp_path / f"{name}.gguf" for name in broken]
    for path, data in zip(paths, broken.values(), strict=True):
        path.write_bytes(data)
    reasons = dict(zip(broken, await asyncio.gather(*map(refusal, paths)), strict=True))
    for name, reason in reasons.items():
        expected = ("claims a context of",) if name.startswith("context") else ("damaged", "lacks a part", "llama.cpp")
        assert any(part in reason for part in expected), (name, reason)
    assert not [child for child in psutil.Process().children() if "antiphon.engines.llamacpp.child" in child.cmdline()]
