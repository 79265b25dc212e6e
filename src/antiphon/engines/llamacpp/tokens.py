"""Tokenizes a prompt that continues an earlier one by what is new in it.

A special token always stands for itself, so text is tokenized alike on both sides of one. Where a prompt begins like a
cached one, the ids up to the last special token that both have in common are taken from the cache, and only what
follows is sent to the tokenizer. A prompt that is far longer than the context is known by its beginning, and only that
is tokenized.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import Struct

from antiphon.errors import ContextOverflowError

__all__ = ["TokenCache", "common_prefix"]

Tokenize = Callable[[str, bool], Awaitable[list[int]]]
"""Token ids of a text; the second argument asks for what the model wants in front of a prompt."""

_SHORTEST = 512
"""Below this many characters in common the whole text is as cheap."""

_MOST_CHARACTERS = 8 * 2**20
"""Characters of all cached prompts together."""

_SAMPLE = 8
"""Characters for each token of the context that are counted first where a prompt is more than twice as long.

Tokens of most texts are shorter, so that the sample alone is over; a prompt that fits hardly ever is that long.
"""

_CUT_TOKENS = 256
"""More tokens than the characters around the end of a sample can have too many for having been cut there."""


class _Cut(Struct, frozen=True):
    text_place: int
    token_place: int
    token: int


class TokenCache:
    """The last `size` prompts with their tokens, of `characters` together at most.

    `specials` maps the text of each special token to its id. Prompts that share fewer than `shortest` characters are
    tokenized whole. What does not fit into `context` tokens is not kept.
    """

    def __init__(
        self,
        specials: Mapping[str, int],
        *,
        context: int,
        size: int = 32,
        characters: int = _MOST_CHARACTERS,
        shortest: int = _SHORTEST,
    ) -> None:
        self._specials = dict(specials)
        self._context = context
        self._size = size
        self._most = characters
        self._shortest = shortest
        self._entries: OrderedDict[str, array[int]] = OrderedDict()
        self.characters = 0
        """Characters of the prompts that are kept."""
        self.hits = 0
        """Prompts of which only an end was tokenized."""

    def __len__(self) -> int:
        return len(self._entries)

    async def tokenize(self, text: str, tokenize: Tokenize) -> list[int]:
        """The tokens of a whole prompt, the same as `tokenize(text, True)` gives.

        Raises:
            ContextOverflowError: they are as many as the context or more.
        """
        known = self._entries.get(text)
        if known is not None:
            self._entries.move_to_end(text)
            return known.tolist()
        await self._refuse_plainly_longer(text, tokenize)
        tokens = await self._continued(text, tokenize)
        if tokens is None:
            tokens = await tokenize(text, True)
        if len(tokens) >= self._context:
            raise ContextOverflowError(len(tokens), self._context)
        self._keep(text, tokens)
        return tokens

    async def _refuse_plainly_longer(self, text: str, tokenize: Tokenize) -> None:
        size = _SAMPLE * self._context
        if len(text) <= 2 * size:
            return
        found = len(await tokenize(text[:size], True))
        if found > self._context + _CUT_TOKENS:
            raise ContextOverflowError(found * len(text) // size, self._context, estimated=True)

    def _keep(self, text: str, tokens: list[int]) -> None:
        if len(text) > self._most:
            return
        if text not in self._entries:
            self.characters += len(text)
        self._entries[text] = array("i", tokens)
        self._entries.move_to_end(text)
        while len(self._entries) > self._size or self.characters > self._most:
            oldest, _ = self._entries.popitem(last=False)
            self.characters -= len(oldest)

    async def _continued(self, text: str, tokenize: Tokenize) -> list[int] | None:
        best, shared = "", self._shortest - 1
        for candidate in self._entries:
            # Comparing the ends of what is already shared first spares most of the work.
            if candidate[:shared] == text[:shared] and (length := common_prefix(candidate, text)) > shared:
                best, shared = candidate, length
        if not best:
            return None
        tokens = self._entries[best]
        cut = self._cut(best, tokens, shared)
        if cut is None:
            return None
        rest = await tokenize(text[cut.text_place :], False)
        if rest[:1] != [cut.token]:
            return None
        self.hits += 1
        return [*tokens[: cut.token_place], *rest]

    def _cut(self, text: str, tokens: Sequence[int], shared: int) -> _Cut | None:
        """The last special token within the first `shared` characters, by its places in text and tokens."""
        best: _Cut | None = None
        for special, token in self._specials.items():
            place = text.rfind(special, 0, shared)
            if place < 0 or (best is not None and place <= best.text_place):
                continue
            # Where counts differ, the text holds the special's spelling inside another token; then nothing is known.
            if text.count(special) != tokens.count(token):
                continue
            nth = text.count(special, 0, place)
            token_place = -1
            for _ in range(nth + 1):
                token_place = tokens.index(token, token_place + 1)
            best = _Cut(place, token_place, token)
        return best


def common_prefix(first: str, second: str) -> int:
    """Length in characters of what both begin with; by halving, since comparing slices is fast."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
