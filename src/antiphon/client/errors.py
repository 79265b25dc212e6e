"""The driver's errors: what an endpoint refused, an answer that failed, a stream that broke off.

AntiphonError
└── DriverError
    ├── ContextError        the context cannot be sent; nothing was (E7)
    ├── EndpointError       the endpoint answered with a status other than 200 (D1)
    ├── ResponseError       the answer failed: `response.failed` or an `error` event (S12, S13)
    ├── BodyError           what the endpoint sent is not an answer
    ├── StreamCutError      the stream ended before its terminal event
    └── TransportError      the endpoint could not be reached, broke off or was too slow
"""

from __future__ import annotations

from typing import Any

from antiphon.errors import AntiphonError

__all__ = [
    "BodyError",
    "ContextError",
    "DeadlineError",
    "DriverError",
    "EndpointError",
    "ResponseError",
    "StreamCutError",
    "TransportError",
]


class DriverError(AntiphonError):
    """The root of all errors of the driver."""


class ContextError(DriverError):
    """The context cannot be sent as it is; the message says which part and why."""


class EndpointError(DriverError):
    """The endpoint refused the request (D1).

    `status` is the HTTP status, `response_body` what came with it: decoded JSON, or its text. `message`, `code`,
    `type` and `param` are read from it where it has the envelope of OpenAI; `reason` is always the same.
    """

    reason = "OpenAI Responses API error"

    def __init__(
        self,
        status: int,
        response_body: Any,
        *,
        message: str | None = None,
        code: str | None = None,
        type: str | None = None,  # noqa: A002 - the wire's name
        param: str | None = None,
    ) -> None:
        super().__init__(f"{self.reason}: status {status}" + (f": {message}" if message else ""))
        self.status = status
        self.response_body = response_body
        self.message = message
        self.code = code
        self.type = type
        self.param = param


class ResponseError(DriverError):
    """The answer failed, after the endpoint had taken the request (S12, S13)."""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        type: str | None = None,  # noqa: A002 - the wire's name
        param: str | None = None,
        response_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.type = type
        self.param = param
        self.response_id = response_id


class BodyError(DriverError):
    """What the endpoint sent is not JSON, or not an answer."""


class StreamCutError(DriverError):
    """The stream ended before its terminal event; `last_sequence_number` is where it may be taken up again."""

    def __init__(
        self, message: str, *, response_id: str | None = None, last_sequence_number: int | None = None
    ) -> None:
        super().__init__(message)
        self.response_id = response_id
        self.last_sequence_number = last_sequence_number


class DeadlineError(DriverError):
    """A call took longer than `Limits.total`; what was asked for ends there too, unless it runs in the background."""


class TransportError(DriverError):
    """The endpoint could not be reached, broke off, or said nothing for too long, which `timeout` tells."""

    def __init__(self, message: str, *, timeout: bool = False) -> None:
        super().__init__(message)
        self.timeout = timeout
