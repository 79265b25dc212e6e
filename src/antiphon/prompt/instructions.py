"""What a model is told beside the conversation: that it must call, and the form that its answer is to have. Pure.

It stands in the rendered prompt only; the request is stored and echoed as it came (local-model 1.2).
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.prompt.dialects.base import callable_tools
from antiphon.prompt.prompt import ChatMessage, Prompt
from antiphon.protocol.json import encode
from antiphon.protocol.request import TextFormat

__all__ = ["choice_instruction", "format_instruction", "instructed"]

_GAP = "\n\n"


def instructed(prompt: Prompt) -> Prompt:
    """The prompt with its instructions among the messages.

    That a call is forced is added to the system text, else to the last message of a user; the form of an answer is
    system text in any case.
    """
    texts = [text for text in (choice_instruction(prompt), format_instruction(prompt)) if text]
    if not texts:
        return prompt
    messages = list(prompt.messages)
    system = next((place for place, message in enumerate(messages) if message.role == "system"), None)
    if system is None and not format_instruction(prompt):
        system = max((place for place, message in enumerate(messages) if message.role == "user"), default=None)
    if system is None:
        messages.insert(0, ChatMessage("system", _GAP.join(texts)))
    else:
        messages[system] = _with_text(messages[system], _GAP.join(texts))
    return msgspec.structs.replace(prompt, messages=messages)


def choice_instruction(prompt: Prompt) -> str:
    """That a call is forced, and of what; "" where none is."""
    if prompt.choice.mode != "required":
        return ""
    names = list(callable_tools(prompt))
    if len(names) == 1:
        return f"You must call the '{names[0]}' function. Do not answer in text."
    which = "the available functions"
    if len(names) < len(prompt.tools):
        which = "these functions: " + ", ".join(f"'{name}'" for name in names)
    count = "one or more" if prompt.parallel_tool_calls else "exactly one"
    return f"You must call {count} of {which}. Do not answer in text."


def format_instruction(prompt: Prompt) -> str:
    """The form that the answer is to have; "" where it is text, or where a call is forced instead."""
    form = prompt.format
    if form is None or form.type == "text" or prompt.choice.mode == "required":
        return ""
    lead = "If you call no function, answer" if callable_tools(prompt) else "Answer"
    if form.type != "json_schema" or form.schema is None:
        return f"{lead} with one JSON object and nothing else."
    return f"{lead} with JSON of this schema and nothing else{_about(form)}:\n{encode(form.schema).decode()}"


def _about(form: TextFormat) -> str:
    return f" ({form.description})" if form.description else ""


def _with_text(message: ChatMessage, text: str) -> ChatMessage:
    content: Any
    if isinstance(message.content, str):
        content = f"{message.content}{_GAP}{text}" if message.content else text
    else:
        content = [*message.content, {"type": "text", "text": text}]
    return msgspec.structs.replace(message, content=content)
