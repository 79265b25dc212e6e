"""Tables of engines on a Ray cluster, and how Ray is asked for them; Ray itself is a stand-in here."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from antiphon.engines.base import EngineLostError
from antiphon.engines.ray.cluster import NAMESPACE, Place, RayActor
from antiphon.engines.ray.config import actor_name, ray_engine
from antiphon.engines.ray.wire import EngineOptions, decode
from antiphon.engines.replicas.engine import ReplicatedEngine
from antiphon.errors import ConfigurationError
from antiphon.settings import ModelConfig, Settings
from antiphon.tables import RayConfig

OPTIONS = EngineOptions(path="/models/tiny.gguf", name="tiny")
MODEL = ModelConfig(engine="ray", path="/models/tiny.gguf")


class RayError(Exception):
    pass


class ActorDiedError(RayError):
    pass


class Method:
    """A method of an actor: what `remote` gives can be awaited, or read one by one."""

    def __init__(self, handle: Handle, name: str) -> None:
        self._handle = handle
        self._name = name

    def options(self, **options: Any) -> Method:
        assert options == {"num_returns": "streaming"}
        return self

    def remote(self, *arguments: Any) -> Any:
        return self._stream() if self._name == "generate" else self._answer(arguments)

    async def _answer(self, arguments: tuple[Any, ...]) -> bytes:
        if self._handle.fault is not None:
            raise self._handle.fault
        return b"".join(arguments)

    async def _stream(self) -> AsyncGenerator[Any]:
        for piece in (b"a", b"b"):
            yield self._answer((piece,))


class Handle:
    def __init__(self, options: bytes) -> None:
        self.options_given = decode(options, EngineOptions)
        self.fault: Exception | None = None

    def __getattr__(self, name: str) -> Method:
        return Method(self, name)


class Cluster:
    """What this project asks of the library."""

    def __init__(self) -> None:
        self.exceptions = SimpleNamespace(RayError=RayError, ActorDiedError=ActorDiedError)
        self.given: dict[str, Any] = {}
        self.handles: list[Handle] = []
        self.cancelled: list[Any] = []
        self.connected = False
        self.unreachable = False

    def is_initialized(self) -> bool:
        return self.connected

    def init(self, **options: Any) -> None:
        if self.unreachable:
            raise ConnectionError("no cluster")
        assert (options["address"], options["namespace"]) == ("auto", NAMESPACE)
        self.connected = True

    def remote(self, kind: type) -> Cluster:
        assert kind.__name__ == "EngineActor"
        # Called on the class first, and then for the actor that is made of it.
        return _Made(self)

    def cancel(self, references: Any) -> None:
        self.cancelled.append(references)


class _Made(Cluster):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def options(self, **options: Any) -> _Made:
        self._cluster.given = options
        return self

    def remote(self, options: Any) -> Any:
        self._cluster.handles.append(Handle(options))
        return self._cluster.handles[-1]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster()
    monkeypatch.setitem(sys.modules, "ray", found)
    return found


@pytest.mark.requirement("ray:config")
def test_a_table_becomes_engines_of_one_model(cluster: Cluster) -> None:
    config = ModelConfig(engine="ray", path="/models/a-model.gguf", replicas=3, ray=RayConfig(num_cpus=4))
    engine = ray_engine(config, Settings())
    assert isinstance(engine, ReplicatedEngine)
    assert engine.name == "a-model"
    assert len(engine.engines) == 3
    assert not engine.ready
    alone = ray_engine(MODEL, Settings())
    assert isinstance(alone, ReplicatedEngine)
    assert len(alone.engines) == 1


@pytest.mark.requirement("ray:config")
@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ModelConfig(engine="ray"), "needs 'path'"),
        (ModelConfig(engine="ray", path="a.gguf", replicas=("http://a",)), "is a number"),
        (ModelConfig(engine="ray", path="a.gguf", replicas=-1), "is a number"),
        (ModelConfig(engine="ray", path="a.gguf", embedding=True), "no vectors"),
        (ModelConfig(engine="ray", path="a.gguf", base_url="http://a"), "upstreams"),
        (ModelConfig(engine="ray", path="a.gguf", tool_dialect="none"), "no tool-call dialect"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(cluster: Cluster, config: ModelConfig, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ray_engine(config, Settings())


@pytest.mark.requirement("ray:missing")
def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigurationError, match=r"antiphon\[ray\]"):
        ray_engine(MODEL, Settings())


@pytest.mark.requirement("ray:config")
def test_an_engine_that_is_run_another_way_is_another_actor() -> None:
    other = EngineOptions(path="/models/tiny.gguf", name="tiny", slots=9)
    names = {actor_name(OPTIONS, 0), actor_name(OPTIONS, 1), actor_name(other, 0)}
    assert len(names) == 3
    assert all(name.startswith("tiny-") for name in names)


@pytest.mark.requirement("ray:config")
async def test_an_actor_is_found_by_name_or_made_with_what_it_needs(cluster: Cluster) -> None:
    actor = RayActor("tiny-0", OPTIONS, Place(2.0, 1.0, {"fast": 1.0}))
    assert await asyncio.gather(actor.call("prepare", b"x"), actor.call("prepare", b"y")) == [b"x", b"y"]
    assert [piece async for piece in actor.stream("generate", b"")] == [b"a", b"b"]
    assert len(cluster.handles) == 1
    assert cluster.handles[0].options_given == OPTIONS
    wanted = {"name": "tiny-0", "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True}
    wanted |= {"max_restarts": -1, "num_cpus": 2.0, "num_gpus": 1.0, "resources": {"fast": 1.0}}
    assert wanted.items() <= cluster.given.items()
    assert cluster.cancelled == []


@pytest.mark.requirement("ray:lost")
async def test_what_ray_cannot_do_is_a_lost_engine_and_a_dead_actor_is_made_again(cluster: Cluster) -> None:
    actor = RayActor("tiny-0", OPTIONS, Place())
    cluster.unreachable = True
    with pytest.raises(EngineLostError):
        await actor.call("attend", b"x")
    cluster.unreachable = False
    assert await actor.call("attend", b"x") == b"x"
    cluster.handles[0].fault = RayError("away")
    with pytest.raises(EngineLostError):
        await actor.call("attend", b"x")
    assert len(cluster.handles) == 1
    cluster.handles[0].fault = ActorDiedError("dead")
    with pytest.raises(EngineLostError):
        async for _ in actor.stream("generate", b""):
            pass
    assert await actor.call("attend", b"x") == b"x"
    assert len(cluster.handles) == 2


@pytest.mark.requirement("ray:leaving")
async def test_a_stream_that_is_closed_is_cancelled_there(cluster: Cluster) -> None:
    actor = RayActor("tiny-0", OPTIONS, Place())
    stream = actor.stream("generate", b"")
    assert await anext(stream) == b"a"
    await stream.aclose()
    assert len(cluster.cancelled) == 1
    await cluster.cancelled[0].aclose()
