"""A server of the scripted model, in one process or in two: the second one has the first as its upstream.

`ANTIPHON_TEST_UPSTREAM` says which: without it the model is the server's own, and with `chat` or `responses` it runs in
another server, which the one that tests talk to asks in that way (`make through-upstreams`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.server import RunningServer, running_server

__all__ = ["RAW_ITEMS", "UPSTREAM", "scripted_model", "upstream_table"]

UPSTREAM = os.environ.get("ANTIPHON_TEST_UPSTREAM") or None
"""How the tests' servers ask for the scripted model: `chat`, `responses`, or None for a model of their own."""

RAW_ITEMS = {"ANTIPHON_SCRIPTED_RAW_ITEMS": "1"}
"""The environment of a scripted model that writes any item as it is told to."""


def upstream_table(engine: str, base_url: str, name: str = "scripted") -> str:
    """The `[[models]]` table of the scripted model of another server, under that name."""
    return (
        f'[[models]]\nname = "{name}"\nupstream_model = "scripted"\nengine = "{engine}"\nprofile = "antiphon"\n'
        f'base_url = "{base_url}"\nmedia = ["image", "audio"]\n'
    )


@contextmanager
def scripted_model(
    arguments: Sequence[str] = (), *, environment: dict[str, str] | None = None, upstream: str | None = UPSTREAM
) -> Iterator[RunningServer]:
    """A server whose model `scripted` is its own, or another server's that is asked as `upstream` says."""
    if upstream is None:
        with running_server(["--model", "scripted", *arguments], environment=environment) as server:
            yield server
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(["--model", "scripted", "--store", "memory"], environment=RAW_ITEMS) as behind,
    ):
        config = Path(folder) / "antiphon.toml"
        config.write_text(upstream_table(upstream, behind.base_url), encoding="utf-8")
        with running_server(["--config", str(config), *arguments], environment=environment) as server:
            yield server
