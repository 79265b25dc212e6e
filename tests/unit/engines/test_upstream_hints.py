"""What upstreams are told of a history, so that they and the routers before them keep it where its prefix is."""

from __future__ import annotations

import json

import pytest

from antiphon.engines.responses.profiles import PROFILES as RESPONSES
from antiphon.engines.responses.request import request_body as responses_body
from antiphon.engines.upstream.profiles import PROFILES
from antiphon.engines.upstream.request import request_body, session_headers
from antiphon.prompt.prompt import Affinity, ChatMessage, Prompt
from antiphon.protocol.json import encode
from antiphon.protocol.tools import FunctionTool

USER = ChatMessage("user", "Hi")
ROUTERS = {"x-session-id": "k", "x-smg-routing-key": "k", "x-dynamo-session-id": "k"}


@pytest.mark.requirement("routing:hints", "routing:salt")
@pytest.mark.parametrize(
    ("profile", "headers", "fields"),
    [
        ("generic", {"x-session-affinity": "k"}, {}),
        ("openai", {}, {"prompt_cache_key": "k"}),
        ("azure", {}, {"prompt_cache_key": "k"}),
        ("antiphon", {}, {"prompt_cache_key": "k"}),
        ("vllm", ROUTERS, {"cache_salt": "s"}),
        ("sglang", ROUTERS, {"cache_salt": "s"}),
        ("llama-server", {}, {}),
        ("ollama", {}, {}),
    ],
)
def test_each_kind_is_told_in_its_own_terms(profile: str, headers: dict[str, str], fields: dict[str, str]):
    kind = PROFILES[profile]
    prompt = Prompt([USER], affinity=Affinity("k", "s"))
    plain = request_body(Prompt([USER]), kind, "m")
    assert session_headers(prompt, kind) == headers
    assert request_body(prompt, kind, "m") == {**plain, **fields}
    # A turn that belongs to no history is somebody's all the same.
    nobody = Prompt([USER], affinity=Affinity("", "s"))
    assert session_headers(nobody, kind) == {}
    assert request_body(nobody, kind, "m").get("cache_salt") == fields.get("cache_salt")
    assert "prompt_cache_key" not in request_body(nobody, kind, "m")


@pytest.mark.requirement("routing:bytes")
@pytest.mark.parametrize("profile", PROFILES)
def test_each_turn_begins_with_the_bytes_of_the_one_before(profile: str):
    tools = [FunctionTool("f", {"type": "object", "properties": {"a": {}, "b": {}}}), FunctionTool("e")]
    messages = [ChatMessage("system", "Be kind."), USER]
    sent: list[tuple[bytes, bytes]] = []
    for turn in range(4):
        body = request_body(Prompt(list(messages), tools=tools, affinity=Affinity("k", "s")), PROFILES[profile], "m")
        sent.append((encode(body["messages"])[:-1], encode({**body, "messages": None})))
        messages += [ChatMessage("assistant", f"Answer {turn}."), ChatMessage("user", f"And {turn}?")]
    for (shorter, rest), (longer, other) in zip(sent, sent[1:], strict=False):
        assert longer.startswith(shorter)
        assert rest == other


@pytest.mark.requirement("routing:hints", "routing:salt")
@pytest.mark.parametrize("profile", RESPONSES)
def test_an_endpoint_for_responses_is_told_as_one_for_chats_is(profile: str):
    kind = RESPONSES[profile]
    body = responses_body(Prompt([USER], affinity=Affinity("k", "s")), kind, "m")
    if profile in PROFILES:
        prompt = Prompt([USER], affinity=Affinity("k", "s"))
        assert session_headers(prompt, kind.trust) == session_headers(prompt, PROFILES[profile])
        expected = request_body(prompt, PROFILES[profile], "m")
        for field in ("prompt_cache_key", "cache_salt"):
            assert body.get(field) == expected.get(field)
    assert json.dumps(body).count('"k"') == ("prompt_cache_key" in body)
