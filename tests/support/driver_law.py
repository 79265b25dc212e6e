"""Random texts for the scripted model, and what comes of them without what is another's each time."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import strategies as st

__all__ = ["LOOK", "NOTE", "nameless", "scripts"]

_NAMES = frozenset(
    {
        "id",
        "call_id",
        "item_id",
        "response_id",
        "signature",
        "encrypted_content",
        "created_at",
        "completed_at",
        "background",
    }
)
LOOK = {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
NOTE = {"type": "custom", "name": "note"}

_words = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=30)
_items: list[dict[str, Any]] = [
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
    {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["q"]},
    {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "status": "completed",
        "code": "1",
        "container_id": "c",
        "outputs": [],
    },
    {"type": "mcp_call", "id": "mcp_1", "name": "n", "server_label": "s", "arguments": "{}", "output": "o"},
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "abc"},
]
_lines = st.one_of(
    st.builds("!TEXT {}".format, _words),
    st.builds("!REASON {}".format, _words),
    st.builds(lambda at: f"!CALL look {json.dumps({'at': at}, ensure_ascii=False)}", _words),
    st.builds("!CUSTOM note {}".format, _words),
    st.builds("!COUNT {}".format, st.integers(1, 40)),
    st.builds(lambda item: f"!ITEM {json.dumps(item)}", st.sampled_from(_items)),
)
_endings = st.sampled_from([[], [], ["!REFUSE"], ["!INCOMPLETE"], ["!FAIL"]])

scripts = st.builds(
    lambda lines, ending: "\n".join([*lines, *ending]), st.lists(_lines, min_size=1, max_size=5), _endings
)
"""What the scripted model is to do: text, thinking, calls, items of hosted tools, in any order, and how it ends."""


def nameless(value: Any) -> Any:
    """An answer or a chunk as plain data, without what is another's each time: ids, times, and where it ran."""

    def stripped(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: stripped(entry) for key, entry in value.items() if key not in _NAMES}
        return [stripped(entry) for entry in value] if isinstance(value, list) else value

    return stripped(msgspec.to_builtins(value))
