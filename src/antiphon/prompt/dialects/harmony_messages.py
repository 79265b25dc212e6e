"""The messages of the harmony format, told apart while they are generated. Pure.

An answer goes on from `<|start|>assistant`. It is one message or several: a header that names a channel and, for a
call, whom it is to, then `<|message|>`, the content, and a token that ends it. What stands in no message is content
all the same.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

__all__ = ["CALL", "CHANNEL", "CONSTRAIN", "END", "MARKERS", "MESSAGE", "RETURN", "START", "Body", "Ended", "Header"]
__all__ += ["Messages"]

START: Final = "<|start|>"
CHANNEL: Final = "<|channel|>"
CONSTRAIN: Final = "<|constrain|>"
MESSAGE: Final = "<|message|>"
END: Final = "<|end|>"
CALL: Final = "<|call|>"
RETURN: Final = "<|return|>"

MARKERS: Final = (START, CHANNEL, CONSTRAIN, MESSAGE, END, CALL, RETURN)
"""The tokens of the format; none begins another."""

_TO: Final = "to="
_LONGEST_HEADER: Final = 512
"""Characters after which what began like a header is content."""

_ANY: Final = "|".join(re.escape(marker) for marker in MARKERS)
_MARKER = re.compile(_ANY)
_OUTSIDE = re.compile(f'"|{_ANY}')
_INSIDE = re.compile(r'["\\]')
_BEGINNINGS: Final = frozenset(marker[:size] for marker in MARKERS for size in range(1, len(marker)))
_LONGEST_MARKER: Final = max(map(len, MARKERS))
_RECIPIENT = re.compile(r"(?:^|[\s>])to=([^\s<]+)")
_CHANNEL_NAME = re.compile(r"<\|channel\|>\s*([A-Za-z]+)")

_BEGIN, _HEADER, _BODY, _BETWEEN = range(4)


class Header(Struct, frozen=True):
    """A message begins; `text` is the header as it is written, up to and with `<|message|>`, empty where it is none."""

    channel: str = ""
    recipient: str = ""
    text: str = ""


class Body(Struct, frozen=True):
    """More of the content of the message begun last, without markers."""

    text: str


class Ended(Struct, frozen=True):
    """The message begun last has ended, with this marker."""

    marker: str


Event = Header | Body | Ended


class Messages:
    """What `feed` yields is the same, with contents joined, however the text is cut.

    In a message to somebody that is a JSON object, what stands in a string is no marker.
    """

    def __init__(self) -> None:
        self._state = _BEGIN
        self._held = ""
        self._header: list[str] = []
        self._length = 0
        self._to_somebody = False
        self._json: bool | None = False
        self._in_string = False

    @property
    def in_content(self) -> bool:
        """Whether content of a message is being read."""
        return self._state == _BODY

    def feed(self, text: str) -> list[Event]:
        """The events that can be told with this text."""
        self._held += text
        found: list[Event] = []
        steps = (self._begin, self._in_header, self._in_body, self._between)
        while steps[self._state](found):
            pass
        return found

    def finish(self) -> list[Event]:
        """What was held back, at the end of the answer. A header that was cut is nobody's content."""
        held, self._held = self._held, ""
        if self._state == _HEADER:
            text = "".join(self._header) + held
            return [] if _MARKER.search(text) else [Header(), Body(text)]
        if not held:
            return []
        return [Body(held)] if self._state == _BODY else [Header(), Body(held)]

    def _begin(self, found: list[Event]) -> bool:
        """An answer begins with the rest of a header, or is plain."""
        text = self._held.lstrip()
        if not text and len(self._held) <= _LONGEST_HEADER:
            return False
        if _MARKER.match(text) or text.startswith(_TO):
            self._state = _HEADER
            return True
        if text and (_TO.startswith(text) or text in _BEGINNINGS):
            return False
        self._open(Header(), found)
        return True

    def _in_header(self, found: list[Event]) -> bool:
        marker = _MARKER.search(self._held)
        self._take(marker.end() if marker else len(self._held) - _partial(self._held))
        if marker is None:
            if self._length <= _LONGEST_HEADER:
                return False
            text = _MARKER.sub("", "".join(self._header))
            self._open(Header(), found)
            found.append(Body(text))
        elif marker.group() == MESSAGE:
            text = "".join(self._header)
            recipient, channel = _RECIPIENT.search(text), _CHANNEL_NAME.search(text)
            found_channel = channel.group(1) if channel else ""
            self._open(Header(found_channel, recipient.group(1) if recipient else "", text), found)
        elif marker.group() in (END, CALL, RETURN):
            # A header without content.
            self._header.clear()
            self._length = 0
            self._state = _BETWEEN
        return True

    def _take(self, count: int) -> None:
        self._header.append(self._held[:count])
        self._length += count
        self._held = self._held[count:]

    def _open(self, header: Header, found: list[Event]) -> None:
        found.append(header)
        self._header.clear()
        self._length = 0
        self._state = _BODY
        self._json = None if header.recipient else False
        self._in_string = False

    def _in_body(self, found: list[Event]) -> bool:
        if self._json is None:
            visible = self._held.lstrip()
            self._json = visible.startswith("{") if visible else None
        place, marker = self._content()
        if place:
            found.append(Body(self._held[:place]))
            self._held = self._held[place:]
        if not marker:
            return False
        if marker in (START, CHANNEL):
            # The message was not ended, or the answer not begun.
            self._state = _HEADER
        else:
            self._held = self._held[len(marker) :]
            if marker in (END, CALL, RETURN):
                found.append(Ended(marker))
                self._state = _BETWEEN
        return True

    def _content(self) -> tuple[int, str]:
        """How many of the held characters are content, and the marker behind them."""
        text = self._held
        place = 0
        while True:
            if self._in_string:
                found = _INSIDE.search(text, place)
                if found is None:
                    return len(text), ""
                if found.group() == "\\":
                    if found.end() == len(text):
                        return found.start(), ""
                    place = found.end() + 1
                    continue
                self._in_string = False
                place = found.end()
                continue
            found = (_OUTSIDE if self._json else _MARKER).search(text, place)
            if found is None:
                return max(place, len(text) - _partial(text)), ""
            if found.group() != '"':
                return found.start(), found.group()
            self._in_string = True
            place = found.end()

    def _between(self, found: list[Event]) -> bool:
        visible = self._held.lstrip()
        marker = _MARKER.match(visible)
        if marker is not None:
            self._held = visible
            if marker.group() in (START, CHANNEL):
                self._state = _HEADER
            else:
                self._held = visible[marker.end() :]
            return True
        if not visible or visible in _BEGINNINGS:
            if len(self._held) > _LONGEST_HEADER:
                self._held = visible
            return False
        self._open(Header(), found)
        return True


def _partial(text: str) -> int:
    """The length of the longest end of the text that begins a marker."""
    for size in range(min(len(text), _LONGEST_MARKER - 1), 0, -1):
        if text[-size:] in _BEGINNINGS:
            return size
    return 0
