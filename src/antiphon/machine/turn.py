"""What follows a turn: another one after tools that run here, the client's word, or the end. Pure.

Rule 1: a turn that a limit or a filter cut is the last one, and runs nothing.
Rule 2: calls of tools that run here are run, whatever else the turn called.
Rule 3: where the turn called a tool of the client's, or a call waits for approval, the client has the word; else the
model goes on with the outputs.

Which searches for tools run here is a matter of their items alone, so that a response that is taken up after a crash is
where its durable items say that it is. The outputs of a turn, and the items of its hosted tools, stand together at its
end. Calls of hosted tools are held until there, so that their number is said, and the types of their items.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from typing import Any, cast

from msgspec import Struct

from antiphon.machine.deltas import CUT_REASONS
from antiphon.protocol.hosted import in_container, made_here
from antiphon.protocol.items import CustomToolCall, FunctionCall, RawItem

__all__ = ["Progress", "Step", "all_calls_here", "calls_here", "next_step", "progress", "waits_for_client"]

_CLIENTS = frozenset({"shell_call", "apply_patch_call", "local_shell_call", "computer_call"})
_SEARCH, _SEARCH_OUTPUT = "tool_search_call", "tool_search_output"
_LIST, _APPROVAL = "mcp_list_tools", "mcp_approval_request"


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
    """Whether an item is a call that the client answers; a shell in a container is none."""
    if isinstance(item, FunctionCall | CustomToolCall):
        return True
    body = _body(item)
    kind = body.get("type")
    if kind == "shell_call" and in_container(body):
        return False
    return kind in _CLIENTS or (kind == _SEARCH and body.get("execution") != "server")


def all_calls_here(items: Sequence[Any]) -> list[dict[str, Any]]:
    """The calls among items that run here."""
    bodies = [_body(item) for item in items]
    return [body for body in bodies if body.get("type") == _SEARCH and body.get("execution") == "server"]


def calls_here(items: Sequence[Any]) -> list[dict[str, Any]]:
    """The calls of a turn that run here and have no output yet."""
    return all_calls_here(items)[sum(_is_output(_body(item)) for item in items) :]


def next_step(items: Sequence[Any], reason: str, held: int = 0) -> Step:
    """What follows a turn with these items, and so many calls that were held, that stopped for that reason."""
    if reason in CUT_REASONS or not (held or calls_here(items)):
        return Step.FINISH
    return Step.WAIT if any(waits_for_client(item) for item in items) else Step.CONTINUE


def progress(output: Sequence[Any], here: Collection[str] = ()) -> Progress:
    """Where a response with these items stands, by their `output_index`.

    `here` are the types of the items of hosted tools that run here. A round whose last item is in progress is not done.
    What servers list of their tools before a turn is no round.
    """
    done = Progress()
    ran = [_is_output(_body(item)) or made_here(item, here) for item in output]
    for index in range(len(output)):
        if not ran[index] or (index + 1 < len(output) and ran[index + 1]):
            continue
        since = [_body(item) for item in output[done.first_item : index + 1]]
        if made_here(since[-1], here) and since[-1].get("status") == "in_progress":
            continue
        waiting = any(waits_for_client(item) for item in output[done.first_item : index])
        waiting = waiting or any(body.get("type") == _APPROVAL for body in since if made_here(body, here))
        rounds = done.rounds + (not all(body.get("type") == _LIST for body in since))
        done = Progress(rounds, index + 1, waiting)
    return done


def _is_output(body: dict[str, Any]) -> bool:
    return body.get("type") == _SEARCH_OUTPUT and body.get("execution") == "server"


def _body(item: Any) -> dict[str, Any]:
    """A plain object, or the one of a raw item; empty for any other."""
    found: Any = item.body if isinstance(item, RawItem) else item
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
