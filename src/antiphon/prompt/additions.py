"""What items of a history add to the requests after them: tools, and settings that stay until they are replaced. Pure.

`additional_tools` and the output of a search for tools add tools; `configuration_update` sets the effort of reasoning
and the format of answers (responses-api 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.errors import InvalidRequestError
from antiphon.prompt.toolbox import AddedTool
from antiphon.protocol.credentials import has_secrets
from antiphon.protocol.items import Item, RawItem
from antiphon.protocol.json import field_error
from antiphon.protocol.request import CreateResponse, TextConfig, TextFormat
from antiphon.protocol.tools import decode_tools

__all__ = [
    "NO_CHANGE",
    "Configuration",
    "added_tools",
    "check_additions",
    "configuration",
    "configured",
    "read_leniently",
]

ADDITIONAL_TOOLS = "additional_tools"
SEARCH_OUTPUT = "tool_search_output"
UPDATE = "configuration_update"


class Configuration(Struct, frozen=True):
    """Settings that stand from an item on; None where nothing sets one."""

    effort: str | None = None
    form: TextFormat | None = None

    def then(self, later: Configuration) -> Configuration:
        """These settings after later ones have replaced some of them."""
        return Configuration(later.effort or self.effort, later.form or self.form)


NO_CHANGE = Configuration()


class _Reasoning(Struct):
    effort: str | None = None


class _Text(Struct):
    format: TextFormat | None = None


class _Update(Struct):
    reasoning: _Reasoning | None = None
    text: _Text | None = None


def added_tools(item_type: str, body: Mapping[str, Any], path: str) -> list[AddedTool]:
    """The tools that an item adds; `path` is its place in the request, for messages.

    Raises:
        InvalidRequestError: `tools` is no list of tools, or one holds credentials.
    """
    if item_type not in (ADDITIONAL_TOOLS, SEARCH_OUTPUT):
        return []
    tools = decode_tools(body.get("tools") or [], f"{path}.tools")
    for index, tool in enumerate(tools):
        if has_secrets(tool):
            # Items are kept and told as they came.
            raise InvalidRequestError(
                "Credentials of an MCP server are taken in 'tools' only, since items are kept.",
                param=f"{path}.tools[{index}]",
                code="invalid_value",
            )
    return [AddedTool(tool, loaded=item_type == SEARCH_OUTPUT) for tool in tools]


def configuration(item_type: str, body: Mapping[str, Any], path: str) -> Configuration:
    """The settings that an item makes.

    Raises:
        InvalidRequestError: a field has a wrong type.
    """
    if item_type != UPDATE:
        return NO_CHANGE
    try:
        update = msgspec.convert(body, _Update)
    except msgspec.ValidationError as error:
        raise field_error(error, path) from None
    return Configuration(
        None if update.reasoning is None else update.reasoning.effort,
        None if update.text is None else update.text.format,
    )


def check_additions(items: Sequence[Item]) -> None:
    """See that what the items of a request add can be read.

    Raises:
        InvalidRequestError: which one cannot, in `param`.
    """
    for index, item in enumerate(items):
        if isinstance(item, RawItem):
            added_tools(item.type, item.body, f"input[{index}]")
            configuration(item.type, item.body, f"input[{index}]")


def configured(request: CreateResponse, settings: Configuration) -> CreateResponse:
    """The request with settings of its conversation, which stand before its own: those are the same in every turn."""
    if settings == NO_CHANGE:
        return request
    reasoning, text = request.reasoning, request.text
    if settings.effort is not None:
        reasoning = msgspec.structs.replace(reasoning, effort=settings.effort)
    if settings.form is not None:
        text = TextConfig(settings.form, text.verbosity)
    return msgspec.structs.replace(request, reasoning=reasoning, text=text)


def read_leniently(item: RawItem) -> tuple[list[AddedTool], Configuration]:
    """What an item adds; nothing where it cannot be read, which is said when it comes in."""
    try:
        return added_tools(item.type, item.body, "input"), configuration(item.type, item.body, "input")
    except InvalidRequestError:
        return [], NO_CHANGE
