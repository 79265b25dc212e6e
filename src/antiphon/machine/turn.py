"""What follows a turn: another one after tools that run here, the client's word, or the end. Pure.

Rule 1: a turn that a limit or a filter cut is the last one, and runs nothing.
Rule 2: calls of tools that run here are run, whatever else the turn called.
Rule 3: where the turn called a tool of the client's, the client has the word; else the model goes on with the outputs.

Which calls run here is a matter of their items alone, so that a response that is taken up after a crash is where its
durable items say that it is. The outputs of a turn stand together at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, cast

from msgspec import Struct

from antiphon.machine.deltas import CUT_REASONS
from antiphon.protocol.items import CustomToolCall, FunctionCall, RawItem

__all__ = ["Progress", "Step", "all_calls_here", "calls_here", "next_step", "progress", "waits_for_client"]

_CLIENTS = frozenset({"shell_call", "apply_patch_call", "local_shell_call", "computer_call"})
_SEARCH, _SEARCH_OUTPUT = "tool_search_call", "tool_search_output"


class Step(Enum):
    """What follows."""

    CONTINUE = "continue"
    WAIT = "wait for the client"
    FINISH = "finish"


class Progress(Struct, frozen=True):
    """Where a response stands.

    `rounds` of tools are done, and `first_item` is that of the turn after them. `waiting`: the client has the word.
    """

    rounds: int = 0
    first_item: int = 0
    waiting: bool = False


def waits_for_client(item: Any) -> bool:
    """Whether an item is a call that the client answers."""
    if isinstance(item, FunctionCall | CustomToolCall):
        return True
    body = _body(item)
    kind = body.get("type")
    return kind in _CLIENTS or (kind == _SEARCH and body.get("execution") != "server")


def all_calls_here(items: Sequence[Any]) -> list[dict[str, Any]]:
    """The calls among items that run here."""
    bodies = [_body(item) for item in items]
    return [body for body in bodies if body.get("type") == _SEARCH and body.get("execution") == "server"]


def calls_here(items: Sequence[Any]) -> list[dict[str, Any]]:
    """The calls of a turn that run here and have no output yet."""
    return all_calls_here(items)[sum(_is_output(_body(item)) for item in items) :]


def next_step(items: Sequence[Any], reason: str) -> Step:
    """What follows a turn with these items that stopped for that reason."""
    if reason in CUT_REASONS or not calls_here(items):
        return Step.FINISH
    return Step.WAIT if any(waits_for_client(item) for item in items) else Step.CONTINUE


def progress(output: Sequence[Any]) -> Progress:
    """Where a response with this output stands."""
    done = Progress()
    for index, item in enumerate(output):
        if not _is_output(_body(item)):
            continue
        if index + 1 == len(output) or not _is_output(_body(output[index + 1])):
            waiting = any(waits_for_client(earlier) for earlier in output[done.first_item : index])
            done = Progress(done.rounds + 1, index + 1, waiting)
    return done


def _is_output(body: dict[str, Any]) -> bool:
    return body.get("type") == _SEARCH_OUTPUT and body.get("execution") == "server"


def _body(item: Any) -> dict[str, Any]:
    """A plain object, or the one of a raw item; empty for any other."""
    found: Any = item.body if isinstance(item, RawItem) else item
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
