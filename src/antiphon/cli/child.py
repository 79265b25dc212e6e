"""A server of one command's own: started for it, waited for, and stopped with it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import IO, Never

from antiphon.cli.terminal import TerminalAnnouncer
from antiphon.errors import ConfigurationError

__all__ = ["own_server"]

_READY = re.compile(r"^Antiphon answers at (\S+)")
_STOP_SECONDS = 10.0


@contextmanager
def own_server(arguments: Sequence[str], title: str, timeout: float) -> Generator[str]:
    """The base URL of `antiphon serve` on a free port of 127.0.0.1; it is stopped at the end.

    Raises:
        ConfigurationError: it does not start; the message repeats the server's own last words.
    """
    command = [sys.executable, "-m", "antiphon", "serve", "--host", "127.0.0.1", "--port", "0", *arguments]
    announcer = TerminalAnnouncer()
    announcer.loading(title)
    with _leaving_on_signals():
        # A session of its own: Ctrl-C is for the command, which then stops the server in order.
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        output = _Output(process)
        try:
            try:
                base_url = output.base_url(timeout)
            finally:
                announcer.close()
            yield base_url
        finally:
            _stop(process)
            output.close()


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Output:
    """Reads what the server prints until it ends, so that it never waits for a full pipe."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None  # noqa: S101 - for the type checker: it is a pipe
        self._stream: IO[str] = process.stdout
        self._last: deque[str] = deque(maxlen=20)
        self._base_url: str | None = None
        self._known = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def base_url(self, timeout: float) -> str:
        """Wait for the line that says where the server answers."""
        if not self._known.wait(timeout):
            raise ConfigurationError(f"The server was not ready after {timeout:.0f} s; last it said:\n{self._words()}")
        if self._base_url is None:
            raise ConfigurationError(f"The server did not start:\n{self._words()}")
        return self._base_url

    def close(self) -> None:
        """Wait for the end of the output."""
        self._thread.join(_STOP_SECONDS)
        self._stream.close()

    def _words(self) -> str:
        return "\n".join(f"  {line.removeprefix('Error: ')}" for line in self._last) or "  (nothing)"

    def _read(self) -> None:
        for line in self._stream:
            self._last.append(line.rstrip())
            match = _READY.match(line)
            if match:
                self._base_url = match.group(1)
                self._known.set()
        self._known.set()


@contextmanager
def _leaving_on_signals() -> Generator[None]:
    """Let a closed terminal or a polite kill unwind the command, so that its server is stopped too."""
    # Windows has no SIGHUP.
    names = ("SIGTERM", "SIGHUP")
    signals = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.signal(number, _leave) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _frame: FrameType | None) -> Never:
    raise SystemExit(128 + number)
