"""One request for a response: its body, and in which other ways it may be tried."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from antiphon.client.encode import Conversation, encode
from antiphon.client.errors import ContextError, EndpointError
from antiphon.client.profiles import Profile

__all__ = ["Request", "to_wire"]


class Request:
    """One request for a response: its body, and what else it may be tried with."""

    def __init__(
        self,
        profile: Profile,
        conversation: Conversation,
        options: Mapping[str, Any],
        model: str | None,
        *,
        websocket: bool = False,
    ) -> None:
        self._websocket = websocket
        self._profile = profile
        self._conversation = conversation
        self._options = dict(options)
        self._model = model
        self._own_background = False
        self.wanted = options.get("text_format") or options.get("response_format")
        """What the answer is to be made into."""
        self._build()

    def run_in_background(self) -> None:
        """Run it in the background, so that its stream can be taken up again, unless the caller said whether to."""
        if self._options.get("background") is None and self._options.get("store") is not False:
            self._own_background = True
            self._options["background"] = True
            self._build()

    @property
    def in_background(self) -> bool:
        """Whether it goes on without its caller."""
        return self.body.get("background") is True

    @property
    def ends_with_caller(self) -> bool:
        """Whether it is in the background for our sake only, so that it is to end when the caller leaves."""
        return self._own_background

    def falls_back(self, error: EndpointError) -> bool:
        """Whether it can be tried in another way, now that the endpoint refused it so.

        An answer that the endpoint forgot is not gone on from, the conversation is sent instead; an endpoint that
        stores nothing runs nothing in the background.
        """
        options = self._options
        forgotten = error.code == "previous_response_not_found" or error.param == "previous_response_id"
        if forgotten and self.body.get("previous_response_id"):
            if options.get("previous_response_id") is not None or options.get("chain") is False:
                return False
            options["chain"] = False
        elif error.code == "response_storage_disabled" and self._own_background:
            self._own_background = False
            del options["background"]
        else:
            return False
        self._build()
        return True

    @property
    def wire(self) -> bytes:
        """The body as JSON.

        Raises:
            ContextError: something in it is not JSON.
        """
        return to_wire(self.body)

    def _build(self) -> None:
        self.body = encode(self._conversation, self._options, self._profile, self._model, websocket=self._websocket)
        self.key = uuid.uuid4().hex


def to_wire(body: Mapping[str, Any]) -> bytes:
    """A body as JSON.

    Raises:
        ContextError: something in it is not JSON.
    """
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise ContextError(f"The request cannot be sent, since something in it is not JSON: {error}") from None
