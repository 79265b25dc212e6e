"""How long a context fits into main memory, by the sizes in a GGUF file's header.

llama.cpp allocates the whole key-value cache at start. The own context of many models is longer than what a small
machine can hold, and then the process is killed; so where nobody has set a length, one that fits is taken.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO, Final

from antiphon.errors import ConfigurationError

__all__ = ["Header", "available_memory", "check_context", "fitting_context", "memory_kills", "read_header"]

Header = dict[str, int | str | list[int]]
"""The header's values by key: numbers, text and lists of numbers; others are left out."""

SHORTEST: Final = 4096
"""The context, in tokens, that is always tried."""

LONGEST: Final = 2**24
"""Tokens of context beyond what any model has."""

_SCALARS: Final = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _ARRAY = 8, 9
_LONGEST_LIST = 4096
_GRANULE = 256
_COMPRESSED: Final = ("attention.sliding_window", "attention.kv_lora_rank", "ssm.state_size", "full_attention_interval")


def read_header(path: Path) -> Header:
    """The values before the vocabulary, which is long and comes last; empty where the file cannot be understood."""
    header: Header = {}
    try:
        with path.open("rb") as file:
            _, _, _, count = struct.unpack("<4sIQQ", file.read(24))
            for _ in range(count):
                key = _text(file)
                if key.startswith("tokenizer."):
                    break
                value = _value(file, _number(file, "<I"))
                if value is not None:
                    header[key] = value
    except (OSError, struct.error, UnicodeDecodeError, KeyError, ValueError, OverflowError):
        return header
    return header


def _number(file: BinaryIO, form: str) -> int:
    return int(struct.unpack(form, file.read(struct.calcsize(form)))[0])


def _text(file: BinaryIO) -> str:
    size = _number(file, "<Q")
    if size > 2**20:
        raise ValueError("no text is that long")
    return file.read(size).decode()


def _value(file: BinaryIO, kind: int) -> int | str | list[int] | None:
    if kind == _TEXT:
        return _text(file)
    if kind != _ARRAY:
        return _number(file, _SCALARS[kind])
    item, size = _number(file, "<I"), _number(file, "<Q")
    if size > _LONGEST_LIST:
        raise ValueError("no list before the vocabulary is that long")
    if item in _SCALARS:
        return [_number(file, _SCALARS[item]) for _ in range(size)]
    for _ in range(size):
        _value(file, item)
    return None


def fitting_context(header: Header, file_bytes: int, memory: int) -> int | None:
    """Tokens of context, fewer than the model's own, that fit into `memory` bytes beside the model; None for its own.

    The cache may take half of what the model leaves free. A model whose cache is smaller than its sizes tell (sliding
    windows, compressed or recurrent states) keeps its own length.
    """
    name = header.get("general.architecture")

    def number(key: str) -> int | None:
        value = header.get(f"{name}.{key}")
        return value if isinstance(value, int) and value > 0 else None

    own, layers, width, heads = (
        number(key) for key in ("context_length", "block_count", "embedding_length", "attention.head_count")
    )
    if any(header.get(f"{name}.{key}") for key in _COMPRESSED) or not (own and layers and width and heads):
        return None
    each = header.get(f"{name}.attention.head_count_kv", heads)
    all_heads = sum(each) if isinstance(each, list) else int(each) * layers
    head_width = width // heads
    widths = (number("attention.key_length") or head_width) + (number("attention.value_length") or head_width)
    token_bytes = all_heads * widths * 2  # keys and values are 16-bit
    if token_bytes <= 0:
        return None
    parts = header.get("split.count")
    model_bytes = file_bytes * (parts if isinstance(parts, int) and parts > 1 else 1)
    fitting = max(0, memory - model_bytes) // 2 // token_bytes
    fitting = max(SHORTEST, fitting - fitting % _GRANULE)
    return None if fitting >= own else fitting


def check_context(header: Header) -> None:
    """Refuse a file that lies about its context: it would be given all the memory that there is, or llama.cpp would
    count below zero (faults B3 7).

    Raises:
        ConfigurationError: no model has a context as long as that.
    """
    own = header.get(f"{header.get('general.architecture')}.context_length")
    if isinstance(own, int) and own > LONGEST:
        raise ConfigurationError(f"it claims a context of {own} tokens, which no model has")


def available_memory() -> int:
    """Bytes that a new process may take: what the system has free, or what a container's limit leaves of it."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            free = min(free, int(line.split()[1]) * 1024)
    control = Path("/sys/fs/cgroup")
    limit, used = _lines(control / "memory.max"), _lines(control / "memory.current")
    if limit and used and limit[0].isdigit():
        free = min(free, max(0, int(limit[0]) - int(used[0])))
    return free


def memory_kills(root: Path = Path("/")) -> int | None:
    """How many processes the system has killed for want of memory, of our control group where it counts them.

    None where it does not say.
    """
    places = [root / "proc/vmstat"]
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        group = group.strip("/")
        if "memory" in controllers.split(","):
            # Inside a container our own group may be what it has as the root.
            places[:0] = [root / "sys/fs/cgroup/memory" / part / "memory.oom_control" for part in (group, "")]
        elif not controllers:
            places[:0] = [root / "sys/fs/cgroup" / part / "memory.events" for part in (group, "")]
    for place in places:
        for line in _lines(place):
            name, _, number = line.partition(" ")
            if name == "oom_kill" and number.strip().isdigit():
                return int(number)
    return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().split("\n")
    except OSError:
        return []
