"""Fixtures that every test may use."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from antiphon.engines.catalog import locate
from antiphon.settings import load_settings
from support import tiny_gguf
from support.fronted import RAW_ITEMS, scripted_model
from support.server import RunningServer, running_server

# Many answers of real and random models, family by family: `make heavy` runs them, the gate does not.
HEAVY = [
    "behaviour/test_dialect_chains.py",
    "clients/test_real_forced.py",
    "faults/test_driver_killed.py",
    "faults/test_loop_kills.py",
    "faults/test_ingestion_kills.py",
    "clients/test_real_libraries.py",
    "unit/prompt/test_dialect_splits.py",
    "unit/test_bench_real.py",
    "clients/test_real_upstream.py",
    "clients/test_real_folder.py",
    "unit/engines/test_llamacpp_dialects.py",
    "unit/engines/test_llamacpp_bound.py",
    "unit/engines/test_llamacpp_bound_checks.py",
]
collect_ignore = [] if os.environ.get("ANTIPHON_HEAVY") == "1" else HEAVY

# No example is timed: machines are shared, and a slow one says nothing about the code. The gate tries the same examples
# each time; `make explore` looks for others.
hypothesis.settings.register_profile("antiphon", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("ANTIPHON_EXAMPLES", "antiphon"))

EXPLORING = os.environ.get("ANTIPHON_EXAMPLES") == "explore"
if not EXPLORING:
    # Else Hypothesis draws on the constants of all modules that happen to be loaded, which are others in each process.
    providers._get_local_constants = lambda: providers._local_constants
MORE = int(os.environ.get("ANTIPHON_MORE_EXAMPLES", "3"))
"""How many times the examples that a test names for the gate are tried when others are looked for."""

WAITING = "tests/faults/"
"""Where tests wait more than they work."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where files run beside each other, spread those whose tests wait: beside one of them, one that works runs."""
    if EXPLORING:
        tests = [getattr(item, "obj", None) for item in items]
        for test in {getattr(test, "__func__", test) for test in tests}:
            _explore(test)
    if not hasattr(config, "workerinput"):
        return
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    waiting = [name for name in files if name.startswith(WAITING)]
    working = [name for name in files if not name.startswith(WAITING)]
    places = {name: place / len(group) for group in (waiting, working) for place, name in enumerate(group)}
    items[:] = [item for name in sorted(files, key=lambda name: places[name]) for item in files[name]]


def _explore(test: object) -> None:
    """Have a property try more examples than it names."""
    # Hypothesis has no other place for the settings of one test.
    name = "_hypothesis_internal_use_settings"
    named = getattr(test, name, None)
    if named is not None and named.max_examples < hypothesis.settings().max_examples:
        setattr(test, name, hypothesis.settings(named, max_examples=named.max_examples * MORE))


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio: uvicorn and aiohttp do."""
    return "asyncio"


@pytest.fixture(scope="session")
def scripted_process() -> Iterator[RunningServer]:
    """A real server over the scripted model, with the store in memory; shared by the session."""
    with scripted_model(["--store", "memory", "--alias", "gpt-5=scripted"], environment=RAW_ITEMS) as server:
        yield server


@pytest.fixture(scope="session")
def scripted_server(scripted_process: RunningServer) -> str:
    """The base URL of that server, ending in `/v1`."""
    return scripted_process.base_url


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The default model, which `make setup` brings."""
    path = locate(load_settings().data_path)
    assert path is not None, "the default model is missing: run `make setup`"
    return path


@pytest.fixture(scope="session")
def real_process(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A real server over the default model, one thread, the store in SQLite; shared by the session."""
    store = tmp_path_factory.mktemp("real") / "state.db"
    arguments = ["--model", str(smollm2_path), "--alias", "smollm=" + str(smollm2_path)]
    arguments += ["--store", str(store), "--threads", "1"]
    with running_server(arguments) as server:
        yield server


@pytest.fixture(scope="session")
def real_server(real_process: RunningServer) -> str:
    """The base URL of that server, ending in `/v1`."""
    return real_process.base_url


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes tiny GGUF models for the real llama.cpp; takes what `tiny_gguf.build` takes."""
    return functools.partial(tiny_gguf.build, tmp_path_factory.mktemp("models"))
