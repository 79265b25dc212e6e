"""Several llama-servers behind two replicas behind nginx: chains stay where their prefix is, and outlive a server."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from kills.replicas import Replica
from support.llama_server import llama_server
from support.postgres import cluster
from support.proxies import free_ports, proxy
from support.server import wait_until

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "cluster.md"
KEY = "the-key-of-the-test"
SERVERS = 3
CHAINS = 6
TURNS = 5


class Elsewhere:
    """A client of the proxy, and the servers that run the model, each with what ends it."""

    def __init__(self, base_url: str, replicas: list[Replica], models: list[ExitStack]) -> None:
        self.client = openai.OpenAI(base_url=base_url, api_key=KEY, timeout=60)
        self.replicas = replicas
        self.models = models

    def ask(self, said: str, previous: str | None = None, **fields: Any) -> Any:
        """A response of eight tokens."""
        if previous is not None:
            fields["previous_response_id"] = previous
        return self.client.responses.create(model="qwen", input=said, max_output_tokens=8, temperature=0, **fields)


@pytest.fixture(scope="module")
def elsewhere(tiny: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    if shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin") is None:
        pytest.skip("nginx is not installed")
    folder = tmp_path_factory.mktemp("elsewhere")
    database = cluster().url(cluster().create_database(empty=True))
    with ExitStack() as stack:
        models = [stack.enter_context(ExitStack()) for _ in range(SERVERS)]
        urls = [one.enter_context(llama_server(tiny())) for one in models]
        config = folder / "antiphon.toml"
        config.write_text(table(urls), encoding="utf-8")
        ports = free_ports(2)
        arguments = ["--config", str(config), "--store", database, "--api-key", KEY]
        replicas = [Replica([*arguments, "--port", str(port)]) for port in ports]
        for replica in replicas:
            stack.callback(replica.stop)
            replica.start()
        yield Elsewhere(stack.enter_context(proxy("nginx", ports, folder)), replicas, models)


def table(urls: list[str]) -> str:
    """The guide's table of a model on three llama-servers, at these addresses."""
    blocks = re.findall(r"^```toml\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if 'profile = "llama-server"' in block]
    named = re.findall(r'"(http://[^"]+)"', found)
    assert len(named) == SERVERS
    for there, here in zip(named, urls, strict=True):
        found = found.replace(there, here)
    return found


@pytest.mark.requirement("cluster:models")
def test_chains_stay_where_their_prefix_is_whichever_replica_takes_a_turn(elsewhere: Elsewhere) -> None:
    cached, turns = 0, 0
    for chain in range(CHAINS):
        last = elsewhere.ask(f"Chain {chain}. " + "Tell of the weather in the capital and of the wind. " * 4)
        for turn in range(1, TURNS):
            last = elsewhere.ask(f"And in {turn} days?", last.id)
            turns += 1
            cached += last.usage.input_tokens_details.cached_tokens > 0.5 * last.usage.input_tokens
    assert cached >= 0.95 * turns


@pytest.mark.requirement("cluster:models")
def test_a_server_that_goes_away_takes_no_chain_with_it(elsewhere: Elsewhere) -> None:
    chains = [elsewhere.ask(f"Begin chain {number}.") for number in range(CHAINS)]
    elsewhere.models[0].close()
    for _ in range(TURNS):
        chains = [elsewhere.ask("Go on.", last.id) for last in chains]
        assert {last.status for last in chains} == {"incomplete"}
        assert {last.incomplete_details.reason for last in chains} == {"max_output_tokens"}
    # A replica is ready as long as one of the servers is.
    wait_until(lambda: all(ready(replica) for replica in elsewhere.replicas))


def ready(replica: Replica) -> bool:
    return httpx2.get(replica.base_url.removesuffix("/v1") + "/ready", trust_env=False).status_code == 200
