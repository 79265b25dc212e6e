"""The clients that want a release of the `openai` package before its third: `python older.py URL STORE MCP`."""

from __future__ import annotations

import warnings
from typing import Any

import openai
from adding import adding
from cases import MODEL, Case, Place, Taken, kinds, names, run
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai import OpenAIResponses
from semantic_kernel.agents import OpenAIResponsesAgent

warnings.filterwarnings("ignore", message="Pydantic serializer warnings")

KNOWN = "gpt-4o-mini"
"""A name that LlamaIndex knows; the server has it as another name of the scripted model."""


def llama_index(place: Place, case: Case, stream: bool) -> Taken:
    """LlamaIndex; it takes its answers in pieces where it is streamed."""
    chat = OpenAIResponses(
        model=KNOWN,
        api_base=place.url,
        api_key="none",
        max_retries=0,
        built_in_tools=[case.tool],
        include=list(case.include) or None,
    )
    asked = [ChatMessage(role="user", content=case.asked)]
    if not stream:
        answer = chat.chat(asked)
        text = answer.message.content or ""
    else:
        pieces = list(chat.stream_chat(asked))
        answer = pieces[-1]
        text = "".join(piece.delta or "" for piece in pieces)
    made = kinds(answer.additional_kwargs.get("built_in_tool_calls"))
    # Streamed, it keeps the events of calls, of types that name them.
    items = [made_.removeprefix("response.").split(".")[0] for made_ in made] if made else None
    return Taken(text, items, citations=names(answer.additional_kwargs.get("annotations")))


async def semantic_kernel(place: Place, case: Case, stream: bool) -> Taken:
    """Semantic Kernel, as an agent; tools of types that it does not know it refuses itself."""
    http = adding(case.tool) if case.beside else None
    async with openai.AsyncOpenAI(base_url=place.url, api_key="none", max_retries=0, http_client=http) as client:
        tools: Any = [] if case.beside else [case.tool]
        agent = OpenAIResponsesAgent(ai_model_id=MODEL, client=client, name="a", tools=tools)
        if not stream:
            answer = await agent.get_response(case.asked)
            return Taken(str(answer.content))
        pieces = [str(piece.content) async for piece in agent.invoke_stream(case.asked)]
        return Taken("".join(pieces))


if __name__ == "__main__":
    run(
        {
            "LlamaIndex": ("llama-index-llms-openai", llama_index),
            "Semantic Kernel": ("semantic-kernel", semantic_kernel),
        }
    )
