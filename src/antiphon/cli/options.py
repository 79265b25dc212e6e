"""Options made from the one list of settings, so that flag, environment and file never differ."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import click

from antiphon.settings import FIELDS, Field, Settings, default_file, load_settings

__all__ = [
    "GROUPS",
    "LLAMA_CPP_ALWAYS",
    "LLAMA_CPP_NAMES",
    "GroupedCommand",
    "read_settings",
    "setting_options",
    "settings_file",
    "value_type",
]

Command = TypeVar("Command", bound=click.Command)

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Where it listens, and who may ask": (
        "host",
        "port",
        "api_key",
        "api_key_file",
        "allow_unauthenticated",
        "allowed_host",
        "allowed_origins",
        "allow_outbound",
    ),
    "Models": ("model", "embedding_model", "alias", "default_model", "load_timeout", "index_url"),
    "Where state is kept": (
        "store",
        "data_dir",
        "responses_store_max_entries",
        "responses_store_max_bytes",
        "responses_store_ttl_secs",
        "event_log_ttl_secs",
        "conversation_store_max_entries",
        "conversation_store_max_bytes",
        "conversation_store_ttl_secs",
        "conversation_autocreate",
        "delete_chain",
        "max_file_bytes",
        "max_files",
        "max_files_bytes",
        "encryption_key_file",
        "encryption_key",
    ),
    "Hosted tools, and documents": (
        "max_vector_stores",
        "max_vector_store_files",
        "ingestion_workers",
        "document_embedding",
        "document_embedding_model",
        "document_embedding_key_env",
        "reranker",
        "reranker_model",
        "reranker_key_env",
        "max_vector_bytes",
        "web_search",
        "web_search_url",
        "web_search_key",
        "mcp_configured_only",
        "mcp_timeout",
        "sandbox",
        "sandbox_python",
        "sandbox_memory",
        "sandbox_disk",
        "sandbox_processes",
        "sandbox_seconds",
        "max_sandboxes",
        "max_containers",
    ),
    "Background responses and many servers": ("background_workers", "background_queue", "lease_seconds"),
    "The local engine": (
        "threads",
        "context_length",
        "slots",
        "batch_size",
        "gpu_layers",
        "mmproj",
        "render_timeout",
        "vision_timeout",
        "chat_template_file",
        "tool_dialect",
        "chat_template_kwargs",
        "reasoning_budget",
        "scripted_context_length",
    ),
    "Requests and streams": (
        "dialect",
        "reasoning_alias_field",
        "max_body_bytes",
        "max_buffered_bytes",
        "max_image_pixels",
        "max_document_characters",
        "max_concurrent_requests",
        "min_output_tokens",
        "keep_alive_seconds",
        "receive_timeout",
        "write_timeout",
        "drain_timeout",
        "websocket_lifetime",
    ),
    "Logging": ("log_level", "log_format"),
}
"""The settings under the headings of `--help` and of the reference; what is in none of them comes last."""

LLAMA_CPP_NAMES: Mapping[str, tuple[str, ...]] = {
    "model": ("-m",),
    "alias": ("-a",),
    "threads": ("-t",),
    "context_length": ("-c", "--ctx-size"),
    "slots": ("-np", "--parallel"),
    "batch_size": ("-b",),
    "gpu_layers": ("-ngl", "--n-gpu-layers"),
    "mmproj": ("-mm",),
}
"""What llama.cpp's server calls settings that both have, where it is not the flag itself (issue 4, section 8)."""

LLAMA_CPP_ALWAYS = ("--jinja", "--metrics", "-cb", "--cont-batching")
"""Flags of llama.cpp's server for what is always so here: they are taken, and change nothing."""

_TYPES: Mapping[type, click.ParamType[Any]] = {int: click.INT, float: click.FLOAT, str: click.STRING}


def value_type(annotation: object) -> type:
    """The plain type of one value of a setting: bool, int, float or str."""
    if get_origin(annotation) is Annotated:
        return value_type(get_args(annotation)[0])
    if get_origin(annotation) in (tuple, Union, types.UnionType):
        return value_type(get_args(annotation)[0])
    return annotation if isinstance(annotation, type) else str


def _help(field: Field) -> str:
    notes = [f"env {' or '.join(field.environment)}"]
    if field.default not in (None, (), False):
        notes.append(f"default {field.default}")
    return f"{field.description} [{'; '.join(notes)}]"


def _option(field: Field) -> click.Option:
    plain = value_type(field.type)
    if plain is bool:
        return click.Option(
            [f"{field.flag}/--no-{field.flag.removeprefix('--')}", field.name], default=None, help=_help(field)
        )
    return click.Option(
        [*LLAMA_CPP_NAMES.get(field.name, ()), field.flag, field.name],
        type=_TYPES[plain],
        multiple=field.repeatable,
        help=_help(field),
    )


def setting_options(names: Iterable[str] | None = None) -> Callable[[Command], Command]:
    """Give a command `--config` and an option for each setting, or for each of those named."""
    chosen = None if names is None else set(names)
    fields = [field for field in FIELDS if not field.in_file_only and (chosen is None or field.name in chosen)]

    def decorate(command: Command) -> Command:
        command.params.extend([*(_option(field) for field in fields), _config_option()])
        return command

    return decorate


def _config_option() -> click.Option:
    return click.Option(
        ["--config", "config"],
        type=click.Path(path_type=Path, dir_okay=False),
        envvar="ANTIPHON_CONFIG",
        metavar="FILE",
        help="A TOML file with any of these settings as keys, and [[models]] tables; by default antiphon.toml in the "
        "working directory, where it is there. [env ANTIPHON_CONFIG]",
    )


def read_settings(params: Mapping[str, Any]) -> Settings:
    """The settings of a command: its flags over the environment over the file.

    Raises:
        ConfigurationError: a key or value cannot be used.
    """
    known = {field.name for field in FIELDS}
    flags = {name: value for name, value in params.items() if name in known}
    return load_settings(flags=flags, config=settings_file(params))


def settings_file(params: Mapping[str, Any]) -> Path | None:
    """The configuration file of a command: the one that is named, else `antiphon.toml`, where it is here."""
    return params.get("config") or default_file()


class GroupedCommand(click.Command):
    """A command whose `--help` lists its options under the headings of `GROUPS`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Called by click to write the options."""
        records = {
            param.name: record for param in self.get_params(ctx) if (record := param.get_help_record(ctx)) is not None
        }
        for heading, names in GROUPS.items():
            _section(formatter, heading, [records.pop(name) for name in names if name in records])
        _section(formatter, "Other", list(records.values()))


def _section(formatter: click.HelpFormatter, heading: str, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        with formatter.section(heading):
            formatter.write_dl(rows)
