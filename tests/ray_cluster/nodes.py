"""A Ray cluster of three nodes on this machine, PostgreSQL, and the server deployed on it by its own commands."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import ray
import yaml
from ray.cluster_utils import Cluster
from ray.serve.schema import ServeDeploySchema

from antiphon.engines.ray.cluster import NAMESPACE
from support import postgres, tiny_gguf

__all__ = ["PIECES", "Nodes", "free_port", "running", "until"]

PIECES = [f"{number} " for number in range(1, 6001)]
"""What the model writes, whatever it is asked."""

_STORE_BYTES = 80_000_000
_DEADLINE = 90.0
_BIN = Path(sys.executable).parent


class Nodes:
    """The cluster: a head with a server, a node with a server and an engine, and a node with an engine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.database = postgres.cluster()
        self.name = self.database.create_database(empty=True)
        self.model = tiny_gguf.build(folder, script=PIECES, name="tiny", context_length=65_536)
        # Nodes hand their environment on to whatever runs on them.
        os.environ["ANTIPHON_STORE"] = self.database.url(self.name)
        # The one proxy would ask the server on its own node alone.
        os.environ["RAY_SERVE_PROXY_PREFER_LOCAL_NODE_ROUTING"] = "0"
        head = {"num_cpus": 1, "resources": {"server": 1}, "include_dashboard": True, "dashboard_port": free_port()}
        # The machine's memory is that of all nodes here; and workers are not to give way to whatever else runs on it.
        system = {"memory_monitor_refresh_ms": 0, "worker_niceness": 0}
        head |= {"object_store_memory": _STORE_BYTES, "_system_config": system}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.dashboard = f"http://{self.cluster.head_node.webui_url}"
        self.both = self.add(num_cpus=2, resources={"server": 1, "engine": 1})
        self.engine_only = self.add(num_cpus=1, resources={"engine": 1})
        ray.init(address=self.cluster.address, namespace=NAMESPACE, log_to_driver=False)

    def add(self, **options: Any) -> Any:
        """Another node."""
        return self.cluster.add_node(object_store_memory=_STORE_BYTES, **options)

    def kill(self, node: Any) -> None:
        """Kill a node, with all that runs on it."""
        self.cluster.remove_node(node, allow_graceful=False)

    def deploy(self, **settings: Any) -> None:
        """Write the configuration, and deploy it, by the commands of the guide."""
        config = self.folder / "antiphon.toml"
        lines = [
            f"{name} = {value}"
            for name, value in {"port": self.port, "lease_seconds": 2, "slots": 8, **settings}.items()
        ]
        lines += ["[[models]]", 'name = "tiny"', 'engine = "ray"', f'path = "{self.model}"', "replicas = 2"]
        lines += ["ray = { num_cpus = 1, resources = { engine = 1 } }", "limits = { max_output_tokens = 8000 }"]
        config.write_text("\n".join(lines) + "\n")
        out = self.folder / "serve.yaml"
        _run("antiphon", "deploy", "ray", "--config", str(config), "--max-replicas", "2", "--out", str(out))
        body = yaml.safe_load(out.read_text())
        ServeDeploySchema.model_validate(body)
        # One machine has one port for one proxy; and each server has a node of its own.
        body["proxy_location"] = "HeadOnly"
        body["applications"][0]["deployments"][0]["ray_actor_options"]["resources"] = {"server": 1}
        out.write_text(yaml.safe_dump(body))
        _run("serve", "deploy", str(out), "--address", self.dashboard)

    def actors(self) -> list[Any]:
        """The actors of the engines that are there now."""
        named = ray.util.list_named_actors(all_namespaces=True)
        names = sorted(each["name"] for each in named if each["namespace"] == NAMESPACE)
        found = []
        for name in names:
            with contextlib.suppress(ValueError):
                found.append(ray.get_actor(name, namespace=NAMESPACE))
        return found

    def working(self) -> int:
        """Turns that all engines work on."""
        return sum(ray.get([actor.working.remote() for actor in self.actors()], timeout=_DEADLINE))

    def replicas(self) -> int:
        """Replicas of the server that run."""
        from ray import serve

        application = serve.status().applications.get("antiphon")
        if application is None or application.status != "RUNNING":
            return 0
        return application.deployments["server"].replica_states.get("RUNNING", 0)

    def close(self) -> None:
        """End everything."""
        ray.shutdown()
        self.cluster.shutdown()


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Nodes]:
    """The cluster with the server on it, once it answers."""
    nodes = Nodes(folder)
    try:
        nodes.deploy()
        until(lambda: nodes.replicas() == 2, "two servers run")
        yield nodes
    finally:
        nodes.close()


def until(condition: Callable[[], bool], what: str, seconds: float = _DEADLINE, *, pause: float = 0.05) -> float:
    """Wait until something holds, with a pause between looks; the seconds that it took."""
    began = time.monotonic()
    while not _holds(condition):
        if time.monotonic() - began > seconds:
            raise AssertionError(f"{what}: not within {seconds:g} s")
        threading.Event().wait(pause)
    return time.monotonic() - began


def _holds(condition: Callable[[], bool]) -> bool:
    with contextlib.suppress(httpx2.HTTPError, ray.exceptions.RayError, ValueError):
        return condition()
    return False


def _run(program: str, *arguments: str) -> None:
    done = subprocess.run([str(_BIN / program), *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
