"""The scripted engine: deterministic, obeys directives in the last user text, and honours every choice and format.

It is a real engine with an exact answer, so that tests of clients and of the server need no luck. One delta is one
token. Directives are lines of the last message, when that is a user message; after the output of a tool the answer is
`FINAL: ` and that output, unless the user's text says what comes then. See `docs/guide/scripted.md` for the list.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import cast

import msgspec
from msgspec import Struct

from antiphon.engines.base import Capabilities, Engine, PreparedTurn, Token
from antiphon.errors import (
    APIError,
    AuthenticationError,
    ConflictError,
    ContextOverflowError,
    EngineError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitError,
    UnavailableError,
)
from antiphon.machine.deltas import (
    Delta,
    RawItemDelta,
    ReasoningDelta,
    RefusalDelta,
    Stop,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    ToolCallStart,
)
from antiphon.machine.reasoning import CLOSE_MARKER, OPEN_MARKER
from antiphon.prompt.compaction import is_summary_prompt
from antiphon.prompt.dialects.base import CUSTOM_INPUT
from antiphon.prompt.instance import smallest_instance
from antiphon.prompt.looping import without_reminder
from antiphon.prompt.names import flat_name
from antiphon.prompt.prompt import ChatMessage, Prompt, Sampling
from antiphon.prompt.thoughts import drop_past_thinking, is_thought_prompt, keeps_past_thinking, thought_of
from antiphon.protocol.completions import RawPrompt
from antiphon.protocol.json import encode, loads
from antiphon.protocol.parts import Logprob
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = ["RAW_ITEMS_SWITCH", "ScriptedEngine"]

RAW_ITEMS_SWITCH = "ANTIPHON_SCRIPTED_RAW_ITEMS"
GREETING = "Hello from scripted."
SUMMARY = "SUMMARY"
"""The answer to a summary prompt of the server's own; where thinking is summed up, its first words follow."""
SUMMARY_WORDS = 5
CHARACTERS_A_TOKEN = 4
ARGUMENT_PIECE = 4
MAX_COUNT = 100_000
MAX_PAUSE = 60_000
BURST = 64
RETRY_AFTER = 0.05
"""Seconds after which `!ERR429` says that a client may come back: short, since it will be answered so again."""

_ERRORS: dict[int, type[APIError]] = {
    400: InvalidRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    429: RateLimitError,
    500: InternalError,
}
_DIRECTIVE = re.compile(r"^!([A-Z]+)(\d*)(?: (.*))?$")
_WORD = re.compile(r"\S+\s*|\s+")
_TOKENS = (TextDelta, ReasoningDelta, RefusalDelta, ToolCallDelta)


class _Fault(Struct, frozen=True):
    """A place in the script where the engine fails; `silent` as a process that dies without a word."""

    silent: bool = False


class _Script(Struct):
    """What a turn generates, piece by piece, and the seconds between pieces."""

    pieces: list[Delta | _Fault]
    pause: float = 0.0
    cut: bool = False


class _ScriptedTurn(PreparedTurn, kw_only=True):
    """A turn and its script."""

    script: _Script


class ScriptedEngine(Engine):
    """Serves the model `scripted`; `context_length` is counted in its own tokens of four characters.

    `reasoning_budget` is how many tokens it thinks in a turn where the request says nothing of that, -1 for all.
    """

    name = "scripted"

    def __init__(self, context_length: int = 1_000_000, reasoning_budget: int = -1) -> None:
        self._reasoning_budget = reasoning_budget
        self._capabilities = Capabilities(
            context_length=context_length,
            media=frozenset({"image", "audio", "video", "file"}),
            forced_tools=True,
            formats=frozenset({"text", "json_object", "json_schema"}),
            logprobs=True,
            inline_media=False,
        )
        self._started = False

    @property
    def ready(self) -> bool:
        """True from start to close."""
        return self._started

    @property
    def capabilities(self) -> Capabilities:
        """Everything."""
        return self._capabilities

    async def start(self) -> None:
        """Nothing to load."""
        self._started = True

    async def close(self) -> None:
        """Nothing to free."""
        self._started = False

    async def prepare(self, prompt: Prompt) -> PreparedTurn:
        """Count the prompt, raise the HTTP error that a directive asks for, and refuse schemas that cannot be met."""
        if not keeps_past_thinking(prompt):
            kept = drop_past_thinking(prompt.messages, OPEN_MARKER, CLOSE_MARKER)
            prompt = msgspec.structs.replace(prompt, messages=kept)
        tokens = _count(prompt.messages)
        if tokens >= self._capabilities.context_length:
            raise ContextOverflowError(tokens, self._capabilities.context_length)
        directives = list(_directives(prompt.messages))
        for name, number, _ in directives:
            if name == "ERR":
                raise _http_error(int(number or 500))
        constrained = _constrained(prompt) or prompt.choice.mode == "required"
        script = _write_script(prompt, directives)
        budget = self._reasoning_budget if prompt.thinking_budget is None else prompt.thinking_budget
        if budget >= 0:
            script.pieces = _within(script.pieces, budget)
        if prompt.sampling.top_logprobs is not None:
            script.pieces = [_with_logprobs(piece) for piece in script.pieces]
        return _ScriptedTurn(prompt=prompt, input_tokens=tokens, constrained=constrained, script=script)

    async def prepare_text(self, prompt: RawPrompt, sampling: Sampling, max_tokens: int) -> PreparedTurn:
        """The same for bare text, whose directives are obeyed; here each character is a token."""
        text = prompt if isinstance(prompt, str) else _characters(prompt, "prompt")
        asked = Prompt(messages=[ChatMessage("user", text)], sampling=sampling, max_output_tokens=max_tokens)
        turn = cast("_ScriptedTurn", await self.prepare(asked))
        turn.input_tokens = max(1, len(text))
        if turn.input_tokens >= self._capabilities.context_length:
            raise ContextOverflowError(turn.input_tokens, self._capabilities.context_length)
        pieces = turn.script.pieces
        turn.script.pieces = [_as_text(piece) for piece in pieces if not isinstance(piece, ToolCallStart)]
        return turn

    async def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[Token]:
        """A token a character, by its code point; there are no special ones."""
        return [Token(ord(character), character.encode()) for character in text]

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """The characters of these code points."""
        return _characters(tokens, "tokens")

    async def generate(self, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        """The script of the prompt, cut at the token limit; in bursts where it has no pauses.

        What `turn.sampled` counts comes without pauses; a constrained turn starts anew, as under a grammar.
        """
        sampled = turn.sampled
        if turn.constrained:
            sampled.clear()
        known = sampled.generated
        script = cast("_ScriptedTurn", turn).script
        limit = turn.prompt.max_output_tokens
        room = self._capabilities.context_length - turn.input_tokens
        limit = room if limit is None else min(limit, room)
        count = thought = 0
        burst: list[Delta] = []
        reason = "length" if script.cut else "stop"
        for piece in script.pieces:
            if isinstance(piece, _Fault):
                if burst:
                    yield burst
                raise EngineError("The engine died." if piece.silent else "The scripted engine failed, as asked.")
            if isinstance(piece, _TOKENS):
                if count == limit:
                    reason = "length"
                    break
                count += 1
                thought += isinstance(piece, ReasoningDelta)
                if count > known:
                    sampled.tokens.append(count - 1)
                    sampled.text.append(piece.text)
                    sampled.generated, sampled.thinking = count, thought
            burst.append(piece)
            drawn = count >= known
            if (script.pause and drawn) or len(burst) >= BURST:
                yield burst
                burst = []
                await asyncio.sleep(script.pause if drawn else 0)
        burst.append(Stop(reason, TokenUsage(turn.input_tokens, count, reasoning_tokens=thought)))
        yield burst


def _within(pieces: Sequence[Delta | _Fault], budget: int) -> list[Delta | _Fault]:
    """The script without what it thinks beyond the budget; what comes after thinking stays."""
    kept: list[Delta | _Fault] = []
    for piece in pieces:
        if isinstance(piece, ReasoningDelta):
            budget -= 1
            if budget < 0:
                continue
        kept.append(piece)
    return kept


def _characters(tokens: Sequence[int], param: str) -> str:
    try:
        text = "".join(map(chr, tokens))
        text.encode()
    except (ValueError, OverflowError):
        raise InvalidRequestError(
            f"Invalid '{param}': one of the tokens is not in the model's vocabulary.", param=param, code="invalid_value"
        ) from None
    return text


def _as_text(piece: Delta | _Fault) -> Delta | _Fault:
    return TextDelta(piece.text) if isinstance(piece, ReasoningDelta | RefusalDelta | ToolCallDelta) else piece


def _count(messages: Sequence[ChatMessage]) -> int:
    """Tokens of a prompt: one a message, and one for each four characters begun."""
    total = len(messages)
    for message in messages:
        content = message.content
        length = len(message.reasoning) + (len(content) if isinstance(content, str) else len(encode(content)))
        if message.tool_calls:
            length += sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
        total += -(-length // CHARACTERS_A_TOKEN)
    return total


def _directives(messages: Sequence[ChatMessage]) -> Iterator[tuple[str, str, str]]:
    """Name, number and rest of each directive of the last message, if a user wrote it."""
    if not is_summary_prompt(messages) and not is_thought_prompt(messages):
        for line in _section(messages) or ():
            match = _DIRECTIVE.match(line.strip())
            if match:
                yield match.group(1), match.group(2), match.group(3) or ""


def _section(messages: Sequence[ChatMessage]) -> list[str] | None:
    """The lines that say what this turn does; None where nothing says so.

    Those before the first `!THEN` are for the turn after the user's text, the next ones for the turn after the outputs
    of that one's calls, and so on.
    """
    messages = without_reminder(messages)
    place = len(messages) - 1
    turns = 0
    while place >= 0 and (messages[place].role != "user" or not (place == len(messages) - 1 or messages[place].text())):
        turns += messages[place].role == "assistant"
        place -= 1
    if place < 0:
        return None
    sections: list[list[str]] = [[]]
    for line in messages[place].text().splitlines():
        if line.strip() == "!THEN":
            sections.append([])
        else:
            sections[-1].append(line)
    return sections[turns] if turns < len(sections) else None


def _http_error(status: int) -> APIError:
    if not 400 <= status <= 599:
        status = 500
    message = f"The scripted engine answers {status}, as asked."
    if status >= 500 and status != 500:
        return UnavailableError(message) if status == 503 else InternalError(message, http_status=status)
    kind = _ERRORS.get(status, InvalidRequestError)
    return kind(message, http_status=status, retry_after=RETRY_AFTER if status == 429 else None)


def _write_script(prompt: Prompt, directives: Sequence[tuple[str, str, str]]) -> _Script:
    if is_summary_prompt(prompt.messages):
        return _Script(_words(SUMMARY))
    if is_thought_prompt(prompt.messages):
        return _Script(_words(f"{SUMMARY}: {' '.join(thought_of(prompt.messages).split()[:SUMMARY_WORDS])}"))
    output = _last_output(prompt.messages)
    if output is not None and not directives:
        script = _Script(_words("FINAL: " + output))
        _force(script, prompt, answered=True)
        return script
    script = _Script([])
    answered = False
    for name, number, rest in directives:
        answered |= _obey(script, prompt, name, number, rest)
    _force(script, prompt, answered)
    return script


def _last_output(messages: Sequence[ChatMessage]) -> str | None:
    """The output of a tool, where that is the last item; its images come in a user message of their own (M17)."""
    messages = without_reminder(messages)
    last = messages[-1] if messages else None
    if last is not None and last.role == "user" and not last.text() and len(messages) > 1:
        last = messages[-2]
    return last.text() if last is not None and last.role == "tool" else None


def _obey(script: _Script, prompt: Prompt, name: str, number: str, rest: str) -> bool:
    """Write one directive; True where it is an answer and not a mode."""
    pieces = script.pieces
    if name == "TEXT":
        pieces += _words(rest)
    elif name == "CALL":
        called, _, arguments = rest.partition(" ")
        pieces += _call(prompt, called, arguments.strip() or "{}")
    elif name == "CUSTOM":
        called, _, text = rest.partition(" ")
        pieces += _custom_call(prompt, called, text)
    elif name == "REASON":
        pieces += [ReasoningDelta(word) for word in _split(rest or "Let me think.")]
        return False
    elif name == "REFUSE":
        pieces += [RefusalDelta(word) for word in _split(rest or "I cannot help with that.")]
    elif name == "COUNT" and (rest or number).isdigit():
        last = min(int((rest or number)[:9]), MAX_COUNT)
        pieces += [TextDelta(f"{n} " if n < last else str(n)) for n in range(1, last + 1)]
    elif name == "ECHO":
        pieces += _words(render_chatml(prompt.messages))
    elif name == "INCOMPLETE":
        pieces += _words(rest or ("" if pieces else "This is cut"))
        script.cut = True
    elif name == "FAIL":
        pieces += [*_words(rest or ("" if pieces else "This fails")), _Fault()]
    elif name == "STREAMERR":
        pieces.insert(0, _Fault())
    elif name == "CUT":
        pieces += [*_words(rest or ("" if pieces else "This breaks")), _Fault(silent=True)]
    elif name == "ITEM" and os.environ.get(RAW_ITEMS_SWITCH) == "1":
        pieces.append(RawItemDelta(loads(rest)))
    elif name == "SLOW" and (rest or number).isdigit():
        script.pause = min(int((rest or number)[:9]), MAX_PAUSE) / 1000
        return False
    else:
        return False
    return True


def _force(script: _Script, prompt: Prompt, answered: bool) -> None:
    """Honour the tool choice and the format over what the directives wrote."""
    choice = prompt.choice
    if answered and choice.mode == "auto" and not prompt.tools and not _constrained(prompt):
        return
    calls = [piece for piece in script.pieces if isinstance(piece, ToolCallStart)]
    faulty = any(isinstance(piece, _Fault) for piece in script.pieces)
    if choice.mode == "required":
        if not faulty and not (calls and all(call.name in choice.allowed for call in calls)):
            thinking: list[Delta | _Fault] = [p for p in script.pieces if isinstance(p, ReasoningDelta)]
            script.pieces = thinking + _smallest_call(prompt)
        return
    if calls and (choice.mode == "none" or (prompt.tools and not _permitted(calls, prompt))):
        script.pieces = _without_calls(script.pieces)
        answered = bool(script.pieces)
    if answered:
        if _constrained(prompt) and not calls and not faulty and not script.cut and not _refused(script):
            script.pieces = [p for p in script.pieces if isinstance(p, ReasoningDelta)] + _formatted(prompt)
        return
    script.pieces += _formatted(prompt) if _constrained(prompt) else _words(GREETING)


def _permitted(calls: list[ToolCallStart], prompt: Prompt) -> bool:
    declared = {tool.name for tool in prompt.tools}
    allowed = prompt.choice.allowed
    return all(call.namespace is None and (call.name in allowed or call.name not in declared) for call in calls)


def _refused(script: _Script) -> bool:
    return any(isinstance(piece, RefusalDelta) for piece in script.pieces)


def _without_calls(pieces: list[Delta | _Fault]) -> list[Delta | _Fault]:
    return [piece for piece in pieces if not isinstance(piece, ToolCallStart | ToolCallDelta)]


def _constrained(prompt: Prompt) -> bool:
    return prompt.format is not None and prompt.format.type != "text"


def _formatted(prompt: Prompt) -> list[Delta | _Fault]:
    schema = prompt.format.schema if prompt.format is not None and prompt.format.type == "json_schema" else {}
    return [TextDelta(piece) for piece in _chunks(encode(smallest_instance(schema)).decode())]


def _smallest_call(prompt: Prompt) -> list[Delta | _Fault]:
    tools = {tool.name: tool for tool in prompt.tools}
    tool = tools[prompt.choice.allowed[0]]
    if isinstance(tool, CustomTool):
        return [ToolCallStart(tool.name, custom=True), *_pieces("a")]
    return _call(prompt, tool.name, encode(smallest_instance(tool.parameters or {})).decode())


def _call(prompt: Prompt, name: str, arguments: str) -> list[Delta | _Fault]:
    name, namespace = _declared_name(prompt, name)
    custom = any(isinstance(tool, CustomTool) and tool.name == name for tool in prompt.tools)
    return [ToolCallStart(name, custom=custom, namespace=namespace), *_pieces(arguments)]


def _custom_call(prompt: Prompt, called: str, text: str) -> list[Delta | _Fault]:
    """A call of a custom tool; of one that is declared as a function of one text, as who asks from afar has it."""
    name, namespace = _declared_name(prompt, called)
    shown = next((tool for tool in prompt.tools if tool.name == name), None)
    if isinstance(shown, FunctionTool) and shown.parameters == CUSTOM_INPUT:
        return [ToolCallStart(name, namespace=namespace), *_pieces(encode({"input": text}).decode())]
    return [ToolCallStart(name, custom=True, namespace=namespace), *_pieces(text)]


def _declared_name(prompt: Prompt, name: str) -> tuple[str, str | None]:
    """A name as a model would call it: the flat one of a declared tool, or what was said and its namespace."""
    namespace, separator, bare = name.partition("::")
    if not separator:
        return name, None
    shown = {tool.name for tool in prompt.tools}
    for kind in ("function", "custom"):
        flat = prompt.toolbox.find(kind, bare, namespace)
        if flat in shown:
            return flat, None
    flat = flat_name(namespace, bare)
    return (flat, None) if flat in shown else (bare, namespace)


def _pieces(text: str) -> list[Delta | _Fault]:
    return [ToolCallDelta(piece) for piece in _chunks(text)]


def _chunks(text: str) -> list[str]:
    return [text[start : start + ARGUMENT_PIECE] for start in range(0, len(text), ARGUMENT_PIECE)]


def _split(text: str) -> list[str]:
    return _WORD.findall(text)


def _words(text: str) -> list[Delta | _Fault]:
    return [TextDelta(word) for word in _split(text)]


def _with_logprobs(piece: Delta | _Fault) -> Delta | _Fault:
    """Text as a certain token."""
    if not isinstance(piece, TextDelta):
        return piece
    return TextDelta(piece.text, [Logprob(piece.text, list(piece.text.encode()), 0.0, [])])


def render_chatml(messages: Sequence[ChatMessage]) -> str:
    """The prompt as ChatML, with calls, thinking and media spelled out, as `!ECHO` shows it."""
    blocks: list[str] = []
    for message in messages:
        body: list[str] = []
        if message.reasoning:
            body.append(f"<think>{message.reasoning}</think>")
        content = message.content
        if isinstance(content, str):
            body += [content] if content else []
        else:
            body += [part["text"] if part.get("type") == "text" else encode(part).decode() for part in content]
        body += [
            "<tool_call>" + encode({"name": call.name, "arguments": call.arguments}).decode() + "</tool_call>"
            for call in message.tool_calls
        ]
        blocks.append(f"<|im_start|>{message.role}\n" + "\n".join(body) + "<|im_end|>\n")
    return "".join(blocks) + "<|im_start|>assistant\n"
