"""The engine over the real llama.cpp, with tiny models made on the spot."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from antiphon.engines.llamacpp import LlamaCppEngine
from antiphon.engines.llamacpp.template import template_variables
from antiphon.errors import ConfigurationError, ContextOverflowError, EngineError, InvalidRequestError
from antiphon.machine.deltas import TextDelta
from antiphon.prompt.prompt import ChatMessage, Prompt, Sampling, ToolCall
from antiphon.prompt.thoughts import drop_past_thinking
from antiphon.protocol.tools import FunctionTool
from antiphon.settings import Settings
from support.local_engine import (
    GREEDY,
    all_idle,
    ask,
    calls_of,
    collect,
    reasoning_of,
    running,
    stop_of,
    text_of,
    until,
)
from support.tiny_gguf import HERMES

Make = Callable[..., Path]

CALL = [
    "<tool_call>",
    '\n{"name": "get_',
    "weather",
    '", "arguments": {"ci',
    'ty": "Os',
    "lo!",
    '"}}\n',
    "</tool_call>",
]
WEATHER = FunctionTool(
    name="get_weather", parameters={"type": "object", "properties": {"city": {"const": "Oslo!"}}, "required": ["city"]}
)
ENDLESS = ["tick, ", "tock. "]


@pytest.fixture
async def noise(tiny: Make) -> AsyncIterator[LlamaCppEngine]:
    async with running(tiny()) as engine:
        yield engine


async def write(tiny: Make, script: list[str | bytes], prompt: Prompt, **options: Any) -> list[Any]:
    async with running(tiny(script=script, template=HERMES), **options) as engine:
        return await collect(engine, prompt)


@pytest.mark.requirement("engine:generate")
async def test_a_turn_from_start_to_stop(tiny: Make) -> None:
    path = tiny(script=["Good ", "morn", "ing."], name="my-model.Q4")
    async with running(path) as engine:
        assert engine.name == "my-model.Q4"
        assert engine.ready
        assert engine.capabilities.context_length == 8192
        assert engine.capabilities.media == frozenset()
        assert engine.capabilities.forced_tools
        assert engine.capabilities.formats == {"text", "json_object", "json_schema"}
        turn = await engine.prepare(ask("Hello"))
        assert turn.rendered == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
        assert turn.input_tokens == len(turn.tokens)
        deltas = [delta for part in [part async for part in engine.generate(turn)] for delta in part]
        assert text_of(deltas) == "Good morning."
        stop = stop_of(deltas)
        assert stop.reason == "stop"
        assert stop.usage.input_tokens == turn.input_tokens
        assert stop.usage.output_tokens == 4
        assert stop.usage.reasoning_tokens == 0
    assert not engine.ready


@pytest.mark.requirement("engine:stop:length")
async def test_max_output_tokens_ends_with_length(noise: LlamaCppEngine) -> None:
    for count in (1, 7):
        stop = stop_of(await collect(noise, ask("Hello", max_output_tokens=count)))
        assert (stop.reason, stop.usage.output_tokens) == ("length", count)


@pytest.mark.requirement("engine:stop:length")
async def test_a_full_context_ends_with_length(tiny: Make) -> None:
    path = tiny(script=ENDLESS, endless=True)
    async with running(path, settings=Settings(threads=1, context_length=256, slots=1)) as engine:
        context = engine.capabilities.context_length
        turn = await engine.prepare(ask("one two three"))
        deltas = await collect(engine, ask("one two three"))
        stop = stop_of(deltas)
        assert stop.reason == "length"
        assert stop.usage.input_tokens + stop.usage.output_tokens == context
        assert turn.max_tokens == context - turn.input_tokens


@pytest.mark.requirement("engine:stop:word")
async def test_a_stop_word_ends_the_turn(tiny: Make) -> None:
    sampling = Sampling(temperature=0.0, stop=["morn"])
    deltas = await write(tiny, ["Good ", "morn", "ing."], ask("Hello", sampling=sampling))
    assert text_of(deltas) == "Good "
    assert stop_of(deltas).reason == "stop"


@pytest.mark.requirement("engine:overflow")
async def test_an_overflow_names_both_numbers(tiny: Make) -> None:
    async with running(tiny(), settings=Settings(threads=1, context_length=256, slots=1)) as engine:
        with pytest.raises(ContextOverflowError) as caught:
            await engine.prepare(ask("word " * 400))
        assert caught.value.context_length == engine.capabilities.context_length == 256
        assert caught.value.input_tokens > 400
        with pytest.raises(ContextOverflowError, match=r"256 tokens.* \d{6} tokens, estimated") as caught:
            await engine.prepare(ask("word " * 200_000))
        assert caught.value.input_tokens > 200_000
        assert len(engine._tokens) == 0
        assert await all_idle(engine)


@pytest.mark.requirement("engine:reasoning")
async def test_thinking_is_split_and_counted(tiny: Make) -> None:
    script = ["<think>", "\nHmm, ", "well.", " \n", "</think>", "\n\nYes", ", it is."]
    deltas = await write(tiny, [*script], ask("Is it?"))
    assert reasoning_of(deltas) == "Hmm, well."
    assert text_of(deltas) == "Yes, it is."
    usage = stop_of(deltas).usage
    assert usage.reasoning_tokens == 5
    assert usage.output_tokens == 8


@pytest.mark.requirement("engine:reasoning")
async def test_an_open_primed_template_and_a_cut_in_thinking(tiny: Make) -> None:
    template = HERMES.replace("assistant\\n' }}", "assistant\\n<think>\\n' }}").replace(
        "assistant\n' }}", "assistant\n<think>\n' }}"
    )
    async with running(tiny(script=["Hmm, ", "well.", "</think>", "\n\nYes"], template=template)) as engine:
        deltas = await collect(engine, ask("Is it?"))
        assert (reasoning_of(deltas), text_of(deltas)) == ("Hmm, well.", "Yes")
        cut = await collect(engine, ask("Is it?", max_output_tokens=2))
        assert (reasoning_of(cut), text_of(cut)) == ("Hmm, well.", "")
        assert stop_of(cut).reason == "length"


@pytest.mark.requirement("engine:tools")
async def test_a_call_is_streamed(tiny: Make) -> None:
    deltas = await write(tiny, ["On it.\n", *CALL], ask("Weather?", tools=[WEATHER]))
    assert text_of(deltas) == "On it."
    assert calls_of(deltas) == [("get_weather", '{"city": "Oslo!"}')]
    assert len([delta for delta in deltas if type(delta).__name__ == "ToolCallDelta"]) > 2
    assert stop_of(deltas).reason == "stop"


@pytest.mark.requirement("engine:tools")
async def test_markers_that_are_control_tokens_are_seen(tiny: Make) -> None:
    script = ["<think>", "Hmm, ", "</think>", "Go.\n", *CALL]
    async with running(tiny(script=script, template=HERMES, control=True)) as engine:
        deltas = await collect(engine, ask("Weather?", tools=[WEATHER]))
        assert (reasoning_of(deltas), text_of(deltas)) == ("Hmm,", "Go.")
        assert "<tool_call>" not in text_of(await collect(engine, ask("Weather?")))
        assert calls_of(deltas) == [("get_weather", '{"city": "Oslo!"}')]


@pytest.mark.requirement("engine:tools:generic")
async def test_a_template_without_tools_gets_them_as_text(tiny: Make) -> None:
    async with running(tiny(script=[*CALL])) as engine:
        turn = await engine.prepare(ask("Weather?", tools=[WEATHER]))
        assert '"name":"get_weather"' in turn.rendered
        assert calls_of(await collect(engine, ask("Weather?", tools=[WEATHER]))) == [
            ("get_weather", '{"city": "Oslo!"}')
        ]
    async with running(tiny(template=HERMES), dialect="generic") as engine:
        turn = await engine.prepare(ask("Weather?", tools=[WEATHER]))
        assert "You can call these tools" in turn.rendered
    with pytest.raises(ConfigurationError, match="hermes"):
        LlamaCppEngine(tiny(), Settings(), dialect="klingon")


@pytest.mark.requirement("engine:tools:single")
async def test_without_parallel_calls_the_first_call_ends_the_turn(tiny: Make) -> None:
    script = [*CALL, " And", " so on."]
    tools = [WEATHER]
    async with running(tiny(script=script, template=HERMES)) as engine:
        both = await collect(engine, ask("Weather?", tools=tools))
        assert text_of(both) == "And so on."
        one = await collect(engine, ask("Weather?", tools=tools, parallel_tool_calls=False))
        assert calls_of(one) == calls_of(both) == [("get_weather", '{"city": "Oslo!"}')]
        assert text_of(one) == ""
        usage = stop_of(one).usage
        assert 0 < usage.output_tokens < stop_of(both).usage.output_tokens
        assert usage.cached_tokens > 0
        await until(lambda: all_idle(engine), "the slot is free")


@pytest.mark.requirement("engine:utf8")
async def test_characters_cut_between_tokens_come_out_whole(tiny: Make) -> None:
    face = "🙂".encode()
    deltas = await write(tiny, ["So ", face[:1], face[1:3], face[3:], "ß"], ask("Hello"))
    assert text_of(deltas) == "So 🙂ß"
    assert stop_of(deltas).usage.output_tokens == 6


@pytest.mark.requirement("engine:logprobs")
async def test_log_probabilities(tiny: Make) -> None:
    script = ["<think>", "Hmm, ", "</think>", "Good ", "morn", "ing."]
    async with running(tiny(script=script, template=HERMES)) as engine:
        for count in (0, 3):
            sampling = Sampling(temperature=0.0, top_logprobs=count)
            deltas = await collect(engine, ask("Hello", sampling=sampling))
            entries = [entry for d in deltas if isinstance(d, TextDelta) for entry in d.logprobs or ()]
            assert [entry.token for entry in entries] == ["Good ", "morn", "ing."]
            assert b"".join(bytes(entry.bytes) for entry in entries) == b"Good morning."
            assert all(entry.logprob <= 0 for entry in entries)
            assert all(len(entry.top_logprobs) == count for entry in entries)
        deltas = await collect(engine, ask("Hello"))
        assert all(delta.logprobs is None for delta in deltas if isinstance(delta, TextDelta))


@pytest.mark.requirement("engine:sampling")
async def test_a_seed_repeats_and_none_does_not(noise: LlamaCppEngine) -> None:
    def hot(seed: int | None) -> Prompt:
        sampling = Sampling(temperature=2.0, top_p=1.0, top_k=0, min_p=0.0, seed=seed)
        return ask("Hello", sampling=sampling, max_output_tokens=24)

    first, again, other = [text_of(await collect(noise, hot(seed))) for seed in (7, 7, 8)]
    assert first == again
    assert first != other


@pytest.mark.requirement("engine:faults:refused")
async def test_an_unusable_sampling_value_is_named(noise: LlamaCppEngine) -> None:
    with pytest.raises(EngineError, match=r"refused the request: .*penalty_repeat must be finite and greater than 0"):
        await collect(noise, ask("Hello", sampling=Sampling(repeat_penalty=0.0)))


@pytest.mark.requirement("engine:prefix")
async def test_a_chained_turn_reuses_what_was_read(noise: LlamaCppEngine) -> None:
    opening = ChatMessage("user", "Tell me of the weather in the capital. " * 20)
    first = await collect(noise, Prompt([opening], sampling=GREEDY, max_output_tokens=8))
    assert stop_of(first).usage.cached_tokens == 0
    chained = [opening, ChatMessage("assistant", text_of(first)), ChatMessage("user", "And tomorrow?")]
    second = stop_of(await collect(noise, Prompt(chained, sampling=GREEDY, max_output_tokens=8))).usage
    opening_tokens = stop_of(first).usage.input_tokens
    assert second.cached_tokens >= opening_tokens - 8
    assert second.cached_tokens < second.input_tokens


@pytest.mark.requirement("engine:slots")
async def test_more_turns_than_slots_all_finish(tiny: Make) -> None:
    async with running(tiny(), settings=Settings(threads=1, slots=3)) as engine:
        prompts = [ask(f"Question number {n}", max_output_tokens=40) for n in range(8)]
        for deltas in await asyncio.gather(*(collect(engine, prompt) for prompt in prompts)):
            assert stop_of(deltas).usage.output_tokens > 0


@pytest.mark.requirement("engine:cancel:decode")
async def test_leaving_a_stream_frees_its_slot(tiny: Make) -> None:
    async with running(tiny(script=ENDLESS, endless=True, context_length=65536)) as engine:
        stream = engine.generate(await engine.prepare(ask("Hello")))
        await anext(stream)
        assert not await all_idle(engine)
        await stream.aclose()
        await until(lambda: all_idle(engine), "the slot is free")


@pytest.mark.requirement("engine:cancel:prefill")
async def test_leaving_during_the_prompt_frees_its_slot(tiny: Make) -> None:
    settings = Settings(threads=1, batch_size=32)
    async with running(tiny(context_length=65536), settings=settings) as engine:
        turn = await engine.prepare(ask("a b c d e f g h " * 3000))
        assert turn.input_tokens > 20_000

        async def consume() -> None:
            async for deltas in engine.generate(turn):
                pytest.fail(f"the prompt was read to its end: {deltas}")

        async def reading() -> bool:
            slots = await engine.slots()
            return any(
                0 < slot.get("n_prompt_tokens_processed", 0) < turn.input_tokens
                for slot in slots
                if slot["is_processing"]
            )

        task = asyncio.create_task(consume())
        await until(reading, "the prompt is being read")
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await until(lambda: all_idle(engine), "the slot is free")
        slots = await engine.slots()
        assert all(slot.get("n_prompt_tokens_processed", 0) < turn.input_tokens for slot in slots)


@pytest.mark.requirement("project:child-process:keys")
async def test_the_child_knows_no_key_of_the_server(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_API_KEY", "mine")
    async with running(tiny()):
        children = psutil.Process().children()
        child = next(process for process in children if "antiphon.engines.llamacpp.child" in process.cmdline())
        assert "mine" not in child.environ().values()


@pytest.mark.requirement("engine:child:no-tcp")
async def test_the_child_listens_on_its_socket_only(noise: LlamaCppEngine) -> None:
    children = psutil.Process().children()
    child = next(process for process in children if "antiphon.engines.llamacpp.child" in process.cmdline())
    assert [c for c in child.net_connections(kind="inet") if c.status == psutil.CONN_LISTEN] == []
    paths = {Path(c.laddr) for c in child.net_connections(kind="unix") if c.laddr}
    folders = {path.parent for path in paths if path.suffix == ".sock"}
    assert len(folders) == 1
    folder = folders.pop()
    assert folder.stat().st_mode & 0o777 == 0o700
    await noise.close()
    assert not folder.exists()
    assert not child.is_running()


REFUSAL = "{{ raise_exception('Conversation roles must alternate') }}"
STRICT = (
    "{% for message in messages %}"
    "{% if message.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}" + REFUSAL + "{% endif %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}"
    "{{ '<|im_start|>assistant\n' }}"
)  # fmt: skip


@pytest.mark.requirement("engine:template:rearranged")
async def test_a_strict_template_gets_the_conversation_rearranged(tiny: Make) -> None:
    async with running(tiny(template=STRICT)) as engine:
        messages = [ChatMessage("system", "Be brief."), ChatMessage("user", "One"), ChatMessage("user", "Two")]
        turn = await engine.prepare(Prompt(messages))
        assert turn.rendered.startswith("<|im_start|>user\nBe brief.")
        assert "\nOne\n\nTwo<|im_end|>\n<|im_start|>assistant\n" in turn.rendered


@pytest.mark.requirement("engine:template:complaint")
async def test_a_complaint_of_the_template_is_repeated(tiny: Make) -> None:
    async with running(tiny(template=STRICT)) as engine:
        with pytest.raises(InvalidRequestError) as caught:
            await engine.prepare(Prompt([ChatMessage("assistant", "I begin."), ChatMessage("user", "Why?")]))
        assert "Conversation roles must alternate" in caught.value.message
        assert "\n" not in caught.value.message
        assert (caught.value.code, caught.value.param) == ("template_error", "input")
        assert text_of(await collect(engine, ask("Fine", max_output_tokens=3))) != ""


@pytest.mark.requirement("engine:template:default")
async def test_a_model_without_a_template_gets_chatml(tiny: Make) -> None:
    async with running(tiny(template=None)) as engine:
        turn = await engine.prepare(Prompt([ChatMessage("system", "S"), ChatMessage("user", "U")]))
        assert turn.rendered == (
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"
        )


@pytest.mark.requirement("engine:template:bos")
async def test_the_beginning_of_text_is_never_doubled(tiny: Make) -> None:
    template = "{{ bos_token }}{% for message in messages %}{{ message.content }}{% endfor %}"
    async with running(tiny(template=template, add_bos=True)) as engine:
        turn = await engine.prepare(ask("Hello"))
        assert turn.tokens[0] == engine_bos(turn.tokens)
        assert list(turn.tokens).count(turn.tokens[0]) == 1


def engine_bos(tokens: Any) -> int:
    """`<|endoftext|>`, the first special token after the vocabulary of 640."""
    return 640 if 640 in tokens else -1


SHOW = "[{{ enable_thinking }}|{{ reasoning_effort }}|{{ preserve_thinking }}]"


@pytest.mark.requirement("engine:template:effort")
async def test_the_effort_reaches_the_template(tiny: Make) -> None:
    async with running(tiny(template=SHOW)) as engine:
        cases: list[tuple[str, dict[str, Any], str]] = [
            ("high", {}, "[True|high|True]"),
            (" NONE ", {}, "[False||True]"),
            ("none", {"enable_thinking": True}, "[True||True]"),
            ("low", {"reasoning_effort": "max"}, "[True|max|True]"),
        ]
        assert template_variables(SHOW, None, {}) == {"preserve_thinking": True}
        for effort, explicit, expected in cases:
            prompt = ask("x", reasoning_effort=effort, template_kwargs=explicit)
            assert (await engine.prepare(prompt)).rendered == expected


@pytest.mark.requirement("engine:template:effort")
@pytest.mark.parametrize("effort", ["none", " Off", "DISABLED", "false ", "0"])
def test_every_spelling_of_no_effort(effort: str) -> None:
    assert template_variables("reasoning_effort", effort, {}) == {"preserve_thinking": True, "enable_thinking": False}


@pytest.mark.requirement("engine:template:effort")
@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ reasoning_strength }}", "reasoning_strength"),
        ("{{ reasoning_strength or reasoning_effort }}", "reasoning_effort"),
        ("{{ messages }}", "reasoning_effort"),
    ],
)
def test_the_name_of_the_effort_is_the_one_that_the_template_reads(template: str, expected: str) -> None:
    assert template_variables(template, "high", {})[expected] == "high"


READS_REASONING = [
    "{{ message.reasoning }}",
    "{{ message['reasoning'] }}",
    "{{ message.get('reasoning') }}",
]


@pytest.mark.requirement("engine:template:reasoning")
@pytest.mark.parametrize("expression", ["{{ message.reasoning_content }}", *READS_REASONING])
async def test_past_reasoning_reaches_the_template(tiny: Make, expression: str) -> None:
    template = (
        "{% for message in messages %}{% if message.role == 'assistant' %}(" + expression + "){% endif %}"
        "{{ message.content }}{% endfor %}"
    )
    messages = [
        ChatMessage("user", "U"),
        ChatMessage("assistant", "A", reasoning="first line\nsecond line"),
        ChatMessage("user", "V"),
    ]
    async with running(tiny(template=template)) as engine:
        assert (await engine.prepare(Prompt(messages))).rendered == "U(first line\nsecond line)AV"


@pytest.mark.requirement("engine:template:preserve-thinking")
async def test_past_thinking_can_be_dropped(tiny: Make) -> None:
    template = (
        "{% for message in messages %}<{{ message.reasoning_content or '' }}>{{ message.content }}"
        "{% for call in message.tool_calls or [] %}{{ call.function.name }}{% endfor %}{% endfor %}"
    )
    messages = [
        ChatMessage("user", "U"),
        ChatMessage("assistant", "<think>inline</think>\nA", reasoning="old"),
        ChatMessage("user", "V"),
        ChatMessage("assistant", "", reasoning="new", tool_calls=[ToolCall("c", "f", "{}")]),
        ChatMessage("tool", "O", tool_call_id="c"),
    ]
    async with running(tiny(template=template)) as engine:
        kept = await engine.prepare(Prompt(messages))
        assert "<old><think>inline</think>\nA" in kept.rendered
        dropped = await engine.prepare(Prompt(messages, template_kwargs={"preserve_thinking": False}))
        assert "old" not in dropped.rendered
        assert "inline" not in dropped.rendered
        assert "<new>" in dropped.rendered


@pytest.mark.requirement("engine:template:preserve-thinking")
def test_thinking_is_dropped_in_linear_time() -> None:
    text = "<think>a</think> \nb</think> c<think>" + "<think>" * 50_000
    messages = [ChatMessage("user", "U"), ChatMessage("assistant", text), ChatMessage("user", "V")]
    began = time.process_time()
    dropped = drop_past_thinking(messages, "<think>", "</think>")
    assert time.process_time() - began < 2
    assert dropped[1].text() == text.removeprefix("<think>a</think> \n")


@pytest.mark.requirement("engine:generate")
async def test_the_default_model_answers(smollm2_path: Path) -> None:
    async with running(smollm2_path, settings=Settings(threads=1, context_length=2048)) as engine:
        assert engine.name == smollm2_path.stem
        opening = ChatMessage("user", "Count from one to ten in words, please, and say nothing else at all.")
        first = await collect(engine, Prompt([opening], sampling=GREEDY, max_output_tokens=12))
        assert text_of(first).strip()
        chained = [opening, ChatMessage("assistant", text_of(first)), ChatMessage("user", "Go on.")]
        second = stop_of(await collect(engine, Prompt(chained, sampling=GREEDY, max_output_tokens=4))).usage
        assert second.cached_tokens > 30
