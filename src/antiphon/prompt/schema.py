"""JSON Schema as far as a grammar can hold to it: what is written in its own words, and what is left out. Pure.

llguidance reads most of JSON Schema itself. What it cannot read is left out here, so that the rest still binds; an
output is checked against the whole schema afterwards. What is left open in a schema is closed where nobody asks for
more, so that an answer ends: no properties but those that are named, and no endless nesting where anything goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from msgspec import Struct

from antiphon.errors import InvalidRequestError
from antiphon.prompt.formats import FORMATS
from antiphon.prompt.keywords import (
    BOUNDS,
    IN_PLACE,
    KIND_OF,
    Schema,
    anchors,
    constraints,
    countable,
    disjoint,
    evaluated,
    meets_others,
    names_in,
    required_names,
    schemas_in,
)
from antiphon.protocol.json import encode, quoted

__all__ = ["Expressed", "Schema", "check_schema", "express"]

MAX_BYTES: Final = 64 * 1024
"""Bytes of a schema as compact JSON (M12)."""

MAX_DEPTH: Final = 32
"""Schemas within schemas (M12)."""

MAX_REFERENCES: Final = 64
"""`$ref`s in one schema (M12)."""

_ANY_LEVELS: Final = 16
"""How deep a value may nest of which a schema says nothing."""

_MOST_INTEGER: Final = 2**59
_MOST_NUMBER: Final = 1e17
_MOST_COUNT: Final = 10**9

_TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")
_COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_FORMATS: Final = frozenset({"ipv4", "ipv6", "uuid"})
"""Formats that llguidance reads itself."""

_CHECKED_FORMATS: Final = frozenset(
    {
        "idn-email",
        "idn-hostname",
        "iri",
        "iri-reference",
        "json-pointer",
        "regex",
        "relative-json-pointer",
        "uri-reference",
        "uri-template",
    }
)
"""Formats that are checked after generation only."""

_BEYOND: Final = frozenset(
    {
        "not",
        "if",
        "then",
        "else",
        "contains",
        "minContains",
        "maxContains",
        "uniqueItems",
        "propertyNames",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "unevaluatedItems",
        "unevaluatedProperties",
        "$dynamicRef",
        "$recursiveRef",
    }
)
"""Keywords that no grammar here expresses."""

_UNREADABLE: Final = ("(?=", "(?!", "(?<=", "(?<!", "\\b", "\\B", "\\c", "\\k<", *(f"\\{n}" for n in range(1, 10)))
"""What an expression may hold that llguidance does not read: look-around, boundaries, back-references."""


class Expressed(Struct, frozen=True):
    """A schema as a grammar takes it: references lead to its own `$defs` only.

    `complete` says that nothing that counts is missing from it.
    """

    schema: Schema
    complete: bool


def check_schema(schema: Mapping[str, Any], path: str) -> None:
    """Refuse a schema that is too large to be worked with (M12); `path` is where it stands in the request.

    Raises:
        InvalidRequestError: it has too many bytes, levels or references.
    """
    if len(encode(schema)) > MAX_BYTES:
        raise _too_large(path, f"at most {MAX_BYTES} bytes of JSON are supported")
    references = 0
    level: list[Any] = [schema]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                references += "$ref" in node
                below += schemas_in(cast("Schema", node))
        level = below
    if level:
        raise _too_large(path, f"at most {MAX_DEPTH} schemas within each other are supported")
    if references > MAX_REFERENCES:
        raise _too_large(path, f"at most {MAX_REFERENCES} references are supported")


def express(schema: Mapping[str, Any], path: str = "schema") -> Expressed:
    """The largest part of a schema that a grammar can hold an answer to.

    Raises:
        InvalidRequestError: the schema is too large (M12), or a reference in it leads round in a circle.
    """
    check_schema(schema, path)
    return _Expression(dict(schema), path).whole()


class _Expression:
    """One schema on its way to a grammar."""

    def __init__(self, root: Schema, path: str) -> None:
        self._root = root
        self._path = path
        self._complete = True
        self._names: dict[tuple[str, bool], str] = {}
        self._waiting: list[tuple[str, Any, bool]] = []
        self._anchors: dict[str, str] | None = None
        self._any = False

    def whole(self) -> Expressed:
        body = self._walk(self._root, combined=False)
        defs: Schema = {}
        while self._waiting:
            name, node, combined = self._waiting.pop()
            defs[name] = self._walk(node, combined)
        if self._any:
            defs |= _ANY
        schema: Schema = {"not": {}} if body is False else dict(body)
        if defs:
            schema["$defs"] = defs
        return Expressed(schema, self._complete)

    def _walk(self, node: Any, combined: bool) -> Any:
        """One schema; `combined` says that it holds together with others for the same value."""
        if node is False:
            return False
        if not isinstance(node, dict):
            return self._anything(combined)
        given = evaluated(cast("Schema", node))
        self._complete = self._complete and not {key for key in _BEYOND & given.keys() if not _says_nothing(key, given)}
        inner = combined or meets_others(given)
        made: Schema = {}
        for key, value in given.items():
            if key in IN_PLACE:
                self._in_place(key, value, inner, made)
            elif key in ("type", "enum", "const"):
                self._value(key, value, made)
            elif key in KIND_OF or key == "format" or key == "additionalItems":
                self._constraint(key, value, given, combined, made)
        if combined:
            return made
        return self._closed(made, given) or self._anything(combined)

    def _anything(self, combined: bool) -> Schema:
        if combined:
            return {}
        self._any = True
        return {"$ref": f"#/$defs/any{_ANY_LEVELS}"}

    def _in_place(self, key: str, value: Any, combined: bool, made: Schema) -> None:
        if key == "$ref":
            target = self._reference(value, combined)
            if target is not None:
                made["$ref"] = target
        elif isinstance(value, list) and value:
            branches = cast("list[Any]", value)
            parts = [self._walk(part, combined) for part in branches]
            if key == "oneOf":
                self._complete = self._complete and disjoint(branches)
                key = "anyOf"
            if key in made:
                made.setdefault("allOf", []).append({key: parts})
            elif key == "allOf":
                made[key] = [*parts, *made.get(key, [])]
            else:
                made[key] = parts

    def _value(self, key: str, value: Any, made: Schema) -> None:
        if key == "type":
            kinds = [value] if isinstance(value, str) else cast("list[Any]", value) if isinstance(value, list) else []
            known = [kind for kind in kinds if kind in _TYPES]
            if known:
                made["type"] = known[0] if len(known) == 1 else known
            self._complete = self._complete and len(known) == len(kinds) > 0
        else:
            made[key] = value

    def _constraint(self, key: str, value: Any, given: Schema, combined: bool, made: Schema) -> None:
        if key in ("properties", "patternProperties"):
            self._members(key, value, combined, made)
        elif key in ("items", "prefixItems", "additionalItems"):
            self._items(key, value, given, combined, made)
        elif key == "additionalProperties":
            made[key] = False if value is False else self._walk(value, combined)
        elif key == "required":
            made[key] = required_names(given)
        elif key in _COUNTS:
            self._count(key, value, given, made)
        elif key in (*BOUNDS, "multipleOf"):
            self._bound(key, value, given, made)
        else:
            self._text(key, value, given, made)

    def _members(self, key: str, value: Any, combined: bool, made: Schema) -> None:
        members = cast("Schema", value) if isinstance(value, dict) else None
        if members is None or (key == "patternProperties" and not all(_readable(name) for name in members)):
            self._complete = False
        else:
            made[key] = {name: self._walk(part, combined) for name, part in members.items()}

    def _items(self, key: str, value: Any, given: Schema, combined: bool, made: Schema) -> None:
        # Before 2020-12 a list under `items` was what `prefixItems` is now, and `additionalItems` what `items` is.
        tuple_form = isinstance(given.get("items"), list)
        if key == "prefixItems" or (key == "items" and tuple_form):
            if isinstance(value, list):
                made["prefixItems"] = [self._walk(part, combined) for part in cast("list[Any]", value)]
        elif (key == "items") is not tuple_form:
            made["items"] = self._walk(value, combined)

    def _count(self, key: str, value: Any, given: Schema, made: Schema) -> None:
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _MOST_COUNT:
            self._complete = False
        elif key.endswith("Properties") and not countable(given):
            self._complete = self._complete and key == "minProperties" and number <= len(required_names(given))
        else:
            made[key] = number

    def _bound(self, key: str, value: Any, given: Schema, made: Schema) -> None:
        if value is True and key.startswith("exclusive"):
            # The form of draft 4: the bound itself is under the other keyword.
            value = given.get("minimum" if key == "exclusiveMinimum" else "maximum")
        if value is False and key.startswith("exclusive"):
            return
        most = _MOST_INTEGER if given.get("type") == "integer" else _MOST_NUMBER
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > most:
            self._complete = False
        else:
            made[key] = value

    def _text(self, key: str, value: Any, given: Schema, made: Schema) -> None:
        if not isinstance(value, str):
            self._complete = False
        elif key == "pattern":
            if _readable(value):
                made[key] = value
            else:
                self._complete = False
        elif value in FORMATS:
            if "pattern" in given:
                made.setdefault("allOf", []).append({"pattern": FORMATS[value]})
            else:
                made["pattern"] = FORMATS[value]
        elif value in _FORMATS:
            made[key] = value
        elif value in _CHECKED_FORMATS:
            self._complete = False

    def _closed(self, made: Schema, given: Schema) -> Schema:
        """What is open in a schema that stands alone, closed: of one type, and with an end."""
        kinds = made.get("type")
        if kinds is None and not {"enum", "const"} & made.keys():
            kinds = list(dict.fromkeys(KIND_OF[key] for key in made if key in KIND_OF))
            if "format" in made and not kinds:
                kinds = ["string"]
            if not kinds:
                return made if {*IN_PLACE} & made.keys() else {}
            kinds = kinds[0] if len(kinds) == 1 else kinds
            made = {"type": kinds, **made}
        listed = [kinds] if isinstance(kinds, str) else kinds or []
        if "object" in listed and not {"enum", "const"} & made.keys():
            self._close_object(made, given)
        if "array" in listed and not {"items", "enum", "const", *IN_PLACE} & made.keys():
            # After the items that are named nothing more is expected, unless it must be there.
            whole = len(made.get("prefixItems") or ()) >= max(1, made.get("minItems", 0))
            made["items"] = False if whole else self._anything(combined=False)
        return made

    def _close_object(self, made: Schema, given: Schema) -> None:
        if "additionalProperties" in made:
            return
        named = names_in({key: value for key, value in given.items() if key in IN_PLACE})
        properties: Schema | None = made.get("properties")
        if "patternProperties" in given:
            # llguidance knows a name that is written with escapes by no pattern, so that none but known ones are left.
            known = {*(properties or ())}
            if "patternProperties" in made and named is not None and named | {*made.get("required", ())} <= known:
                made["additionalProperties"] = False
        elif properties is None:
            if named is not None and not named and "$ref" not in made:
                made["additionalProperties"] = self._anything(combined=False)
        elif named is not None and named <= properties.keys():
            for name in made.get("required", ()):
                if name not in properties:
                    properties[name] = self._anything(combined=False)
            more = made.get("minProperties", 0) > len(properties)
            made["additionalProperties"] = self._anything(combined=False) if more else False

    def _reference(self, value: Any, combined: bool) -> str | None:
        """The reference to a definition of ours; None where only the check after generation can follow it."""
        pointer, node = self._resolve(value)
        seen = {pointer}
        while isinstance(node, dict) and _is_alias(cast("Schema", node)):
            pointer, node = self._resolve(cast("Schema", node)["$ref"])
            if pointer in seen:
                raise InvalidRequestError(
                    f"Invalid schema at '{self._path}': the reference '{quoted(str(value))}' leads to itself.",
                    param=self._path,
                    code="invalid_json_schema",
                )
            seen.add(pointer)
        if pointer is None:
            self._complete = False
            return None
        key = (pointer, combined)
        if key not in self._names:
            self._names[key] = f"d{len(self._names)}"
            self._waiting.append((self._names[key], cast("Any", node), combined))
        return f"#/$defs/{self._names[key]}"

    def _resolve(self, reference: Any) -> tuple[str | None, Any]:
        """The pointer that a reference is, and what it points to; None for one that leads out of the schema."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None, None
        pointer = reference[1:]
        if pointer and not pointer.startswith("/"):
            if self._anchors is None:
                self._anchors = dict(anchors(self._root))
            pointer = self._anchors.get(pointer, "/")
        found: Any = self._root
        for step in pointer.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = cast("Schema", found)[name]
            elif isinstance(found, list) and name.isdigit() and int(name) < len(cast("list[Any]", found)):
                found = cast("list[Any]", found)[int(name)]
            else:
                return None, None
        return pointer, found


def _says_nothing(key: str, node: Schema) -> bool:
    """Whether a keyword allows everything."""
    if key in ("uniqueItems", "not"):
        return node[key] is False
    return key.startswith("unevaluated") and node[key] in (True, {})


def _is_alias(node: Schema) -> bool:
    return "$ref" in node and not constraints(node) and len(node.keys() & {*IN_PLACE}) == 1


def _readable(pattern: str) -> bool:
    return not any(sign in pattern for sign in _UNREADABLE)


def _too_large(path: str, limit: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"Invalid schema at '{path}': it is too large; {limit}.", param=path, code="invalid_json_schema"
    )


def _any_level(depth: int) -> Schema:
    if not depth:
        return {"type": ["string", "number", "boolean", "null"]}
    inner = {"$ref": f"#/$defs/any{depth - 1}"}
    return {
        "type": ["object", "array", "string", "number", "boolean", "null"],
        "items": inner,
        "additionalProperties": inner,
    }


_ANY: Final[Schema] = {f"any{depth}": _any_level(depth) for depth in range(_ANY_LEVELS + 1)}
