"""Filters on the attributes of files, as OpenAI and as Mixedbread write them, in one tree if need be.

OpenAI's: `{"type": "eq", "key", "value"}` and `{"type": "and" | "or", "filters": [...]}`. Mixedbread's:
`{"key", "operator", "value"}` and `{"all": [...], "any": [...], "none": [...]}`, of which all that are there must hold.

A key names an attribute, or with dots what is within one. What is not there, and what is of another kind than the value
that it is compared with, is not equal to it and neither more nor less. Of a list it is enough that one entry fits. All
is read before anything is compared, and compared without any text of the caller's becoming part of a query (B3 25, 30).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from msgspec import Struct

from antiphon.corpus.patterns import compiled
from antiphon.errors import InvalidRequestError
from antiphon.protocol.json import quoted

__all__ = ["MOST_CONDITIONS", "MOST_DEPTH", "Filter", "read_filters"]

MOST_DEPTH: Final = 8
MOST_CONDITIONS: Final = 128
MOST_VALUES: Final = 1_000
MOST_LETTERS: Final = 4_096

Filter = Callable[[Mapping[str, Any]], bool]
"""Whether the attributes of a file are those that are looked for."""

_Test = Callable[[Any], bool]


def read_filters(filters: Sequence[Mapping[str, Any]], param: str = "filters") -> Filter | None:
    """What files must fulfil, all the filters together; None where there is nothing to be fulfilled.

    Raises:
        InvalidRequestError: one cannot be read, or is nested too deeply or too large; the message says where.
        UnsupportedError: it has a regular expression, and RE2 is not installed.
    """
    reader = _Reader()
    named = param if len(filters) == 1 else None
    found = [reader.tree(each, named or f"{param}[{index}]", 1) for index, each in enumerate(filters)]
    if not found:
        return None
    return found[0] if len(found) == 1 else _every(found)


def _every(filters: Sequence[Filter]) -> Filter:
    return lambda attributes: all(each(attributes) for each in filters)


def _some(filters: Sequence[Filter]) -> Filter:
    return lambda attributes: any(each(attributes) for each in filters)


def _none(filters: Sequence[Filter]) -> Filter:
    return lambda attributes: not any(each(attributes) for each in filters)


_GROUPS: Final[Mapping[str, Callable[[Sequence[Filter]], Filter]]] = {"all": _every, "any": _some, "none": _none}
_COMPOUND: Final[Mapping[str, Callable[[Sequence[Filter]], Filter]]] = {"and": _every, "or": _some}


class _Condition(Struct, frozen=True):
    """One comparison of an attribute."""

    path: Sequence[str]
    name: str
    test: _Test
    negated: bool

    def __call__(self, attributes: Mapping[str, Any]) -> bool:
        return self._holds(attributes) != self.negated

    def _holds(self, attributes: Mapping[str, Any]) -> bool:
        value: Any = attributes.get(self.name)
        if value is None and len(self.path) > 1:
            value = attributes
            for step in self.path:
                value = cast("Mapping[str, Any]", value).get(step) if isinstance(value, Mapping) else None
        if value is None:
            return False
        if isinstance(value, (list, tuple)):
            return any(self.test(each) for each in cast("Sequence[Any]", value))
        return self.test(value)


class _Reader:
    """Reads trees, and counts what is in them."""

    def __init__(self) -> None:
        self._conditions = 0

    def tree(self, node: Any, place: str, depth: int) -> Filter:
        """What a node of a tree asks for."""
        if depth > MOST_DEPTH:
            raise _refused(place, f"filters are nested at most {MOST_DEPTH} deep")
        if not isinstance(node, Mapping):
            raise _refused(place, "a filter is an object")
        fields = cast("Mapping[str, Any]", node)
        self._conditions += 1
        if self._conditions > MOST_CONDITIONS:
            raise _refused(place, f"there are at most {MOST_CONDITIONS} conditions")
        kind = fields.get("type")
        if isinstance(kind, str) and kind in _COMPOUND:
            return self._group(fields.get("filters"), f"{place}.filters", depth, _COMPOUND[kind])
        groups = [name for name in _GROUPS if fields.get(name) is not None]
        if groups:
            stray = [name for name in fields if name not in _GROUPS]
            if stray:
                raise _refused(place, f"'{quoted(str(stray[0]))}' does not belong beside '{groups[0]}'")
            return _every([self._group(fields[name], f"{place}.{name}", depth, _GROUPS[name]) for name in groups])
        return self._condition(fields, place)

    def _group(self, nodes: Any, place: str, depth: int, join: Callable[[Sequence[Filter]], Filter]) -> Filter:
        if not isinstance(nodes, (list, tuple)):
            raise _refused(place, "a list of filters is expected")
        return join([self.tree(each, f"{place}[{at}]", depth + 1) for at, each in enumerate(cast("list[Any]", nodes))])

    def _condition(self, fields: Mapping[str, Any], place: str) -> Filter:
        field = "operator" if "operator" in fields else "type"
        operator, key = fields.get(field), fields.get("key")
        if not isinstance(operator, str) or operator not in _OPERATORS:
            known = ", ".join([*_OPERATORS, "and, or"])
            raise _refused(f"{place}.{field}", f"it is one of {known}")
        if not isinstance(key, str) or not 0 < len(key) <= MOST_LETTERS:
            raise _refused(f"{place}.key", "the name of an attribute is expected")
        if "value" not in fields:
            raise _refused(f"{place}.value", "a value is expected")
        make, negated = _OPERATORS[operator]
        return _Condition(key.split("."), key, make(fields["value"], f"{place}.value"), negated)


def _refused(place: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"Invalid filter at '{place}': {what}.", param=place, code="invalid_value")


def _plain(value: Any, place: str) -> str | float | bool:
    if isinstance(value, str) and len(value) > MOST_LETTERS:
        raise _refused(place, f"a text has at most {MOST_LETTERS} characters")
    if not isinstance(value, (str, int, float, bool)):
        raise _refused(place, "a text, a number, true or false is expected")
    return value


def _text(value: Any, place: str) -> str:
    plain = _plain(value, place)
    if not isinstance(plain, str):
        raise _refused(place, "a text is expected")
    return plain


def _kind(value: Any) -> type | None:
    """What a value can be compared with: true is no number here, unlike in Python."""
    if isinstance(value, bool):
        return bool
    return float if isinstance(value, (int, float)) else str if isinstance(value, str) else None


def _equal(value: Any, place: str) -> _Test:
    wanted = _plain(value, place)
    kind = _kind(wanted)
    return lambda found: _kind(found) is kind and found == wanted


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, str], _Test]:
    def make(value: Any, place: str) -> _Test:
        wanted = _plain(value, place)
        kind = _kind(wanted)
        if kind is bool:
            raise _refused(place, "true and false are neither more nor less than another value")
        return lambda found: _kind(found) is kind and compare(found, wanted)

    return make


def _among(value: Any, place: str) -> _Test:
    if not isinstance(value, (list, tuple)):
        raise _refused(place, "a list of values is expected")
    values = cast("Sequence[Any]", value)
    if len(values) > MOST_VALUES:
        raise _refused(place, f"there are at most {MOST_VALUES} values")
    wanted = {(_kind(each), _plain(each, f"{place}[{at}]")) for at, each in enumerate(values)}
    return lambda found: _kind(found) is not None and (_kind(found), found) in wanted


def _contains(value: Any, place: str) -> _Test:
    wanted = _plain(value, place)
    kind = _kind(wanted)
    if isinstance(wanted, str):
        return lambda found: isinstance(found, str) and wanted in found
    return lambda found: _kind(found) is kind and found == wanted


def _starts_with(value: Any, place: str) -> _Test:
    wanted = _text(value, place)
    return lambda found: isinstance(found, str) and found.startswith(wanted)


def _like(value: Any, place: str) -> _Test:
    """SQL's LIKE: `%` stands for any text, `_` for one character, and letters count the same in either case."""
    parts = [_WILD.get(letter) or _literal(letter) for letter in _text(value, place)]
    pattern = compiled(f"(?s)^{''.join(parts)}$", case_sensitive=False, param=place)
    return lambda found: isinstance(found, str) and bool(pattern.search(_encoded(found)))


def _regex(value: Any, place: str) -> _Test:
    pattern = compiled(_text(value, place), case_sensitive=True, param=place)
    return lambda found: isinstance(found, str) and bool(pattern.search(_encoded(found)))


_WILD: Final = {"%": ".*", "_": "."}


def _literal(letter: str) -> str:
    """A character as a pattern of itself."""
    return letter if letter.isalnum() or letter.isspace() or not letter.isascii() else f"\\{letter}"


def _encoded(text: str) -> bytes:
    return text.encode(errors="replace")


_OPERATORS: Final[Mapping[str, tuple[Callable[[Any, str], _Test], bool]]] = {
    "eq": (_equal, False),
    "ne": (_equal, True),
    "not_eq": (_equal, True),
    "gt": (_ordered(lambda found, wanted: found > wanted), False),
    "gte": (_ordered(lambda found, wanted: found >= wanted), False),
    "lt": (_ordered(lambda found, wanted: found < wanted), False),
    "lte": (_ordered(lambda found, wanted: found <= wanted), False),
    "in": (_among, False),
    "nin": (_among, True),
    "not_in": (_among, True),
    "contains": (_contains, False),
    "starts_with": (_starts_with, False),
    "like": (_like, False),
    "not_like": (_like, True),
    "regex": (_regex, False),
}
"""Each operator: how its test is made, and whether it is to fail."""
