"""What the tools over documents have in common: their stores, their faults, and the numbers of their sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from antiphon.corpus.library import Library
from antiphon.errors import APIError, InvalidRequestError, NotFoundError
from antiphon.protocol.tools import FunctionTool
from antiphon.store.base import Scope
from antiphon.store.corpora import StoredVectorStore
from antiphon.tools.base import HostedCall, HostedTool, Outcome, Session
from antiphon.tools.corpus.arguments import invalid, said
from antiphon.tools.corpus.results import annotation, results_of

__all__ = ["CITE", "LibraryTool", "function", "numbered"]

CITE: Final = (
    'Each result has a number. After a sentence that a result supports, write <cite i="NUMBER"/> with that number.'
)
"""How the model is told to cite."""


class LibraryTool(HostedTool):
    """A tool that reads from the library; `identifiers` are the stores of its entry, None where the model names one."""

    cites: bool = False

    def __init__(
        self,
        library: Library,
        declared: Mapping[str, Any],
        identifiers: Sequence[str] | None,
        told: FunctionTool,
        item_type: str,
    ) -> None:
        self.library = library
        self.declared = declared
        self.identifiers = identifiers
        self.function = told
        self.item_type = item_type

    async def stores(self, call: HostedCall, scope: Scope) -> Sequence[StoredVectorStore]:
        """The stores that a call is about.

        Raises:
            InvalidRequestError: the model named none.
            NotFoundError: there is none by a name.
        """
        named = self.identifiers
        if named is None:
            store = said(call).get("store")
            if not isinstance(store, str) or not store:
                raise invalid("'store' must name a store; list_stores tells which there are.")
            named = [store]
        return await self.library.stores(scope, named)

    def settle(self, call: HostedCall, outcome: Outcome, session: Session) -> Outcome:
        """Give each source of a citing tool its number."""
        results = outcome.fields.get("results")
        if not self.cites or not results:
            return outcome
        return Outcome({**outcome.fields, "results": numbered(results, session)}, outcome.also)

    def sources(self, body: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """The sources of an earlier call, by the numbers that the model knows them by."""
        return {
            result["_number"]: annotation(result)
            for result in results_of(body)
            if isinstance(result.get("_number"), int)
        }

    def failed(self, call: HostedCall, error: APIError) -> Outcome:
        """A failed item with an error of one of three codes (B3)."""
        if isinstance(error, NotFoundError):
            code = "permission_denied"
        else:
            code = "invalid_arguments" if isinstance(error, InvalidRequestError) else "server_error"
        return Outcome({"status": "failed", "results": None, "error": {"code": code, "message": error.message}})


def numbered(results: Sequence[dict[str, Any]], session: Session) -> list[dict[str, Any]]:
    """The results with the numbers that the model can cite them by."""
    return [{**result, "_number": session.cite(annotation(result))} for result in results]


def function(name: str, description: str, properties: dict[str, Any], required: Sequence[str] = ()) -> FunctionTool:
    """A function as the model is told of it."""
    parameters = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return FunctionTool(name=name, description=description, parameters=parameters)
