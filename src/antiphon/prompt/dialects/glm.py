"""The dialect of GLM, which Ling 3, Laguna and Spark use too: keys and values in turn, each between tags. Pure.

A call is `<tool_call>NAME`, for each argument `<arg_key>KEY</arg_key>` and `<arg_value>VALUE</arg_value>`, then
`</tool_call>`. Some of these models put each tag on a line of its own, others none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from antiphon.prompt.dialects.native import TaggedDialect
from antiphon.prompt.dialects.tagged import Tags

__all__ = ["Glm"]

_TAGS: Final = Tags(
    open_block="<tool_call>",
    open_key="<arg_key>",
    close_key="</arg_key>",
    open_value="<arg_value>",
    close_value="</arg_value>",
    close_block="</tool_call>",
)


class Glm(TaggedDialect):
    """Strings stand bare, everything else as JSON."""

    name = "glm"
    tags = _TAGS
    markers = ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
    openings = ("<tool_call>",)

    @staticmethod
    def fits(template: str, caps: Mapping[str, bool]) -> bool:
        """Whether the template shows tools and asks for calls in this form."""
        return bool(caps.get("supports_tools")) and "<tool_call>" in template and "<arg_key>" in template
