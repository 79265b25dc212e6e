"""The errors that every store answers alike, each made in one place."""

from __future__ import annotations

from antiphon.errors import ConflictError, InvalidRequestError, UnavailableError

__all__ = [
    "conversation_exists",
    "conversation_locked",
    "events_out_of_order",
    "idempotency_key_in_use",
    "key_exists",
    "prompt_exists",
    "response_exists",
    "response_in_progress",
    "store_closed",
]


def store_closed() -> UnavailableError:
    """The store is not open yet, or not any more."""
    return UnavailableError("The server is starting or stopping. Please try again in a moment.")


def response_exists() -> ConflictError:
    """There is a response by that id, gone or not."""
    return ConflictError("There is a response by this id already.")


def conversation_locked() -> ConflictError:
    """One response at a time runs in a conversation (issue 3, section 5)."""
    return ConflictError(
        "Another response is in progress in this conversation. Send the request again when that one has ended.",
        code="conversation_locked",
        param="conversation",
    )


def idempotency_key_in_use() -> ConflictError:
    """The idempotency key stands for another response (operations C1)."""
    return ConflictError(
        "This idempotency key belongs to another request. Use a new key for a new request.",
        code="idempotency_key_in_use",
    )


def events_out_of_order() -> ConflictError:
    """Events follow each other without a gap and are written once."""
    return ConflictError("These events do not come right after those that this response has.")


def response_in_progress() -> InvalidRequestError:
    """A response that still runs is not deleted (issue 3, section 4)."""
    return InvalidRequestError("Cannot delete an in-flight response.", code="response_in_progress")


def conversation_exists() -> ConflictError:
    """There is a conversation by that id."""
    return ConflictError("There is a conversation by this id already.")


def key_exists() -> ConflictError:
    """There is an API key by that id or with that secret."""
    return ConflictError("There is an API key by this id or with this secret already.")


def prompt_exists() -> ConflictError:
    """There is a prompt template by that id and version."""
    return ConflictError("There is a prompt template by this id and version already.")
