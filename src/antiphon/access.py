"""Who may reach a server: the names that can only mean this machine, and the address that needs a key."""

from __future__ import annotations

import ipaddress

from antiphon.errors import ConfigurationError
from antiphon.settings import Settings

__all__ = ["MAX_NAME", "check_access", "is_loopback"]

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


def check_access(settings: Settings) -> None:
    """Refuse to let the network in without a key.

    Raises:
        ConfigurationError: the address is not a loopback address, and there is no key and no leave to go without.
    """
    if any(not key.strip() for key in settings.api_key):
        raise ConfigurationError("An API key is empty.")
    if not (is_loopback(settings.host) or settings.api_key or settings.allow_unauthenticated):
        raise ConfigurationError(
            f"Listening on '{settings.host}' lets others than this machine in: give a key with --api-key, "
            "or allow anyone with --allow-unauthenticated."
        )
