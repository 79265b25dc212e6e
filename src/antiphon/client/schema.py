"""Whether a value is what a JSON Schema describes, for the structured answers of models (D14).

The keywords of JSON Schema 2020-12 about types, values, sizes, members and combination are checked, and references
within the schema followed. `pattern` and `patternProperties` are not, because a pattern of a caller may take any time;
`format` is a note, as in the standard.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import unquote

from antiphon.client.loose import as_dict, as_list

__all__ = ["Violation", "violations"]

Violation: TypeAlias = Literal["keys", "value"]
"""`keys`: the value has a key that the schema does not know; `value`: anything else is at fault."""

MAX_DEPTH = 128

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "number": (int, float),
    "null": (type(None),),
}


def violations(value: Any, schema: Any) -> set[Violation]:
    """The kinds of what is wrong with the value; an empty set where it is what the schema describes."""
    try:
        return set(_Checker(schema).check(value, schema, 0))
    except RecursionError:
        return {"value"}


class _Checker:
    def __init__(self, root: Any) -> None:
        self._root = root

    def check(self, value: Any, schema: Any, depth: int) -> Iterator[Violation]:
        if schema is False or depth > MAX_DEPTH:
            yield "value"
            return
        rules = as_dict(schema)
        reference = rules.get("$ref")
        if isinstance(reference, str):
            yield from self.check(value, self._resolve(reference), depth + 1)
        if not _is_of_type(value, rules.get("type")) or not _is_listed(value, rules):
            yield "value"
            return
        yield from self._combined(value, rules, depth + 1)
        if isinstance(value, dict):
            yield from self._object(cast("dict[str, Any]", value), rules, depth + 1)
        elif isinstance(value, list):
            yield from self._array(cast("list[Any]", value), rules, depth + 1)
        elif isinstance(value, str):
            if not _within(len(value), rules, "minLength", "maxLength"):
                yield "value"
        elif isinstance(value, int | float) and not isinstance(value, bool) and not _is_number(value, rules):
            yield "value"

    def _resolve(self, reference: str) -> Any:
        if not reference.startswith("#"):
            return False
        node = self._root
        for step in reference[1:].split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(node, list):
                members = cast("list[Any]", node)
                node = members[int(name)] if name.isdecimal() and int(name) < len(members) else False
            else:
                node = as_dict(node).get(name, False)
        return node

    def _holds(self, value: Any, schema: Any, depth: int) -> bool:
        return next(self.check(value, schema, depth), None) is None

    def _combined(self, value: Any, rules: dict[str, Any], depth: int) -> Iterator[Violation]:
        for schema in as_list(rules.get("allOf")):
            yield from self.check(value, schema, depth)
        for keyword in ("anyOf", "oneOf"):
            if keyword not in rules:
                continue
            found = [set(self.check(value, schema, depth)) for schema in as_list(rules[keyword])]
            fitting = sum(not faults for faults in found)
            if fitting == 0:
                yield from ("keys",) if {"keys"} in found else ("value",)
            elif keyword == "oneOf" and fitting > 1:
                yield "value"
        if "not" in rules and self._holds(value, rules["not"], depth):
            yield "value"
        if "if" in rules:
            branch = "then" if self._holds(value, rules["if"], depth) else "else"
            yield from self.check(value, rules.get(branch, True), depth)

    def _object(self, value: dict[str, Any], rules: dict[str, Any], depth: int) -> Iterator[Violation]:
        if not _within(len(value), rules, "minProperties", "maxProperties"):
            yield "value"
        if any(name not in value for name in _names(rules.get("required"))):
            yield "value"
        for name, needed in as_dict(rules.get("dependentRequired")).items():
            if name in value and any(other not in value for other in _names(needed)):
                yield "value"
        properties = as_dict(rules.get("properties"))
        others = True if rules.get("patternProperties") else rules.get("additionalProperties", True)
        for name, member in value.items():
            if name in properties:
                yield from self.check(member, properties[name], depth)
            elif others is False:
                yield "keys"
            else:
                yield from self.check(member, others, depth)

    def _array(self, value: list[Any], rules: dict[str, Any], depth: int) -> Iterator[Violation]:
        if not _within(len(value), rules, "minItems", "maxItems"):
            yield "value"
        leading = as_list(rules.get("prefixItems"))
        for member, schema in zip(value, leading, strict=False):
            yield from self.check(member, schema, depth)
        for member in value[len(leading) :]:
            yield from self.check(member, rules.get("items", True), depth)
        if rules.get("uniqueItems") is True and _has_twins(value):
            yield "value"
        if "contains" in rules:
            count = sum(self._holds(member, rules["contains"], depth) for member in value)
            if not _within(count, {"minContains": 1, **rules}, "minContains", "maxContains"):
                yield "value"


def _names(value: Any) -> list[str]:
    return [name for name in as_list(value) if isinstance(name, str)]


def _is_of_type(value: Any, wanted: Any) -> bool:
    if wanted is None:
        return True
    names = [wanted] if isinstance(wanted, str) else _names(wanted)
    for name in names:
        if name == "integer":
            if not isinstance(value, bool) and (
                isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            ):
                return True
        elif isinstance(value, _TYPES.get(name, ())) and (name == "boolean" or not isinstance(value, bool)):
            return True
    return False


def _is_listed(value: Any, rules: dict[str, Any]) -> bool:
    if "const" in rules and not _same(value, rules["const"]):
        return False
    return "enum" not in rules or any(_same(value, member) for member in as_list(rules["enum"]))


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        ours, theirs = cast("list[Any]", left), cast("list[Any]", right)
        return len(ours) == len(theirs) and all(map(_same, ours, theirs))
    if isinstance(left, dict) and isinstance(right, dict):
        mine, others = cast("dict[str, Any]", left), cast("dict[str, Any]", right)
        return mine.keys() == others.keys() and all(_same(mine[key], others[key]) for key in mine)
    return bool(left == right)


def _has_twins(values: list[Any]) -> bool:
    return any(_same(value, other) for place, value in enumerate(values) for other in values[:place])


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _within(size: int, rules: dict[str, Any], least: str, most: str) -> bool:
    low, high = _number(rules.get(least)), _number(rules.get(most))
    return (low is None or size >= low) and (high is None or size <= high)


def _is_number(value: float, rules: dict[str, Any]) -> bool:
    low, high = _number(rules.get("minimum")), _number(rules.get("maximum"))
    above, below = _number(rules.get("exclusiveMinimum")), _number(rules.get("exclusiveMaximum"))
    if (low is not None and value < low) or (high is not None and value > high):
        return False
    if (above is not None and value <= above) or (below is not None and value >= below):
        return False
    step = _number(rules.get("multipleOf"))
    if not step:
        return True
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    ratio = value / step
    return math.isfinite(ratio) and math.isclose(ratio, round(ratio), rel_tol=1e-9, abs_tol=1e-9)
