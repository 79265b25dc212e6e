"""What the commands write to a terminal: the start of a server, the progress of a download, safe text."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import click

from antiphon.cli.access import DEFAULT_BASE_URL

__all__ = ["TerminalAnnouncer", "download_progress", "printable", "snippet"]

_CONTROL = {code: None for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if chr(code) not in "\n\t"}
_MB = 1_000_000


def printable(text: str) -> str:
    """The text without control characters: what a model writes must not steer the terminal."""
    return text.translate(_CONTROL)


def snippet(base_url: str, model: str, *, with_key: bool) -> str:
    """Lines of Python that talk to the server, ready to paste."""
    key = "YOUR_API_KEY" if with_key else "none"
    return (
        "from openai import OpenAI\n"
        "\n"
        f'client = OpenAI(base_url="{base_url}", api_key="{key}")\n'
        f'response = client.responses.create(model="{model}", input="Hello!")\n'
        "print(response.output_text)"
    )


class TerminalAnnouncer:
    """Tells the terminal how a server starts.

    While a model loads, a terminal shows the seconds that have passed; a pipe or a log gets one plain line when loading
    begins and one when it ends.
    """

    def __init__(self, *, with_key: bool = False, interval: float = 0.2) -> None:
        self._with_key = with_key
        self._interval = interval
        self._loaded = threading.Event()
        self._ticker: threading.Thread | None = None

    def loading(self, model: str) -> None:
        """A model begins to load."""
        if not sys.stderr.isatty():
            click.echo(f"Loading {model} ...", err=True)
            return
        self._loaded.clear()
        self._ticker = threading.Thread(target=self._tick, args=(model,), daemon=True)
        self._ticker.start()

    def loaded(self, model: str, seconds: float) -> None:
        """A model has loaded."""
        self.close()
        click.echo(f"Loaded {model} in {seconds:.1f} s.", err=True)

    def started(self, base_url: str, models: Sequence[str], state: str) -> None:
        """The server answers."""
        self.close()
        lines = snippet(base_url, models[0], with_key=self._with_key).split("\n")
        code = "\n".join(f"    {line}".rstrip() for line in lines)
        click.echo(
            f"Antiphon answers at {base_url}\n"
            f"Models: {', '.join(models)}\n"
            f"{state}\n"
            "\n"
            "Talk to it from Python (pip install openai):\n"
            "\n"
            f"{code}\n"
            "\n"
            f"or from another terminal: {self._chat_command(base_url)}\n"
            "Press Ctrl-C to stop."
        )
        sys.stdout.flush()

    def stopping(self, running: int, seconds: float) -> None:
        """The server was told to stop, and waits for what runs."""
        what = "1 response" if running == 1 else f"{running} responses"
        click.echo(f"Stopping: {what} may go on for up to {seconds:g} s. Press Ctrl-C again to end now.", err=True)

    def stopped(self) -> None:
        """The server has ended because it was told to."""
        self.close()
        click.echo("Stopped.", err=True)

    def close(self) -> None:
        """Leave the line of progress, if there is one; done by every later announcement, and after a failure."""
        if self._ticker is None:
            return
        self._loaded.set()
        self._ticker.join()
        self._ticker = None
        click.echo("\r\033[K", nl=False, err=True)

    @staticmethod
    def _chat_command(base_url: str) -> str:
        address = "" if base_url == DEFAULT_BASE_URL else f"--base-url {base_url} "
        return f'antiphon chat {address}"Hello!"'

    def _tick(self, model: str) -> None:
        begin = time.monotonic()
        while not self._loaded.is_set():
            click.echo(f"\r\033[KLoading {model} ... {time.monotonic() - begin:.0f} s", nl=False, err=True)
            self._loaded.wait(self._interval)


@contextmanager
def download_progress(label: str) -> Generator[Callable[[int, int], None]]:
    """A function for the bytes received and in all: a bar on a terminal, a line for each tenth elsewhere."""
    if sys.stderr.isatty():
        yield _Bar(label)
        click.echo("", err=True)
    else:
        yield _Tenths(label)


class _Bar:
    def __init__(self, label: str, width: int = 32) -> None:
        self._label = label
        self._width = width
        self._shown = -1

    def __call__(self, received: int, total: int) -> None:
        permille = received * 1000 // total
        if permille == self._shown:
            return
        self._shown = permille
        bar = ("#" * (permille * self._width // 1000)).ljust(self._width, "-")
        text = f"{self._label} [{bar}] {permille // 10:3d} %  {received / _MB:.1f} of {total / _MB:.1f} MB"
        click.echo(f"\r\033[K{text}", nl=False, err=True)


class _Tenths:
    def __init__(self, label: str) -> None:
        self._label = label
        self._next = 0

    def __call__(self, received: int, total: int) -> None:
        percent = received * 100 // total
        if percent >= self._next:
            click.echo(f"{self._label}: {percent} % of {total / _MB:.1f} MB", err=True)
            self._next = percent - percent % 10 + 10
