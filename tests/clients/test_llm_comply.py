"""`llm-comply`, a suite of others for the Open Responses specification, and the schema that it brings."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx2
import pytest
from llm_comply.schema import SpecLoader

from support.fronted import scripted_model
from support.inprocess import sse_events
from support.server import RunningServer, running_server

requirement = pytest.mark.requirement

NOT_APPLICABLE = {"reasoning-summary"}
"""Skipped by the suite itself: it asks for a model with a name of OpenAI's."""

UNSUPPORTED = {"image-input"}
"""What the default model fails in: it reads no images."""

CUT = "expected status='completed', got 'incomplete'"

QUESTIONS = [
    "Hi.",
    "!REASON Two and two make\n!TEXT Four.",
    '!REASON first\n!CALL get_weather {"city": "Oslo"}',
    "!REFUSE Never.",
    "!INCOMPLETE",
    "!REASON only thinking, which is cut",
    "!FAIL",
    "!STREAMERR",
]

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}


@pytest.fixture(scope="module")
def open_responses_server() -> Iterator[RunningServer]:
    """A server whose events have the names of Open Responses."""
    with scripted_model(["--store", "memory", "--dialect", "openresponses"]) as server:
        yield server


@pytest.fixture(scope="module")
def spec() -> SpecLoader:
    """The schema of Open Responses."""
    return SpecLoader(str(files("llm_comply") / "specs" / "openresponses.json"))


def run_suite(base_url: str, model: str, *, only: set[str] | None = None) -> dict[str, dict[str, Any]]:
    """The suite's results by the id of the test; of all tests unless some are named."""
    command = [sys.executable, "-m", "llm_comply.cli", "run", "--format", "open-responses", "--json"]
    command += ["--base-url", base_url, "--model", model, "--api-key", "none"]
    if only is not None:
        command += ["--filter", ",".join(sorted(only))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["total"] == len(report["results"]) == (13 if only is None else len(only))
    return {result["id"]: result for result in report["results"]}


def of_status(results: dict[str, dict[str, Any]], status: str) -> set[str]:
    """The ids of the tests that ended so."""
    return {name for name, result in results.items() if result["status"] == status}


@requirement("client:llm-comply:scripted")
@pytest.mark.parametrize("dialect", ["openai", "openresponses"])
def test_the_suite_holds_nothing_against_the_scripted_model(dialect: str, request: pytest.FixtureRequest) -> None:
    if dialect == "openai":
        base_url: str = request.getfixturevalue("scripted_server")
    else:
        base_url = request.getfixturevalue("open_responses_server").base_url
    results = run_suite(base_url, "scripted")
    assert of_status(results, "failed") == set(), results
    assert of_status(results, "skipped") == NOT_APPLICABLE
    assert {name: result["warnings"] for name, result in results.items() if "warnings" in result} == {}


@pytest.fixture(scope="module")
def brief_server(smollm2_path: Path) -> Iterator[RunningServer]:
    """The default model with so short a context that an answer without end is cut in a few seconds."""
    arguments = ["--model", str(smollm2_path), "--store", "memory", "--threads", "1", "--context-length", "256"]
    with running_server(arguments) as server:
        yield server


@requirement("client:llm-comply:real")
def test_the_suite_fails_on_the_default_model_in_images_only(brief_server: RunningServer) -> None:
    results = run_suite(brief_server.base_url, "smollm2")
    for _ in range(5):
        # The model is so small that it now and then writes on until it is cut, which the suite takes for a failure.
        endless = of_status(results, "failed") - UNSUPPORTED
        if not endless:
            break
        assert {str(results[name]["errors"]) for name in endless} == {str([CUT])}, results
        results |= run_suite(brief_server.base_url, "smollm2", only=endless)
    assert of_status(results, "failed") == UNSUPPORTED
    assert of_status(results, "skipped") == NOT_APPLICABLE
    assert {name: result["warnings"] for name, result in results.items() if "warnings" in result} == {}
    for name in UNSUPPORTED:
        assert "HTTP 400 (expected [200])" in results[name]["errors"]


@requirement("client:llm-comply:schema")
@pytest.mark.parametrize("question", QUESTIONS)
def test_every_event_and_object_fits_the_schema_of_open_responses(
    open_responses_server: RunningServer, spec: SpecLoader, question: str
) -> None:
    body = {
        "model": "scripted",
        "input": question,
        "tools": [WEATHER],
        "max_output_tokens": 3 if "which is cut" in question else None,
    }
    with httpx2.Client(base_url=open_responses_server.base_url) as client:
        events = sse_events(client.post("/responses", json={**body, "stream": True}).content)
        whole = client.post("/responses", json=body).json()
        stored = client.get(f"/responses/{whole['id']}").json()
    faults = [fault for event in events for fault in checked(spec, event)]
    faults += [fault for value in (whole, stored) for fault in checked(spec, value)]
    assert faults == []
    assert ("!REASON" in question) == any(event["type"] == "response.reasoning.delta" for event in events)
    assert not any("reasoning_text" in event["type"] for event in events)


@requirement("client:llm-comply:schema")
def test_without_thinking_both_dialects_fit_the_schema(scripted_server: str, spec: SpecLoader) -> None:
    with httpx2.Client(base_url=scripted_server) as client:
        for question in QUESTIONS:
            if "!REASON" not in question:
                body = {"model": "scripted", "input": question, "stream": True}
                events = sse_events(client.post("/responses", json=body).content)
                assert [fault for event in events for fault in checked(spec, event)] == []


@requirement("client:llm-comply:schema")
def test_compactions_fit_the_schema(open_responses_server: RunningServer, spec: SpecLoader) -> None:
    trigger = {"type": "compaction_trigger"}
    body = {"model": "scripted", "input": [{"role": "user", "content": "Hi."}, trigger], "stream": True}
    with httpx2.Client(base_url=open_responses_server.base_url) as client:
        events = sse_events(client.post("/responses", json=body).content)
        compacted = client.post("/responses/compact", json={"model": "scripted", "input": "Hi."}).json()
    assert [fault for value in (*events, compacted) for fault in checked(spec, value)] == []


def checked(spec: SpecLoader, value: dict[str, Any]) -> list[str]:
    """What the schema holds against an event, a response or a compacted context."""
    with warnings.catch_warnings():
        # The suite resolves references with a class of jsonschema that is deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        if value.get("object") == "response":
            return spec.validate(value, "ResponseResource")
        if value.get("object") == "response.compaction":
            return spec.validate(value, "CompactResource")
        return spec.validate_sse_event(value["type"], value)
