"""Histories that no store has, for the WebSocket connections that may go on from them (responses-api 7)."""

from __future__ import annotations

from collections import OrderedDict

from antiphon.runtime.history import Turn

__all__ = ["ConnectionTurns"]

MAX_CHARACTERS = 64 * 1024 * 1024
TURN_CHARACTERS = 2048
"""What a history is counted for beside its text."""


class ConnectionTurns:
    """The histories of all connections together, by the id of their last response; bounded by their text.

    Where there is no room, those go first that were used longest ago; their clients are told that the response is not
    found, and send the whole of what they have.
    """

    def __init__(self, max_characters: int = MAX_CHARACTERS) -> None:
        self._max = max_characters
        self._turns: OrderedDict[str, Turn] = OrderedDict()
        self._size = 0

    def get(self, response_id: str) -> Turn | None:
        """The history; None where it is not, or no longer, kept."""
        turn = self._turns.get(response_id)
        if turn is not None:
            self._turns.move_to_end(response_id)
        return turn

    def put(self, response_id: str, turn: Turn) -> None:
        """Keep it; the newest is kept however large it is."""
        self.drop(response_id)
        self._turns[response_id] = turn
        self._size += turn.size + TURN_CHARACTERS
        while self._size > self._max and len(self._turns) > 1:
            _, oldest = self._turns.popitem(last=False)
            self._size -= oldest.size + TURN_CHARACTERS

    def drop(self, response_id: str) -> None:
        """Keep it no longer; nothing happens where it is not."""
        turn = self._turns.pop(response_id, None)
        if turn is not None:
            self._size -= turn.size + TURN_CHARACTERS
