"""Providers and their models as data, and where each is asked."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

import antiphon.client
from antiphon.client.errors import DriverError
from antiphon.client.options import KNOWN_OPTIONS
from antiphon.client.profiles import (
    ANTIPHON,
    AZURE,
    GENERIC,
    META,
    MIXEDBREAD,
    OPENAI,
    PROFILES,
    VLLM,
    Profile,
    find_profile,
    guess_profile,
)
from antiphon.client.routes import Routes, auth_headers, find_key

requirement = pytest.mark.requirement


@requirement("driver:E1")
@pytest.mark.parametrize("base", ["https://host/v1", "https://host/v1/"])
def test_routes_stand_under_the_base_url(base: str) -> None:
    routes = Routes(base)
    assert routes.responses == "https://host/v1/responses"
    assert routes.compact == "https://host/v1/responses/compact"
    assert routes.socket == "wss://host/v1/responses"
    assert routes.cancel("resp_1") == "https://host/v1/responses/resp_1/cancel"
    assert routes.response("a/b c") == "https://host/v1/responses/a%2Fb%20c"
    assert routes.response("r", stream=True, starting_after=7) == (
        "https://host/v1/responses/r?stream=true&starting_after=7"
    )


@requirement("driver:E1")
def test_a_query_of_the_base_url_stays() -> None:
    routes = Routes("http://h:1/openai/v1?api-version=preview")
    assert routes.socket == "ws://h:1/openai/v1/responses?api-version=preview"
    assert routes.response("r", stream=True) == "http://h:1/openai/v1/responses/r?api-version=preview&stream=true"


@requirement("driver:E1")
@pytest.mark.parametrize("base", ["host/v1", "ftp://host", "https://", ""])
def test_what_is_no_base_url_is_refused(base: str) -> None:
    with pytest.raises(DriverError, match="base URL"):
        Routes(base)


@requirement("driver:profiles", "driver:E28")
def test_keys_come_from_the_caller_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "env")
    monkeypatch.delenv("MXBAI_API_KEY", raising=False)
    monkeypatch.setenv("MIXEDBREAD_API_KEY", "second")
    assert auth_headers(AZURE, find_key(AZURE)) == {"api-key": "env"}
    assert auth_headers(OPENAI, find_key(OPENAI, "mine")) == {"authorization": "Bearer mine"}
    assert find_key(MIXEDBREAD) == "second"
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert find_key(OPENAI) == "secret"
    assert find_key(guess_profile("https://who.example/v1")) is None
    monkeypatch.delenv("ANTIPHON_API_KEY", raising=False)
    assert auth_headers(ANTIPHON, find_key(ANTIPHON)) == {}


@requirement("driver:profiles")
@pytest.mark.parametrize(
    ("url", "profile"),
    [
        (None, OPENAI),
        ("https://api.openai.com/v1", OPENAI),
        ("https://me.openai.azure.com/openai/v1", AZURE),
        ("https://me.services.ai.azure.com/openai/v1", AZURE),
        ("https://api.mixedbread.com/v1", MIXEDBREAD),
        ("https://api.meta.ai/v1", META),
        ("http://127.0.0.1:8080/v1", GENERIC),
        ("https://api.openai.com.example/v1", GENERIC),
    ],
)
def test_the_host_tells_the_provider(url: str | None, profile: Profile) -> None:
    assert guess_profile(url) is profile


@requirement("driver:profiles")
def test_profiles_are_found_by_name_and_changed_as_data() -> None:
    assert {find_profile(name) for name in PROFILES} == set(PROFILES.values())
    with pytest.raises(DriverError, match="mixedbread"):
        find_profile("nobody")
    assert msgspec.structs.replace(VLLM, resumes=True).resumes
    for profile in PROFILES.values():
        Routes(profile.base_url or "http://host")
        assert dict(profile.renamed).keys() <= KNOWN_OPTIONS


@requirement("driver:profiles")
@pytest.mark.parametrize(
    ("model", "family", "reasoning"),
    [
        ("o1", "o-series", True),
        ("o3-mini-2025-01-31", "o-series", True),
        ("o4-mini", "o-series", True),
        ("openai/o3", "o-series", True),
        ("o3-deep-research", "deep-research", True),
        ("gpt-5", "gpt-5", True),
        ("GPT-5.1-mini", "gpt-5", True),
        ("gpt-5-codex", "codex", True),
        ("codex-mini-latest", "codex", True),
        ("gpt-5-chat-latest", "gpt-5-chat", False),
        ("gpt-6.2-sol", "gpt-6", True),
        ("gpt-4.1-nano", "gpt-4.1", False),
        ("gpt-4o-mini", "gpt-4o", False),
        ("gpt-50", "other", False),
        ("ollama", "other", False),
        ("", "other", False),
        (None, "other", False),
    ],
)
def test_models_are_of_families(model: str | None, family: str, reasoning: bool) -> None:
    for profile in (OPENAI, AZURE):
        found = profile.family(model)
        assert (found.name, found.reasoning, found.api) == (family, reasoning, "responses")


@requirement("driver:requests")
def test_the_room_gives_its_names_and_loads_no_http_until_a_client_is_named() -> None:
    for name in antiphon.client.__all__:
        assert name == "PROFILES" or getattr(antiphon.client, name).__name__ == name
    assert set(antiphon.client.__all__) <= set(dir(antiphon.client))
    with pytest.raises(AttributeError, match="nothing"):
        _ = antiphon.client.nothing
    code = "import sys, antiphon.client.encode, antiphon.client.stream; print('httpx2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
