"""The tokens of a prompt as its upstream counts them, where that can be asked for them without generating anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from antiphon.client.loose import as_dict, as_int, as_list, loads
from antiphon.engines.upstream.client import UpstreamClient, bounded
from antiphon.engines.upstream.generation import Upstream
from antiphon.engines.upstream.request import request_body
from antiphon.engines.upstream.wires import WireError
from antiphon.errors import EngineError
from antiphon.prompt.prompt import Prompt

__all__ = ["counted"]

_SECONDS: Final = 5.0
_MOST_ANSWER: Final = 64 * 1024 * 1024
"""Bytes of an answer: some tell all the tokens, or the whole text that they made of a conversation."""

_TEMPLATED: Final = ("messages", "tools", "chat_template_kwargs")
"""What of a chat completion its template is given."""


async def counted(upstream: Upstream, prompt: Prompt, as_response: Callable[[Prompt], Mapping[str, Any]]) -> int | None:
    """The number, or None where the upstream does not say it; `as_response` is the prompt as it asks `/responses`."""
    profile, client = upstream.profile, upstream.client
    found: int | None = None
    try:
        async with asyncio.timeout(_SECONDS):
            if profile.counts == "responses":
                said = await _said(client, "/responses/input_tokens", as_response(prompt))
                found = as_int(said.get("input_tokens"))
            elif profile.counts == "messages":
                asked = {"model": upstream.model, **_templated(upstream, prompt), "add_generation_prompt": True}
                found = as_int((await _said(client, "/tokenize", asked, root=True)).get("count"))
            elif profile.counts == "rendered" and not prompt.media:
                shown = await _said(client, "/apply-template", _templated(upstream, prompt), root=True)
                text = {"content": shown["prompt"], "add_special": True, "parse_special": True}
                found = len(as_list((await _said(client, "/tokenize", text, root=True))["tokens"]))
    except (WireError, EngineError, TimeoutError, LookupError, ValueError):
        # It is asked for a number that can be estimated.
        return None
    return found if found is not None and found > 0 else None


def _templated(upstream: Upstream, prompt: Prompt) -> dict[str, Any]:
    body = request_body(prompt, upstream.profile, upstream.model)
    return {name: body[name] for name in _TEMPLATED if name in body}


async def _said(client: UpstreamClient, path: str, body: Mapping[str, Any], *, root: bool = False) -> dict[str, Any]:
    """The object that it answers.

    Raises:
        WireError: there is no answer.
        EngineError: it is too large.
        ValueError: it is none.
    """
    answer = await client.ask(path, body, root=root)
    try:
        data = await bounded(answer, _MOST_ANSWER)
    finally:
        answer.leave()
    if answer.status != 200:
        raise ValueError(answer.status)
    return as_dict(loads(data))
