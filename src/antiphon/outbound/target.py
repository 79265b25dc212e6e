"""Reads the URL of an outbound request, once: what is checked is what is asked (faults B3 18 and 32).

URLs that two readers could take for two hosts are refused: user names, backslashes, white space, escapes and letters
beyond ASCII in the host, and numbers that are an address in another spelling.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import Final

from msgspec import Struct
from yarl import URL

from antiphon.errors import OutboundRefusedError

__all__ = ["Target", "check_letters", "parse_target"]

MAX_URL: Final = 8_192
MAX_HOST: Final = 253
MAX_LABEL: Final = 63
_PORTS: Final = {"http": 80, "https": 443}
_HEX: Final = frozenset("0123456789abcdef")
_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


class Target(Struct, frozen=True):
    """Where a request goes: the URL as it will be asked, and its host, lower case and without brackets.

    `literal` says that the host is an address and not a name.
    """

    url: URL
    host: str
    literal: bool

    def same_origin(self, other: Target) -> bool:
        """Whether scheme, host and port are those of another target."""
        return self.url.scheme == other.url.scheme and self.host == other.host and self.url.port == other.url.port


def parse_target(text: str) -> Target:
    """The target that a URL names.

    Raises:
        OutboundRefusedError: it is no http or https URL, or one that could be read in more than one way.
    """
    check_letters(text)
    scheme, found, rest = text.partition("://")
    scheme = scheme.lower()
    if not found or scheme not in _PORTS:
        raise OutboundRefusedError("A URL that begins with http:// or https:// is expected.")
    authority = _authority(rest)
    if "@" in authority:
        raise OutboundRefusedError("A URL with a user name or a password is not asked.")
    host, port = _split(authority)
    literal = _is_literal(host)
    try:
        url = URL(text)
        agreed = (url.scheme, _canonical(url.raw_host or ""), url.port) == (scheme, host, port or _PORTS[scheme])
    except ValueError:
        agreed = False
        url = URL()
    if not agreed or url.raw_user is not None or url.raw_password is not None:
        raise OutboundRefusedError("The URL is malformed.")
    return Target(url, host, literal)


def check_letters(text: str) -> None:
    """Refuse what no URL holds, relative ones included.

    Raises:
        OutboundRefusedError: it is too long, or holds white space, control characters or backslashes.
    """
    if len(text) > MAX_URL:
        raise OutboundRefusedError(f"A URL of at most {MAX_URL} characters is expected.")
    if any(letter <= " " or letter == "\x7f" or letter == "\\" for letter in text):
        raise OutboundRefusedError("A URL holds no white space, control characters or backslashes.")


def _authority(rest: str) -> str:
    end = min((index for index in map(rest.find, "/?#") if index >= 0), default=len(rest))
    return rest[:end]


def _split(authority: str) -> tuple[str, int | None]:
    if authority.startswith("["):
        name, bracket, tail = authority[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise _malformed_host()
        return _address_6(name), _port(tail[1:]) if tail else None
    name, colon, tail = authority.partition(":")
    return _name(name.lower()), _port(tail) if colon else None


def _address_6(name: str) -> str:
    try:
        address = IPv6Address(name)
    except ValueError:
        raise _malformed_host() from None
    if address.scope_id is not None:
        raise _malformed_host()
    return str(address)


def _name(name: str) -> str:
    labels = name.removesuffix(".").split(".")
    if len(name) > MAX_HOST or not all(
        label and len(label) <= MAX_LABEL and _NAME.issuperset(label) for label in labels
    ):
        raise _malformed_host()
    if _is_number(labels[-1]):
        # What ends in a number is an address to many readers, in decimal, octal or hexadecimal: one spelling passes.
        try:
            return str(IPv4Address(name))
        except ValueError:
            raise _malformed_host() from None
    return name


def _is_number(label: str) -> bool:
    return label.isdigit() or (label.startswith("0x") and _HEX.issuperset(label[2:]))


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 5 or not 0 < int(text) < 65_536:
        raise OutboundRefusedError("The port of the URL is malformed.")
    return int(text)


def _is_literal(host: str) -> bool:
    return ":" in host or host.rpartition(".")[2].isdigit()


def _canonical(host: str) -> str:
    return str(IPv6Address(host)) if ":" in host else host.lower()


def _malformed_host() -> OutboundRefusedError:
    return OutboundRefusedError("The host of the URL is malformed.")
