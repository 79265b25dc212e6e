"""Values that a model writes as JSON or as Python, turned into JSON text while they are generated. Pure.

Sound JSON comes out as it went in, byte for byte. What is meant beyond doubt is mended: a raw line break in a string,
an escape that JSON does not know, quotes of the other kind, Python's names of constants, a comma too many. Strings
leave as they come; numbers and words leave at their end, which the next character tells.
"""

from __future__ import annotations

import re
from typing import Final

from antiphon.protocol.depth import MAX_DEPTH
from antiphon.protocol.json import encode

__all__ = ["LiteralReader"]

_SPACE: Final = " \t\r\n"
_WORD = re.compile(r"[\w+\-.]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LOOSE_NUMBER = re.compile(r"[+-]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)?")
_OTHER_BASE = re.compile(r"[+-]?0[xXoObB][0-9a-fA-F_]{1,64}")
_CONSTANTS: Final = {name: name.lower() for name in ("true", "false", "null", "True", "False")} | {"None": "null"}
_BODIES: Final = {quote: re.compile(rf"[^{quote}\\\x00-\x1f]+") for quote in "\"'"}
_PLAIN_ESCAPES: Final = frozenset('"\\/bfnrt')
_HEX_LENGTHS: Final = {"u": 4, "x": 2, "U": 8}
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_REPLACEMENT: Final = "\\ufffd"
_CLOSERS: Final = {"{": "}", "[": "]", "(": ")"}

_VALUE, _AFTER, _KEY, _COLON = range(4)


class LiteralReader:
    """One value. `python` says that it stands in Python's form: tuples are arrays, bare words are strings, strings may
    be raw or tripled, and the space between tokens is put as `json.dumps` does.

    The value must not nest deeper than JSON that is kept whole may (faults B2 14).
    """

    def __init__(self, *, python: bool = False) -> None:
        self._python = python
        self._state = _VALUE
        self._closers: list[str] = []
        self._comma = False
        self._space: list[str] = []
        self._out: list[str] = []
        self._word: list[str] | None = None
        self._quote = ""
        self._tripled = False
        self._raw = False
        self._quotes = 0
        self._blank = True
        self._emptied = ""
        self._escape: str | None = None
        self._surrogate = ""
        self.begun = False
        """Whether the first character of the value has been read."""
        self.ended = False
        """Whether the value is complete, or broken."""
        self.broken = False
        """Whether it turned out to be no value; what was taken stands."""

    def feed(self, text: str, place: int = 0) -> int:
        """Read on from a place in the text; the result is the place behind what is the value's."""
        while place < len(text) and not self.ended:
            if self._quote:
                place = self._in_string(text, place)
            elif self._word is not None:
                place = self._in_word(text, place)
            elif self._emptied:
                place = self._behind_empty_string(text, place)
            else:
                place = self._between(text, place)
        return place

    def take(self) -> str:
        """The JSON text that came since the last call."""
        text = "".join(self._out)
        self._out.clear()
        return text

    def finish(self) -> str:
        """What was held back of a string that has no end, where the text ends in it."""
        if self._tripled:
            self._flush_quotes()
        return self.take()

    def _between(self, text: str, place: int) -> int:
        char = text[place]
        if char in _SPACE:
            if not self._python and self.begun:
                self._space.append(char)
            return place + 1
        if self._state == _AFTER and char == ",":
            self._comma = True
            self._state = _KEY if self._closers[-1] == "}" else _VALUE
        elif self._state == _COLON and char == ":":
            self._emit(": " if self._python else ":")
            self._state = _VALUE
        elif self._closers and char == self._closers[-1] and self._may_close():
            self._close()
        elif self._state == _KEY:
            return self._begin_key(char, place)
        elif self._state == _VALUE:
            return self._begin_value(char, place)
        else:
            self._break()
            return place
        return place + 1

    def _may_close(self) -> bool:
        # After an opening bracket, an element or a comma too many, but not between a key and its value.
        return self._state in (_AFTER, _KEY) or (self._state == _VALUE and self._closers[-1] != "}")

    def _begin_key(self, char: str, place: int) -> int:
        if char in "\"'":
            self._separate()
            self._open_string(char)
            return place + 1
        if not _WORD.match(char, 0, 1) or char in "+.":
            self._break()
            return place
        self._word = []
        return place

    def _begin_value(self, char: str, place: int) -> int:
        self.begun = True
        if char in "\"'":
            self._separate()
            self._open_string(char)
            return place + 1
        if char in "{[" or (self._python and char == "("):
            return self._open(char, place)
        match = _WORD.match(char)
        if match is None or not match.group():
            self._break()
            return place
        self._word = []
        return place

    def _open(self, char: str, place: int) -> int:
        if len(self._closers) == MAX_DEPTH:
            self._break()
            return place
        self._separate()
        self._closers.append(_CLOSERS[char])
        self._emit("{" if char == "{" else "[")
        self._state = _KEY if char == "{" else _VALUE
        return place + 1

    def _close(self) -> None:
        # A comma before the bracket is one too many and is dropped.
        self._comma = False
        closer = self._closers.pop()
        self._emit("}" if closer == "}" else "]")
        self._end_value()

    def _end_value(self) -> None:
        self._state = _AFTER
        self.ended = not self._closers

    def _separate(self) -> None:
        if self._comma:
            self._comma = False
            self._out.append(", " if self._python else ",")

    def _emit(self, text: str) -> None:
        if self._space:
            self._out += self._space
            self._space.clear()
        self._out.append(text)

    def _break(self) -> None:
        self.ended = self.broken = True

    # Words: numbers, constants, bare keys.

    def _in_word(self, text: str, place: int) -> int:
        assert self._word is not None  # noqa: S101 - feed has looked
        match = _WORD.match(text, place)
        end = match.end() if match else place
        self._word.append(text[place:end])
        if end < len(text):
            word = "".join(self._word)
            if self._python and word in ("r", "R") and text[end] in "\"'" and self._state == _VALUE:
                self._word = None
                self._raw = True
                self._separate()
                self._open_string(text[end])
                return end + 1
            self._end_word(word)
        return end

    def _end_word(self, word: str) -> None:
        self._word = None
        value = encode(word).decode() if self._state == _KEY else self._scalar(word)
        if value is None:
            self._break()
            return
        self._separate()
        self._emit(value)
        if self._state == _KEY:
            self._state = _COLON
        else:
            self._end_value()

    def _scalar(self, word: str) -> str | None:
        if _NUMBER.fullmatch(word):
            return word
        if word in _CONSTANTS:
            return _CONSTANTS[word]
        if _OTHER_BASE.fullmatch(word):
            try:
                return str(int(word, 0))
            except ValueError:
                return None
        if _LOOSE_NUMBER.fullmatch(word):
            return _sound_number(word.replace("_", ""))
        if self._python and (word[0].isalpha() or word[0] == "_"):
            return encode(word).decode()
        return None

    # Strings.

    def _open_string(self, quote: str) -> None:
        self._quote = quote
        self._blank = True
        self._emit('"')

    def _end_string(self) -> None:
        self._quote = ""
        self._tripled = self._raw = False
        self._drop_surrogate()
        self._out.append('"')
        if self._state == _KEY:
            self._state = _COLON
        else:
            self._end_value()

    def _in_string(self, text: str, place: int) -> int:
        char = text[place]
        if self._escape is not None:
            return self._in_escape(char, place)
        if char == self._quote:
            return self._at_quote(place)
        self._flush_quotes()
        self._blank = False
        if char == "\\":
            if self._raw:
                self._out.append("\\\\")
            else:
                self._escape = ""
            return place + 1
        self._drop_surrogate()
        body = _BODIES[self._quote].match(text, place)
        if body is None:
            self._out.append(encode(char).decode()[1:-1])
            return place + 1
        self._out.append(body.group().replace('"', '\\"') if self._quote == "'" else body.group())
        return body.end()

    def _at_quote(self, place: int) -> int:
        if self._tripled:
            self._quotes += 1
            if self._quotes == 3:
                self._quotes = 0
                self._end_string()
        elif self._python and self._blank:
            # An empty string, or two quotes of three.
            self._emptied, self._quote = self._quote, ""
        else:
            self._end_string()
        return place + 1

    def _behind_empty_string(self, text: str, place: int) -> int:
        quote, self._emptied = self._emptied, ""
        if text[place] == quote:
            self._quote = quote
            self._tripled = True
            return place + 1
        self._end_string()
        return place

    def _flush_quotes(self) -> None:
        if self._quotes:
            self._drop_surrogate()
            self._out.append(('\\"' if self._quote == '"' else "'") * self._quotes)
            self._quotes = 0

    def _in_escape(self, char: str, place: int) -> int:
        assert self._escape is not None  # noqa: S101 - the caller has looked
        escape = self._escape
        if escape:
            return self._in_hex(escape, char, place)
        self._escape = None
        if char == "u":
            self._escape = char
            return place + 1
        self._drop_surrogate()
        if char in _HEX_LENGTHS:
            self._escape = char
        elif char in _PLAIN_ESCAPES:
            self._out.append("\\" + char)
        elif char == "'":
            self._out.append("'")
        elif char == "\n":
            pass  # Python joins the lines.
        elif self._python and char in "0av":
            self._out.append({"0": "\\u0000", "a": "\\u0007", "v": "\\u000b"}[char])
        else:
            # No escape at all: the backslash is meant.
            self._out.append("\\\\")
            return place
        return place + 1

    def _in_hex(self, escape: str, char: str, place: int) -> int:
        if char not in _HEX:
            self._escape = None
            self._drop_surrogate()
            self._out.append("\\\\" + escape)
            return place
        escape += char
        self._escape = escape
        if len(escape) == 1 + _HEX_LENGTHS[escape[0]]:
            self._escape = None
            self._character(escape[0], escape[1:])
        return place + 1

    def _character(self, kind: str, digits: str) -> None:
        point = int(digits, 16)
        if kind == "U":
            sound = point <= 0x10FFFF and not 0xD800 <= point <= 0xDFFF
            self._out.append(encode(chr(point)).decode()[1:-1] if sound else _REPLACEMENT)
        elif 0xD800 <= point <= 0xDBFF:
            self._drop_surrogate()
            self._surrogate = f"\\u{digits}"
        elif 0xDC00 <= point <= 0xDFFF:
            self._out.append(f"{self._surrogate}\\u{digits}" if self._surrogate else _REPLACEMENT)
            self._surrogate = ""
        else:
            self._drop_surrogate()
            self._out.append("\\u" + digits.rjust(4, "0"))

    def _drop_surrogate(self) -> None:
        # Half a character is none.
        if self._surrogate:
            self._surrogate = ""
            self._out.append(_REPLACEMENT)


def _sound_number(word: str) -> str | None:
    """A number as JSON writes it; None where it is none."""
    sign = "-" if word[0] == "-" else ""
    digits = word.lstrip("+-")
    mantissa, mark, exponent = digits.replace("E", "e").partition("e")
    whole, point, fraction = mantissa.partition(".")
    number = sign + (whole.lstrip("0") or "0") + (f".{fraction or '0'}" if point else "")
    number += mark + exponent
    return number if _NUMBER.fullmatch(number) else None
