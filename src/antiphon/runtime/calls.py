"""Runs the calls that a turn of a model made of hosted tools, and tells of them (issue 6, section 1).

Calls of a turn run side by side where each of them may run again; else one after the other. Their events and results
come in the order in which the model made them. Whatever goes wrong is an item that failed, of which the model is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from antiphon.errors import APIError, InternalError, InvalidRequestError
from antiphon.machine.deltas import HostedEnd, HostedStart, Routed, TokenUsage
from antiphon.machine.router import MadeCall
from antiphon.prompt.prompt import Prompt
from antiphon.protocol.hosted import BESIDE, PRUNE_CONTEXT
from antiphon.protocol.ids import item_prefix, new_id
from antiphon.protocol.json import loads, quoted
from antiphon.protocol.tools import AllowedTools
from antiphon.runtime.hosted import Called, HostedTools, function_of, key_of
from antiphon.runtime.keeper import Keeper, KeptCall, body_of
from antiphon.runtime.observer import Observer
from antiphon.store.toolruns import RUNNING
from antiphon.tools.base import HostedCall, HostedTool, Outcome, fault

__all__ = ["MOST_A_TURN", "Calls"]

MOST_A_TURN: Final = 8
"""Calls of one turn that are run; those beyond get an error instead (B5)."""

MOST_TOLD: Final = 32
"""Calls of one turn that are told at all; a model that makes more has run wild."""

CALL_TOKENS: Final = 25_000
SEARCH_TOKENS: Final = 30_000
TURN_TOKENS: Final = 96_000
LEAST_TOKENS: Final = 512
CHARACTERS_A_TOKEN: Final = 4
"""The budgets of what runs give to the model, and how a token is counted (hosted-search 3.3)."""

_SEARCHES: Final = frozenset({"file_search_call", "search_corpus_call", "store_search_call"})
_READS: Final = (BESIDE - {f"{PRUNE_CONTEXT}_call"}) | {"file_search_call", "web_search_call"}
_LET_GO_SECONDS: Final = 1.0
_NO_METHOD: Final = -32601
"""What JSON-RPC calls a method that is not there."""

_INTERRUPTED: Final = "The server was restarted while the tool ran. It may have done its work, and was not run again."
_MISSING: Final = "The tool is not there any more."


class Calls:
    """The calls of one response; `tell` takes what is told of them, and `keeper` keeps them where someone may go on."""

    def __init__(
        self, hosted: HostedTools, observer: Observer, keeper: Keeper | None, tell: Callable[[Sequence[Routed]], object]
    ) -> None:
        self.hosted = hosted
        self._observer = observer
        self._keeper = keeper
        self._tell = tell

    # From what the model said to calls

    def honoured(self, made: Sequence[MadeCall], prompt: Prompt, turn: int, used: int) -> list[Called]:
        """The calls of a turn that are taken; those beyond the budget of the response are not (B5).

        `prompt` is what the model was told, and `used` are the tokens of the context that the turn leaves behind.
        """
        hosted, choice = self.hosted, prompt.choice
        if choice.mode == "none":
            return []
        limited = isinstance(hosted.session.request.tool_choice, AllowedTools)
        room = hosted.most_calls - hosted.counted
        taken: list[tuple[MadeCall, str, HostedTool | None]] = []
        for one in made[:MOST_TOLD]:
            entry = prompt.toolbox.entries.get(one.told)
            key = "" if entry is None or entry.hosted is None else key_of(entry.hosted)
            tool = hosted.find(key) if not limited or one.told in choice.allowed else None
            if tool is None or tool.counted:
                if not room:
                    continue
                room -= 1
            taken.append((one, key, tool))
        share = _share(len(taken), hosted.context_length - used)
        return [
            self._call(one, key, tool, turn, share, extra=number >= MOST_A_TURN)
            for number, (one, key, tool) in enumerate(taken)
        ]

    def approved(self) -> list[Called]:
        """The calls that were approved, to be run before the first turn (hosted-tools A2)."""
        hosted = self.hosted
        share = _share(len(hosted.approved), hosted.context_length)
        found: list[Called] = []
        for request in hosted.approved:
            tool = hosted.tool_of(request)
            name = tool.function.name if tool is not None else str(request.get("name"))
            key = "" if tool is None else key_of(function_of(tool))
            found.append(self._new(name, str(request.get("arguments") or ""), key, tool, -1, share, request))
        return found

    def left(self, kept: Iterable[KeptCall], told: Sequence[Any]) -> list[Called]:
        """The calls that an earlier owner left, as they stand; what may not run twice and had begun has failed.

        What it has told of them, which are items of `told`, stays so.
        """
        hosted = self.hosted
        known = {str(body.get("id")): body for body in map(body_of, told)}
        found: list[Called] = []
        for one in kept:
            tool = hosted.find(one.key)
            call = _said(one.call_id, one.item_id, one.name, one.text, one.characters, one.approval)
            body = {**self._body(tool, call, one.turn), **known.get(one.item_id, {})}
            called = Called(one.position, one.turn, one.key, call, tool, body, asks=one.asks)
            called.given, called.also = one.given, one.also
            if one.given is None and one.asks is None:
                if tool is None:
                    called.refusal = InvalidRequestError(_MISSING, code="tool_not_found")
                elif one.state == RUNNING and not tool.repeatable:
                    called.refusal = InternalError(_INTERRUPTED, code="interrupted")
            hosted.called.append(called)
            found.append(called)
        return found

    def _call(self, made: MadeCall, key: str, tool: HostedTool | None, turn: int, share: int, *, extra: bool) -> Called:
        called = self._new(made.name, made.text, key, tool, turn, share)
        if called.refusal is None and extra:
            called.refusal = InvalidRequestError(
                f"At most {MOST_A_TURN} calls are run in one turn. Make this one again in the next.",
                code="too_many_calls",
            )
            called.asks = None
        return called

    def _new(
        self,
        name: str,
        text: str,
        key: str,
        tool: HostedTool | None,
        turn: int,
        share: int,
        request: Mapping[str, Any] | None = None,
    ) -> Called:
        hosted = self.hosted
        shown = tool or (_stand_in(hosted) if request is None else None)
        kind = "mcp_call" if shown is None else shown.item_type
        approval = None if request is None else str(request.get("id"))
        most = SEARCH_TOKENS if kind in _SEARCHES else CALL_TOKENS
        characters = min(share, most) * CHARACTERS_A_TOKEN
        call = _said(new_id("call"), new_id(item_prefix(kind)), name, text, characters, approval)
        body = self._body(shown, call, turn, request)
        key = key if tool is not None or shown is None else key_of(function_of(shown))
        called = Called(len(hosted.called), turn, key, call, shown, body)
        if tool is None:
            called.refusal = InvalidRequestError(_unknown(hosted, name), code="unknown_tool")
        elif call.arguments is None:
            called.refusal = InvalidRequestError(
                f"The arguments of '{quoted(name)}' must be one JSON object.", code="invalid_arguments"
            )
        else:
            called.asks = self._asked(called, tool)
        hosted.called.append(called)
        return called

    def _asked(self, called: Called, tool: HostedTool) -> dict[str, Any] | None:
        """The item that asks for approval of a call, where it needs one."""
        try:
            asked = tool.approval(called.call)
        except Exception as error:  # noqa: BLE001 - a tool that cannot say so is not run
            self._observer.fault("a tool could not say whether it needs approval", error)
            called.refusal = InternalError("The tool failed.")
            return None
        if asked is None:
            return None
        item = {"id": new_id("mcpr"), **asked, "_turn": called.turn}
        called.body = {**called.body, "id": item["id"]}
        return item

    def _body(
        self, tool: HostedTool | None, call: HostedCall, turn: int, request: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The item of a call when it is begun, with what the history needs to tell the model of it as it was made."""
        said: dict[str, Any] = {}
        if tool is not None:
            try:
                said = tool.item(call)
            except Exception as error:  # noqa: BLE001 - what a tool cannot say of a call is left out
                self._observer.fault("a tool could not make the item of a call", error)
                said = {"type": tool.item_type}
        else:
            # Of a server of MCP that has no such tool, or had it: the call stands under the name that it was made by.
            label = (request or {}).get("server_label") or self.hosted.server
            name = call.name if request is None else request.get("name")
            said = {
                "approval_request_id": None,
                "server_label": label,
                "name": name,
                "arguments": call.text,
                "output": None,
                "error": None,
            }
        if call.approval is not None:
            said = {**said, "approval_request_id": call.approval}
        ours = {"_call_id": call.call_id, "_name": call.name, "_turn": turn}
        if call.arguments is not None:
            ours["_arguments"] = call.text.strip() or "{}"
        return {"type": "mcp_call", **said, **ours, "id": call.item_id, "status": "in_progress"}

    # Running them

    def open(self, told: Sequence[Any]) -> None:
        """Tell of the items that come before the first turn; `told` are those that an earlier life has told.

        What that one listed of a server's tools stays as it was told.
        """
        kinds = {str(item.get("type")) for item in self.hosted.opening}
        earlier = [body for body in map(body_of, told) if body.get("type") in kinds]
        for index, item in enumerate(self.hosted.opening):
            self._whole(_as_told(item, earlier[index]) if index < len(earlier) else item)

    async def run(self, calls: Sequence[Called], spent: TokenUsage | None) -> bool:
        """Run calls of one turn and tell of them; whether any of them waits for an approval.

        `spent` is what the response has used so far, None where the calls need not be kept any more. Calls that are
        told already are taken in and not told again.

        Raises:
            InternalError: the response is not run here any more.
        """
        for called in calls:
            if called.refusal is not None and called.given is None:
                self._set(called, self._failed(called, called.refusal))
        if self._keeper is not None and spent is not None:
            await self._keeper.begin(calls, spent)
        due = [called for called in calls if called.given is None and called.asks is None]
        beside = len(due) > 1 and all(called.tool is not None and called.tool.repeatable for called in due)
        tasks = {called.position: asyncio.create_task(self._run(called)) for called in due} if beside else {}
        try:
            for called in calls:
                if called.asks is not None:
                    self._whole(called.asks)
                    continue
                self._tell([HostedStart(called.body)])
                if called.given is None:
                    await (tasks.get(called.position) or self._run(called))
                self._settle(called)
        finally:
            for task in tasks.values():
                task.cancel()
            if tasks:
                await asyncio.gather(*tasks.values(), return_exceptions=True)
        return any(called.asks is not None for called in calls)

    def whole(self, items: Iterable[dict[str, Any]]) -> None:
        """Tell of items that come whole."""
        for item in items:
            self._whole(item)

    def _whole(self, item: dict[str, Any]) -> None:
        told = self.hosted.keep(item)
        self._tell([HostedStart(told), HostedEnd(told)])

    async def _run(self, called: Called) -> None:
        if self._keeper is not None:
            await self._keeper.running(called)
        began = time.monotonic()
        self._set(called, await self._outcome(called))
        status = "completed" if (called.given or {}).get("status") == "completed" else "failed"
        self._observer.tool_ended(str(called.body["type"]), status, time.monotonic() - began)
        if self._keeper is not None:
            await self._keeper.done(called)

    def _set(self, called: Called, outcome: Outcome) -> None:
        called.given = {"status": "completed", **outcome.fields}
        called.also = [
            item if item.get("id") else {**item, "id": new_id(item_prefix(str(item.get("type"))))}
            for item in outcome.also
        ]

    async def _outcome(self, called: Called) -> Outcome:
        tool = called.tool
        if tool is None:
            return self._failed(called, InternalError(_MISSING))
        run = asyncio.create_task(tool.run(called.call, self.hosted.session))
        try:
            done, _ = await asyncio.wait({run}, timeout=tool.seconds)
        finally:
            if not run.done():
                run.cancel()
                # One that does not let go is left behind: a run is never waited for longer than it may take.
                await asyncio.wait({run}, timeout=_LET_GO_SECONDS)
                run.add_done_callback(_forget)
        if not done:
            seconds = f"{tool.seconds:g} second" + ("" if tool.seconds == 1 else "s")
            return self._failed(called, InternalError(f"The tool did not end within {seconds}.", code="timeout"))
        try:
            return run.result()
        except APIError as error:
            return self._failed(called, error)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - a fault of a tool is an item that failed
            self._observer.fault("a hosted tool failed", error)
            return self._failed(called, InternalError("The tool failed."))

    def _failed(self, called: Called, error: APIError) -> Outcome:
        if called.tool is not None:
            try:
                return called.tool.failed(called.call, error)
            except Exception as broken:  # noqa: BLE001 - then the plain form
                self._observer.fault("a tool could not say how it failed", broken)
        if called.body["type"] == "mcp_call":
            error_of_protocol = {"type": "mcp_protocol_error", "code": _NO_METHOD, "message": error.message}
            return Outcome({"status": "failed", "error": error_of_protocol})
        return Outcome({"status": "failed", "error": fault(error)})

    def _settle(self, called: Called) -> None:
        """What a run gave becomes its item, after those of all calls before it."""
        outcome = Outcome(called.given or {}, called.also)
        if called.tool is not None:
            try:
                outcome = called.tool.settle(called.call, outcome, self.hosted.session)
            except Exception as error:  # noqa: BLE001 - a fault of a tool is an item that failed
                self._observer.fault("a tool could not settle what it gave", error)
                outcome = self._failed(called, InternalError("The tool failed."))
        told = self.hosted.keep({**called.body, **outcome.fields})
        self._tell([HostedEnd(told)])
        self.whole(outcome.also)


def _as_told(item: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """An item that comes before the first turn as an earlier life told it, if it came to tell all of it."""
    if told.get("tools") or told.get("error"):
        return {**{name: value for name, value in item.items() if name.startswith("_")}, **told}
    return {**item, "id": told["id"]}


def _share(calls: int, free: int) -> int:
    """The tokens that each of so many calls may give where so much of a context is free: half of that goes to them."""
    turn = min(TURN_TOKENS, free // 2)
    return max(LEAST_TOKENS, turn // max(1, min(calls, MOST_A_TURN)))


def _said(call_id: str, item_id: str, name: str, text: str, characters: int, approval: str | None = None) -> HostedCall:
    arguments: Any = {}
    if text.strip():
        try:
            arguments = loads(text)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            arguments = None
    given = cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else None
    return HostedCall(call_id, item_id, name, text, given, characters, approval)


def _stand_in(hosted: HostedTools) -> HostedTool | None:
    """The tool as whose call an invented one is shown: one that only reads, then any but those of MCP servers.

    An item of theirs would say that a tool was called which was not; None where there are no others.
    """
    others = [tool for tool in hosted.tools if tool.item_type != "mcp_call"]
    return next((tool for tool in others if tool.item_type in _READS), others[0] if others else None)


def _unknown(hosted: HostedTools, name: str) -> str:
    names = ", ".join(tool.function.name for tool in hosted.tools[:32])
    return f"There is no tool '{quoted(name)}'. These are there: {names or 'none'}."


def _forget(task: asyncio.Task[Outcome]) -> None:
    with contextlib.suppress(Exception, asyncio.CancelledError):
        task.exception()
