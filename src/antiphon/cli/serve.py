"""`antiphon serve`: refuse what is unsafe or cannot work, then run the server and say where it answers."""

from __future__ import annotations

import contextlib
import functools
import signal
from typing import Any

import click

from antiphon.access import check_access, configured_keys
from antiphon.cli.access import check_libraries
from antiphon.cli.models import ensure_models, models_wanted
from antiphon.cli.options import LLAMA_CPP_ALWAYS, GroupedCommand, read_settings, setting_options, settings_file
from antiphon.cli.supervisor import ServerAnnouncer

__all__ = ["serve"]


@setting_options()
@click.option(
    *LLAMA_CPP_ALWAYS, "always", is_flag=True, hidden=True, expose_value=False, help="Always so here; changes nothing."
)
@click.command(cls=GroupedCommand)
def serve(**params: Any) -> None:
    """Serve models over the Responses API.

    Without --model, the small default model smollm2 is served: a model to try the server with, not to work with. The
    server listens on 127.0.0.1 and lets others in only with --api-key, or with --allow-unauthenticated.

    \b
    Examples:
      antiphon serve
      antiphon serve --model ~/models/qwen.gguf --alias 'gpt-5=qwen' --threads 8
      antiphon serve --model scripted --store memory      deterministic, for tests
      antiphon serve --host 0.0.0.0 --api-key "$KEY"
      antiphon serve --config antiphon.toml                any setting, and many models

    A file antiphon.toml in the working directory is read without being named. At a SIGHUP it is read anew, and its
    models come and go without a restart.

    Where llama.cpp's server has the same setting, its flag is taken too: -m, -a, -t, -c, -np, -b and -ngl.

    A flag with "repeatable" in its text may be given several times; its environment variable separates values by
    commas.
    """  # noqa: D301 - the escape is click's mark for lines to keep
    file = settings_file(params)
    # The same one for as long as the server runs, whatever appears in the directory.
    params["config"] = file
    settings = read_settings(params)
    if file is not None:
        click.echo(f"Settings: {file}", err=True)
    from antiphon.store.keyring import has_stored_keys

    stored_keys = functools.cache(lambda: has_stored_keys(settings))
    check_access(settings, stored_keys)
    check_libraries(models_wanted(settings))
    ensure_models(settings)
    from antiphon.http.server import serve as run_server

    # Until the server takes the signals itself, and after: the default action of SIGTERM would leave engines behind.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    announcer = ServerAnnouncer(with_key=bool(configured_keys(settings)) or stored_keys())
    try:
        with contextlib.suppress(KeyboardInterrupt):
            run_server(settings, announcer, lambda: read_settings(params) if file is not None else settings)
        announcer.stopped()
    finally:
        announcer.close()
        signal.signal(signal.SIGTERM, before)
