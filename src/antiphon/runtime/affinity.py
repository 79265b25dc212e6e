"""Which history a turn is of, so that it goes to where its prefix is cached, and whose cache that is (upstreams.md, 6).

The key of a history, in this order: the caller's `prompt_cache_key`, the conversation, the first response of the chain,
and for histories that clients send anew each time what they begin with. Never all of the messages, which are others in
each turn. The tenant is a part of every key, and a key says nothing of what it was made from: it goes to upstreams.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from hashlib import sha256
from hmac import digest
from typing import Final

from antiphon.prompt.prompt import Affinity, ChatMessage, Prompt
from antiphon.protocol.completions import RawPrompt
from antiphon.protocol.json import encode
from antiphon.store.base import CodecKey, Scope, Store

__all__ = ["ROUTING_KEY_ID", "Affinities"]

ROUTING_KEY_ID: Final = "0" * 16
"""The id under which the secret of keys and salts lies among a store's keys; nothing is sealed with it."""

_KEY_LETTERS: Final = 32
_MOST_BEGINNING: Final = 65_536
"""Characters of a message that count for what a history begins with."""

_TEXT_BEGINNING: Final = 256
"""Characters or tokens of a bare text that say which one it is: later ones may be what was added to it."""

_MOST_SALTS: Final = 4_096


class Affinities:
    """Makes the keys and the salts of one server, which are those of every server on the same store."""

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._secret = secrets.token_bytes(32)
        self._salts: dict[str, str] = {}

    async def load(self) -> None:
        """Take the secret from the store, which gets one here where it has none.

        Raises:
            UnavailableError: the store cannot be asked.
        """
        store = self._store
        if store is None:
            return
        found = _routing_key(await store.codec_keys())
        if found is None:
            # Of several servers that start at the same time the first one's is kept.
            await store.add_codec_key(CodecKey(ROUTING_KEY_ID, self._secret, 0))
            found = _routing_key(await store.codec_keys())
        if found is None:
            raise LookupError("the store does not keep the secret of routing")
        self._secret = found.secret
        self._salts.clear()

    def of(
        self,
        scope: Scope,
        model: str,
        prompt: Prompt,
        *,
        cache_key: str | None = None,
        conversation: str | None = None,
        root: str | None = None,
        own: str | None = None,
    ) -> Affinity:
        """The affinity of a turn of that model.

        `root` is the first response of its chain, and `own` the turn's own response, which may become one.
        """
        salt = self.alone(scope).cache_salt
        if cache_key:
            return Affinity(self._key(scope, "cache", cache_key), salt)
        if conversation:
            return Affinity(self._key(scope, "conversation", conversation), salt)
        if root:
            return Affinity(self._key(scope, "chain", root), salt)
        beginning = self._key(scope, "beginning", _beginning(model, prompt))
        if own and all(message.role not in ("assistant", "tool") for message in prompt.messages):
            return Affinity(self._key(scope, "chain", own), salt, beginning)
        return Affinity(beginning, salt)

    def of_text(self, scope: Scope, model: str, prompt: RawPrompt, *, cache_key: str | None = None) -> Affinity:
        """The affinity of a bare text, which is known by its beginning."""
        begins = (
            prompt[:_TEXT_BEGINNING] if isinstance(prompt, str) else encode(list(prompt[:_TEXT_BEGINNING])).decode()
        )
        return self.of(scope, model, Prompt([ChatMessage("user", begins)]), cache_key=cache_key)

    def alone(self, scope: Scope) -> Affinity:
        """The affinity of a turn that belongs to no history: only whose it is."""
        salt = self._salts.get(scope.tenant)
        if salt is None:
            if len(self._salts) >= _MOST_SALTS:
                self._salts.clear()
            salt = self._salts[scope.tenant] = self._hash("salt", scope.tenant).hex()
        return Affinity("", salt)

    def _key(self, scope: Scope, kind: str, value: str) -> str:
        return self._hash(kind, scope.tenant, value).hex()[:_KEY_LETTERS]

    def _hash(self, *parts: str) -> bytes:
        return digest(self._secret, encode(parts), "sha256")


def _routing_key(keys: Iterable[CodecKey]) -> CodecKey | None:
    return next((key for key in keys if key.id == ROUTING_KEY_ID), None)


def _beginning(model: str, prompt: Prompt) -> str:
    """A digest of what a history begins with: the model, the tools, the instructions and the first user message."""
    hashed = sha256(encode([model, *_opening(prompt.messages)]))
    if prompt.tools:
        hashed.update(encode(list(prompt.tools)))
    return hashed.hexdigest()


def _opening(messages: Sequence[ChatMessage]) -> Iterable[str]:
    for message in messages:
        yield message.text()[:_MOST_BEGINNING]
        if message.role == "user":
            return
