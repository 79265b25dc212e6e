"""A short text that a regular expression of a schema matches, made from the expression and never matched with it.

The expression comes from a caller, so it is only read: literals, classes, groups, alternatives and counted repeats.
What else there is (look-around, back-references) has no instance here.
"""

from __future__ import annotations

__all__ = ["PatternError", "smallest_match"]

MAX_LENGTH = 4096
MAX_DEPTH = 64

_CLASSES = {"d": "0", "w": "a", "s": " ", "D": "a", "W": " ", "S": "a"}
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_ANCHORS = "bBAZz"


class PatternError(ValueError):
    """The expression is malformed, or has what no instance can be made of."""


def smallest_match(pattern: str) -> str:
    """A text that the pattern matches, as short as its alternatives and repeats allow.

    Raises:
        PatternError: there is none that can be made by reading the pattern.
    """
    reader = _Reader(pattern)
    text = reader.alternatives(0)
    if not reader.at_end:
        raise PatternError("an unbalanced parenthesis")
    return text


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._pattern)

    def alternatives(self, depth: int) -> str:
        if depth > MAX_DEPTH:
            raise PatternError("nested too deeply")
        shortest = self._sequence(depth)
        while self._skip("|"):
            other = self._sequence(depth)
            shortest = min(shortest, other, key=len)
        return shortest

    def _sequence(self, depth: int) -> str:
        parts: list[str] = []
        length = 0
        while not self.at_end and self._pattern[self._at] not in "|)":
            atom = self._atom(depth)
            low = self._repeat()
            length += len(atom) * low
            if length > MAX_LENGTH:
                raise PatternError("an instance that is too long")
            parts.append(atom * low)
        return "".join(parts)

    def _atom(self, depth: int) -> str:
        character = self._next()
        if character == "(":
            return self._group(depth)
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escape()
        if character == ".":
            return "a"
        if character in "^$":
            return ""
        if character in "*+?{":
            raise PatternError("a repeat of nothing")
        return character

    def _group(self, depth: int) -> str:
        if self._skip("?") and not self._skip(":"):
            if not self._skip("P<") and not self._skip("<"):
                raise PatternError("a look-around or a flag")
            if self._peek() in ("=", "!"):
                raise PatternError("a look-around")
            while self._next() != ">":
                pass
        text = self.alternatives(depth + 1)
        if self._next() != ")":
            raise PatternError("an unbalanced parenthesis")
        return text

    def _escape(self) -> str:
        character = self._next()
        if character in _CLASSES:
            return _CLASSES[character]
        if character in _CONTROL:
            return _CONTROL[character]
        if character in _ANCHORS:
            return ""
        if character in ("x", "u"):
            digits = self._take(2 if character == "x" else 4)
            try:
                return chr(int(digits, 16))
            except ValueError:
                raise PatternError("a malformed escape") from None
        if character.isalnum():
            raise PatternError("a back-reference or an unknown escape")
        return character

    def _class(self) -> str:
        negated = self._skip("^")
        members: list[tuple[str, str]] = []
        first = True
        while first or self._peek() != "]":
            first = False
            low = self._member()
            if self._peek() == "-" and self._at + 1 < len(self._pattern) and self._pattern[self._at + 1] != "]":
                self._next()
                members.append((low, self._member()))
            else:
                members.append((low, low))
        self._next()
        if not negated:
            return members[0][0]
        for candidate in "a0 _-.AZ~\u00e9":
            if not any(low <= candidate <= high for low, high in members):
                return candidate
        raise PatternError("a class that leaves nothing out")

    def _member(self) -> str:
        character = self._next()
        return self._escape() or "\b" if character == "\\" else character

    def _repeat(self) -> int:
        low = 1
        if self._skip("*") or self._skip("?"):
            low = 0
        elif self._skip("+"):
            low = 1
        elif self._peek() == "{":
            low = self._counted()
        else:
            return 1
        if not self._skip("?"):
            self._skip("+")
        return low

    def _counted(self) -> int:
        end = self._pattern.find("}", self._at)
        low, comma, high = self._pattern[self._at + 1 : end].partition(",")
        if end < 0 or not low.isdigit() or len(low) > 6 or (comma and high and not high.isdigit()):
            raise PatternError("a malformed repeat")
        self._at = end + 1
        return int(low)

    def _peek(self) -> str:
        return "" if self.at_end else self._pattern[self._at]

    def _next(self) -> str:
        if self.at_end:
            raise PatternError("an end that comes too early")
        self._at += 1
        return self._pattern[self._at - 1]

    def _take(self, count: int) -> str:
        return "".join(self._next() for _ in range(count))

    def _skip(self, text: str) -> bool:
        if self._pattern.startswith(text, self._at):
            self._at += len(text)
            return True
        return False
