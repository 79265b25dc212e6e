"""What the runtime tells whoever measures it; the default listens to nothing."""

from __future__ import annotations

from antiphon.protocol.response import Usage

__all__ = ["Observer"]


class Observer:
    """Callbacks of the runtime. Each must be quick and must not raise; times are in seconds."""

    def response_started(self, model: str) -> None:
        """A response took its place and begins."""

    def prompt_prepared(self, model: str, seconds: float) -> None:
        """The engine rendered and counted the prompt of a response, which took so long."""

    def first_token(self, model: str, seconds: float) -> None:
        """The first delta came, that long after the request."""

    def response_ended(self, model: str, status: str, reason: str | None, usage: Usage | None, seconds: float) -> None:
        """A response ended; `reason` is the incomplete reason or the error code."""

    def store_commit(self, seconds: float) -> None:
        """A write of a response became durable, that long after it was handed over."""

    def background(self, running: int, waiting: int, since: float | None) -> None:
        """So many background responses run, and so many wait for a worker, the first since that monotonic time."""

    def webhook_attempt(self, outcome: str) -> None:
        """An attempt to deliver a webhook: delivered, gone, failed, refused, unknown (no such endpoint) or expired."""

    def tool_ended(self, kind: str, status: str, seconds: float) -> None:
        """A run of a hosted tool ended after so long; `kind` is the type of its item, `status` completed or failed."""

    def ingesting(self, running: int) -> None:
        """So many files are read into vector stores."""

    def file_ingested(self, outcome: str, seconds: float) -> None:
        """A file was read into a vector store in so long: completed, failed, or lost where its claim was taken away."""

    def searched(self, outcome: str, seconds: float) -> None:
        """A search in documents took so long: whole, partial where something was done without, or failed."""

    def fault(self, message: str, error: BaseException) -> None:
        """A fault of ours that the caller is not shown."""
