"""How long a context fits into memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from antiphon.engines.llamacpp import memory
from antiphon.engines.llamacpp.memory import available_memory, fitting_context, memory_kills, read_header
from antiphon.settings import Settings
from support.local_engine import running

GIB = 2**30

QWEN3_4B: dict[str, Any] = {
    "general.architecture": "qwen3",
    "qwen3.context_length": 40960,
    "qwen3.block_count": 36,
    "qwen3.embedding_length": 2560,
    "qwen3.attention.head_count": 32,
    "qwen3.attention.head_count_kv": 8,
    "qwen3.attention.key_length": 128,
    "qwen3.attention.value_length": 128,
}
"""147,456 bytes of cache for a token, 5.6 GiB for the whole context."""


@pytest.mark.requirement("engine:load:memory")
@pytest.mark.parametrize(
    ("changes", "gibibytes", "expected"),
    [
        ({}, 32, None),
        ({}, 8, 19968),
        ({}, 1, 4096),
        ({"qwen3.attention.sliding_window": 1024}, 1, None),
        ({"qwen3.attention.head_count_kv": [8] * 18 + [0] * 18}, 8, 39936),
        ({"qwen3.context_length": 2048}, 1, None),
        ({"qwen3.block_count": "many"}, 1, None),
        ({"split.count": 2}, 8, 10752),
    ],
)
def test_the_context_that_fits(changes: Mapping[str, Any], gibibytes: int, expected: int | None) -> None:
    assert fitting_context({**QWEN3_4B, **changes}, 5 * GIB // 2, gibibytes * GIB) == expected


@pytest.mark.requirement("engine:load:memory")
async def test_a_model_that_is_too_long_for_the_machine_gets_less(
    tiny: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny(context_length=65536)
    header = read_header(path)
    assert header["general.architecture"] == "llama"
    assert header["llama.context_length"] == 65536
    events: list[str] = []
    async with running(path, on_event=lambda model, name, fields: events.append(name)) as engine:
        assert engine.capabilities.context_length == 65536
    assert "context_reduced" not in events
    monkeypatch.setattr(
        "antiphon.engines.llamacpp.engine.available_memory", lambda: path.stat().st_size + 2 * 8192 * 256
    )
    async with running(path, on_event=lambda model, name, fields: events.append(name)) as engine:
        assert engine.capabilities.context_length == 8192
    assert "context_reduced" in events
    async with running(path, settings=Settings(threads=1, context_length=16384)) as engine:
        assert engine.capabilities.context_length == 16384


@pytest.mark.requirement("engine:load:memory")
def test_a_header_that_makes_no_sense_is_empty(tmp_path: Path, tiny: Callable[..., Path]) -> None:
    data = tiny().read_bytes()
    for name, content in {
        "a": b"",
        "b": b"GGUF",
        "c": b"x" * 100,
        "d": data[:100],
        "e": data[:24] + b"\xff" * 99,
    }.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert fitting_context(read_header(path), 1, 1) is None
    assert read_header(tmp_path / "missing") == {}


@pytest.mark.requirement("engine:load:memory")
def test_a_container_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"/proc/meminfo": "MemTotal: 1 kB\nMemAvailable:    2048 kB\n", "/sys/fs/cgroup/memory.max": "1500000\n"}
    files["/sys/fs/cgroup/memory.current"] = "500000\n"
    monkeypatch.setattr(memory, "_lines", lambda path: files.get(str(path), "").split("\n"))
    assert available_memory() == 1_000_000
    files["/sys/fs/cgroup/memory.max"] = "max\n"
    assert available_memory() == 2048 * 1024


@pytest.mark.requirement("engine:child:end")
@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"proc/vmstat": "pgfault 3\noom_kill 2\n"}, 2),
        ({"proc/vmstat": "oom_kill 2\n", "proc/self/cgroup": "0::/a/b\n"}, 2),
        (
            {
                "proc/vmstat": "oom_kill 2\n",
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.events": "oom 9\noom_kill 5\noom_group_kill 0\n",
            },
            5,
        ),
        ({"proc/self/cgroup": "0::/host\n", "sys/fs/cgroup/memory.events": "oom_kill 0\n"}, 0),
        (
            {
                "proc/self/cgroup": "5:cpu:/\n4:memory:/a\n0::/\n",
                "sys/fs/cgroup/memory/a/memory.oom_control": "under_oom 0\noom_kill 7\n",
            },
            7,
        ),
    ],
)
def test_what_the_system_killed_for_want_of_memory(
    tmp_path: Path, files: Mapping[str, str], expected: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory_kills(tmp_path) == expected
