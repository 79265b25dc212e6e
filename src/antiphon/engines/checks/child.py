"""The process that checks schemas and grammars: it may die of one, and the server does not.

Run as `python -m antiphon.engines.checks.child`. It reads jobs from standard input, one JSON object a line, and answers
each with a JSON string on a line of standard output: what is wrong, or nothing. A job that needs more processor time or
memory than one may have ends the process, which is its answer. It imports the standard library, llguidance and
jsonschema-rs only.

Jobs: `{"schema"}` is it a schema that can be worked with; `{"schema", "text"}` is the text JSON that matches it;
`{"grammar"}` can llguidance read it, does it allow anything; `{"grammar", "text"}` does the text match it.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections import OrderedDict
from decimal import Decimal
from typing import Any, Final, NoReturn

import jsonschema_rs
from llguidance import LLMatcher, LLTokenizer
from llguidance._lib import LLParserLimits

__all__ = ["main"]

CPU_SECONDS: Final = 0.6
"""Processor time that one job may take."""

MEMORY: Final = 2**30
"""Bytes of address space that the process may have."""

MOST_VALIDATORS: Final = 64

MOST_DIGITS: Final = 330
"""Digits of a number; those beyond say nothing to a check, and cost more than there is."""

MOST_EXPONENT: Final = 6
"""Characters of an exponent."""

_LARGEST: Final = Decimal(10) ** MOST_DIGITS

_GRAMMAR_LIMITS: Any = LLParserLimits(max_grammar_size=100_000, max_lexer_states=50_000)
"""Those of M12."""

_PATTERN_BYTES: Final = 2**20
_LINEAR: Any = jsonschema_rs.RegexOptions(size_limit=_PATTERN_BYTES, dfa_size_limit=_PATTERN_BYTES)
_BACKTRACKING: Any = jsonschema_rs.FancyRegexOptions(
    backtrack_limit=50_000, size_limit=_PATTERN_BYTES, dfa_size_limit=_PATTERN_BYTES
)
"""For patterns with look-around, which the linear engine does not read; a match that takes too long is no match."""

_VALIDATORS: Final[tuple[Any, ...]] = (
    jsonschema_rs.validator_for,
    jsonschema_rs.Draft202012Validator,
    jsonschema_rs.Draft7Validator,
    jsonschema_rs.Draft4Validator,
)
"""Tools come from anywhere: what is no schema of the draft that it names may be one of another."""

_MOST_CHARACTERS: Final = 300
"""Characters of a fault."""


def main() -> None:
    """Answer jobs until standard input ends."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    checks = _Checks()
    for line in sys.stdin.buffer:
        # The signal of this timer ends the process.
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        try:
            fault = checks.answer(line)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(fault) + "\n")
        sys.stdout.flush()


class _Checks:
    """The jobs, with the validators of the last schemas."""

    def __init__(self) -> None:
        self._bytes: Any = LLTokenizer("byte")
        self._validators: OrderedDict[str, Any] = OrderedDict()

    def answer(self, line: bytes) -> str:
        try:
            job: dict[str, Any] = json.loads(line)
        except RecursionError:
            return "it is nested too deeply"
        if "grammar" in job:
            return self._grammar(job["grammar"], job.get("text"))
        try:
            validator = self._validator(job["schema"])
        except (ValueError, jsonschema_rs.ReferencingError) as error:
            return _plain(error)
        return _instance(validator, job["text"]) if "text" in job else ""

    def _validator(self, schema: dict[str, Any]) -> Any:
        key = json.dumps(schema)
        known = self._validators.pop(key, None)
        self._validators[key] = validator = known or _built(schema)
        while len(self._validators) > MOST_VALIDATORS:
            self._validators.popitem(last=False)
        return validator

    def _grammar(self, grammar: str, text: str | None) -> str:
        _, faults = LLMatcher.validate_grammar_with_warnings(
            LLMatcher.grammar_from_lark(grammar), limits=_GRAMMAR_LIMITS
        )
        matcher = LLMatcher(self._bytes, LLMatcher.grammar_from_lark(grammar), log_level=0, limits=_GRAMMAR_LIMITS)
        if matcher.is_error():
            return _first_line(matcher.get_error() or "".join(faults))
        if text is not None:
            tokens = self._bytes.tokenize_str(text)
            whole = matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()
            return "" if whole else "the text does not match the grammar"
        # Some grammars turn out to allow nothing, or to be too complex, only where the first text is drawn.
        matcher.compute_bitmask()
        return "it allows no text" if matcher.is_error() else ""


def _built(schema: dict[str, Any]) -> Any:
    """A validator of the schema.

    Raises:
        ValueError: it is none in any draft; the fault is the one of its own.
        ReferencingError: as above.
    """
    first: Exception | None = None
    for patterns in (_LINEAR, _BACKTRACKING):
        for make in _VALIDATORS:
            try:
                return make(
                    schema,
                    validate_formats=True,
                    ignore_unknown_formats=True,
                    pattern_options=patterns,
                    offline=True,
                )
            except (ValueError, jsonschema_rs.ReferencingError) as error:
                first = first or error
    raise first or ValueError("it is no schema")


def _instance(validator: Any, text: str) -> str:
    try:
        value: Any = json.loads(text, parse_float=_number, parse_int=_integer, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return "it is no JSON"
    try:
        validator.validate(value)
    except ValueError as error:
        return _plain(error)
    return ""


def _number(text: str) -> Decimal:
    """The number as it is written, as long as its size is one of numbers that anyone has; else the largest, or none."""
    digits, _, exponent = text.lower().partition("e")
    if len(exponent) > MOST_EXPONENT or (number := Decimal(text)).adjusted() > MOST_DIGITS:
        return Decimal(0) if exponent.startswith("-") else _LARGEST.copy_sign(Decimal(digits))
    return number if number.adjusted() > -MOST_DIGITS else Decimal(0)


def _integer(text: str) -> int:
    return int(text) if len(text) < MOST_DIGITS else int(_LARGEST) * (-1 if text.startswith("-") else 1)


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _plain(error: Exception) -> str:
    message = getattr(error, "message", None) or str(error)
    path = "/".join(str(step) for step in getattr(error, "instance_path", ()))
    return f"{_short(message)}{f' (at {_short(path)})' if path else ''}"


def _first_line(text: str) -> str:
    """The fault in llguidance's words, without its copy of the grammar."""
    line = text.split("\n", 1)[0]
    line = line.rsplit("failed to compile JSON schema: ", 1)[-1]
    return _short(line) or "it cannot be read"


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "…"


if __name__ == "__main__":
    main()
