"""Images that a request wants made: where no upstream makes them, model and client are told so (issue 6, section 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.errors import APIError
from antiphon.protocol.tools import FunctionTool
from antiphon.tools.base import HostedCall, HostedTool, Opened, Outcome, Provider, Session, fault

__all__ = ["ImageProvider"]


class ImageProvider(Provider):
    """Takes `image_generation` where no upstream does; its calls fail with the reason."""

    types = frozenset({"image_generation"})

    async def open(self, declared: Sequence[dict[str, Any]], session: Session) -> Opened:
        """The tool, once."""
        return Opened([_ImageTool(declared[0])])


class _ImageTool(HostedTool):
    item_type = "image_generation_call"

    def __init__(self, declared: Mapping[str, Any]) -> None:
        self.declared = declared
        self.function = FunctionTool(
            name="image_generation",
            description="Make an image from a description.",
            parameters={
                "type": "object",
                "properties": {"prompt": {"type": "string"}},
                "required": ["prompt"],
                "additionalProperties": False,
            },
        )

    def item(self, call: HostedCall) -> dict[str, Any]:
        prompt: Any = (call.arguments or {}).get("prompt")
        return {
            "type": self.item_type,
            "result": None,
            "revised_prompt": prompt if isinstance(prompt, str) else None,
        }

    async def run(self, call: HostedCall, session: Session) -> Outcome:
        raise APIError(
            "This server has no model that makes images. Ask a model whose upstream does.",
            code="image_generation_unavailable",
        )

    def failed(self, call: HostedCall, error: APIError) -> Outcome:
        return Outcome({"status": "failed", "result": None, "error": fault(error)})
