"""What a probe is, and the servers that the probes share."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.bench.process import Cores, Target, antiphon, ruler
from tests.bench.report import Figure

from antiphon.engines import catalog
from antiphon.settings import Settings

__all__ = ["Bench", "Probe", "per_cpu_second"]

CLIENTS = 16
MODEL = "scripted"


class Bench:
    """One run: starts each server when it is first asked for, and ends them all together."""

    def __init__(self, *, quick: bool) -> None:
        self.quick = quick
        self.cores = Cores()
        self._stack = contextlib.ExitStack()
        self._started: dict[str, Target] = {}
        self.directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="antiphon-bench-")))

    def seconds(self, whole: float) -> float:
        """A duration, shorter in a quick run."""
        return whole / 8 if self.quick else whole

    def memory(self, probe: Probe) -> Target:
        """Antiphon over the scripted engine, the store in memory; one for each probe, since a full store costs more."""
        return self._antiphon(f"{probe.name}-memory", "memory")

    def sqlite(self, probe: Probe) -> Target:
        """The same over SQLite, with its durability."""
        return self._antiphon(f"{probe.name}-sqlite", str(self.database(probe)))

    def database(self, probe: Probe) -> Path:
        """The file of that probe's SQLite store."""
        return self.directory / f"{probe.name}.db"

    def real(self) -> Target:
        """Antiphon over the default model, which the data directory of the user has; nothing is pinned."""
        if "real" not in self._started:
            arguments = ["--store", "memory"]
            self._started["real"] = self._stack.enter_context(antiphon(self.cores, arguments, pinned=False))
        return self._started["real"]

    def engine(self) -> Target | None:
        """Antiphon over the default model on one thread of its engine, not pinned; None where the model is not here."""
        path = catalog.locate(Settings().data_path)
        if path is None:
            return None
        if "engine" not in self._started:
            arguments = ["--model", str(path), "--threads", "1", "--store", "memory", "--data-dir", str(self.directory)]
            self._started["engine"] = self._stack.enter_context(antiphon(self.cores, arguments, pinned=False))
        return self._started["engine"]

    def ruler(self) -> Target:
        """The raw ASGI application."""
        if "ruler" not in self._started:
            self._started["ruler"] = self._stack.enter_context(ruler(self.cores))
        return self._started["ruler"]

    def close(self) -> None:
        """End the servers and remove what they stored."""
        self._stack.close()
        self.cores.release()

    def _antiphon(self, name: str, store: str) -> Target:
        if name not in self._started:
            arguments = ["--model", MODEL, "--store", store, "--data-dir", str(self.directory)]
            self._started[name] = self._stack.enter_context(antiphon(self.cores, arguments))
        return self._started[name]


class Probe:
    """Measures some figures, one sample of each a round."""

    name = ""

    def __init__(self) -> None:
        self.figures: list[Figure] = []

    def figure(self, title: str, unit: str, **details: object) -> Figure:
        """A figure of this probe, in the order of the table."""
        figure = Figure(f"{self.name}.{len(self.figures) + 1}", title, unit, **details)  # pyright: ignore[reportArgumentType]
        self.figures.append(figure)
        return figure

    async def prepare(self, bench: Bench) -> None:
        """Start what is needed and warm it up."""

    async def round(self, bench: Bench) -> None:
        """Take one sample of each figure."""

    def conclude(self) -> None:
        """Work out the figures that are made of others."""


async def per_cpu_second(target: Target, work: Callable[[], Awaitable[float]]) -> float:
    """What `work` gave, for each CPU-second that the target spent on it."""
    before = target.cpu()
    done = await work()
    return done / (target.cpu() - before)
