"""Models that run elsewhere, behind a chat-completions endpoint: vLLM, SGLang, llama-server, Ollama, OpenAI and others.

The engine is imported on first use, since most servers have no upstream.
"""

from __future__ import annotations

from antiphon.engines.upstream.config import chat_engine

__all__ = ["chat_engine"]
