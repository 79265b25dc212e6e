"""What an upstream with a Responses endpoint is asked for the tokens of a prompt. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.engines.responses.profiles import Profile
from antiphon.engines.responses.request import request_body
from antiphon.prompt.prompt import Prompt

__all__ = ["counted_body"]

_COUNTED: Final = frozenset(
    {
        "model",
        "input",
        "instructions",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "reasoning",
        "text",
        "chat_template_kwargs",
    }
)
"""The fields that an input is made from."""


def counted_body(prompt: Prompt, profile: Profile, model: str, *, custom: bool = True) -> dict[str, Any]:
    """The body; without `custom`, custom tools are functions, as they are in a chat."""
    if not custom:
        profile = msgspec.structs.replace(profile, custom=False)
    body = request_body(prompt, profile, model)
    return {name: value for name, value in body.items() if name in _COUNTED}
