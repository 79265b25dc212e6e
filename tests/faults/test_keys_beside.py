"""Keys that commands make and revoke while a real server runs on the same file."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner

from antiphon.cli.main import cli
from support.server import running_server, wait_until
from support.timing import TRIES, seconds_until


def run(*arguments: str) -> tuple[str, str]:
    result = CliRunner().invoke(cli, [*arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


@pytest.mark.requirement("keys:beside", "keys:revoked", "keys:any")
@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_keys_count_within_two_seconds_of_being_made_and_revoked(tmp_path: Path, sealed: bool) -> None:
    store = ["--store", str(tmp_path / "a.db")]
    environment = {"ANTIPHON_ENCRYPTION_KEY": "ab" * 32} if sealed else {}
    with running_server(["--model", "scripted", *store], environment=environment) as server:
        with httpx2.Client(base_url=server.base_url, trust_env=False) as client:

            def status(secret: str | None = None) -> int:
                headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
                return client.get("/models", headers=headers).status_code

            assert status() == 200
            secret, told = run("keys", "create", "--name", "ci", "--tenant", "acme", *store)
            assert status(secret.strip()) == 200, "a key that was made counts at once"
            wait_until(lambda: status() == 401)
            body = {"model": "scripted", "input": "hi"}
            headers = {"Authorization": f"Bearer {secret.strip()}"}
            made = client.post("/responses", json=body, headers=headers)
            assert made.status_code == 200
            other, _ = run("keys", "create", "--name", "other", "--tenant", "other", *store)
            path = f"/responses/{made.json()['id']}"
            assert client.get(path, headers={"Authorization": other.strip()}).status_code == 404

            (key_id,) = re.findall(r"key_[0-9a-f]+", told)
            run("keys", "revoke", key_id, *store)
            took = seconds_until(lambda: status(secret.strip()) == 401)
            for _ in range(TRIES):
                if took < 2.0:
                    break
                further, told_further = run("keys", "create", "--name", "further", *store)
                wait_until(lambda further=further: status(further.strip()) == 200)
                run("keys", "revoke", *re.findall(r"key_[0-9a-f]+", told_further), *store)
                took = seconds_until(lambda further=further: status(further.strip()) == 401)
            assert took < 2.0
            assert status(other.strip()) == 200
        assert secret.strip() not in "".join(server.lines)
