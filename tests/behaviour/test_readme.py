"""The README's snippets, run as they are written but for the address and the model's name."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.fronted import scripted_model

README = Path(__file__).parents[2] / "README.md"
ADDRESS = "http://127.0.0.1:8080/v1"
MODEL = "smollm2"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.requirement("project:readme")


def blocks(language: str) -> list[str]:
    return [code for found, code in BLOCK.findall(README.read_text(encoding="utf-8")) if found == language]


def run(code: str, language: str, base_url: str) -> str:
    """Run a block against another server; what it printed."""
    assert ADDRESS in code
    assert MODEL in code
    code = code.replace(ADDRESS, base_url).replace(MODEL, "scripted")
    command = [sys.executable, "-c", code] if language == "python" else ["bash", "-euo", "pipefail", "-c", code]
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert result.returncode == 0, result.stderr
    return result.stdout


def block(language: str, mark: str) -> str:
    (found,) = [code for code in blocks(language) if mark in code]
    return found


def test_the_response_snippet_prints_text_and_usage(scripted_server: str) -> None:
    printed = run(block("python", "response.usage"), "python", scripted_server).splitlines()
    assert printed[0] == "Hello from scripted."
    assert re.fullmatch(r"\d+ tokens", printed[1])


def test_the_stream_snippet_prints_deltas_and_the_status(scripted_server: str) -> None:
    assert run(block("python", "responses.stream"), "python", scripted_server) == "Hello from scripted.\ncompleted\n"


def test_the_chain_snippet_shows_the_kept_turn(scripted_server: str) -> None:
    printed = run(block("python", "input_items"), "python", scripted_server).splitlines()
    assert printed == [
        "Hello from scripted.",
        "True",
        "user What is my name?",
        "assistant Hello from scripted.",
        "user My name is Ada.",
    ]


def test_the_tools_snippet_runs_with_and_without_a_call(scripted_server: str) -> None:
    code = block("python", "function_call_output")
    assert run(code, "python", scripted_server) == "Hello from scripted.\n"
    call = json.dumps('!CALL weather {"city": "Oslo"}')
    question = '"What is the weather in Oslo?"'
    assert question in code
    assert run(code.replace(question, call), "python", scripted_server) == "FINAL: 18 degrees and dry in Oslo\n"


def test_the_background_snippet_waits_for_the_end(scripted_server: str) -> None:
    printed = run(block("python", "background=True"), "python", scripted_server)
    assert printed == "completed Hello from scripted.\n"


def test_the_command_brings_documents_in_and_the_snippet_searches_them(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "keys.md").write_text("# Keys\n\nA revoked key is refused within two seconds.\n")
    (command,) = [line for line in block("", "corpus add").splitlines() if "corpus" in line]
    program, *arguments = shlex.split(command)
    assert program == ".venv/bin/antiphon"
    here = Path(sys.executable).parent / "antiphon"
    question = '"How fast is a revoked key refused?"'
    code = block("python", "file_search")
    assert question in code
    asked = json.dumps('!CALL file_search {"queries": ["revoked key"]}\n!THEN\n!TEXT Within two seconds.')
    with scripted_model(["--store", "memory", "--document-embedding", "none"]) as server:
        added = [str(here), *arguments, "--server", server.base_url]
        done = subprocess.run(added, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        printed = run(code.replace(question, asked), "python", server.base_url)
    assert printed == "keys.md 1.0\nWithin two seconds.\n"


def test_the_shell_snippets_get_an_answer_and_a_stream(scripted_server: str) -> None:
    whole, streamed = blocks("sh")
    assert json.loads(run(whole, "sh", scripted_server))["output_text"] == "Hello from scripted."
    lines = run(streamed, "sh", scripted_server).splitlines()
    assert lines[0] == "event: response.created"
    assert "data: [DONE]" in lines
