"""What the model says in a call of a corpus tool, read leniently: small models leave out brackets.

Faults are errors that the model is told, so that it can do better (B3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from antiphon.errors import InvalidRequestError
from antiphon.tools.base import HostedCall

__all__ = ["FILTER_PARAMETERS", "filters_said", "invalid", "number_said", "queries_said", "said", "strings_said"]

MOST_QUERIES: Final = 8
MOST_CHARACTERS: Final = 4_096

FILTER_PARAMETERS: Final[dict[str, Any]] = {
    "metadata_filters": {
        "type": "array",
        "description": "Conditions on the metadata of documents.",
        "maxItems": 16,
        "items": {
            "type": "object",
            "properties": {
                "key": {"type": "string"},
                "operator": {
                    "type": "string",
                    "enum": [
                        "eq",
                        "not_eq",
                        "gt",
                        "gte",
                        "lt",
                        "lte",
                        "in",
                        "not_in",
                        "like",
                        "not_like",
                        "contains",
                        "starts_with",
                    ],
                },
                "value": {},
            },
            "required": ["key", "operator", "value"],
        },
    },
    "filter_mode": {"type": "string", "enum": ["all", "any"], "description": "Whether all conditions must hold."},
}
"""The parameters of functions that take filters."""


def invalid(message: str) -> InvalidRequestError:
    """The error of arguments that cannot be used."""
    return InvalidRequestError(message, code="invalid_arguments")


def said(call: HostedCall) -> Mapping[str, Any]:
    """The arguments.

    Raises:
        InvalidRequestError: they are no JSON object.
    """
    if call.arguments is None:
        raise invalid("The arguments are no JSON object.")
    return call.arguments


def strings_said(call: HostedCall, name: str, *, most: int) -> list[str]:
    """A list of strings, or a single one.

    Raises:
        InvalidRequestError: it is none, or empty, or too long.
    """
    value = said(call).get(name)
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list):
        raise invalid(f"'{name}' must be a list of strings.")
    texts = [text.strip() for text in cast("list[Any]", given) if isinstance(text, str) and text.strip()]
    if not texts or len(texts) < len(cast("list[Any]", given)):
        raise invalid(f"'{name}' must be a list of strings that are not empty.")
    if len(texts) > most:
        raise invalid(f"'{name}' must have at most {most} entries.")
    if any(len(text) > MOST_CHARACTERS for text in texts):
        raise invalid(f"An entry of '{name}' is too long: at most {MOST_CHARACTERS} characters are read.")
    return texts


def queries_said(call: HostedCall) -> list[str]:
    """The queries of a search; a single `query` is taken too.

    Raises:
        InvalidRequestError: there is none.
    """
    arguments = said(call)
    name = "query" if "queries" not in arguments and "query" in arguments else "queries"
    return strings_said(call, name, most=MOST_QUERIES)


def number_said(call: HostedCall, name: str, default: int, most: int) -> int:
    """A whole number from 1 to `most`; one that is larger is taken as the most."""
    value = said(call).get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise invalid(f"'{name}' must be a whole number from 1 to {most}.")
    return min(value, most)


def filters_said(call: HostedCall) -> list[Mapping[str, Any]]:
    """The filters of a call, as one tree that `corpus.filters` reads.

    Raises:
        InvalidRequestError: they are no list of conditions.
    """
    arguments = said(call)
    conditions = arguments.get("metadata_filters")
    if conditions is None or conditions == []:
        return []
    if isinstance(conditions, dict):
        return [cast("dict[str, Any]", conditions)]
    if not isinstance(conditions, list) or not all(
        isinstance(each, dict) for each in cast("Sequence[Any]", conditions)
    ):
        raise invalid("'metadata_filters' must be a list of conditions with 'key', 'operator' and 'value'.")
    mode = arguments.get("filter_mode") or "all"
    if mode not in ("all", "any"):
        raise invalid("'filter_mode' must be 'all' or 'any'.")
    return [{mode: conditions}]
