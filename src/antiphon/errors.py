"""Every error that a caller can see, as one tree.

Each class knows its HTTP status and its `type`; an instance adds `code`, `param` and, where a retry can help, the
seconds to wait. `http` only serializes them (error envelope: responses-api 6.2, operations C1).

    AntiphonError
    ├── ConfigurationError              the operator's fault; ends the process at start, never reaches a client
    ├── OutboundError                   a request to elsewhere failed; whoever made it says what that means
    │   └── OutboundRefusedError        its target may not be asked
    └── APIError                        answered in the envelope {"error": {message, type, param, code}}
        ├── InvalidRequestError         400 invalid_request_error
        │   ├── ContextOverflowError    400 context_length_exceeded, with both numbers
        │   └── UnsupportedError        400 unsupported_parameter / unsupported_value
        ├── AuthenticationError         401 authentication_error
        ├── PermissionDeniedError       403 permission_error
        ├── NotFoundError               404 invalid_request_error, as OpenAI's
        ├── MethodNotAllowedError       405 invalid_request_error
        ├── ConflictError               409 conflict_error
        ├── GoneError                   410 invalid_request_error
        ├── PayloadTooLargeError        413 invalid_request_error
        ├── RateLimitError              429 rate_limit_error
        ├── InternalError               500 server_error
        │   ├── EngineError             500 server_error: the engine failed; after `response.created` it is `failed`
        │   └── DivergedError           500 resume_diverged: a turn that was run again said something else than before
        └── UnavailableError            503 server_error, with Retry-After
            ├── ServerBusyError         503 server_busy (M40)
            └── EngineUnavailableError  503 the engine is loading or restarting
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "APIError",
    "AntiphonError",
    "AuthenticationError",
    "ConfigurationError",
    "ConflictError",
    "ContextOverflowError",
    "DivergedError",
    "EngineError",
    "EngineUnavailableError",
    "GoneError",
    "InternalError",
    "InvalidRequestError",
    "MethodNotAllowedError",
    "NotFoundError",
    "OutboundError",
    "OutboundRefusedError",
    "PayloadTooLargeError",
    "PermissionDeniedError",
    "RateLimitError",
    "ServerBusyError",
    "UnavailableError",
    "UnsupportedError",
]


class AntiphonError(Exception):
    """The root of all errors that this package raises on purpose."""


class ConfigurationError(AntiphonError):
    """A setting, a model file or a store cannot be used; the message says which and what to do."""


class OutboundError(AntiphonError):
    """A request to elsewhere failed; the message holds no URL, no address and no header, and may be logged."""


class OutboundRefusedError(OutboundError):
    """The target of a request to elsewhere may not be asked; nothing was sent (faults B2 17)."""


class APIError(AntiphonError):
    """An error that reaches the caller in OpenAI's envelope.

    `retry` says whether the SDKs should send the request again, where its status does not (operations C1).
    """

    status: ClassVar[int] = 500
    default_type: ClassVar[str] = "server_error"
    default_code: ClassVar[str | None] = None

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        type: str | None = None,  # noqa: A002 - the wire's name
        http_status: int | None = None,
        retry_after: float | None = None,
        retry: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code if code is not None else self.default_code
        self.type = type if type is not None else self.default_type
        self.http_status = http_status if http_status is not None else self.status
        self.retry_after = retry_after
        self.retry = retry

    def body(self) -> dict[str, str | None]:
        """The object under `error` in the envelope."""
        return {"message": self.message, "type": self.type, "param": self.param, "code": self.code}


class InvalidRequestError(APIError):
    """The request is at fault; sending it again unchanged cannot help."""

    status = 400
    default_type = "invalid_request_error"


class ContextOverflowError(InvalidRequestError):
    """The prompt is longer than the model's context; carries both numbers, in tokens.

    `estimated` is for a prompt so much longer that only its beginning was counted; the message says so.
    """

    default_code = "context_length_exceeded"

    def __init__(self, input_tokens: int, context_length: int, *, estimated: bool = False) -> None:
        basis = ", estimated from its beginning" if estimated else ""
        super().__init__(
            f"This model's maximum context length is {context_length} tokens. However, your input resulted in "
            f"{input_tokens} tokens{basis}. Shorten the input, or set truncation to 'auto' to drop the oldest items.",
            param="input",
        )
        self.input_tokens = input_tokens
        self.context_length = context_length
        self.estimated = estimated


class UnsupportedError(InvalidRequestError):
    """A parameter or a value that the API knows but that this server, or this model, does not do."""

    default_code = "unsupported_value"


class AuthenticationError(APIError):
    """No credential, or a wrong one (M43)."""

    status = 401
    default_type = "authentication_error"


class PermissionDeniedError(APIError):
    """The credential is known but does not allow this."""

    status = 403
    default_type = "permission_error"


class NotFoundError(APIError):
    """Missing, malformed and foreign ids give this one answer."""

    status = 404
    default_type = "invalid_request_error"
    default_code = "not_found"


class MethodNotAllowedError(APIError):
    """The route exists, the method does not."""

    status = 405
    default_type = "invalid_request_error"


class ConflictError(APIError):
    """The object is in a state that forbids the call."""

    status = 409
    default_type = "conflict_error"


class GoneError(APIError):
    """It was there, and its time is over."""

    status = 410
    default_type = "invalid_request_error"


class PayloadTooLargeError(APIError):
    """The body is larger than the server's limit."""

    status = 413
    default_type = "invalid_request_error"
    default_code = "request_too_large"


class RateLimitError(APIError):
    """Too many requests for this key."""

    status = 429
    default_type = "rate_limit_error"
    default_code = "rate_limit_exceeded"


class InternalError(APIError):
    """A fault of ours; the message never carries a path, an address or a traceback."""

    status = 500
    default_code = "server_error"


class EngineError(InternalError):
    """The engine failed before or while it generated.

    `refused` says that what the model runs in did not take the turn, so that nothing was generated: a client that has
    seen nothing of its answer is told so with `http_status`.
    """

    refused = False


class DivergedError(InternalError):
    """A turn that was run again after a crash says something else than what was delivered of it (issue 3)."""

    default_code = "resume_diverged"


class UnavailableError(APIError):
    """The server cannot take the request now; a retry can help."""

    status = 503
    default_code = "service_unavailable"

    def __init__(self, message: str, *, retry_after: float = 1.0, code: str | None = None) -> None:
        super().__init__(message, retry_after=retry_after, code=code)


class ServerBusyError(UnavailableError):
    """Every slot and every place in the queue is taken (M40)."""

    default_type = "server_busy"
    default_code = "server_busy"


class EngineUnavailableError(UnavailableError):
    """The engine is still loading its model, or is being restarted."""

    default_code = "engine_unavailable"
