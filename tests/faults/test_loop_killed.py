"""A loop of hosted tools whose server is killed in the middle of a call: a real process, and real MCP calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.loop_kills import killed_at

requirement = pytest.mark.requirement

pytest.importorskip("mcp")


@requirement("loop:killed")
async def test_a_call_that_may_not_run_twice_is_failed_and_told_to_the_model_after_a_kill(tmp_path: Path):
    response, items, calls = await killed_at(tmp_path, lambda seen: seen.came["two"].wait(), "two")
    assert (response["status"], response["output_text"]) == ("completed", "done")
    assert calls.seen == {"one": 1, "two": 1, "three": 1}
    assert [item["status"] for item in items] == ["completed", "failed", "completed"]
    assert items[0]["output"] == "said one"
    assert "was not run again" in str(items[1]["error"])
