"""Grammars of strings that stand bare up to a closing tag, by their schema. Pure.

llguidance knows strings of a schema in quotes only, so that lengths, patterns, formats and alternatives are put here
as one terminal with the closing tag: a terminal takes all it can, and must not run over the tag.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from antiphon.prompt.lark import Lark

__all__ = ["raw_string", "search_expression"]

_ANYTHING: Final = "(?s:.*)"
_MOST_DEPTH: Final = 8
_MOST_COUNT: Final = 100_000
"""Characters beyond which a length is left to the check after generation."""

_SYNTAX: Final = frozenset("\\.+*?()|[]{}^$#&-~/")
_Sign = tuple[str, bool]
_START: Final = ("^", False)
_END: Final = ("$", False)
_ASCII: Final = {"d": "0-9", "w": "A-Za-z0-9_"}

_LONG: Final = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
_SHORT: Final = "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_MONTH_DAY: Final = f"(?:{_LONG}|{_SHORT}|02-(?:0[1-9]|1[0-9]|2[0-8]))"
_DATE: Final = rf"[0-9]{{4}}-{_MONTH_DAY}"
_TIME: Final = (
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST: Final = rf"{_LABEL}(?:\.{_LABEL}){{0,3}}"
_BYTE: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_SPAN: Final = r"(?:[0-9]{1,9}D(?:T(?:[0-9]{1,9}H)?[0-9]{1,9}M)?|T[0-9]{1,9}[HMS]|[0-9]{1,9}[WMY])"
_FORMATS: Final = {
    "date": _DATE,
    "time": _TIME,
    "date-time": rf"{_DATE}[Tt]{_TIME}",
    "duration": rf"P{_SPAN}",
    "email": rf"[A-Za-z0-9_+-]{{1,32}}(?:\.[A-Za-z0-9_+-]{{1,32}}){{0,2}}@{_LABEL}(?:\.{_LABEL}){{1,3}}",
    "hostname": _HOST,
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
    "ipv6": r"[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{1,4}){7}",
    "uuid": r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
    "uri": rf"[A-Za-z][A-Za-z0-9+-]{{0,15}}:\/\/{_HOST}(?:\/[A-Za-z0-9._~-]{{0,64}}){{0,8}}",
}


def raw_string(lark: Lark, name: str, schema: Mapping[str, Any], close: str, tag: str, *, null: bool = False) -> str:
    """The body of a rule for a string of this schema and what stands behind it, `close`, in which `tag` is the tag that
    the string must not hold. `name` is that of the terminal that it needs; `null` also lets the word `null` stand.
    """
    text = _text(schema, cast("dict[str, Any]", schema.get("$defs") or {}), _MOST_DEPTH)
    alternatives = [f"({text or _regex(_ANYTHING)}) & ~{_regex(_ANYTHING + _quoted(tag) + _ANYTHING)}"]
    if null:
        alternatives.append(Lark.literal("null"))
    body = Lark.any_of(alternatives)
    if lark.has_token(tag):
        # No text can be taken for a control token, so the terminal ends before it.
        return f"{lark.rule(name.upper(), body)} {lark.marked(close)}"
    return lark.rule(name.upper(), f"{body} {Lark.literal(close)}")


def search_expression(pattern: str) -> str | None:
    """An expression for the whole of a text in which the pattern is found; None where an anchor stands in its midst."""
    parts: list[str] = []
    for branch in _branches(_signs(pattern)):
        starts = branch[:1] == [_START]
        ends = branch[starts:][-1:] == [_END]
        body = branch[starts : len(branch) - ends]
        if _START in body or _END in body:
            return None
        text = "".join(_rewritten(sign, in_class) for sign, in_class in body)
        parts.append(f"{'' if starts else _ANYTHING}(?:{text}){'' if ends else _ANYTHING}")
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"


def _text(schema: Any, definitions: Mapping[str, Any], depth: int) -> str:
    """The terminal for the strings of a schema; empty where all are."""
    if not isinstance(schema, dict) or not depth:
        return ""
    body = cast("dict[str, Any]", schema)
    parts: list[str] = []
    values: list[Any] = body.get("enum") or ([body["const"]] if "const" in body else [])
    strings = [Lark.literal(value) for value in values if isinstance(value, str)]
    if strings:
        parts.append(Lark.any_of(strings))
    low, high = (body.get(key) for key in ("minLength", "maxLength"))
    if low or high is not None:
        least = low if isinstance(low, int) and 0 <= low <= _MOST_COUNT else 0
        most = high if isinstance(high, int) and 0 <= high <= _MOST_COUNT else ""
        parts.append(_regex(f"(?s:.{{{least},{most}}})"))
    pattern = body.get("pattern")
    expression = search_expression(pattern) if isinstance(pattern, str) else _FORMATS.get(str(body.get("format")))
    if expression is not None:
        parts.append(_regex(expression))
    reference = body.get("$ref")
    if isinstance(reference, str):
        parts.append(_text(definitions.get(reference.removeprefix("#/$defs/")), definitions, depth - 1))
    for key in ("anyOf", "oneOf"):
        branches = [part for part in cast("list[Any]", body.get(key) or []) if _may_be_string(part)]
        found = [_text(branch, definitions, depth - 1) for branch in branches]
        if found and all(found):
            parts.append(Lark.any_of(f"({text})" for text in found))
    parts += [_text(part, definitions, depth - 1) for part in cast("list[Any]", body.get("allOf") or [])]
    return " & ".join(f"({part})" for part in parts if part)


def _may_be_string(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return schema is not False
    body = cast("dict[str, Any]", schema)
    given = body.get("type", "string")
    return "string" in ([given] if isinstance(given, str) else given)


def _signs(pattern: str) -> list[_Sign]:
    """The signs of an expression, each with whether it stands in a class; an escape is one with what it escapes."""
    signs: list[_Sign] = []
    place = 0
    in_class = False
    while place < len(pattern):
        sign = pattern[place : place + 2] if pattern[place] == "\\" else pattern[place]
        place += len(sign)
        closes = in_class and sign == "]"
        signs.append((sign, in_class and not closes))
        in_class = not closes and (in_class or sign == "[")
    return signs


def _branches(signs: list[_Sign]) -> list[list[_Sign]]:
    """The alternatives at the top of an expression."""
    branches: list[list[_Sign]] = [[]]
    depth = 0
    for sign, in_class in signs:
        if not in_class:
            depth += (sign == "(") - (sign == ")")
        if sign == "|" and not in_class and not depth:
            branches.append([])
        else:
            branches[-1].append((sign, in_class))
    return branches


def _rewritten(sign: str, in_class: bool) -> str:
    """A sign of JSON Schema's dialect, whose classes are ASCII, in that of llguidance between slashes."""
    if len(sign) == 2:
        name = sign[1]
        if name in _ASCII:
            return _ASCII[name] if in_class else f"[{_ASCII[name]}]"
        if name.lower() in _ASCII and not in_class:
            return f"[^{_ASCII[name.lower()]}]"
        return sign
    if in_class and sign in "[&~":
        return "\\" + sign
    return {"/": "\\/", "\n": "\\n", "\r": "\\r"}.get(sign, sign)


def _regex(expression: str) -> str:
    return f"/{expression}/"


def _quoted(text: str) -> str:
    return "".join("\\" + char if char in _SYNTAX else {"\n": "\\n"}.get(char, char) for char in text)
