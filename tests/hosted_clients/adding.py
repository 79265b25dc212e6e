"""An HTTP client that adds a tool to requests, for packages that have no way to say one of a type they do not know."""

from __future__ import annotations

import json
from typing import Any

import httpx


class Transport(httpx.AsyncHTTPTransport):
    """Sends each request with this tool alone."""

    def __init__(self, tool: dict[str, Any]) -> None:
        super().__init__()
        self._tool = tool

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send it."""
        body = {**json.loads(await request.aread()), "tools": [self._tool]}
        headers = {name: text for name, text in request.headers.items() if name.lower() != "content-length"}
        changed = httpx.Request(request.method, request.url, headers=headers, json=body, extensions=request.extensions)
        return await super().handle_async_request(changed)


def adding(tool: dict[str, Any]) -> httpx.AsyncClient:
    """The client."""
    return httpx.AsyncClient(transport=Transport(tool), timeout=60)
