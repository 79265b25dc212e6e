"""Past thinking in prompts: what is left of it, and the prompt for a summary of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from antiphon.prompt.compaction import shorten
from antiphon.prompt.prompt import ChatMessage, Prompt, Sampling

__all__ = ["drop_past_thinking", "is_thought_prompt", "keeps_past_thinking", "summary_prompt", "thought_of"]

INSTRUCTIONS = (
    "You sum up what an assistant thought before it answered. Say in {length}, in the language of the thoughts, what "
    "it considered and what it came to. Do not answer the question yourself, and add nothing of your own. Write the "
    "summary only."
)
_HEAD = INSTRUCTIONS.partition("{length}")[0]
_OPEN, _CLOSE = "The thoughts:\n\n", "\n\nEnd of the thoughts. Sum them up."
_BRIEF, _DETAILED = "one or two sentences", "one short paragraph for each step"
_DETAILED_FROM = 256
CHARACTERS_A_TOKEN = 2
"""Cautious: what is too long would not be summarized at all."""


def summary_prompt(thought: str, max_tokens: int, context_length: int) -> Prompt:
    """The prompt for a summary of at most so many tokens; thinking that is too long for the context is shortened."""
    most = max(1, (context_length - 2 * max_tokens) * CHARACTERS_A_TOKEN)
    length = _DETAILED if max_tokens >= _DETAILED_FROM else _BRIEF
    return Prompt(
        messages=[
            ChatMessage("system", INSTRUCTIONS.format(length=length)),
            ChatMessage("user", f"{_OPEN}{shorten(thought, most)}{_CLOSE}"),
        ],
        sampling=Sampling(temperature=0.0, repeat_penalty=1.1),
        max_output_tokens=max_tokens,
        reasoning_effort="none",
    )


def is_thought_prompt(messages: Sequence[ChatMessage]) -> bool:
    """Whether these are the messages of such a prompt."""
    first = messages[0].content if messages else ""
    return isinstance(first, str) and first.startswith(_HEAD)


def thought_of(messages: Sequence[ChatMessage]) -> str:
    """The thinking that such a prompt is about."""
    return messages[-1].text().removeprefix(_OPEN).removesuffix(_CLOSE)


def keeps_past_thinking(prompt: Prompt) -> bool:
    """Whether the thinking of earlier turns is told: unless the request, or else the settings, say otherwise (M15)."""
    return (
        prompt.template_kwargs.get("preserve_thinking", prompt.template_defaults.get("preserve_thinking")) is not False
    )


def drop_past_thinking(messages: Sequence[ChatMessage], open_marker: str, close_marker: str) -> list[ChatMessage]:
    """The messages without the thinking of turns before the last user message, inline blocks too (M15).

    What holds a tool's images is no message of a user in this sense.
    """
    last_user = max((place for place in range(len(messages)) if _asks(messages, place)), default=0)
    block = re.compile(rf"{re.escape(open_marker)}.*?{re.escape(close_marker)}\s*", re.DOTALL)
    result: list[ChatMessage] = []
    for place, message in enumerate(messages):
        if place < last_user and message.role == "assistant":
            content = message.content
            if isinstance(content, str):
                # Behind the last closing marker each opening one would be searched for its end in vain.
                end = content.rfind(close_marker) + len(close_marker) if close_marker in content else 0
                end += len(content[end:]) - len(content[end:].lstrip()) if end else 0
                content = block.sub("", content[:end]) + content[end:]
            message = msgspec.structs.replace(message, reasoning="", content=content)
        result.append(message)
    return result


def _asks(messages: Sequence[ChatMessage], place: int) -> bool:
    message = messages[place]
    return message.role == "user" and not (place and messages[place - 1].role == "tool" and not message.text())
