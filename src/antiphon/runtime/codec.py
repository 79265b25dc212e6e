"""Seals what clients keep for us: encrypted reasoning and compacted contexts (`encrypted_content`).

A blob is opaque to its client and opens only for the tenant and the kind that it was made for, on every replica that
shares the store: the keys lie there, and the blob names its own (architecture, Secrets). A blob that is not ours, was
damaged or belongs to another tenant is the same as none.

A blob is base64url of: three letters and a version byte, the id of the key (8 bytes), the nonce (12 bytes) and the
sealed payload, which was compressed before.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from antiphon.protocol.json import encode
from antiphon.runtime.affinity import ROUTING_KEY_ID
from antiphon.store.base import CodecKey, Scope, Store

__all__ = ["MAX_BLOB", "MAX_PAYLOAD", "Codec"]

MAX_BLOB = 20_971_520
"""Characters of a blob; longer ones are foreign (responses-api 3)."""

MAX_PAYLOAD = 12 * 1024 * 1024
"""Bytes of a payload; its blob is shorter than `MAX_BLOB` even where nothing can be compressed."""

RELOAD_SECONDS = 1.0
"""Keys are asked for again at most so often: a blob of another replica's new key waits that long, no longer."""

MAX_UNKNOWN = 1_024

_HEAD = b"ant\x01"
_KEY_ID = 8
_NONCE = 12
_TAG = 16
_PREFIX = len(_HEAD) + _KEY_ID + _NONCE


class Codec:
    """Seals and opens blobs with the keys of a store, or, where there is none, with one of this process.

    `clock` gives seconds and never goes back.
    """

    def __init__(self, store: Store | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._ciphers: dict[str, AESGCM] = {}
        self._newest = ""
        self._loading = asyncio.Lock()
        self._begun = 0
        self._began_at = float("-inf")
        self._unknown: OrderedDict[str, None] = OrderedDict()

    async def load(self) -> None:
        """Take the keys from the store, which gets its first one here; to be called before anything is sealed.

        Raises:
            UnavailableError: the store cannot be asked.
        """
        async with self._loading:
            if self._store is None:
                self._take([] if self._ciphers else [_new_key()])
                return
            await self._read(self._store)
            if not self._ciphers:
                await self._store.add_codec_key(_new_key())
                # Another replica may have been first: all of them then know both.
                await self._read(self._store)

    def seal(self, scope: Scope, kind: str, payload: bytes) -> str:
        """A blob that opens to the payload, in this tenant and as this kind.

        Raises:
            LookupError: the keys have not been loaded.
            ValueError: the payload is larger than `MAX_PAYLOAD`.
        """
        if not self._newest:
            raise LookupError("the keys of the codec have not been loaded")
        if len(payload) > MAX_PAYLOAD:
            raise ValueError(f"a payload of {len(payload)} bytes is too large to be sealed")
        nonce = secrets.token_bytes(_NONCE)
        head = _HEAD + bytes.fromhex(self._newest)
        sealed = self._ciphers[self._newest].encrypt(nonce, zlib.compress(payload), _bound_to(head, scope, kind))
        return base64.urlsafe_b64encode(head + nonce + sealed).decode().rstrip("=")

    async def open(self, scope: Scope, kind: str, blob: str) -> bytes | None:
        """The payload of a blob; None where it is foreign, damaged, of another tenant or of another kind.

        Raises:
            UnavailableError: its key is not known here, and the store cannot be asked for it.
        """
        raw = _decode(blob)
        if raw is None:
            return None
        identity = _key_id(raw)
        if identity not in self._ciphers and identity not in self._unknown:
            await self._look_for(identity)
        return self._open(scope, kind, raw)

    def open_known(self, scope: Scope, kind: str, blob: str) -> bytes | None:
        """The same with the keys that are at hand; for blobs of this process."""
        raw = _decode(blob)
        return None if raw is None else self._open(scope, kind, raw)

    def _open(self, scope: Scope, kind: str, raw: bytes) -> bytes | None:
        cipher = self._ciphers.get(_key_id(raw))
        if cipher is None:
            return None
        head, nonce = raw[: len(_HEAD) + _KEY_ID], raw[len(_HEAD) + _KEY_ID : _PREFIX]
        try:
            packed = cipher.decrypt(nonce, raw[_PREFIX:], _bound_to(head, scope, kind))
        except InvalidTag:
            return None
        inflater = zlib.decompressobj()
        payload = inflater.decompress(packed, MAX_PAYLOAD)
        return payload if inflater.eof else None

    async def _look_for(self, identity: str) -> None:
        """Read the keys again, since a blob names one that is not known; others that wait see what was read."""
        if self._store is None:
            return
        begun = self._begun
        async with self._loading:
            if self._begun == begun:
                await asyncio.sleep(max(0.0, self._began_at + RELOAD_SECONDS - self._clock()))
                await self._read(self._store)
            if identity not in self._ciphers:
                # A key is in the store before it seals anything, so this one never will be there.
                self._unknown[identity] = None
                while len(self._unknown) > MAX_UNKNOWN:
                    self._unknown.popitem(last=False)

    async def _read(self, store: Store) -> None:
        self._begun += 1
        self._began_at = self._clock()
        self._take(await store.codec_keys())

    def _take(self, keys: list[CodecKey]) -> None:
        keys = [key for key in keys if key.id != ROUTING_KEY_ID]
        for key in keys:
            if key.id not in self._ciphers:
                self._ciphers[key.id] = AESGCM(key.secret)
        if keys:
            self._newest = keys[-1].id


def _new_key() -> CodecKey:
    return CodecKey(secrets.token_hex(_KEY_ID), AESGCM.generate_key(256), int(time.time()))


def _decode(blob: str) -> bytes | None:
    if len(blob) > MAX_BLOB or not blob.isascii():
        return None
    try:
        raw = base64.b64decode(blob + "=" * (-len(blob) % 4), b"-_", validate=True)
    except binascii.Error:
        return None
    return raw if raw.startswith(_HEAD) and len(raw) >= _PREFIX + _TAG else None


def _key_id(raw: bytes) -> str:
    return raw[len(_HEAD) : len(_HEAD) + _KEY_ID].hex()


def _bound_to(head: bytes, scope: Scope, kind: str) -> bytes:
    return head + encode([scope.tenant, kind])
