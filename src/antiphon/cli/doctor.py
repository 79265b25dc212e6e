"""`antiphon doctor`: what is installed, what the model and the store are, and what stands in the way of a start."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import socket
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import click
import msgspec

from antiphon import __version__
from antiphon.access import check_access, configured_keys
from antiphon.cli.access import missing_libraries
from antiphon.cli.models import models_wanted
from antiphon.cli.options import GroupedCommand, read_settings, setting_options, settings_file
from antiphon.errors import AntiphonError, ConfigurationError
from antiphon.settings import FIELDS, ModelConfig, Settings

__all__ = ["Check", "diagnose", "doctor"]

_LIBRARIES = ("xllamacpp", "starlette", "uvicorn", "aiohttp", "msgspec", "httpx2")
_OF_DOCUMENTS = ("numpy", "gguf", "re2", "usearch")
_WORDS_ALONE = "what is said in other words than the question's is not found"
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
_SECRET = (
    "api_key",
    "encryption_key",
    "web_search_key",
    "webhooks",
    "mcp_servers",
    "index_url",
)  # an index URL may hold a password
_LOW_DISK = 1_000_000_000


class Check(msgspec.Struct, frozen=True):
    """One finding: `ok`, `warn` or `fail`, what was looked at, what was found and what to do."""

    level: str
    subject: str
    finding: str
    advice: str = ""


@setting_options()
@click.command(cls=GroupedCommand)
@click.pass_context
def doctor(ctx: click.Context, **params: Any) -> None:
    """Look for what stands in the way of a start.

    Takes the settings of 'serve', from flags, environment and file. Each line is ok, warn or fail, with what to do; the
    exit code is 1 where a line fails.

    \b
    Examples:
      antiphon doctor
      antiphon doctor --model ~/models/qwen.gguf --port 9000
    """  # noqa: D301 - the escape is click's mark for lines to keep
    failed = False
    try:
        file = settings_file(params)
        checks = diagnose(read_settings(params))
        if file is not None:
            checks = chain([Check("ok", "file", f"{file} is read")], checks)
    except ConfigurationError as error:
        checks = iter([Check("fail", "settings", str(error))])
    for check in checks:
        failed = failed or check.level == "fail"
        mark = click.style(f"{check.level:4}", fg=_COLOURS[check.level])
        click.echo(f"{mark}  {check.subject:12}  {check.finding}")
        if check.advice:
            click.echo(f"{'':20}-> {check.advice}")
    ctx.exit(1 if failed else 0)


def diagnose(settings: Settings) -> Iterator[Check]:
    """The findings for a server with these settings."""
    yield from _machine()
    yield _libraries(settings)
    yield from _settings(settings)
    yield _data_directory(settings.data_path)
    for name in models_wanted(settings):
        yield _model(name, settings)
    if settings.models:
        yield from _tables(settings)
    yield _store(settings)
    yield _documents(settings)
    yield _sandbox(settings)
    yield from _servers_of_tools(settings)
    yield _port(settings)


def _machine() -> Iterator[Check]:
    yield Check("ok", "python", f"{platform.python_version()}, antiphon {__version__}")
    yield Check("ok", "machine", f"{platform.system()} {platform.machine()}, {os.cpu_count() or 1} cores")


def _libraries(settings: Settings) -> Check:
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in _LIBRARIES if importlib.util.find_spec(name)
    )
    missing = missing_libraries(models_wanted(settings))
    if missing:
        return Check("fail", "libraries", f"{versions}; missing: {', '.join(missing)}", "pip install 'antiphon[local]'")
    return Check("ok", "libraries", versions)


def _settings(settings: Settings) -> Iterator[Check]:
    changed = [
        f"{field.name}={_shown(field.name, getattr(settings, field.name))}"
        for field in FIELDS
        if getattr(settings, field.name) != field.default
    ]
    yield Check("ok", "settings", ", ".join(changed) or "all at their defaults")
    from antiphon.store.keyring import has_stored_keys

    try:
        check_access(settings, lambda: has_stored_keys(settings))
    except ConfigurationError as error:
        yield Check("fail", "access", str(error))


def _shown(name: str, value: object) -> str:
    if name in _SECRET:
        return "(set)"
    if name == "store" and "://" in str(value):
        # It may hold a password.
        return f"{str(value).partition('://')[0]}://(set)"
    return repr(value)


def _data_directory(path: Path) -> Check:
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Check("fail", "data", f"{path} cannot be written", "Set --data-dir to a folder that can.")
    free = shutil.disk_usage(existing).free
    finding = f"{path}{'' if path.exists() else ' (made at the first start)'}, {free / 1e9:.1f} GB free"
    if free < _LOW_DISK:
        return Check("warn", "data", finding, "Free some space: a model or a long log may not fit.")
    return Check("ok", "data", finding)


def _model(name: str, settings: Settings) -> Check:
    from antiphon.engines.catalog import CATALOG, locate, verify
    from antiphon.engines.florence.folder import is_florence

    if name == "scripted":
        return Check("ok", "model", "scripted: deterministic, for tests")
    if name in CATALOG:
        path = locate(settings.data_path, name)
        if path is None:
            return Check("fail", "model", f"{name} is not here", f"antiphon models pull {name}")
        if not verify(settings.data_path, name):
            return Check("fail", "model", f"{path} is damaged: wrong sha256", f"antiphon models pull {name}")
        return Check("ok", "model", f"{name} at {path}, sha256 as expected")
    path = Path(name).expanduser()
    return _florence(path) if is_florence(path) else _gguf(path)


def _florence(path: Path) -> Check:
    from antiphon.engines.florence.folder import missing_libraries

    missing = missing_libraries()
    if missing:
        finding = f"{path} is a Florence-2 model; missing: {', '.join(missing)}"
        return Check("fail", "model", finding, 'pip install "antiphon[vision]"')
    return Check("ok", "model", f"{path}, a Florence-2 model")


def _gguf(path: Path) -> Check:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        return Check("fail", "model", f"{path}: {error.strerror}", "Give --model the path of a GGUF file.")
    if magic != b"GGUF":
        return Check("fail", "model", f"{path} is not a GGUF file", "Give --model the path of a GGUF file.")
    return Check("ok", "model", f"{path}, {path.stat().st_size / 1e6:.0f} MB")


def _tables(settings: Settings) -> Iterator[Check]:
    """What becomes of the tables of the file: their names, and whether the servers that they name answer."""
    from antiphon.engines.build import upstream_tables
    from antiphon.engines.registry import build_registry

    try:
        names = build_registry(settings).names()
    except ConfigurationError as error:
        yield Check("fail", "models", str(error))
    else:
        yield Check("ok", "models", f"{len(settings.models)} in [[models]], by the names {', '.join(names)}")
    for config in settings.models:
        try:
            tables = upstream_tables(config)
        except ConfigurationError as error:
            yield Check("fail", "upstream", str(error))
            continue
        for table in tables:
            yield _upstream(table)


def _upstream(config: ModelConfig) -> Check:
    import asyncio

    from antiphon.engines.build import upstream_engine

    try:
        engine = upstream_engine(config)
    except ConfigurationError as error:
        return Check("fail", "upstream", str(error))
    if asyncio.run(engine.answers()):
        length = engine.capabilities.context_length
        return Check("ok", "upstream", f"{engine.name} answers at {config.base_url}, context of {length} tokens")
    advice = "The server starts without it, and the model is ready when it answers."
    return Check("warn", "upstream", f"{engine.name} does not answer at {config.base_url}", advice)


def _store(settings: Settings) -> Check:
    from antiphon.store.open import describe, open_store, sqlite_path

    try:
        store = open_store(settings)
    except ConfigurationError as error:
        return Check("fail", "store", str(error))
    finding = describe(store, settings)
    path = sqlite_path(settings)
    if store is not None and store.shared:
        return _database(settings, finding)
    if store is None or path is None:
        return Check("ok", "store", finding)
    if not path.exists():
        return Check("ok", "store", f"{finding} It is made at the first start.")
    if not os.access(path, os.R_OK | os.W_OK):
        return Check("fail", "store", f"{path} cannot be written", "Change its permissions, or set --store.")
    files = (path, path.with_name(f"{path.name}-wal"))
    size = sum(file.stat().st_size for file in files if file.exists())
    return Check("ok", "store", f"{finding} It takes {size / 1e6:.1f} MB.")


def _database(settings: Settings, finding: str) -> Check:
    # Only here: `--help` needs neither.
    import asyncio

    from antiphon.store.postgres_care import database_report, database_schema

    try:
        if not asyncio.run(database_schema(settings.store)):
            return Check("ok", "store", f"{finding} It is made at the first start.")
        report = asyncio.run(database_report(settings.store))
    except ConfigurationError as error:
        return Check("fail", "store", str(error))
    if report.schema != report.newest_schema:
        return Check("warn", "store", f"{finding} Its schema is {report.schema}.", "antiphon db migrate")
    servers = len(report.servers)
    return Check("ok", "store", f"{finding} It takes {report.size / 1e6:.1f} MB; {servers} servers have it open.")


def _documents(settings: Settings) -> Check:
    """What reads documents, so that they are found by what they say; a model that is here is started to see it."""
    # Only here: `--help` needs neither.
    import asyncio

    from antiphon.engines.catalog import CATALOG, locate

    missing = [name for name in _OF_DOCUMENTS if importlib.util.find_spec(name) is None]
    if missing:
        finding = f"some of the search is not there; missing: {', '.join(missing)}"
        return Check("warn", "documents", finding, "pip install 'antiphon[corpus]'")
    name = settings.document_embedding
    if name == "none":
        return Check("ok", "documents", f"searched by words alone: {_WORDS_ALONE}")
    if name not in CATALOG or name in models_wanted(settings):
        return Check("ok", "documents", f"searched by words and by what {name} reads")
    if locate(settings.data_path, name) is None:
        finding = f"searched by words and by {name}, which is fetched when it is first needed"
        return Check("ok", "documents", finding, f"To have it before: antiphon models pull {name}")
    fault = asyncio.run(_embedding_fault(settings, name))
    if fault:
        finding = f"{name} cannot be used, so that words alone are searched: {fault}"
        return Check("warn", "documents", finding, f"Until it can, {_WORDS_ALONE}.")
    return Check("ok", "documents", f"searched by words and by {name}, which is here and starts")


async def _embedding_fault(settings: Settings, name: str) -> str:
    """Why the embedding model does not start and make a vector; empty where it does."""
    from antiphon.corpus.localmodel import OwnEmbedder, catalogue_model

    embedder = OwnEmbedder(name, catalogue_model(settings, name=name))
    try:
        await embedder.embed(["anything"])
    except AntiphonError as error:
        return str(error)
    finally:
        await embedder.close()
    return ""


def _sandbox(settings: Settings) -> Check:
    """What code of a model runs in; a sandbox is started to see that one does."""
    # Only here: `--help` needs neither.
    import asyncio

    from antiphon.tools.code.choose import Sandboxes
    from antiphon.tools.code.sandbox import NoSandboxError

    try:
        found = asyncio.run(Sandboxes(settings).backend())
    except ConfigurationError as error:
        return Check("fail", "sandbox", str(error))
    except NoSandboxError as error:
        if settings.sandbox in ("auto", "none"):
            return Check("ok", "sandbox", str(error))
        return Check("fail", "sandbox", str(error), "Set --sandbox to auto.")
    bounded = found.name != "bwrap" or not found.advice
    return Check("ok" if bounded else "warn", "sandbox", found.finding, found.advice)


def _servers_of_tools(settings: Settings) -> Iterator[Check]:
    """Whether the operator's MCP servers list their tools, and what searches of the web ask."""
    # Only here: `--help` needs neither.
    import asyncio

    from antiphon.tools.mcp.provider import McpProvider
    from antiphon.tools.web.engines import engine_of

    try:
        listed = asyncio.run(McpProvider(settings, settings.allow_outbound).survey())
    except ConfigurationError as error:
        yield Check("fail", "mcp", str(error))
    else:
        for label, found in listed.items():
            if isinstance(found, int):
                yield Check("ok", "mcp", f"{label} has {found} tools")
            else:
                yield Check("warn", "mcp", f"{label}: {found}", "Responses that name it go on without its tools.")
    try:
        engine = engine_of(settings, settings.allow_outbound)
    except ConfigurationError as error:
        yield Check("fail", "web", str(error))
    else:
        if engine is not None:
            yield Check("ok", "web", f"web_search asks {settings.web_search}")


def _port(settings: Settings) -> Check:
    where = f"{settings.host}:{settings.port}"
    try:
        address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(address[0], socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address[4])
    except OSError as error:
        return _occupant(settings, f"{where}: {error.strerror}")
    return Check("ok", "port", f"{where} is free")


def _occupant(settings: Settings, finding: str) -> Check:
    from antiphon.cli.connection import Connection, ServerError, UnreachableError

    advice = "Stop what listens there, or set --port."
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    keys = configured_keys(settings)
    key = keys[0].decode("utf-8", "surrogateescape") if keys else None
    try:
        with Connection(f"http://{host}:{settings.port}/v1", key) as server:
            served = server.models()
    except UnreachableError:
        return Check("fail", "port", finding, advice)
    except ServerError as error:
        return Check("fail", "port", f"{finding}; what answers there: {error}", advice)
    return Check(
        "warn", "port", f"{settings.host}:{settings.port} has a server already, with {', '.join(served)}", advice
    )
