"""`antiphon chat`: one question or a conversation, streamed to the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec
from click.core import ParameterSource

from antiphon.cli.access import DEFAULT_BASE_URL, first_key
from antiphon.cli.child import own_server
from antiphon.cli.models import ensure_models
from antiphon.cli.options import read_settings, setting_options
from antiphon.cli.terminal import printable
from antiphon.errors import ConfigurationError
from antiphon.settings import Settings

if TYPE_CHECKING:
    from antiphon.cli.connection import Connection

__all__ = ["AnswerWriter", "LastTurn", "chat"]

_INTERRUPTED = 130


class LastTurn(msgspec.Struct, frozen=True):
    """Where a conversation stands: kept between two commands in `chat.json` of the data directory."""

    response_id: str
    model: str

    @staticmethod
    def load(path: Path) -> LastTurn | None:
        """The kept turn, or None where there is none that can be read."""
        try:
            return msgspec.json.decode(path.read_bytes(), type=LastTurn)
        except (OSError, msgspec.MsgspecError):
            return None

    def save(self, path: Path) -> None:
        """Keep it, in one step; readable by this user only."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".chat-", delete=False) as file:
            file.write(msgspec.json.encode(self))
        Path(file.name).replace(path)


@setting_options(["data_dir"])
@click.command()
@click.argument("words", nargs=-1)
@click.option("-c", "--continue", "go_on", is_flag=True, help="Go on from the last answer.")
@click.option("--model", help="The model to ask; by default the server's first.")
@click.option("--instructions", help="Instructions for the model, above the conversation.")
@click.option(
    "--base-url",
    envvar="ANTIPHON_BASE_URL",
    default=DEFAULT_BASE_URL,
    show_default=True,
    help="The server to ask. [env ANTIPHON_BASE_URL]",
)
@click.option("--api-key", envvar="ANTIPHON_API_KEY", help="The server's key. [env ANTIPHON_API_KEY]")
@click.pass_context
def chat(
    ctx: click.Context,
    words: tuple[str, ...],
    go_on: bool,
    model: str | None,
    instructions: str | None,
    base_url: str,
    api_key: str | None,
    **params: Any,
) -> None:
    """Ask a model, and see the answer as it comes.

    Without WORDS it is a conversation, a line a turn, until end of input (Ctrl-D). It asks the server at --base-url;
    where none answers at the default address, it starts one of its own and stops it at the end. --model may then be a
    path to a GGUF file.

    \b
    Examples:
      antiphon chat "What is an antiphon?"
      antiphon chat -c "And a canon?"
      antiphon chat --model ~/models/qwen.gguf
    """  # noqa: D301 - the escape is click's mark for lines to keep
    settings = read_settings(params)
    may_start = ctx.get_parameter_source("base_url") is ParameterSource.DEFAULT
    try:
        with ExitStack() as stack:
            conversation = _Conversation(settings, instructions, go_on)
            conversation.connect(stack, base_url, api_key, model, may_start)
            if words:
                conversation.ask(" ".join(words))
            else:
                _converse(conversation)
    except KeyboardInterrupt:
        click.echo("")
        ctx.exit(_INTERRUPTED)


def _converse(conversation: _Conversation) -> None:
    typed = sys.stdin.isatty()
    for line in _lines(typed):
        try:
            conversation.ask(line)
        except click.ClickException as error:
            if not typed:
                raise
            error.show()


def _lines(typed: bool) -> Iterator[str]:
    if typed:
        # It gives input() a line editor; Windows has none.
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 # pyright: ignore[reportUnusedImport]
    while True:
        try:
            line = input("> " if typed else "").strip()
        except EOFError:
            if typed:
                click.echo("")
            return
        if line:
            yield line


class _Conversation:
    def __init__(self, settings: Settings, instructions: str | None, go_on: bool) -> None:
        self._settings = settings
        self._instructions = instructions
        self._path = settings.data_path / "chat.json"
        self._last = LastTurn.load(self._path) if go_on else None
        if go_on and self._last is None:
            raise click.ClickException("There is no earlier answer to go on from.")

    def connect(self, stack: ExitStack, base_url: str, api_key: str | None, model: str | None, may_start: bool) -> None:
        """Reach the server, or start one, and settle which model is asked."""
        from antiphon.cli.connection import Connection, ServerError, UnreachableError

        api_key = first_key(api_key)
        self._connection = stack.enter_context(Connection(base_url, api_key))
        try:
            served = self._connection.models()
        except UnreachableError as error:
            if not may_start:
                raise click.ClickException(str(error)) from None
            served = None
        except ServerError as error:
            raise click.ClickException(f"{base_url}: {error}") from None
        wanted = model or (self._last.model if self._last else None)
        if served is None:
            wanted, base_url = self._start(stack, wanted)
            self._connection = stack.enter_context(Connection(base_url, api_key))
            served = self._connection.models()
        elif model is None and wanted not in served:
            wanted = None
        if wanted is None and not served:
            raise click.ClickException(f"The server at {base_url} serves no model.")
        self._model = wanted or served[0]

    def _start(self, stack: ExitStack, model: str | None) -> tuple[str | None, str]:
        if model is not None and Path(model).expanduser().is_file():
            # Absolute, so that a later command goes on with the same file from another folder.
            model = str(Path(model).expanduser().absolute())
        settings = self._settings
        arguments = ["--data-dir", str(settings.data_path)]
        tables = settings.models
        if model and not any(model in (table.name, table.path, *table.aliases) for table in tables):
            settings = msgspec.structs.replace(settings, model=(model,), models=())
            # A file that says what is served leaves no room for another model.
            arguments += ["--model", model, *(("--config", os.devnull) if tables else ())]
        ensure_models(settings)
        base_url = stack.enter_context(own_server(arguments, model or "a server", settings.load_timeout))
        return model, base_url

    def ask(self, words: str) -> None:
        """One turn: stream the answer, and keep where the conversation stands."""
        from antiphon.cli.connection import ServerError, UnreachableError

        body: dict[str, Any] = {"model": self._model, "input": words}
        if self._instructions:
            body["instructions"] = self._instructions
        if self._last:
            body["previous_response_id"] = self._last.response_id
        try:
            response_id = _stream_answer(self._connection, body)
        except (ServerError, UnreachableError) as error:
            raise click.ClickException(printable(str(error))) from None
        self._last = LastTurn(response_id, self._model)
        try:
            self._last.save(self._path)
        except OSError as error:
            raise ConfigurationError(f"{self._path} cannot be written: {error.strerror}. Set --data-dir.") from None


class AnswerWriter:
    """Writes the deltas of an answer: thinking dimmed and only to a terminal, the rest as it is."""

    def __init__(self) -> None:
        self._thinking = False
        self._open = False

    def think(self, text: str) -> None:
        """Write a piece of thinking."""
        if sys.stdout.isatty():
            self._thinking = True
            self._write(click.style(printable(text), dim=True))

    def answer(self, text: str) -> None:
        """Write a piece of the answer."""
        if self._thinking:
            self._thinking = False
            self._write("\n\n")
        self._write(printable(text))

    def end(self) -> None:
        """End the line, if there is one."""
        if self._open:
            self._write("\n")
        self._open = False

    def _write(self, text: str) -> None:
        self._open = True
        click.echo(text, nl=False)


def _stream_answer(connection: Connection, body: Mapping[str, Any]) -> str:
    """Write the answer as it comes; the id of the response."""
    from antiphon.cli.connection import ServerError

    writer = AnswerWriter()
    try:
        for event in connection.stream(body):
            match event.get("type"):
                case "response.output_text.delta" | "response.refusal.delta":
                    writer.answer(str(event.get("delta", "")))
                case (
                    "response.reasoning_text.delta"
                    | "response.reasoning.delta"
                    | ("response.reasoning_summary_text.delta")
                ):
                    writer.think(str(event.get("delta", "")))
                case "response.completed":
                    return str(event["response"]["id"])
                case "response.incomplete":
                    writer.end()
                    details = cast("dict[str, Any]", event["response"].get("incomplete_details") or {})
                    click.echo(f"(cut short: {details.get('reason', 'unknown')})", err=True)
                    return str(event["response"]["id"])
                case "response.failed":
                    error = cast("dict[str, Any]", event["response"].get("error") or {})
                    raise ServerError(str(error.get("message", "The response failed.")))
                case "error":
                    raise ServerError(_error_message(event))
                case _:
                    pass
    finally:
        writer.end()
    raise ServerError("The answer broke off before its end.")


def _error_message(event: Mapping[str, Any]) -> str:
    error = cast("dict[str, Any]", event.get("error") or {})
    return str(event.get("message") or error.get("message") or "The server reports an error.")
