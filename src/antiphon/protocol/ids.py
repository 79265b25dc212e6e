"""Ids: a prefix, the time in milliseconds and 128 random bits, so that they sort by time and cannot be guessed."""

from __future__ import annotations

import secrets
import time

__all__ = ["PREFIX_BY_ITEM_TYPE", "is_id", "item_prefix", "new_id", "new_listed_id"]

_TIME_DIGITS = 12
_RANDOM_BYTES = 16
_BODY_LENGTH = _TIME_DIGITS + 2 * _RANDOM_BYTES
_HEX = frozenset("0123456789abcdef")

PREFIX_BY_ITEM_TYPE: dict[str, str] = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "file_search_call": "fs",
    "web_search_call": "ws",
    "code_interpreter_call": "ci",
    "image_generation_call": "ig",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "mcp_approval_request": "mcpr",
    "mcp_approval_response": "mcpa",
    "computer_call": "cu",
    "compaction": "cmp",
    "shell_call": "sh",
    "shell_call_output": "sho",
    "apply_patch_call": "apc",
    "apply_patch_call_output": "apco",
    "local_shell_call": "lsh",
    "local_shell_call_output": "lsho",
    "tool_search_call": "tsc",
    "tool_search_output": "tso",
    "additional_tools": "at",
    "configuration_update": "cfg",
    "search_corpus_call": "sc",
    "grep_call": "gr",
    "filter_chunks_call": "fch",
    "inspect_metadata_call": "im",
    "get_chunks_call": "gc",
    "list_stores_call": "lst",
    "prune_context_call": "pc",
    "store_search_call": "ss",
    "store_grep_call": "sg",
    "store_list_chunks_call": "slc",
    "store_metadata_facets_call": "smf",
}
"""The id prefix of each item type (responses-api 3); any other type takes `item`."""


def new_id(prefix: str) -> str:
    """A new id such as `resp_0199…`; the part after the prefix is 44 hexadecimal digits."""
    return f"{prefix}_{time.time_ns() // 1_000_000:012x}{secrets.token_hex(_RANDOM_BYTES)}"


def new_listed_id(prefix: str) -> str:
    """The same for what is listed by its id: it sorts by time to the quarter of a microsecond."""
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    return f"{prefix}_{milliseconds:012x}{rest * 4096 // 1_000_000:03x}{secrets.token_hex(15)[:29]}"


def is_id(prefix: str, value: str) -> bool:
    """Whether the value has the form that `new_id` gives, so that a look-up is worth making."""
    head, _, body = value.partition("_")
    return head == prefix and len(body) == _BODY_LENGTH and _HEX.issuperset(body)


def item_prefix(item_type: str) -> str:
    """The id prefix for an item of this type."""
    return PREFIX_BY_ITEM_TYPE.get(item_type, "item")
