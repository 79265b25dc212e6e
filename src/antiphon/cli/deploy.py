"""`antiphon deploy`: write what runs this server on a cluster."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit

import click

from antiphon.cli.terminal import printable
from antiphon.errors import ConfigurationError
from antiphon.settings import Settings, load_settings
from antiphon.store.addresses import is_database

__all__ = ["deploy", "serve_config"]

_MARGIN: Final = 30.0
"""Seconds beyond those of draining after which Ray Serve ends a replica that has not ended by itself."""

_IDLE_SECONDS: Final = 75
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""What YAML takes for something else than a name."""


@click.group()
def deploy() -> None:
    """Write what runs this server on a cluster.

    \b
    Examples:
      antiphon deploy ray --config antiphon.toml --out serve.yaml
    """  # noqa: D301 - the escape is click's mark for lines to keep


@deploy.command("ray")
@click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    envvar="ANTIPHON_CONFIG",
    metavar="FILE",
    help="The configuration of the server, as for 'serve'. [env ANTIPHON_CONFIG]",
)
@click.option(
    "--on-nodes",
    is_flag=True,
    help="The file is on every node at that path: only the path is written, and the file may hold secrets.",
)
@click.option("--min-replicas", type=click.IntRange(min=1), default=2, show_default=True, help="Fewest servers.")
@click.option("--max-replicas", type=click.IntRange(min=1), default=4, show_default=True, help="Most servers.")
@click.option(
    "--requests",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Requests at a time for each server, above which Ray Serve starts another one.",
)
@click.option(
    "--cpus", type=click.FloatRange(min=0), default=1.0, show_default=True, help="CPUs that Ray keeps for a server."
)
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Where to write; else stdout."
)
def ray(config: Path, out: Path | None, **params: Any) -> None:
    """Write the configuration with which Ray Serve runs this server, for 'serve deploy'.

    Servers need PostgreSQL, which they share, and are behind the proxies of Ray Serve, which listen on the host and
    port of the file. Models with engine = "ray" run as actors on the cluster's nodes; Ray itself is not needed here.

    \b
    Examples:
      antiphon deploy ray --config antiphon.toml --out serve.yaml
      serve deploy serve.yaml
    """  # noqa: D301 - the escape is click's mark for lines to keep
    text = serve_config(config, **params)
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{out} cannot be written: {error.strerror}.") from None
    click.echo(f"Written. Deploy it with: serve deploy {printable(str(out))}", err=True)


def serve_config(
    config: Path, *, on_nodes: bool, min_replicas: int, max_replicas: int, requests: int, cpus: float
) -> str:
    """The configuration for Ray Serve, as YAML.

    Raises:
        ConfigurationError: the file cannot be used on a cluster.
    """
    if max_replicas < min_replicas:
        raise ConfigurationError("--max-replicas is not less than --min-replicas.")
    settings = load_settings(config=config, environment={})
    written = tomllib.loads(config.read_text(encoding="utf-8"))
    _check(settings, written, on_nodes=on_nodes)
    body = {
        "proxy_location": "EveryNode",
        "http_options": {"host": settings.host, "port": settings.port, "keep_alive_timeout_s": _IDLE_SECONDS},
        "applications": [
            {
                "name": "antiphon",
                "route_prefix": "/",
                "import_path": "antiphon.ray_serve:build",
                "args": {"config": str(config)} if on_nodes else {"settings": written},
                "deployments": [
                    {
                        "name": "server",
                        "max_ongoing_requests": max(requests, 4 * settings.max_concurrent_requests),
                        "autoscaling_config": {
                            "min_replicas": min_replicas,
                            "max_replicas": max_replicas,
                            "target_ongoing_requests": requests,
                        },
                        "graceful_shutdown_timeout_s": settings.drain_timeout + _MARGIN,
                        "ray_actor_options": {"num_cpus": cpus},
                    }
                ],
            }
        ],
    }
    return "# Written by 'antiphon deploy ray', for 'serve deploy'.\n" + "".join(_yaml(body))


def _check(settings: Settings, written: Mapping[str, Any], *, on_nodes: bool) -> None:
    """Refuse what cannot work on a cluster, and secrets in what is written."""
    if "store" in written and not is_database(settings.store):
        raise ConfigurationError(
            "Servers beside each other share their state in PostgreSQL: 'store' is postgresql://USER@HOST/DATABASE, "
            "or is left out here and ANTIPHON_STORE says it on every node."
        )
    local = [model.name or model.path for model in settings.models if model.path and model.engine != "ray"]
    if any(name != "scripted" for name in local) or not settings.models:
        name = local[0] if local else "smollm2"
        raise ConfigurationError(
            f"Every server would load '{printable(name)}' itself: give it engine = \"ray\" in a [[models]] table."
        )
    secrets = [name for name in ("api_key", "encryption_key", "web_search_key") if name in written]
    secrets += ["secret"] if settings.webhooks else []
    secrets += ["store"] if _has_password(settings.store) else []
    if secrets and not on_nodes:
        raise ConfigurationError(
            f"The file holds a secret ('{secrets[0]}'), which would be read by all who can ask Ray. Leave it to the "
            "environment of the nodes or to a file of its own, or put the whole file on every node and use --on-nodes."
        )


def _has_password(store: str) -> bool:
    if not is_database(store):
        return False
    try:
        parts = urlsplit(store)
    except ValueError:
        return True
    return parts.password is not None or "password" in parse_qs(parts.query)


def _yaml(value: Any, indent: str = "") -> Iterator[str]:
    """The lines of a value. Texts and everything plain are written as JSON has them, which is YAML too."""
    if isinstance(value, Mapping) and value:
        for name, inner in cast("Mapping[str, Any]", value).items():
            if _plain(inner):
                yield f"{indent}{_key(name)}: {_scalar(inner)}\n"
            else:
                yield f"{indent}{_key(name)}:\n"
                yield from _yaml(inner, indent + "  ")
    else:
        for inner in cast("Sequence[Any]", value):
            if _plain(inner):
                yield f"{indent}- {_scalar(inner)}\n"
            else:
                lines = list(_yaml(inner, indent + "  "))
                lines[0] = f"{indent}- {lines[0][len(indent) + 2 :]}"
                yield from lines


def _plain(value: Any) -> bool:
    return not isinstance(value, Mapping | list) or not value


def _key(name: str) -> str:
    plain = name.isascii() and name.isidentifier() and name.lower() not in _WORDS
    return name if plain else json.dumps(name)


def _scalar(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError):
        raise ConfigurationError(f"The file has a value that YAML for Ray cannot hold: {value}.") from None
