"""Servers that are killed again and again in mixed traffic; `make faults` is the long run of the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.postgres import cluster

ROOT = Path(__file__).parents[2]
KILLS = 6
REPLICA_KILLS = 4


def kill(tmp_path: Path, store: str, kills: int, seed: int) -> dict[str, int]:
    """Run so many kills; no promise was broken, no request was refused, and enough was tried to say so."""
    written = tmp_path / "outcome.json"
    command = [sys.executable, "-m", "tests.kills", "--store", store, "--kills", str(kills), "--seed", str(seed)]
    done = subprocess.run(
        [*command, "--json", str(written)], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads(written.read_text())
    assert outcome["kills"] == kills
    assert outcome["checked"] > 10 * kills
    assert outcome["resumed"] > kills
    return outcome


@pytest.mark.requirement("fault:kills")
@pytest.mark.timeout(300)
def test_after_kills_in_mixed_traffic_every_promise_is_kept(tmp_path: Path):
    assert kill(tmp_path, "sqlite", KILLS, seed=3)["restarted"] > 0


@pytest.mark.requirement("fault:kills-replicas")
@pytest.mark.timeout(300)
def test_the_same_holds_for_two_servers_over_one_database(tmp_path: Path):
    cluster()
    kill(tmp_path, "postgres", REPLICA_KILLS, seed=4)
