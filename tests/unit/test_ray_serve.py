"""A replica of Ray Serve, as Ray Serve would run it: built, started, asked, drained."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from antiphon.errors import ConfigurationError
from antiphon.ray_serve import Replica, ReplicaApplication, build, replica_settings
from antiphon.settings import Settings
from support.asgi import ManualExchange

DEADLINE = 10.0


class Life:
    """The lifespan of an application."""

    def __init__(self, application: Any) -> None:
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._sent: asyncio.Queue[Any] = asyncio.Queue()
        self._task = asyncio.create_task(application({"type": "lifespan"}, self._inbox.get, self._sent.put))

    async def begin(self) -> dict[str, Any]:
        self._inbox.put_nowait({"type": "lifespan.startup"})
        return await asyncio.wait_for(self._sent.get(), DEADLINE)

    async def end(self) -> dict[str, Any]:
        self._inbox.put_nowait({"type": "lifespan.shutdown"})
        ended = await asyncio.wait_for(self._sent.get(), DEADLINE)
        await self._task
        return ended


@pytest.mark.requirement("ray:replica")
async def test_a_replica_starts_answers_and_ends_once_its_answers_are_whole(tmp_path: Path) -> None:
    settings = Settings(model=("scripted",), store="memory", data_dir=str(tmp_path), drain_timeout=5.0)
    application = ReplicaApplication(settings)
    life = Life(application)
    assert await life.begin() == {"type": "lifespan.startup.complete"}
    body = {"model": "scripted", "input": "!TEXT one two three", "stream": True}
    exchange = ManualExchange(application, body)
    assert (await exchange.next())["status"] == 200
    assert await life.end() == {"type": "lifespan.shutdown.complete"}
    sent = b"".join(message.get("body", b"") for message in await exchange.finished())
    assert b"response.completed" in sent


@pytest.mark.requirement("ray:replica")
async def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    settings = Settings(model=(str(tmp_path / "no.gguf"),), store="memory", data_dir=str(tmp_path))
    failed = await Life(ReplicaApplication(settings)).begin()
    assert failed["type"] == "lifespan.startup.failed"
    assert "no.gguf" in failed["message"]


@pytest.mark.requirement("ray:shared")
def test_settings_are_those_of_the_configuration_and_state_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTIPHON_STORE", raising=False)
    with pytest.raises(ConfigurationError, match="PostgreSQL"):
        replica_settings({"settings": {"model": ["scripted"]}})
    monkeypatch.setenv("ANTIPHON_STORE", "postgresql://antiphon@db/antiphon")
    assert replica_settings({"settings": {"model": ["scripted"], "port": 9}}).port == 9
    with pytest.raises(ConfigurationError, match="PostgreSQL"):
        replica_settings({"settings": {"responses_store_max_entries": 0}})
    config = tmp_path / "antiphon.toml"
    config.write_text('lease_seconds = 3\nhost = "0.0.0.0"\napi_key = "k"\n')
    settings = replica_settings({"config": str(config)})
    assert (settings.lease_seconds, settings.store) == (3, "postgresql://antiphon@db/antiphon")


@pytest.mark.requirement("ray:replica")
def test_ray_serve_is_given_one_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    def deployment(kind: Any, name: str) -> Any:
        return SimpleNamespace(bind=lambda args: (kind, name, args))

    serve = SimpleNamespace(ingress=lambda: lambda kind: kind, deployment=deployment)
    monkeypatch.setitem(sys.modules, "ray.serve", serve)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(serve=serve))
    assert build({"settings": {"port": 9}}) == (Replica, "server", {"settings": {"port": 9}})


@pytest.mark.requirement("ray:missing")
def test_without_ray_there_is_no_application(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.serve", None)
    with pytest.raises(ConfigurationError, match=r"antiphon\[ray\]"):
        build({})
