"""What a fault leaves in the log: its traceback, and nothing of keys or of what users wrote."""

from __future__ import annotations

import httpx2
import pytest

from support.server import running_server, wait_until

KEY = "sk-must-not-be-logged"
WORDS = "words that a user wrote"
FAULTY = """
from antiphon.cli.main import main
from antiphon.runtime.service import Service

async def create(self, scope, body, **more):
    words = body.decode()
    raise RuntimeError("a fault of ours")

Service.create = create
main()
"""


@pytest.mark.requirement("ops:log:secrets")
@pytest.mark.parametrize("form", ["console", "json"])
def test_a_fault_is_logged_without_keys_and_without_what_users_wrote(form: str):
    arguments = ["--model", "scripted", "--store", "memory", "--api-key", KEY, "--log-format", form]
    with running_server(arguments, program=["-c", FAULTY]) as server:
        reply = httpx2.post(
            f"{server.base_url}/responses",
            json={"model": "scripted", "input": WORDS},
            headers={"Authorization": f"Bearer {KEY}"},
        )
        assert reply.status_code == 500
        assert reply.json()["error"]["type"] == "server_error"
        wait_until(lambda: any("a fault of ours" in line for line in server.lines))
    text = "".join(server.lines)
    assert "Traceback" in text
    assert KEY not in text
    assert WORDS not in text
    assert "\x1b" not in text
