"""Who may reach a server: the keys that the settings name, and the addresses that need one."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from pathlib import Path

from antiphon.errors import ConfigurationError
from antiphon.settings import Settings

__all__ = ["MAX_NAME", "check_access", "configured_keys", "is_loopback"]

MAX_NAME = 255
"""The longest name that DNS allows; whatever is longer names no host."""


def is_loopback(name: str) -> bool:
    """Whether a host name or address can only mean this machine."""
    if name == "localhost":
        return True
    if len(name) > MAX_NAME:
        return False
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def configured_keys(settings: Settings) -> list[bytes]:
    """The keys of `--api-key` and of the file that `--api-key-file` names, as the bytes that clients send.

    Raises:
        ConfigurationError: a key is empty, or the file cannot be read or has none.
    """
    keys = [key.strip().encode("utf-8", "surrogateescape") for key in settings.api_key]
    if not all(keys):
        raise ConfigurationError("An API key is empty.")
    if settings.api_key_file is not None:
        keys += _keys_of_file(Path(settings.api_key_file).expanduser())
    return keys


def _keys_of_file(path: Path) -> list[bytes]:
    """One key a line; a `#` at its beginning or after a space begins a comment."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigurationError(f"The file of API keys {path} cannot be read: {error.strerror}.") from None
    keys = [key for line in lines if (key := line.replace(b"\t", b" ").partition(b" #")[0].strip()) and key[:1] != b"#"]
    if not keys:
        # An empty file must not mean that no key is needed.
        raise ConfigurationError(f"The file of API keys {path} holds no key: write one a line, or leave it out.")
    return keys


def check_access(settings: Settings, has_stored_keys: Callable[[], bool] = lambda: False) -> None:
    """Refuse to let the network in without a key.

    `has_stored_keys` says whether the store has API keys; it is only asked where that decides.

    Raises:
        ConfigurationError: the address is not a loopback address, and there is no key and no leave to go without; or
            the keys that the settings name cannot be used.
    """
    keys = configured_keys(settings)
    if is_loopback(settings.host) or keys or settings.allow_unauthenticated or has_stored_keys():
        return
    raise ConfigurationError(
        f"Listening on '{settings.host}' lets others than this machine in: give a key with --api-key, make one with "
        "'antiphon keys create', or allow anyone with --allow-unauthenticated."
    )
