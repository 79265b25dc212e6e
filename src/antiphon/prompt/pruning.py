"""What a model sees of the results of tools after it has pruned some: a view, made anew for each turn (B14). Pure.

The ids that a call of `prune_context` names are those of chunks, or of calls. All results before it that they name lose
their text. A result after it is shown without the text of a chunk that was pruned, until `get_chunks` was called for
it; that one is shown whole. What is stored is not touched, so that the view of a chain is the same in every process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from antiphon.prompt.hosted import chunk_ids, hosted_result
from antiphon.prompt.prompt import ChatMessage
from antiphon.protocol.hosted import PRUNE_CONTEXT

__all__ = [
    "NOTHING_CLEARED",
    "PRUNED_RESULT",
    "TOKEN_CHARACTERS",
    "Cleared",
    "applied_edits",
    "cleared",
    "pruned",
    "truncated",
]

PRUNED_RESULT: Final = "[Pruned.]"
"""What stands for the whole result of a call that was pruned."""

TOKEN_CHARACTERS: Final = 4
"""Characters of a token, as cleared text is counted."""

LEAST_RESULT: Final = 2_000
"""Characters that are left of a result that is truncated."""

_CUT: Final = "\n[Truncated to fit.]"
_PRUNE: Final = f"{PRUNE_CONTEXT}_call"
_RESTORES: Final = "get_chunks_call"
_EMPTY: Final[Mapping[str, Any]] = {}


class Cleared(Struct, frozen=True):
    """What was pruned of a conversation: by how many calls, and how many characters."""

    calls: int = 0
    characters: int = 0


NOTHING_CLEARED: Final = Cleared()
"""Of a conversation that nothing was pruned of."""


def pruned(messages: Sequence[ChatMessage], *, ids: bool = False) -> list[ChatMessage]:
    """The messages as the model sees them; `ids` tells it what it can name to prune more."""
    last = _last_prunes(messages)
    restored: dict[str, int] = {}
    view: list[ChatMessage] = []
    for place, message in enumerate(messages):
        view.append(_seen(message, place, last, restored, ids=ids) if message.role == "tool" else message)
    return view


def cleared(messages: Sequence[ChatMessage]) -> Cleared:
    """What calls of `prune_context` took out of a conversation."""
    calls = sum(_body(message).get("type") == _PRUNE for message in messages)
    if not calls:
        return Cleared()
    return Cleared(calls, _size(pruned(messages, ids=False), messages))


def truncated(messages: Sequence[ChatMessage], excess: int) -> tuple[list[ChatMessage], list[dict[str, Any]]]:
    """The messages with the longest results of tools cut, so that so many tokens less are told; and what was cut.

    Of no result less than a beginning is left, so that it may be less than was asked for.
    """
    view = list(messages)
    wanted = excess * TOKEN_CHARACTERS
    edits: list[dict[str, Any]] = []
    places = [
        place for place, message in enumerate(view) if message.role == "tool" and isinstance(message.content, str)
    ]
    for place in sorted(places, key=lambda place: -len(view[place].content)):
        content = cast("str", view[place].content)
        most = len(content) - LEAST_RESULT
        if wanted <= 0 or most <= len(_CUT):
            break
        gone = min(most, wanted + len(_CUT))
        view[place] = replace(view[place], content=content[: len(content) - gone] + _CUT)
        wanted -= gone - len(_CUT)
        edits.append(
            {
                "type": "truncate_tool_result",
                "tool_call_id": view[place].tool_call_id,
                "cleared_input_tokens": (gone - len(_CUT)) // TOKEN_CHARACTERS,
            }
        )
    return view, edits


def applied_edits(
    messages: Sequence[ChatMessage], before: Cleared = NOTHING_CLEARED, cut: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any] | None:
    """What `context_management` of a response says that was edited in it; None where nothing was.

    `messages` are the conversation as it was told last, not pruned yet, and `before` is what was pruned of it before
    this response. `cut` are the results that were truncated.
    """
    now = cleared(messages)
    edits: list[Mapping[str, Any]] = []
    if now.calls > before.calls:
        tokens = max(0, now.characters - before.characters) // TOKEN_CHARACTERS
        edits.append({"type": PRUNE_CONTEXT, "calls": now.calls - before.calls, "cleared_input_tokens": tokens})
    edits += cut
    return {"applied_edits": edits} if edits else None


def _last_prunes(messages: Sequence[ChatMessage]) -> dict[str, int]:
    """Where each id was pruned last."""
    last: dict[str, int] = {}
    for place, message in enumerate(messages):
        body = _body(message)
        named: Any = body.get("ids")
        if body.get("type") == _PRUNE and body.get("status") == "completed" and isinstance(named, list):
            last.update((each, place) for each in cast("list[Any]", named) if isinstance(each, str))
    return last


def _seen(
    message: ChatMessage, place: int, last: Mapping[str, int], restored: dict[str, int], *, ids: bool
) -> ChatMessage:
    body = _body(message)
    if last.get(message.tool_call_id, -1) > place:
        return replace(message, content=f"[{message.tool_call_id}] {PRUNED_RESULT}" if ids else PRUNED_RESULT)
    named = chunk_ids(body)
    if not named:
        shown = ids and body.get("type") != _PRUNE and isinstance(message.content, str)
        return replace(message, content=f"[{message.tool_call_id}]\n{message.content}") if shown else message
    restores = body.get("type") == _RESTORES

    def hidden(identity: str) -> bool:
        at = last.get(identity)
        if at is None:
            return False
        return place < at or not (restores or restored.get(identity, -1) > at)

    text = hosted_result(body, hidden, chunks=ids)
    if restores:
        restored.update((identity, place) for identity in named)
    return message if text == message.content else replace(message, content=text)


def _body(message: ChatMessage) -> Mapping[str, Any]:
    return message.body or _EMPTY


def _size(view: Sequence[ChatMessage], whole: Sequence[ChatMessage]) -> int:
    """How many characters less a view is."""
    return sum(
        len(told.content) - len(seen.content)
        for seen, told in zip(view, whole, strict=True)
        if isinstance(seen.content, str) and isinstance(told.content, str)
    )
