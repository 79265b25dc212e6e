"""What goes wrong with an MCP server, as the item that it belongs to tells it (hosted-tools A1)."""

from __future__ import annotations

from typing import Any, Final

from antiphon.errors import APIError

__all__ = [
    "CLOSED",
    "INVALID",
    "LATE",
    "MALFORMED",
    "McpFaultError",
    "http_fault",
    "protocol_fault",
]

CLOSED: Final = -32000
"""The code of a connection that ended before its answer."""

LATE: Final = -32001
"""The code of an answer that did not come in time."""

INVALID: Final = -32602
"""The code of arguments that are none."""

MALFORMED: Final = -32700
"""The code of what is no JSON-RPC, or not of this protocol."""

MOST_WORDS: Final = 2_000
"""Characters of a server's own words about a fault."""


class McpFaultError(APIError):
    """A call or a list that failed; `error` is the wire's object for it."""

    status = 502
    default_code = "mcp_error"

    def __init__(self, error: dict[str, Any], message: str) -> None:
        super().__init__(message)
        self.error = error


def protocol_fault(code: int, message: str) -> McpFaultError:
    """A fault of the protocol or of the connection; `code` is one of JSON-RPC."""
    message = message[:MOST_WORDS]
    return McpFaultError({"type": "mcp_protocol_error", "code": code, "message": message}, message)


def http_fault(status: int, message: str) -> McpFaultError:
    """An HTTP answer that is an error."""
    message = message[:MOST_WORDS]
    return McpFaultError({"type": "http_error", "code": status, "message": message}, message)
