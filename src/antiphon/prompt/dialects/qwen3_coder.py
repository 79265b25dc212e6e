"""The dialect of Qwen3-Coder, Qwen3.5, Nemotron 3 and Step: a function with a tag for each parameter. Pure.

A call is `<tool_call>`, `<function=NAME>`, for each argument `<parameter=KEY>`, the value on lines of its own and
`</parameter>`, then `</function>` and `</tool_call>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from antiphon.prompt.dialects.native import TaggedDialect
from antiphon.prompt.dialects.tagged import Tags

__all__ = ["Qwen3Coder"]

_TAGS: Final = Tags(
    open_block="<tool_call>",
    open_call="<function=",
    close_name=">",
    open_key="<parameter=",
    close_key=">",
    close_value="</parameter>",
    close_call="</function>",
    close_block="</tool_call>",
    trims=True,
)


class Qwen3Coder(TaggedDialect):
    """Strings stand bare, everything else as JSON."""

    name = "qwen3_coder"
    tags = _TAGS
    markers = ("<tool_call>", "</tool_call>")
    openings = ("<tool_call>", "<function=")

    @staticmethod
    def fits(template: str, caps: Mapping[str, bool]) -> bool:
        """Whether the template shows tools and asks for calls in this form."""
        return bool(caps.get("supports_tools")) and "<tool_call>" in template and "<function=" in template
