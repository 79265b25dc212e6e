"""Formats of strings as expressions, where llguidance's own let in what a validator refuses, or have no end. Pure.

These are no more than a part of what the standards allow: what is written under them is valid everywhere.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FORMATS"]

_LONG: Final = r"(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
_SHORT: Final = r"(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
_FEBRUARY: Final = r"02-(?:0[1-9]|1\d|2[0-8])"
_LEAP_YEAR: Final = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE: Final = rf"(?:\d{{4}}-(?:{_LONG}|{_SHORT}|{_FEBRUARY})|{_LEAP_YEAR}-02-29)"
# A leap second is one only at some ends of some months.
_TIME: Final = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_DAYS: Final = r"\d{1,3}D"
_MONTHS: Final = rf"\d{{1,2}}M(?:{_DAYS})?"
_YEARS: Final = rf"\d{{1,4}}Y(?:{_MONTHS})?"
_SECONDS: Final = r"\d{1,2}S"
_MINUTES: Final = rf"\d{{1,2}}M(?:{_SECONDS})?"
_HOURS: Final = rf"T(?:\d{{1,3}}H(?:{_MINUTES})?|{_MINUTES}|{_SECONDS})"
_LABEL: Final = r"[A-Za-z0-9]{1,20}(?:-[A-Za-z0-9]{1,20}){0,2}"
_ATOM: Final = r"[A-Za-z0-9_+%-]"
_PATH: Final = r"[A-Za-z0-9_.~!$&'()*+,;=:@-]"
_AUTHORITY: Final = rf"//{_LABEL}(?:\.{_LABEL}){{0,3}}(?::[1-9]\d{{0,3}})?(?:/{_PATH}{{0,40}}){{0,8}}"
_AFTER: Final = rf"(?:\?(?:{_PATH}|/){{1,80}})?(?:#(?:{_PATH}|/){{1,40}})?"

FORMATS: Final = {
    "date": rf"^{_DATE}$",
    "date-time": rf"^{_DATE}T{_TIME}$",
    "duration": rf"^P(?:(?:{_YEARS}|{_MONTHS}|{_DAYS})(?:{_HOURS})?|{_HOURS}|\d{{1,4}}W)$",
    "uri": rf"^[a-z][a-z0-9+.-]{{1,9}}:(?:{_AUTHORITY}|{_PATH}{{1,60}}){_AFTER}$",
    "time": rf"^{_TIME}$",
    "hostname": rf"^{_LABEL}(?:\.{_LABEL}){{0,3}}$",
    "email": rf"^{_ATOM}{{1,30}}(?:\.{_ATOM}{{1,15}}){{0,2}}@{_LABEL}(?:\.{_LABEL}){{1,2}}$",
}
"""The expression of each such format, which matches a text as a whole."""
