"""Base64 in pieces is base64, and what requests hold of media is bounded together."""

from __future__ import annotations

import base64
import os
import threading

import pytest

from antiphon.errors import ServerBusyError
from antiphon.protocol.json import encode
from antiphon.runtime.media_bytes import PIECE, MediaRoom, decoded, encoded

requirement = pytest.mark.requirement

SIZES = [1, 2, 3, 4, PIECE - 1, PIECE, PIECE + 1, PIECE * 3 // 4, PIECE * 3 // 4 + 1, 2 * PIECE + 5]


@requirement("media:pieces")
@pytest.mark.parametrize("size", SIZES)
def test_base64_in_pieces_is_that_of_the_whole(size: int) -> None:
    data = os.urandom(size)
    text = base64.b64encode(data).decode()
    assert encoded("head,", data) == "head," + text
    assert decoded(text) == decoded("=head=," + text, 7) == data


@requirement("media:pieces")
@pytest.mark.parametrize("place", [4, PIECE, 2 * PIECE])
@pytest.mark.parametrize("odd", ["AA==", "AAA=", "====", "A\nAA", "A AA", "AA-_", "AAé="])
def test_what_is_no_base64_at_any_place_is_not_read(odd: str, place: int) -> None:
    good = "A" * place
    for text in (odd + good, good + odd + good, "A" + good, good + "AA", good + "A==="):
        with pytest.raises(ValueError):
            decoded(text)
    if odd in ("AA==", "AAA="):
        assert decoded(good + odd) == base64.b64decode(good + odd)
    else:
        with pytest.raises(ValueError):
            decoded(good + odd)


@requirement("media:pieces")
def test_others_have_their_turn_while_a_large_image_is_read() -> None:
    turns, done = 0, threading.Event()
    text = "A" * (40 * PIECE)

    def read() -> None:
        try:
            encoded("", decoded(text))
        finally:
            done.set()

    reader = threading.Thread(target=read)
    reader.start()
    while not done.wait(0.0001):
        turns += 1
    reader.join()
    assert turns >= 2


@requirement("media:room")
def test_room_is_given_back_when_nothing_refers_to_what_took_it() -> None:
    room = MediaRoom(100)
    part = room.hold({"url": "data"}, 60)
    assert encode({"image_url": part}) == b'{"image_url":{"url":"data"}}'
    with room.taken(40):
        assert room.held == 100
        with pytest.raises(ServerBusyError):
            room.hold({}, 1)
        with pytest.raises(ServerBusyError), room.taken(1):
            pass
    assert room.held == 60
    message = [{"type": "image_url", "image_url": part}]
    del part
    assert room.held == 60
    message.clear()
    assert room.held == 0
