"""`make pgvector` runs these tests, not the gate: they want a PostgreSQL that has the extension pgvector."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from support.postgres import Cluster, cluster

collect_ignore_glob = [] if os.environ.get("ANTIPHON_PGVECTOR") == "1" else ["test_*.py"]


@pytest.fixture
def postgres() -> Cluster:
    """The PostgreSQL cluster of the session, with pgvector at hand."""
    running = cluster()
    version = running.execute("SELECT default_version FROM pg_available_extensions WHERE name = 'vector'")
    assert version, "this PostgreSQL has no pgvector"
    return running


@pytest.fixture
def database(postgres: Cluster) -> Iterator[str]:
    """The name of a database with the schema of the store and nothing in it."""
    name = postgres.create_database()
    yield name
    postgres.drop_database(name)
