"""Other clients in an environment of their own: `python newer.py URL STORE MCP`."""

from __future__ import annotations

import os
import warnings
from typing import Any

# Before the packages are imported, which look for their settings.
os.environ.update(OPENAI_API_KEY="none", LITELLM_LOCAL_MODEL_COST_MAP="True", HAYSTACK_TELEMETRY_ENABLED="False")

import litellm
from adding import adding
from cases import MODEL, Case, Place, Taken, of_response, run, value
from haystack.components.generators.chat import OpenAIResponsesChatGenerator
from haystack.utils import Secret
from inspect_ai.model import GenerateConfig, get_model

warnings.filterwarnings("ignore", message="Pydantic serializer warnings")


def haystack(place: Place, case: Case, stream: bool) -> Taken:
    """Haystack."""
    chat = OpenAIResponsesChatGenerator(
        api_key=Secret.from_token("none"),
        model=MODEL,
        api_base_url=place.url,
        max_retries=0,
        tools=[case.tool],
        generation_kwargs={"include": list(case.include)} if case.include else None,
    )
    seen: list[Any] = []
    (message,) = chat.run(case.asked, streaming_callback=seen.append if stream else None)["replies"]
    assert bool(seen) == stream, seen
    return Taken(message.text or "")


def litellm_responses(place: Place, case: Case, stream: bool) -> Taken:
    """LiteLLM's own responses."""
    asked: Any = {
        "model": f"openai/{MODEL}",
        "input": case.asked,
        "tools": [case.tool],
        "include": list(case.include) or None,
        "api_base": place.url,
        "api_key": "none",
    }
    if not stream:
        return of_response(litellm.responses(**asked))
    last: Any = list(litellm.responses(**asked, stream=True))[-1]
    return of_response(last.response)


def litellm_bridge(place: Place, case: Case, stream: bool) -> Taken:
    """LiteLLM's chat, which it brings to the Responses API."""
    asked: Any = {
        "model": f"openai/responses/{MODEL}",
        "messages": [{"role": "user", "content": case.asked}],
        "tools": [case.tool],
        "api_base": place.url,
        "api_key": "none",
        "stream": stream,
    }
    answer: Any = litellm.completion(**asked)
    if stream:
        return Taken("".join(piece.choices[0].delta.content or "" for piece in answer if piece.choices))
    message = answer.choices[0].message
    return Taken(message.content or "")


async def inspect_ai(place: Place, case: Case, stream: bool) -> Taken:
    """inspect_ai, asked whole alone; it sends tools of its own only."""
    config = GenerateConfig(max_retries=0)
    fields: Any = {"base_url": place.url, "api_key": "none", "http_client": adding(case.tool)}
    model = get_model(f"openai/{MODEL}", config=config, memoize=False, responses_api=True, **fields)
    async with model:
        answer = await model.generate(case.asked)
    content: Any = answer.message.content
    blocks = [] if isinstance(content, str) else content
    items = {"mcp_call": "mcp_call", "code_execution": "code_interpreter_call"}
    used = [str(value(block, "tool_type")) for block in blocks if value(block, "type") == "tool_use"]
    return Taken(answer.completion, [items.get(each, each) for each in used])


if __name__ == "__main__":
    run(
        {
            "Haystack": ("haystack-ai", haystack),
            "LiteLLM": ("litellm", litellm_responses),
            "LiteLLM, chat bridged": ("litellm", litellm_bridge),
            "inspect_ai": ("inspect-ai", inspect_ai, (False,)),
        }
    )
