"""Whether llama.cpp obeys a grammar, asked of every life of the child before a request is.

A build without llguidance ends at the first grammar of that form, and where a grammar cannot be read llama.cpp answers
without one and without a word (local-engine 2a). What cannot be enforced is then refused, never hoped for.
"""

from __future__ import annotations

from typing import Any, Final

from antiphon.engines.llamacpp.client import ChildDiedError, ChildError, Client

__all__ = ["Probe"]

_LITERAL: Final = "zq7"
"""Nothing begins like this by itself, and it is at most three tokens of any vocabulary that has all bytes."""

_ASKED: Final[dict[str, Any]] = {
    "prompt": "\n",
    "grammar": f'%llguidance {{}}\nstart: "{_LITERAL}"\n',
    # A token for each byte, and the one that ends the turn.
    "n_predict": len(_LITERAL) + 1,
    "temperature": 0.0,
    "stream": True,
    "cache_prompt": False,
}
_MOST_DEATHS: Final = 2
"""Lives in a row that die over the question; one may have died of something else."""


class Probe:
    """What is known of the grammars of one engine; a question that two lives have died of is not asked again."""

    def __init__(self) -> None:
        self.obeyed: bool | None = None
        """Whether grammars are obeyed; None before the first answer."""
        self._deaths = 0

    async def ask(self, client: Client) -> bool:
        """Whether the child behind the client obeys grammars.

        Raises:
            ChildDiedError: it died over the question.
            EngineUnavailableError: it cannot be reached, for a reason that is not its own.
            EngineError: it answered nonsense.
        """
        if self._deaths < _MOST_DEATHS:
            try:
                self.obeyed = await _obeys(client)
            except ChildDiedError:
                self._deaths += 1
                raise
            self._deaths = 0
        else:
            self.obeyed = False
        return self.obeyed


async def _obeys(client: Client) -> bool:
    content, ended = "", False
    stream = client.completion(_ASKED)
    try:
        async for chunks in stream:
            for chunk in chunks:
                if chunk.error is not None:
                    return False
                content += chunk.content
                ended = ended or chunk.stop
            # What has gone astray does not come back, and every token takes its time.
            if ended or not _LITERAL.startswith(content):
                # What ends a turn for llguidance need not end one for llama.cpp, which tells it as text then: gpt-oss.
                return content.startswith(_LITERAL)
    except ChildError:
        return False
    finally:
        await stream.aclose()
    raise ChildDiedError("The engine died over its first grammar.")
