"""Requirements of MCP servers and of web search: what is asked of them, what of it is kept, and what they cannot do."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["MCP"]

R = Requirement

MCP: tuple[Requirement, ...] = (
    R(
        "mcp:secrets:echo",
        "hosted-tools A4",
        "A response echoes an MCP entry without `authorization`, `headers` and what follows the `?` of its URL.",
    ),
    R(
        "mcp:secrets:stored",
        "architecture, Secrets",
        "The credentials of a background response lie sealed beside its plan, and go with it at its end.",
    ),
    R("mcp:secrets:items", "hosted-tools A4", "An item that adds an MCP entry with credentials is a 400."),
)
