"""A trial of a model's chat template, before the model is loaded, in a process that may die of it.

llama.cpp renders a template many times over while it loads a model, and nothing bounds that: one that loops would hold
the start for ever, and one that builds long texts would take the memory of everything else (faults B3 4). So the
template is first loaded with a model of no weights to speak of, where it has little time and memory.
"""

from __future__ import annotations

import asyncio
import mmap
import signal
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from antiphon.engines.llamacpp.folder import PrivateFolder
from antiphon.engines.llamacpp.process import Child, ChildConfig, LoadError
from antiphon.errors import ConfigurationError

__all__ = ["CPU_SECONDS", "MEMORY", "templates_of", "try_templates"]

CPU_SECONDS: Final = 2.0
"""Processor time that a template may take to be loaded; usual ones take some hundredths of it."""

MEMORY: Final = 2**30
"""Bytes of memory that the process of a trial may have, with everything else that is in it."""

_WALL_SECONDS: Final = 60.0
"""Seconds after which a trial is given up: on a busy machine processor time passes slowly."""

_ADVICE: Final = "give it another one with --chat-template-file"

_PREFIX: Final = b"tokenizer.chat_template"
_MOST_ITEMS: Final = 2**23
"""Items of a list in a header; no vocabulary has as many."""

_SIZES: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of the plain types of a GGUF header."""
_INT32, _UINT32, _FLOAT32, _TEXT, _LIST = 5, 4, 6, 8, 9

_WIDTH: Final = 32
_ALIGNMENT: Final = 32
_SQUARES: Final = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
_UNKNOWN, _CONTROL, _BYTE = 2, 3, 6


def templates_of(path: Path) -> dict[bytes, bytes]:
    """The chat templates of a GGUF file, by their keys; empty where it cannot be understood."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _templates(data)
    except (OSError, struct.error, ValueError, KeyError, OverflowError):
        return {}


async def try_templates(path: Path, instead: str = "", *, patience: float = _WALL_SECONDS) -> None:
    """Load the chat template of a GGUF file, or another one `instead`, without the model.

    A process that is not ready after `patience` seconds says nothing against a template: the model is to be loaded.

    Raises:
        ConfigurationError: the template takes too much time or memory, ends llama.cpp, or cannot be read; the message
            is the reason alone, in plain words.
    """
    templates = await asyncio.to_thread(templates_of, path)
    if not templates and not instead:
        return
    folder = PrivateFolder()
    try:
        model = folder.path / "template.gguf"
        await asyncio.to_thread(model.write_bytes, _model(templates))
        trial = ChildConfig(
            model=str(model),
            socket=str(folder.path / "template.sock"),
            context_length=256,
            slots=1,
            batch_size=32,
            threads=1,
            gpu_layers=0,
            chat_template=instead,
            cpu_seconds=CPU_SECONDS,
            memory=MEMORY,
        )
        child = await Child.start(trial, min(patience, _WALL_SECONDS))
        await child.stop()
    except LoadError as error:
        fault = _fault(error)
        if fault:
            raise ConfigurationError(f"its chat template {fault}; {_ADVICE}") from None
        # Nothing is known against the template: the model is loaded, and says what there is to say.
    finally:
        await asyncio.to_thread(folder.close)


def _fault(error: LoadError) -> str:
    """What is wrong with the template; "" where the trial failed for another reason."""
    text = str(error)
    if error.status == -signal.SIGPROF:
        return "does not come to an end"
    if "memory" in text:
        return "takes more memory than there is for it"
    if "chat template" in text:
        return "cannot be parsed"
    if error.status in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS):
        return "crashes llama.cpp"
    return ""


def _templates(data: mmap.mmap) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    magic, version, _, count = struct.unpack_from("<4sIQQ", data)
    if magic != b"GGUF" or version < 2:
        return found
    place = 24
    for _ in range(count):
        key, place = _text(data, place)
        (kind,) = struct.unpack_from("<I", data, place)
        place += 4
        if kind == _TEXT:
            value, place = _text(data, place)
            if key.startswith(_PREFIX):
                found[key] = value
        elif kind == _LIST:
            place = _behind_list(data, place)
        else:
            place += _SIZES[kind]
    return found


def _text(data: mmap.mmap, place: int) -> tuple[bytes, int]:
    (size,) = struct.unpack_from("<Q", data, place)
    end = place + 8 + size
    if end > len(data):
        raise ValueError("a text is longer than the file")
    return data[place + 8 : end], end


def _behind_list(data: mmap.mmap, place: int) -> int:
    kind, count = struct.unpack_from("<IQ", data, place)
    place += 12
    if kind != _TEXT:
        return place + count * _SIZES[kind]
    if count > _MOST_ITEMS:
        raise ValueError("no list is that long")
    size_of = struct.Struct("<Q").unpack_from
    for _ in range(count):
        place += 8 + size_of(data, place)[0]
    return place


def _model(templates: Mapping[bytes, bytes]) -> bytes:
    """A GGUF file with these templates and next to nothing else."""
    tokens = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % byte for byte in range(256))]
    kinds = [_UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * 256]
    entries: list[tuple[bytes, bytes]] = [
        (b"general.architecture", _of_text(b"llama")),
        (b"tokenizer.ggml.model", _of_text(b"llama")),
        (b"tokenizer.ggml.tokens", _of_list(_TEXT, [_sized(token) for token in tokens])),
        (b"tokenizer.ggml.scores", _of_list(_FLOAT32, [struct.pack("<f", 0.0)] * len(tokens))),
        (b"tokenizer.ggml.token_type", _of_list(_INT32, [struct.pack("<i", kind) for kind in kinds])),
        (b"llama.attention.layer_norm_rms_epsilon", struct.pack("<If", _FLOAT32, 1e-5)),
        *((key, _of_text(text)) for key, text in templates.items()),
    ]
    numbers = {
        b"context_length": 256,
        b"embedding_length": _WIDTH,
        b"block_count": 1,
        b"feed_forward_length": _WIDTH,
        b"attention.head_count": 1,
        b"rope.dimension_count": _WIDTH,
    }
    entries += [(b"llama." + key, struct.pack("<II", _UINT32, number)) for key, number in numbers.items()]
    shapes = [("token_embd", (_WIDTH, len(tokens))), ("output_norm", (_WIDTH,))]
    shapes += [("blk.0.attn_norm", (_WIDTH,)), ("blk.0.ffn_norm", (_WIDTH,))]
    shapes += [(f"blk.0.{name}", (_WIDTH, _WIDTH)) for name in _SQUARES]
    described, size = _described(shapes)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(shapes), len(entries))
    head += b"".join(_sized(key) + value for key, value in entries) + described
    return head + bytes(-len(head) % _ALIGNMENT + size)


def _described(shapes: Iterable[tuple[str, Sequence[int]]]) -> tuple[bytes, int]:
    """The descriptions of tensors of 32-bit zeros, and how many bytes they take."""
    parts: list[bytes] = []
    offset = 0
    for name, shape in shapes:
        form = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        parts.append(_sized(f"{name}.weight".encode()) + form + struct.pack("<IQ", 0, offset))
        size = 4
        for length in shape:
            size *= length
        offset += size + -size % _ALIGNMENT
    return b"".join(parts), offset


def _sized(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _of_text(text: bytes) -> bytes:
    return struct.pack("<I", _TEXT) + _sized(text)


def _of_list(kind: int, items: Sequence[bytes]) -> bytes:
    return struct.pack("<IIQ", _LIST, kind, len(items)) + b"".join(items)
