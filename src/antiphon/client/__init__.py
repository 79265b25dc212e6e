"""The driver: one client for any Responses endpoint, which hands back one normalized answer."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antiphon.client.client import AsyncClient, Client, Limits
    from antiphon.client.context import (
        Context,
        FilePart,
        ImagePart,
        Message,
        TextPart,
        Tool,
        ToolCall,
        approval,
        assistant,
        developer,
        system,
        tool_result,
        user,
    )
    from antiphon.client.errors import (
        BodyError,
        ContextError,
        DeadlineError,
        DriverError,
        EndpointError,
        ResponseError,
        StreamCutError,
        TransportError,
    )
    from antiphon.client.options import RequestWarning
    from antiphon.client.profiles import PROFILES, ModelFamily, Profile
    from antiphon.client.response import Response, Usage
    from antiphon.client.sockets import AsyncSession, Session
    from antiphon.client.stream import StreamDecoder
    from antiphon.client.streams import AsyncStream, Stream
    from antiphon.client.toolcalls import Outcome
    from antiphon.client.toolruns import (
        AsyncToolStream,
        ToolLimits,
        ToolRun,
        ToolStream,
        run_tools,
        run_tools_async,
        stream_tools,
        stream_tools_async,
    )
    from antiphon.client.tools import function_tool

__all__ = [
    "PROFILES",
    "AsyncClient",
    "AsyncSession",
    "AsyncStream",
    "AsyncToolStream",
    "BodyError",
    "Client",
    "Context",
    "ContextError",
    "DeadlineError",
    "DriverError",
    "EndpointError",
    "FilePart",
    "ImagePart",
    "Limits",
    "Message",
    "ModelFamily",
    "Outcome",
    "Profile",
    "RequestWarning",
    "Response",
    "ResponseError",
    "Session",
    "Stream",
    "StreamCutError",
    "StreamDecoder",
    "TextPart",
    "Tool",
    "ToolCall",
    "ToolLimits",
    "ToolRun",
    "ToolStream",
    "TransportError",
    "Usage",
    "approval",
    "assistant",
    "developer",
    "function_tool",
    "run_tools",
    "run_tools_async",
    "stream_tools",
    "stream_tools_async",
    "system",
    "tool_result",
    "user",
]

# Who only encodes and decodes, as the server does, is not to load what speaks HTTP.
_PLACES = {
    "client": ("AsyncClient", "Client", "Limits"),
    "context": (
        "Context",
        "FilePart",
        "ImagePart",
        "Message",
        "TextPart",
        "Tool",
        "ToolCall",
        "approval",
        "assistant",
        "developer",
        "system",
        "tool_result",
        "user",
    ),
    "errors": (
        "BodyError",
        "ContextError",
        "DeadlineError",
        "DriverError",
        "EndpointError",
        "ResponseError",
        "StreamCutError",
        "TransportError",
    ),
    "options": ("RequestWarning",),
    "profiles": ("PROFILES", "ModelFamily", "Profile"),
    "response": ("Response", "Usage"),
    "sockets": ("AsyncSession", "Session"),
    "stream": ("StreamDecoder",),
    "streams": ("AsyncStream", "Stream"),
    "toolcalls": ("Outcome",),
    "toolruns": (
        "AsyncToolStream",
        "ToolLimits",
        "ToolRun",
        "ToolStream",
        "run_tools",
        "run_tools_async",
        "stream_tools",
        "stream_tools_async",
    ),
    "tools": ("function_tool",),
}
_PLACE_OF = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _PLACE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
