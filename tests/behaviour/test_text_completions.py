"""`POST /v1/completions`: a text goes on where a prompt ends."""

from __future__ import annotations

import re
from typing import Any

import pytest

from antiphon.engines.base import PreparedTurn
from antiphon.engines.scripted import ScriptedEngine
from antiphon.prompt.prompt import Sampling
from antiphon.protocol.completions import RawPrompt
from antiphon.settings import Settings
from support.chatting import chunks_of
from support.inprocess import InProcess, inprocess_app

requirement = pytest.mark.requirement


async def complete(api: InProcess, prompt: Any, **fields: Any) -> dict[str, Any]:
    answer = await api.client.post("/completions", json={"model": "scripted", "prompt": prompt, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refused(api: InProcess, status: int, prompt: Any, **fields: Any) -> dict[str, Any]:
    answer = await api.client.post("/completions", json={"model": "scripted", "prompt": prompt, **fields})
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


@requirement("completions:answer", "api:chat")
async def test_a_whole_answer_has_these_fields(api: InProcess):
    answer = await complete(api, "!TEXT one two")
    assert re.fullmatch(r"cmpl-[0-9a-f]{44}", answer.pop("id"))
    assert re.fullmatch(r"fp_[0-9a-f]{10}", answer.pop("system_fingerprint"))
    assert isinstance(answer.pop("created"), int)
    assert answer == {
        "object": "text_completion",
        "model": "scripted",
        "choices": [{"text": "one two", "index": 0, "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 13,
            "completion_tokens": 2,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }
    bare = await api.client.post("http://127.0.0.1/completions", json={"model": "scripted", "prompt": "!TEXT one two"})
    assert bare.json()["choices"] == (await complete(api, "!TEXT one two"))["choices"]


@requirement("completions:stream")
async def test_the_bytes_of_a_stream_are_exactly_these(api: InProcess):
    body = {"model": "scripted", "prompt": "!TEXT a b", "stream": True, "stream_options": {"include_usage": True}}
    reply = await api.client.post("/completions", json=body)
    text = re.sub(r'"created":\d+', '"created":0', re.sub(r"cmpl-[0-9a-f]{44}", "cmpl", reply.text))
    start = (
        'data: {"id":"cmpl","object":"text_completion","created":0,"model":"scripted",'
        '"system_fingerprint":"fp_f4e1a209c1","choices":['
    )
    choice = '{"text":"%s","index":0,"logprobs":null,"finish_reason":%s}],"usage":null}\n\n'
    expected = [start + choice % ("a ", "null"), start + choice % ("b", "null"), start + choice % ("", '"stop"')]
    expected += [
        start + '],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,'
        '"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}\n\n',
        "data: [DONE]\n\n",
    ]
    assert text == "".join(expected)


@requirement("completions:prompts")
async def test_every_prompt_is_gone_on_from_as_often_as_asked(api: InProcess):
    prompts = ["!TEXT a", "!TEXT b", [ord(character) for character in "!TEXT c"]]
    for given in (prompts[:2], [[ord(character) for character in text] for text in ("!TEXT a", "!TEXT b")]):
        answer = await complete(api, given, n=2, echo=True)
        assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
        assert [choice["text"] for choice in answer["choices"]] == ["!TEXT aa"] * 2 + ["!TEXT bb"] * 2
        assert answer["usage"]["prompt_tokens"] == 14
        assert answer["usage"]["completion_tokens"] == 4
    answer = await complete(api, prompts[2], echo=True, stream=False)
    assert answer["choices"][0]["text"] == "!TEXT cc"
    body = {"model": "scripted", "prompt": prompts[:2], "echo": True, "stream": True}
    chunks = chunks_of((await api.client.post("/completions", json=body)).content)
    texts = ["", ""]
    for chunk in chunks:
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == ["!TEXT aa", "!TEXT bb"]


@requirement("subset:M7", "completions:prompts")
async def test_an_empty_prompt_has_the_model_begin_and_a_blank_one_is_refused(api: InProcess):
    for empty in ("", [""], None):
        assert (await complete(api, empty))["choices"][0]["text"] == "Hello from scripted."
    for blank, param in (("  ", "prompt"), ("\n", "prompt"), (["a", " "], "prompt[1]"), ([], "prompt")):
        error = await refused(api, 400, blank)
        assert (error["param"], error["code"]) == (param, "empty_input")


@requirement("completions:limit")
async def test_sixteen_tokens_are_generated_where_no_limit_is_set(api: InProcess):
    answer = await complete(api, "!COUNT 40")
    assert answer["usage"]["completion_tokens"] == 16
    assert answer["choices"][0]["finish_reason"] == "length"
    assert (await complete(api, "!COUNT 40", max_tokens=100))["choices"][0]["finish_reason"] == "stop"
    async with inprocess_app(settings=Settings(min_output_tokens=8)) as floor:
        error = await refused(floor, 400, "a", max_tokens=3)
        assert (error["param"], error["code"]) == ("max_tokens", "integer_below_min_value")
        assert "'max_tokens'" in error["message"]


@requirement("completions:logprobs")
async def test_log_probabilities_come_in_lists(api: InProcess):
    answer = await complete(api, "!TEXT a bc", logprobs=0)
    assert answer["choices"][0]["logprobs"] == {
        "tokens": ["a ", "bc"],
        "token_logprobs": [0.0, 0.0],
        "top_logprobs": [{}, {}],
        "text_offset": [0, 2],
    }


@requirement("completions:errors")
async def test_what_cannot_be_is_refused_and_gives_its_places_back(api: InProcess):
    cases: list[tuple[int, Any, dict[str, Any], str | None]] = [
        (400, "a", {"suffix": "b"}, "suffix"),
        (400, "a", {"n": 129}, "n"),
        (400, ["a"] * 200, {}, "prompt"),
        (400, "a" * 200, {"n": 2}, "prompt"),
        (400, [0x110000], {}, "prompt"),
        (400, [0xD800], {}, "prompt"),
        (404, "a", {"model": "unknown"}, "model"),
        (429, "!ERR429", {}, None),
        (500, "!FAIL", {}, None),
    ]
    async with inprocess_app(settings=Settings(scripted_context_length=100)) as short:
        for status, prompt, fields, param in cases:
            error = await refused(short, status, prompt, **fields)
            assert error["param"] == param
            assert short.service.admission.running == 0
        error = await refused(short, 400, "a" * 100)
        assert error["code"] == "context_length_exceeded"
        assert "100 tokens" in error["message"]
        body = {"model": "scripted", "prompt": "!FAIL", "stream": True}
        last = chunks_of((await short.client.post("/completions", json=body)).content)[-1]
        assert last["error"]["code"] == "server_error"


class ConversationsOnly(ScriptedEngine):
    """An engine that can go on from conversations only, and does not show its tokens."""

    async def prepare_text(self, prompt: RawPrompt, sampling: Sampling, max_tokens: int) -> PreparedTurn:
        return await super(ScriptedEngine, self).prepare_text(prompt, sampling, max_tokens)


@requirement("completions:errors")
async def test_a_model_without_bare_prompts_says_what_to_use(api: InProcess):
    engine = ConversationsOnly()
    await engine.start()
    api.service.registry._names.listed["scripted"] = engine
    error = await refused(api, 400, "a")
    assert error["code"] == "unsupported_value"
    assert "/v1/chat/completions" in error["message"]
