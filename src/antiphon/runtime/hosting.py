"""Which hosted tools this server runs: its providers, and what a request asks of them.

A provider is registered by one line in `providers`. What only an extra brings is imported when it is first needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from antiphon.corpus.library import Library
from antiphon.engines.base import Engine
from antiphon.engines.registry import Registry
from antiphon.errors import InvalidRequestError
from antiphon.prompt.hosted import SENT_ID
from antiphon.prompt.messages import Conversation
from antiphon.protocol.hosted import CODE_TYPES, CORPUS_TOOLS, MCP_TYPES, UPSTREAM_ID, WEB_TYPES, types_here
from antiphon.protocol.items import Item, RawItem
from antiphon.protocol.json import quoted
from antiphon.protocol.request import CreateResponse
from antiphon.runtime.hosted import HostedTools, Wanted, wanted
from antiphon.runtime.observer import Observer
from antiphon.settings import Settings
from antiphon.store.base import Scope, Store
from antiphon.tools.base import Provider, Session
from antiphon.tools.images import ImageProvider
from antiphon.tools.later import LaterProvider
from antiphon.tools.prune import PruneProvider

if TYPE_CHECKING:
    from antiphon.tools.code.containers import Containers

__all__ = ["Hosting", "asks", "providers"]

_REQUEST, _RESPONSE, _CALL = "mcp_approval_request", "mcp_approval_response", "mcp_call"


def providers(
    settings: Settings,
    store: Store | None,
    registry: Registry,
    library: Library | None = None,
    containers: Callable[[], Containers] | None = None,
) -> list[Provider]:
    """The providers of a server: `library` searches its documents, and `containers` are where code runs."""
    del store, registry
    allow = settings.allow_outbound
    found: list[Provider] = [PruneProvider(), ImageProvider(), _mcp(settings, allow), _web(settings, allow)]
    if library is not None:
        found.append(_corpus(library))
    if containers is not None:
        found.append(_code(containers))
    return found


def _mcp(settings: Settings, allow: Sequence[str]) -> Provider:
    """What the operator has configured is read at once, so that its faults are told at the start."""

    def made() -> Provider:
        # Only here: most servers never ask one.
        from antiphon.tools.mcp.provider import McpProvider

        return McpProvider(settings, allow)

    return made() if settings.mcp_servers else LaterProvider(MCP_TYPES, made, waits=True)


def _web(settings: Settings, allow: Sequence[str]) -> Provider:
    def made() -> Provider:
        from antiphon.tools.web.provider import WebProvider

        return WebProvider(settings, allow)

    return made() if settings.web_search != "none" else LaterProvider(WEB_TYPES, made)


def _corpus(library: Library) -> Provider:
    def made() -> Provider:
        from antiphon.tools.corpus.provider import CorpusProvider

        return CorpusProvider(library)

    return LaterProvider(frozenset({*CORPUS_TOOLS, "file_search"}), made)


def _code(containers: Callable[[], Containers]) -> Provider:
    def made() -> Provider:
        from antiphon.tools.code.provider import CodeProvider

        return CodeProvider(containers())

    return LaterProvider(CODE_TYPES, made)


def asks(request: CreateResponse, own: Sequence[Item]) -> bool:
    """Whether a request may ask for hosted tools at all, which most do not."""
    if request.tools or request.context_management:
        return True
    return any(isinstance(item, RawItem) and item.type == _RESPONSE for item in own)


class Hosting:
    """The providers of one server; makes the tools of each response that asks for any."""

    def __init__(self, providers: Sequence[Provider], observer: Observer) -> None:
        self.providers = providers
        self._observer = observer

    async def close(self) -> None:
        """Let go of everything; the server stops."""
        await asyncio.gather(*(provider.close() for provider in self.providers))

    async def tools(
        self,
        scope: Scope,
        request: CreateResponse,
        engine: Engine,
        own: Sequence[Item],
        parts: Sequence[Conversation],
        response_id: str,
    ) -> HostedTools | None:
        """The hosted tools of a response, those opened that do not wait; None where it asks for none.

        `own` are the items of the request, and `parts` its whole history.

        Raises:
            InvalidRequestError: an entry of `tools` cannot be read, or an approval is of nothing that waits for one.
        """
        # What an upstream with the same API has is its own affair, but for what only this server can run.
        upstream = engine.capabilities.hosted
        provided = [kind for provider in self.providers for kind in provider.types]
        asked = wanted(self.providers, request, types_here(request.tools, provided, upstream=upstream))
        answers = any(isinstance(item, RawItem) and item.type == _RESPONSE for item in own)
        if asked is None and (upstream or not answers):
            return None
        evidence = evidence_of(parts)
        context_length = engine.capabilities.context_length
        session = Session(scope, response_id, request, evidence, len(evidence), context_length=context_length)
        tools = HostedTools(session, asked or Wanted((), ()), self._observer, request.include, context_length)
        if answers:
            tools.approved = granted(own, evidence, upstream=upstream)
            if asked is None and not tools.approved:
                return None
        await tools.open_now()
        return tools


def evidence_of(parts: Iterable[Conversation]) -> list[dict[str, Any]]:
    """The bodies of all hosted items of a history, oldest first, and the answers to requests for approval."""
    return [body for part in parts for body in part.evidence]


def granted(own: Sequence[Item], evidence: Sequence[dict[str, Any]], *, upstream: bool = False) -> list[dict[str, Any]]:
    """The requests for approval that items of a request grant and that have not been run, in their order.

    Where an `upstream` runs tools too, those that are not ours are for it.

    Raises:
        InvalidRequestError: there is no such request in the history, or it was answered before.
    """
    asked = {_id_of(body): body for body in evidence if _asks(body, upstream=upstream)}
    answers = [str(body.get("approval_request_id")) for body in evidence if body.get("type") == _RESPONSE]
    ran = {body.get("approval_request_id") for body in evidence if body.get("type") == _CALL}
    found: list[dict[str, Any]] = []
    for index, item in enumerate(own):
        if not (isinstance(item, RawItem) and item.type == _RESPONSE):
            continue
        name = str(item.body.get("approval_request_id"))
        place = f"input[{index}]"
        if name not in asked and upstream:
            continue
        if name not in asked:
            raise InvalidRequestError(
                f"There is no approval request '{quoted(name)}' in this conversation.",
                param=f"{place}.approval_request_id",
                code="approval_request_not_found",
            )
        if answers.count(name) > 1:
            raise InvalidRequestError(
                f"The approval request '{quoted(name)}' was answered before.",
                param=f"{place}.approval_request_id",
                code="approval_request_answered",
            )
        approve = item.body.get("approve")
        if not isinstance(approve, bool):
            raise InvalidRequestError(
                f"Invalid '{place}.approve': true or false is expected.", param=f"{place}.approve", code="invalid_value"
            )
        if approve and name not in ran:
            found.append({**asked[name], "id": name})
    return found


def _id_of(body: dict[str, Any]) -> str:
    """The id that the client knows an item by, which is not ours where no store has it."""
    return str(body.get(SENT_ID) or body.get("id"))


def _asks(body: dict[str, Any], *, upstream: bool) -> bool:
    """Whether an item asks for approval here, and not at the upstream."""
    return body.get("type") == _REQUEST and not (upstream and UPSTREAM_ID in body)
