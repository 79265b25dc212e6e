"""What `pip install` of a package brings: its distributions and their bytes, as they are installed here."""

from __future__ import annotations

import importlib.util
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["installed"]


def installed(package: str, extra: str = "") -> dict[str, int]:
    """The bytes of each distribution that a package with that extra needs, itself among them."""
    sizes: dict[str, int] = {}
    waiting = [(package, extra)]
    seen: set[tuple[str, str]] = set()
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        found = distribution(name)
        sizes.setdefault(name, _size(found))
        for text in found.requires or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": wanted}):
                waiting += [(canonicalize_name(needed.name), inner) for inner in ("", *needed.extras)]
    return sizes


def _size(found: Distribution) -> int:
    """The bytes of its files; of one that is installed from its sources, those of its package."""
    files = [Path(str(file.locate())) for file in found.files or ()]
    total = sum(file.stat().st_size for file in files if file.is_file())
    spec = importlib.util.find_spec(found.name.replace("-", "_"))
    if spec is not None and spec.origin is not None and Path(spec.origin) not in files and "editable" in str(files):
        total += sum(file.stat().st_size for file in Path(spec.origin).parent.rglob("*") if file.is_file())
    return total
