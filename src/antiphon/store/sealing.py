"""How bodies are sealed: a master key wraps a data key for each tenant, and that seals the tenant's rows.

Issue 3, Encryption at rest. A row is sealed with AES-256-GCM under a key of its own, which is the HMAC-SHA256 of what
the row is under its tenant's data key. So no key seals more than a few bodies, however many rows there are, and the
random nonces are far from their limit. What the row is (its kind, its tenant and its id) is authenticated too: a body
that was changed, or moved to another row, does not open.
"""

from __future__ import annotations

import hmac
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from antiphon.errors import ConfigurationError
from antiphon.settings import Settings

__all__ = ["DataKey", "MasterKey", "UnsealableError", "read_master_key"]

KEY_BYTES = 32
_NONCE_BYTES = 12
_VERSION = b"\x01"
_NAME_BYTES = 2
_HOW = "32 random bytes as 64 hexadecimal digits, such as 'openssl rand -hex 32' makes"


class UnsealableError(Exception):
    """A body or a key does not open: it was changed or moved, or was sealed under another key."""


class DataKey:
    """The key of one tenant's rows."""

    def __init__(self, tenant: str, key: bytes) -> None:
        self._tenant = tenant.encode()
        self._key = key

    def seal(self, kind: str, identity: str, body: bytes) -> bytes:
        """A body sealed for one row; an empty one stays empty, so that what is absent can be seen."""
        if not body:
            return b""
        return self._seal(kind, identity.encode(), body)

    def open(self, kind: str, identity: str, sealed: bytes) -> bytes:
        """The body that was sealed for that row.

        Raises:
            UnsealableError: it does not open.
        """
        return self._open(kind, identity.encode(), sealed) if sealed else b""

    def seal_named(self, kind: str, identity: str, body: bytes) -> bytes:
        """The same, with the id inside: for rows that are also read without asking for their id."""
        name = identity.encode()
        return len(name).to_bytes(_NAME_BYTES, "big") + name + self._seal(kind, name, body)

    def open_named(self, kind: str, sealed: bytes, identity: str | None = None) -> bytes:
        """The body of such a row; with `identity`, of that row and no other.

        Raises:
            UnsealableError: it does not open, or is another row's.
        """
        end = _NAME_BYTES + int.from_bytes(sealed[:_NAME_BYTES], "big")
        name = sealed[_NAME_BYTES:end]
        if identity is not None and name != identity.encode():
            raise UnsealableError
        return self._open(kind, name, sealed[end:])

    def tag(self, kind: str, text: str) -> str:
        """What stands for a text that rows are found by: the same for the same text of this tenant, and no more."""
        about = self._about(kind, text.encode("utf-8", "surrogatepass"))
        return hmac.digest(self._key, b"tag of " + about, "sha256").hex()

    def _seal(self, kind: str, name: bytes, body: bytes) -> bytes:
        about = self._about(kind, name)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _VERSION + nonce + AESGCM(self._row_key(about)).encrypt(nonce, body, about)

    def _open(self, kind: str, name: bytes, sealed: bytes) -> bytes:
        begin = len(_VERSION)
        nonce = sealed[begin : begin + _NONCE_BYTES]
        if sealed[:begin] != _VERSION or len(nonce) != _NONCE_BYTES:
            raise UnsealableError
        about = self._about(kind, name)
        try:
            return AESGCM(self._row_key(about)).decrypt(nonce, sealed[begin + _NONCE_BYTES :], about)
        except InvalidTag:
            raise UnsealableError from None

    def _about(self, kind: str, name: bytes) -> bytes:
        # With its length before each part, so that no two rows are the same bytes.
        parts = (kind.encode(), self._tenant, name)
        return b"".join(len(part).to_bytes(4, "big") + part for part in parts)

    def _row_key(self, about: bytes) -> bytes:
        return hmac.digest(self._key, about, "sha256")


class MasterKey:
    """The key that the operator keeps; it wraps the data keys and seals nothing else."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a master key has {KEY_BYTES} bytes")
        self._key = AESGCM(key)

    def new_data_key(self, tenant: str) -> bytes:
        """A new data key for a tenant, wrapped."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _VERSION + nonce + self._key.encrypt(nonce, secrets.token_bytes(KEY_BYTES), _wrapped_for(tenant))

    def unwrap(self, tenant: str, wrapped: bytes) -> DataKey:
        """The data key of a tenant.

        Raises:
            UnsealableError: it was wrapped by another master key, or for another tenant.
        """
        begin = len(_VERSION)
        nonce = wrapped[begin : begin + _NONCE_BYTES]
        if wrapped[:begin] != _VERSION or len(nonce) != _NONCE_BYTES:
            raise UnsealableError
        try:
            key = self._key.decrypt(nonce, wrapped[begin + _NONCE_BYTES :], _wrapped_for(tenant))
        except InvalidTag:
            raise UnsealableError from None
        return DataKey(tenant, key)


def _wrapped_for(tenant: str) -> bytes:
    return b"antiphon data key of " + tenant.encode()


def read_master_key(settings: Settings) -> MasterKey | None:
    """The master key that the settings give; None where they give none.

    Raises:
        ConfigurationError: it is given twice, cannot be read, or is not 64 hexadecimal digits.
    """
    if settings.encryption_key is not None and settings.encryption_key_file is not None:
        raise ConfigurationError("The encryption key is given twice: leave out --encryption-key or its file.")
    if settings.encryption_key_file is not None:
        path = Path(settings.encryption_key_file).expanduser()
        try:
            text = path.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"The encryption key {path} cannot be read: {error.strerror}.") from None
        return _parse(text, f"The file {path} is not an encryption key")
    if settings.encryption_key is not None:
        return _parse(settings.encryption_key.encode("utf-8", "surrogateescape"), "The encryption key cannot be used")
    return None


def _parse(text: bytes, fault: str) -> MasterKey:
    text = text.strip()
    try:
        key = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        key = b""
    if len(text) != 2 * KEY_BYTES or len(key) != KEY_BYTES:
        raise ConfigurationError(f"{fault}: {_HOW}, is expected.")
    return MasterKey(key)
