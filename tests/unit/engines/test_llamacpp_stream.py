"""What the engine makes of a child that answers with faults, and of prompts that continue earlier ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.engines.llamacpp.client import ChildDiedError, ChildError, Client
from antiphon.engines.llamacpp.generation import _refused
from antiphon.engines.llamacpp.tokens import TokenCache, common_prefix
from antiphon.engines.llamacpp.turn import TurnReader
from antiphon.engines.llamacpp.wire import Candidate, Chunk, ErrorBody, Progress, Timings
from antiphon.errors import ContextOverflowError, EngineError
from antiphon.machine.deltas import Stop, TextDelta, TokenUsage
from antiphon.machine.reasoning import ReasoningSplitter
from antiphon.prompt.dialects import CallParser
from antiphon.protocol.parts import Logprob
from support.local_engine import running
from support.tiny_gguf import HERMES

Make = Callable[..., Path]


@contextlib.asynccontextmanager
async def answering(folder: Path, *parts: bytes) -> AsyncIterator[Client]:
    """A client of a child that gives these bytes to every call and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in parts:
            writer.write(part)
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(serve, str(folder / "s"))
    client = Client(str(folder / "s"))
    try:
        yield client
    finally:
        await client.close()
        server.close()
        await server.wait_closed()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def event(body: str) -> bytes:
    data = f"data: {body}\n\n".encode()
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def chunks_of(client: Client) -> list[Chunk]:
    return [chunk async for chunks in client.completion({"prompt": [1]}) for chunk in chunks]


@pytest.mark.requirement("engine:faults:stream")
@pytest.mark.parametrize(
    ("parts", "died"),
    [
        ((), True),
        ((b"HTTP/1.1 200",), True),
        ((HEAD,), True),
        ((HEAD, event('{"content": "a"}')), True),
        ((HEAD, event('{"content": "a"}')[:-5]), True),
        ((HEAD, event('{"content": 5}')), False),
        ((HEAD, event("not json")), False),
        ((b"nonsense\r\n\r\n",), False),
    ],
)
async def test_a_broken_stream_is_an_engine_error(tmp_path: Path, parts: Sequence[bytes], died: bool) -> None:
    async with answering(tmp_path, *parts) as client:
        with pytest.raises(EngineError) as caught:
            await chunks_of(client)
        assert isinstance(caught.value, ChildDiedError) == died
        assert str(tmp_path) not in caught.value.message
        assert caught.value.message.startswith("The engine ")


@pytest.mark.requirement("engine:faults:stream")
async def test_a_refusal_keeps_its_message_inside(tmp_path: Path) -> None:
    body = json.dumps({"error": {"code": 400, "message": "no", "type": "invalid_request_error"}}).encode()
    head = f"HTTP/1.1 400 Bad Request\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    async with answering(tmp_path, head + body) as client:
        with pytest.raises(ChildError, match="no") as caught:
            await chunks_of(client)
        assert (caught.value.status, caught.value.type) == (400, "invalid_request_error")
        with pytest.raises(ChildError):
            await client.tokenize("x", add_special=False)
    async with answering(tmp_path, b"HTTP/1.1 500 Oops\r\ncontent-length: 4\r\n\r\noops") as client:
        with pytest.raises(ChildError, match="status 500"):
            await chunks_of(client)


@pytest.mark.requirement("engine:faults:refused")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ChildError(400, "min_p is bad", "invalid_request_error"), "The engine refused the request: min_p is bad"),
        (
            ChildError(400, "bad at /home/me/x.cpp:3\nmore", "invalid_request_error"),
            "The engine refused the request: bad at …",
        ),
        (ChildError(500, "assertion in x.cpp", "server_error"), "The engine refused the prompt."),
        (ChildError(404, "File Not Found", "not_found_error"), "The engine refused the prompt."),
    ],
)
def test_what_llama_cpp_says_of_a_request_is_repeated(error: ChildError, expected: str) -> None:
    assert _refused(error) == expected


def reader(alternatives: int | None = None) -> TurnReader:
    parser = CallParser({"f": False}, "<tool_call>", "</tool_call>")
    return TurnReader(ReasoningSplitter(), parser, input_tokens=9, alternatives=alternatives)


@pytest.mark.requirement("engine:faults:stream")
def test_an_error_inside_the_stream_is_an_engine_error() -> None:
    fault = Chunk(error=ErrorBody("ggml failed at /home/me/ggml.c:1"))
    with pytest.raises(EngineError, match=r"^The engine failed while it generated\.$"):
        reader().read([Chunk(content="a", tokens_predicted=1), fault])


@pytest.mark.requirement("engine:stop:length")
def test_a_shared_cache_that_runs_full_ends_the_turn() -> None:
    full = Chunk(error=ErrorBody("Context size has been exceeded."))
    turn = reader()
    assert turn.read([Chunk(content="a", tokens_predicted=1), full]) == [TextDelta("a")]
    assert turn.full
    assert turn.end() == [Stop("length", TokenUsage(9, 1))]
    assert turn.stopped
    empty = reader()
    assert empty.read([full]) == []
    with pytest.raises(EngineError):
        empty.end()


@pytest.mark.requirement("engine:usage")
def test_usage_comes_from_the_counts_of_the_engine() -> None:
    final = Chunk(stop=True, stop_type="eos", tokens_predicted=5, timings=Timings(cache_n=4))
    progress = Chunk(prompt_progress=Progress(cache=4), tokens=[0])
    text = [
        Chunk(content=part, tokens_predicted=n) for n, part in ((1, "<think>"), (2, "hm"), (3, "</think>"), (4, "ok"))
    ]
    deltas = reader().read([progress, *text, final])
    assert deltas[-1] == Stop("stop", TokenUsage(9, 5, cached_tokens=4, reasoning_tokens=3))


@pytest.mark.requirement("engine:logprobs")
def test_log_probabilities_wait_with_the_text_that_is_held_back() -> None:
    def chunk(number: int, text: str) -> Chunk:
        return Chunk(content=text, tokens_predicted=number, completion_probabilities=[Candidate(text, [], -1.0)])

    turn = reader(alternatives=0)
    assert turn.read([chunk(1, "a ")]) == [TextDelta("a", [Logprob("a ", [], -1.0, [])])]
    assert turn.read([chunk(2, "<")]) == []
    assert turn.read([chunk(3, "b")]) == [TextDelta(" <b", [Logprob("<", [], -1.0, []), Logprob("b", [], -1.0, [])])]


PIECES = st.sampled_from(
    ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "user\n", "assistant\n", "The weather", " is mild", "\n", "  ", "é",
     "🙂", "<think>", "</think>", "<tool_call>", "<|im_", "end|>", "{", '"a": 1}', "wind" * 40, "x" * 130, "1234", "<",
     "|>"]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=24).map("".join)


@pytest.mark.requirement("engine:tokens:incremental")
@pytest.mark.parametrize("add_bos", [False, True])
async def test_what_is_new_is_tokenized_as_the_whole_would_be(tiny: Make, add_bos: bool) -> None:
    async with running(tiny(template=HERMES, add_bos=add_bos)) as engine:
        client = engine._client_now()
        specials = await engine._special_tokens(engine._loaded())
        assert {"<|im_start|>", "<|im_end|>", "<|endoftext|>"} <= set(specials)
        loop = asyncio.get_running_loop()

        async def whole(text: str, add_special: bool) -> list[int]:
            return await client.tokenize(text, add_special=add_special)

        hits = 0

        async def check(start: str, ends: list[str]) -> None:
            nonlocal hits
            cache = TokenCache(specials, context=2**20, shortest=1)
            for end in ends:
                assert await cache.tokenize(start + end, whole) == await whole(start + end, True)
            hits += cache.hits

        @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(start=TEXTS, ends=st.lists(TEXTS, min_size=2, max_size=4))
        def examples(start: str, ends: list[str]) -> None:
            asyncio.run_coroutine_threadsafe(check(start, ends), loop).result(30)

        await asyncio.to_thread(examples)
        assert hits > 0


@pytest.mark.requirement("engine:tokens:incremental")
async def test_only_the_end_of_a_continued_prompt_is_sent() -> None:
    sent: list[str] = []

    async def tokenize(text: str, add_special: bool) -> list[int]:
        sent.append(text)
        return [1 if character == "#" else ord(character) for character in text]

    cache = TokenCache({"#": 1}, context=10_000, size=2)
    opening = "#" + "a" * 600
    await cache.tokenize(opening, tokenize)
    continued = opening + "#b"
    assert await cache.tokenize(continued, tokenize) == [1, *[97] * 600, 1, 98]
    assert await cache.tokenize(continued + "#c", tokenize) == [1, *[97] * 600, 1, 98, 1, 99]
    assert sent == [opening, opening + "#b", "#b#c"]
    assert await cache.tokenize(continued + "#c", tokenize)
    assert len(sent) == 3
    await cache.tokenize("other", tokenize)
    await cache.tokenize("again", tokenize)
    assert len(cache) == 2


async def of_a_character_each(text: str, add_special: bool) -> list[int]:
    return [ord(character) for character in text]


@pytest.mark.requirement("engine:tokens:bounded")
async def test_what_does_not_fit_is_counted_and_not_kept() -> None:
    cache = TokenCache({}, context=100)
    for length in (100, 101, 1600):
        with pytest.raises(ContextOverflowError) as caught:
            await cache.tokenize("a" * length, of_a_character_each)
        assert (caught.value.input_tokens, caught.value.context_length) == (length, 100)
        assert "estimated" not in caught.value.message
    assert len(cache) == 0
    assert len(await cache.tokenize("a" * 99, of_a_character_each)) == 99
    assert len(cache) == 1


@pytest.mark.requirement("engine:tokens:bounded")
async def test_of_what_is_plainly_too_long_only_the_beginning_is_tokenized() -> None:
    sent: list[int] = []

    async def tokenize(text: str, add_special: bool) -> list[int]:
        sent.append(len(text))
        return [1] * (len(text) // 2)

    cache = TokenCache({}, context=100)
    for text in ("a" * 6_000_000, "b" * 6_000_000):
        with pytest.raises(
            ContextOverflowError, match=r"100 tokens.* 3000000 tokens, estimated from its beginning\."
        ) as e:
            await cache.tokenize(text, tokenize)
        assert e.value.input_tokens == 3_000_000
    assert sent == [800, 800]
    assert len(cache) == 0


@pytest.mark.requirement("engine:tokens:bounded")
async def test_a_long_text_of_long_tokens_is_tokenized_whole() -> None:
    async def tokenize(text: str, add_special: bool) -> list[int]:
        return [1] * (len(text) // 20)

    assert len(await TokenCache({}, context=100).tokenize("a" * 1980, tokenize)) == 99


@pytest.mark.requirement("engine:tokens:bounded")
async def test_the_cache_is_bounded_by_characters_too() -> None:
    cache = TokenCache({}, context=1000, characters=100)
    for letter in "abc":
        await cache.tokenize(letter * 40, of_a_character_each)
        await cache.tokenize(letter * 40, of_a_character_each)
    assert (len(cache), cache.characters) == (2, 80)
    await cache.tokenize("d" * 101, of_a_character_each)
    assert (len(cache), cache.characters) == (2, 80)


@pytest.mark.requirement("engine:tokens:incremental")
@given(first=st.text(alphabet="ab", max_size=30), second=st.text(alphabet="ab", max_size=30))
def test_the_common_prefix(first: str, second: str) -> None:
    length = common_prefix(first, second)
    assert first[:length] == second[:length]
    assert length == min(len(first), len(second)) or first[length] != second[length]
