"""What is known of a Florence-2 model's folder before it is loaded, and whether what loads it is installed."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

__all__ = ["fingerprint", "is_florence", "missing_libraries"]

_LIBRARIES: Final = {"torch": "torch", "transformers": "transformers", "PIL": "pillow"}
_MOST_CONFIG: Final = 2**20


class _Config(Struct):
    model_type: str = ""


_decoder = msgspec.json.Decoder(_Config)
_SAMPLE: Final = 2**20
"""Bytes of either end of a file that are read: its header, and the last of its weights."""


def is_florence(path: Path) -> bool:
    """Whether it is the folder of a Florence-2 model: its `config.json` says so."""
    try:
        with (path / "config.json").open("rb") as file:
            config = _decoder.decode(file.read(_MOST_CONFIG))
    except (OSError, ValueError):
        return False
    return config.model_type == "florence2"


def missing_libraries() -> list[str]:
    """The packages of the extra `vision` that are not installed."""
    return [package for module, package in _LIBRARIES.items() if importlib.util.find_spec(module) is None]


def fingerprint(folder: Path) -> str:
    """A digest of the names, sizes and both ends of the folder's JSON files and weights; cheap for any size.

    Raises:
        OSError: a file cannot be read.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".json", ".safetensors"):
            continue
        with path.open("rb") as file:
            size = file.seek(0, 2)
            digest.update(f"{path.name}\0{size}\0".encode())
            for start in (0, max(0, size - _SAMPLE)):
                file.seek(start)
                digest.update(file.read(_SAMPLE))
    return digest.hexdigest()
