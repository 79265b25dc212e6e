"""An upstream of `/v1/embeddings` that answers at once, or keeps whoever asks waiting from some question on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from support.http_thread import serving

__all__ = ["EmbeddingsStub", "embeddings_stub"]


class EmbeddingsStub:
    """What it is asked, and until when it answers; `stuck` is set while somebody waits."""

    def __init__(self) -> None:
        self.url = ""
        self.questions: list[list[str]] = []
        self.answered = 10**9
        self.stuck = threading.Event()
        self.go_on = threading.Event()

    def stick_after(self, answered: int) -> None:
        """Answer so many questions from now on, and then none until `go_on` is set."""
        self.stuck.clear()
        self.go_on.clear()
        self.answered = len(self.questions) + answered

    def vectors(self, texts: list[str]) -> list[list[float]]:
        """The vectors, which are the same for the same texts."""
        if len(self.questions) >= self.answered and not self.go_on.is_set():
            self.stuck.set()
            self.go_on.wait(60)
        self.questions.append(texts)
        return [[float(len(text)), float(sum(text.encode()) % 97), 1.0] for text in texts]


@contextmanager
def embeddings_stub() -> Iterator[EmbeddingsStub]:
    """One that runs while the block does."""
    stub = EmbeddingsStub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked: Any = json.loads(self.rfile.read(int(self.headers["content-length"])))
            data = [
                {"object": "embedding", "index": index, "embedding": vector}
                for index, vector in enumerate(stub.vectors(asked["input"]))
            ]
            body = json.dumps({"object": "list", "model": asked["model"], "data": data}).encode()
            try:
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                # Whoever asked was killed.
                self.close_connection = True

        def log_message(self, *arguments: object) -> None:
            """Nothing."""

    with serving(Handler) as port:
        stub.url = f"http://127.0.0.1:{port}/v1"
        try:
            yield stub
        finally:
            stub.go_on.set()
