"""An `mcp` entry of a request's `tools`: which server, which of its tools, and which calls need approval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.errors import InvalidRequestError
from antiphon.protocol.json import field_error

__all__ = ["Entry", "ToolFilter", "read_entry"]

MOST_HEADERS: Final = 64
MOST_HEADER_CHARACTERS: Final = 16_384
MOST_LABEL: Final = 64
_OURS: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "last-event-id",
        "mcp-protocol-version",
        "mcp-session-id",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that a request may not set: those of the protocol and of the connection."""

_TOKEN: Final = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")


class ToolFilter(Struct, frozen=True):
    """Which tools: all that have one of these names, where names are given, and are read only or not, where that is."""

    tool_names: tuple[str, ...] | None = None
    read_only: bool | None = None

    def holds(self, name: str, *, read_only: bool) -> bool:
        """Whether a tool is one of them."""
        named = self.tool_names is None or name in self.tool_names
        return named and (self.read_only is None or self.read_only == read_only)


class _Approval(Struct, frozen=True):
    always: ToolFilter | None = None
    never: ToolFilter | None = None


class _Entry(Struct):
    server_label: str
    server_url: str | None = None
    connector_id: str | None = None
    tunnel_id: str | None = None
    authorization: str | None = None
    headers: dict[str, str] | None = None
    allowed_tools: tuple[str, ...] | ToolFilter | None = None
    require_approval: str | _Approval | None = None
    defer_loading: bool | None = None
    server_description: str | None = None


class Entry(Struct, frozen=True):
    """An entry that was read. `headers` are those that the request gives its server, by lower-case name.

    `always` says that every call needs approval, or that none does; None where the request does not say. `asked` and
    `trusted` are the tools whose calls do and do not, whatever `always` says.
    """

    label: str
    url: str | None
    connector: str | None
    tunnel: bool
    headers: Mapping[str, str]
    allowed: ToolFilter
    always: bool | None
    asked: ToolFilter | None
    trusted: ToolFilter | None

    def __repr__(self) -> str:
        return f"Entry({self.label!r})"

    def needs_approval(self, name: str, *, read_only: bool, default: bool) -> bool:
        """Whether a call of a tool does."""
        if self.asked is not None and self.asked.holds(name, read_only=read_only):
            return True
        if self.trusted is not None and self.trusted.holds(name, read_only=read_only):
            return False
        return default if self.always is None else self.always


def read_entry(tool: Mapping[str, Any], path: str) -> Entry:
    """An entry of `tools`; `path` is its place, for messages.

    Raises:
        InvalidRequestError: a field is missing, of a wrong type, or no header that can be sent.
    """
    try:
        given = msgspec.convert(tool, _Entry)
    except msgspec.ValidationError as error:
        raise field_error(error, path) from None
    if not 1 <= len(given.server_label) <= MOST_LABEL:
        raise _invalid(f"{path}.server_label", f"a label of 1 to {MOST_LABEL} characters is expected")
    approval = given.require_approval
    if isinstance(approval, str) and approval not in ("always", "never"):
        raise _invalid(f"{path}.require_approval", "'always', 'never' or an object is expected")
    rules = approval if isinstance(approval, _Approval) else _Approval()
    allowed = given.allowed_tools
    return Entry(
        label=given.server_label,
        url=given.server_url or None,
        connector=given.connector_id or None,
        tunnel=bool(given.tunnel_id),
        headers=_headers(given, path),
        allowed=ToolFilter(tool_names=allowed) if isinstance(allowed, tuple) else allowed or ToolFilter(),
        always=None if approval is None else approval != "never",
        asked=rules.always,
        trusted=rules.never,
    )


def _headers(given: _Entry, path: str) -> dict[str, str]:
    headers = {name.lower(): value for name, value in (given.headers or {}).items()}
    if given.authorization:
        scheme = given.authorization.partition(" ")[0].lower()
        plain = scheme not in ("bearer", "basic")
        headers["authorization"] = f"Bearer {given.authorization}" if plain else given.authorization
    size = sum(len(name) + len(value) for name, value in headers.items())
    if len(headers) > MOST_HEADERS or size > MOST_HEADER_CHARACTERS:
        raise _invalid(f"{path}.headers", f"at most {MOST_HEADERS} headers, of {MOST_HEADER_CHARACTERS} characters")
    for name, value in headers.items():
        if not name or not _TOKEN.issuperset(name) or name in _OURS:
            raise _invalid(f"{path}.headers", "a header has no name, or one that may not be set")
        if not value.isascii() or any(letter < " " or letter == "\x7f" for letter in value):
            raise _invalid(f"{path}.headers", "a header has a value that cannot be sent")
    return headers


def _invalid(path: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"Invalid '{path}': {what}.", param=path, code="invalid_value")
