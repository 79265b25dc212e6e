"""`antiphon ask`: one question to any Responses endpoint, by the driver."""

from __future__ import annotations

import mimetypes
import os
import sys
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
import msgspec
from click.core import ParameterSource

from antiphon.access import is_loopback
from antiphon.cli.access import DEFAULT_BASE_URL, first_key
from antiphon.cli.chat import AnswerWriter
from antiphon.cli.terminal import printable
from antiphon.client.profiles import ANTIPHON, PROFILES, Profile, find_profile, guess_profile
from antiphon.client.routes import Routes

if TYPE_CHECKING:
    from antiphon.client.client import Client
    from antiphon.client.context import Message, Part
    from antiphon.client.options import Options
    from antiphon.client.response import Response
    from antiphon.client.streams import Stream

__all__ = ["ask"]

MAX_BYTES = 50_000_000
"""How large an image, a file or a schema may be."""

_INTERRUPTED = 130


@click.command()
@click.argument("words", nargs=-1)
@click.option("--model", help="The model to ask; of an Antiphon server by default its first.")
@click.option(
    "--base-url",
    envvar="ANTIPHON_BASE_URL",
    help=f"The endpoint, up to /v1; by default the provider's, or {DEFAULT_BASE_URL}. [env ANTIPHON_BASE_URL]",
)
@click.option("--provider", type=click.Choice(list(PROFILES)), help="What the endpoint is; by default its host tells.")
@click.option(
    "--api-key-env", metavar="NAME", help="The environment variable that holds the key; by default the provider's."
)
@click.option("--instructions", help="Instructions for the model, above the conversation.")
@click.option("--image", "images", multiple=True, metavar="PATH|URL", help="An image to look at; repeatable.")
@click.option("--file", "files", multiple=True, metavar="PATH|URL", help="A file to read; repeatable.")
@click.option(
    "--schema",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A JSON Schema that the answer is to follow; the answer is then JSON.",
)
@click.option("--previous", metavar="ID", help="The response to go on from.")
@click.option("--stream/--no-stream", default=None, help="Write as it comes; by default on a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Write all of the answer as JSON, or with --stream its chunks.")
@click.pass_context
def ask(ctx: click.Context, words: tuple[str, ...], **said: Any) -> None:
    """Ask any endpoint for Responses one question: Antiphon, OpenAI, Azure, Mixedbread, vLLM or another.

    Without WORDS the question is what comes on standard input. Only the answer is written to standard output. The exit
    code is 1 where there is none.

    \b
    Examples:
      antiphon ask "What is an antiphon?"
      antiphon ask --provider openai --model gpt-4.1-mini --image score.png "What is it?"
      antiphon ask --provider vllm --model qwen3 --schema piece.json "A canon by Bach?"
    """  # noqa: D301 - the escape is click's mark for lines to keep
    from_environment = ctx.get_parameter_source("base_url") is ParameterSource.ENVIRONMENT
    profile, base_url = _endpoint(said["base_url"], said["provider"], from_environment=from_environment)
    question = _question(words, said["images"], said["files"])
    wanted = None if said["schema"] is None else _schema(said["schema"])
    streamed: bool | None = said["stream"]
    if streamed is None:
        streamed = sys.stdout.isatty() and not said["as_json"] and wanted is None
    options: Options = {
        "instructions": said["instructions"],
        "previous_response_id": said["previous"],
        "text_format": wanted,
    }
    try:
        with _telling(base_url), _client(profile, base_url, said["api_key_env"], said["model"]) as client:
            if streamed:
                with client.stream([question], **options) as stream:
                    _write_stream(stream, as_json=said["as_json"])
                    answer = stream.response()
            else:
                answer = client.respond([question], **options)
                _write_whole(answer, as_json=said["as_json"], structured=wanted is not None)
            _conclude(answer, structured=wanted is not None)
    except KeyboardInterrupt:
        click.echo("", err=True)
        ctx.exit(_INTERRUPTED)


def _endpoint(base_url: str | None, provider: str | None, *, from_environment: bool) -> tuple[Profile, str]:
    """What is asked, and where. The address in the environment is that of an Antiphon server."""
    if provider is None:
        ours = base_url is None or from_environment or base_url == DEFAULT_BASE_URL
        profile = ANTIPHON if ours else guess_profile(base_url)
    else:
        profile = find_profile(provider)
        if from_environment and profile is not ANTIPHON:
            base_url = None
    url = base_url or profile.base_url
    if url is None:
        raise click.UsageError(f"Say the --base-url: that of {profile.name} is not the same for everyone.")
    return profile, Routes(url).base_url


@contextmanager
def _client(profile: Profile, base_url: str, key_variable: str | None, model: str | None) -> Generator[Client]:
    # Not at the top: --help of any command would load them.
    import httpx2

    from antiphon.cli.connection import Connection
    from antiphon.client.client import Client
    from antiphon.client.routes import find_key

    key = find_key(profile)
    if key_variable is not None:
        key = os.environ.get(key_variable)
        if not key:
            raise click.UsageError(f"There is no key in the environment variable {key_variable}.")
    if profile is ANTIPHON:
        key = first_key(key)
        if model is None:
            with Connection(base_url, key) as connection:
                model = next(iter(connection.models()), None)
    # A slow model may be silent for long. A proxy of the environment cannot reach this machine's own loopback.
    local = is_loopback(urlsplit(base_url).hostname or "")
    with httpx2.Client(timeout=httpx2.Timeout(None, connect=5.0), trust_env=not local) as http:
        yield Client(base_url, key, profile, model, http=http)


@contextmanager
def _telling(base_url: str) -> Generator[None]:
    """Says what goes wrong in a line, and what was left out of the request in others."""
    from antiphon.cli.connection import ServerError, UnreachableError
    from antiphon.client.errors import DriverError, EndpointError
    from antiphon.client.options import RequestWarning

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, RequestWarning):
            click.echo(printable(f"({message})"), err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        try:
            yield
        except UnreachableError as error:
            raise click.ClickException(printable(str(error))) from None
        except (EndpointError, ServerError) as error:
            message = error.message if isinstance(error, EndpointError) else str(error)
            told = f"{base_url} answers {error.status or 'no list of models'}" + (f": {message}" if message else ".")
            hint = " Name the variable that holds its key by --api-key-env." if error.status == 401 else ""
            raise click.ClickException(printable(told + hint)) from None
        except DriverError as error:
            raise click.ClickException(printable(f"{base_url}: {error}")) from None


def _question(words: Sequence[str], images: Sequence[str], files: Sequence[str]) -> Message:
    from antiphon.client.context import FilePart, ImagePart, user

    text = " ".join(words)
    if not text and not sys.stdin.isatty():
        try:
            text = sys.stdin.read(MAX_BYTES).strip()
        except UnicodeDecodeError:
            raise click.UsageError("What comes on standard input is not text.") from None
    # Arguments that were no text in the terminal's encoding.
    text = text.encode(errors="surrogateescape").decode(errors="replace")
    if not text:
        raise click.UsageError("Ask something: as arguments, or on standard input.")
    parts: list[Part] = [
        ImagePart(url=place)
        if _is_url(place)
        else ImagePart(data=_bytes(place), media_type=mimetypes.guess_type(place)[0])
        for place in images
    ]
    parts += [
        FilePart(url=place) if _is_url(place) else FilePart(data=_bytes(place), filename=Path(place).name)
        for place in files
    ]
    return user(text, *parts)


def _is_url(place: str) -> bool:
    return place.startswith(("http://", "https://", "data:"))


def _bytes(place: str) -> bytes:
    path = Path(place).expanduser()
    try:
        if path.stat().st_size > MAX_BYTES:
            raise click.UsageError(f"{place} is larger than {MAX_BYTES // 1_000_000} MB.")
        return path.read_bytes()
    except OSError as error:
        raise click.UsageError(f"{place} cannot be read: {error.strerror}.") from None


def _schema(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(_bytes(str(path)), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise click.UsageError(f"{path} is no JSON Schema: {error}") from None


def _write_stream(stream: Stream, *, as_json: bool) -> None:
    from antiphon.client.chunks import ContentChunk, ThinkingChunk

    if as_json:
        for chunk in stream:
            click.echo(msgspec.json.encode(chunk).decode())
        return
    writer = AnswerWriter()
    part: tuple[Any, ...] | None = None
    try:
        for chunk in stream:
            if isinstance(chunk, ThinkingChunk):
                place = (chunk.output_index, chunk.summary_index)
                writer.think(chunk.text if part in (None, place) else f"\n\n{chunk.text}")
                part = place
            elif isinstance(chunk, ContentChunk):
                writer.answer(chunk.text)
    finally:
        writer.end()


def _write_whole(answer: Response, *, as_json: bool, structured: bool) -> None:
    if as_json:
        text = _pretty(answer)
    elif structured and answer.object is not None:
        text = _pretty(answer.object)
    else:
        text = printable(answer.text)
    if text:
        click.echo(text)


def _pretty(value: Any) -> str:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return printable(text) if sys.stdout.isatty() else text


def _conclude(answer: Response, *, structured: bool) -> None:
    """Say on standard error what is to be known of the answer besides."""
    if answer.problem is not None:
        raise click.ClickException(printable(answer.problem.message))
    if answer.finish_reason == "length":
        click.echo(printable(f"(cut short: {answer.raw_finish_reason or 'unknown'})"), err=True)
    if structured and answer.object is None:
        raise click.ClickException(f"The answer does not follow the schema ({answer.object_error or 'no object'}).")
    if answer.response_id and sys.stderr.isatty():
        click.echo(click.style(f"(go on with --previous {printable(answer.response_id)})", dim=True), err=True)
