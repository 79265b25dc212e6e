"""Which Python package index models are fetched from."""

from __future__ import annotations

import re
import subprocess
import sys

from antiphon.settings import Settings

__all__ = ["index_in_use"]


def index_in_use(index_url: str) -> str:
    """The index that a setting names; where it names none, the one of pip's configuration files, if there is one.

    Where pip uses a mirror, the public index may be out of reach.
    """
    return index_url if index_url != Settings().index_url else _index_of_pip() or index_url


def _index_of_pip() -> str | None:
    # Not `config get`, which reads one file only.
    command = [sys.executable, "-m", "pip", "config", "list"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"^global\.index-url='(.+)'$", result.stdout, re.MULTILINE)
    return found.group(1) if found else None
