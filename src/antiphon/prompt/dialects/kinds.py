"""How values of a tool's parameters are written in a form of calls that is not JSON. Pure.

Families that write a call as tags or as keys and values give strings bare and everything else as JSON, so that the
schema decides how a value is read (local-engine 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, cast

from antiphon.prompt.arguments import Parameter

__all__ = ["ALL_TYPES", "Arguments", "Kind", "type_of"]

ALL_TYPES: Final = frozenset({"string", "number", "boolean", "null", "object", "array"})
"""The types of JSON; whole numbers are numbers."""


class Kind(Enum):
    """How a value of a parameter is written."""

    STRING = "string"
    """Bare text."""
    NULLABLE = "nullable"
    """Bare text, or `null`."""
    JSON = "json"
    """JSON, and never a string."""
    ANY = "any"
    """JSON, a string in quotes; bare text that is no fitting JSON is taken for a string."""


class Arguments:
    """The parameters of one tool by their names; of one that is not declared everything fits."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.parameters = parameters
        self._types = {parameter.name: _Types(parameter.schema).of(parameter.schema) for parameter in parameters}

    def types(self, name: str) -> frozenset[str]:
        """The types that a value of this parameter may have."""
        return self._types.get(name, ALL_TYPES)

    def kind(self, name: str) -> Kind:
        """How a value of this parameter is written."""
        types = self.types(name)
        if "string" not in types:
            return Kind.JSON
        others = types - {"string"}
        if not others:
            return Kind.STRING
        return Kind.NULLABLE if others == frozenset({"null"}) else Kind.ANY


class _Types:
    """Reads the types out of one schema, which holds the definitions that it refers to."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._definitions: dict[str, Any] = root.get("$defs", {})
        self._known: dict[str, frozenset[str]] = {}

    def of(self, schema: Any) -> frozenset[str]:
        if not isinstance(schema, dict):
            return ALL_TYPES
        body = cast("dict[str, Any]", schema)
        types = _stated(body)
        reference = body.get("$ref")
        if isinstance(reference, str):
            if reference not in self._known:
                # What refers to itself says nothing more by it.
                self._known[reference] = ALL_TYPES
                self._known[reference] = self.of(self._definitions.get(reference.removeprefix("#/$defs/")))
            types &= self._known[reference]
        for key in ("anyOf", "oneOf"):
            branches = _sequence(body.get(key))
            if branches:
                types &= frozenset[str]().union(*(self.of(branch) for branch in branches))
        for branch in _sequence(body.get("allOf")):
            types &= self.of(branch)
        return types


def type_of(value: Any) -> str:
    """The JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"


def _stated(body: Mapping[str, Any]) -> frozenset[str]:
    given = body.get("type")
    names = [given] if isinstance(given, str) else _sequence(given)
    types = frozenset("number" if name == "integer" else str(name) for name in names) & ALL_TYPES or ALL_TYPES
    values = _sequence(body.get("enum")) or ([body["const"]] if "const" in body else [])
    return types & frozenset(type_of(value) for value in values) if values else types


def _sequence(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
