"""Commands of these tests see no setting of the machine that they run on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from antiphon.settings import FIELDS


@pytest.fixture(autouse=True)
def data_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data directory, and an environment without settings."""
    for name in {name for field in FIELDS for name in field.environment} | {"ANTIPHON_BASE_URL", "ANTIPHON_CONFIG"}:
        if name in os.environ:
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    path = tmp_path / "data"
    monkeypatch.setenv("ANTIPHON_DATA_DIR", str(path))
    return path
