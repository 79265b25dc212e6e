"""Two replicas over one database behind the proxies of deploy/, with the very files that lie there."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import openai
import pytest
from websockets.sync.client import connect

from antiphon.protocol.json import loads
from antiphon.protocol.sse import SSEParser
from kills.replicas import Replica
from support.postgres import cluster
from support.proxies import PROXIES, free_ports, proxy
from support.server import wait_until

pytestmark = pytest.mark.requirement("cluster:proxy")

KEY = "the-key-of-the-test"
HEADERS = {"authorization": f"Bearer {KEY}"}
LEASE = 1.0
DRAIN = 20.0
REQUESTS_AROUND = 15
"""Requests that must be answered before and after a replica is exchanged."""


class Cluster:
    """Two replicas and the proxy before them."""

    def __init__(self, kind: str, base_url: str, replicas: list[Replica]) -> None:
        self.kind = kind
        self.base_url = base_url
        self.replicas = replicas
        self.client = openai.OpenAI(base_url=base_url, api_key=KEY, timeout=60)

    def figure(self, replica: Replica, name: str) -> float:
        """A figure of one replica's /metrics, over all labels."""
        url = replica.base_url.removesuffix("/v1") + "/metrics"
        text = httpx2.get(url, headers=HEADERS, trust_env=False).text
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))

    def background(self, said: str) -> str:
        """The id of a background response that has begun."""
        response = self.client.responses.create(model="scripted", input=said, background=True)
        wait_until(lambda: self.client.responses.retrieve(response.id).output_text)
        return response.id

    def read(self, response_id: str, after: int = -1) -> list[dict[str, object]]:
        """The events that come until the end of the stream, or of the connection."""
        parser, found = SSEParser(), []
        url = f"{self.base_url}/responses/{response_id}?stream=true&starting_after={after}"
        try:
            with httpx2.stream("GET", url, headers=HEADERS, timeout=60, trust_env=False) as answer:
                assert answer.status_code == 200
                for chunk in answer.iter_bytes():
                    found += [loads(frame.data) for frame in parser.feed(chunk) if frame.data != "[DONE]"]
        except httpx2.HTTPError:
            pass
        return found


@pytest.fixture(scope="module", params=PROXIES)
def proxied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    kind = request.param
    if shutil.which(kind, path="/usr/sbin:/usr/bin:/usr/local/bin") is None:
        pytest.skip(f"{kind} is not installed")
    database = cluster().url(cluster().create_database(empty=True))
    folder = tmp_path_factory.mktemp(kind)
    ports = free_ports(2)
    arguments = ["--model", "scripted", "--store", database, "--api-key", KEY, "--lease-seconds", str(LEASE)]
    arguments += ["--drain-timeout", str(DRAIN)]
    replicas = [Replica([*arguments, "--port", str(port)]) for port in ports]
    with ExitStack() as stack:
        for replica in replicas:
            stack.callback(replica.stop)
            replica.start()
        yield Cluster(kind, stack.enter_context(proxy(kind, ports, folder)), replicas)


def test_the_turns_of_a_chain_go_to_both_replicas(proxied: Cluster) -> None:
    previous = None
    for turn in range(8):
        with proxied.client.responses.stream(
            model="scripted", input=f"!TEXT {turn}", **({"previous_response_id": previous} if previous else {})
        ) as stream:
            last = stream.until_done().get_final_response()
        assert last.output_text == str(turn)
        previous = last.id
    assert previous is not None
    assert len(proxied.client.responses.input_items.list(previous, limit=100).data) == 15
    for replica in proxied.replicas:
        assert proxied.figure(replica, "antiphon:request_success_total") > 0


def test_events_pass_while_the_response_runs(proxied: Cluster) -> None:
    stream = proxied.client.responses.create(model="scripted", input="!SLOW 20\n!COUNT 100000", stream=True)
    name = ""
    for event in stream:
        if event.type == "response.created":
            name = event.response.id
        if event.type == "response.output_text.delta":
            break
    # The first of a hundred thousand words is here: nobody waited for a buffer to fill.
    assert proxied.client.responses.retrieve(name).status == "in_progress"
    stream.close()
    wait_until(lambda: proxied.client.responses.retrieve(name).status == "cancelled")


def test_websockets_pass(proxied: Cluster) -> None:
    url = proxied.base_url.replace("http://", "ws://") + "/responses"
    with connect(url, additional_headers=HEADERS, proxy=None) as socket:
        previous = None
        for turn in range(3):
            body = {"type": "response.create", "model": "scripted", "input": f"!TEXT {turn}"}
            socket.send(json.dumps(body | ({"previous_response_id": previous} if previous else {})))
            frames = []
            while not frames or frames[-1]["type"] != "response.completed":
                frames.append(json.loads(socket.recv(timeout=10)))
            previous = frames[-1]["response"]["id"]
    assert proxied.client.responses.retrieve(previous).output_text == "2"


def test_large_bodies_pass_and_those_too_large_are_refused_in_words(proxied: Cluster) -> None:
    megabytes = 20
    kept = proxied.client.files.create(file=("a.txt", b"x" * megabytes * 1024 * 1024), purpose="user_data")
    assert proxied.client.files.retrieve(kept.id).bytes == megabytes * 1024 * 1024
    with pytest.raises(openai.APIStatusError) as refused:
        proxied.client.files.create(file=("a.txt", b"x" * 67 * 1024 * 1024), purpose="user_data")
    assert refused.value.status_code == 413
    # By the proxy, or by the server where the proxy passes on what it has not counted yet.
    assert refused.value.code in ("request_too_large", "file_too_large")


def test_what_a_killed_replica_ran_goes_on_behind_the_proxy(proxied: Cluster) -> None:
    name = proxied.background("!SLOW 20\n!COUNT 200")
    (owner,) = [one for one in proxied.replicas if proxied.figure(one, "antiphon:background_running")]
    seen: list[dict[str, object]] = []
    reader = threading.Thread(target=lambda: seen.extend(proxied.read(name)))
    reader.start()
    wait_until(lambda: proxied.figure(owner, "antiphon:store_commit_seconds_count") > 0)
    owner.kill()
    try:
        reader.join(30)
        assert not reader.is_alive()
        # Where the reader was on the replica that lives, it has all; else it goes on after what it has seen.
        if not seen or seen[-1]["type"] != "response.completed":
            seen += proxied.read(name, after=len(seen) - 1)
        assert [event["sequence_number"] for event in seen] == list(range(len(seen)))
        assert seen[-1]["type"] == "response.completed"
        expected = " ".join(str(number) for number in range(1, 201))
        assert proxied.client.responses.retrieve(name).output_text == expected
    finally:
        owner.start()


def test_replicas_are_exchanged_one_by_one_and_no_request_fails(proxied: Cluster) -> None:
    answered = itertools.count()
    done = threading.Event()
    failed: list[str] = []
    count = [0]

    def ask() -> None:
        while not done.is_set():
            number = next(answered)
            try:
                response = proxied.client.responses.create(model="scripted", input=f"!SLOW 5\n!COUNT {number % 20 + 1}")
                if response.status != "completed":
                    failed.append(f"{number}: {response.status}")
            except openai.APIError as error:
                failed.append(f"{number}: {error!r}")
            count[0] += 1

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for asker in askers:
        asker.start()
    try:
        for replica in proxied.replicas:
            begun = count[0]
            wait_until(lambda begun=begun: count[0] >= begun + REQUESTS_AROUND, 60)
            replica.stop()
            begun = count[0]
            wait_until(lambda begun=begun: count[0] >= begun + REQUESTS_AROUND, 60)
            replica.start()
    finally:
        done.set()
        for asker in askers:
            asker.join(60)
    assert failed == []


def test_a_stream_that_runs_is_not_cut_when_its_replica_stops(proxied: Cluster) -> None:
    stream = proxied.client.responses.create(model="scripted", input="!SLOW 20\n!COUNT 100", stream=True)
    events = iter(stream)
    while next(events).type != "response.output_text.delta":
        pass
    (owner,) = [one for one in proxied.replicas if proxied.figure(one, "antiphon:num_requests_running{")]
    stopping = threading.Thread(target=owner.stop)
    stopping.start()
    try:
        *_, last = events
        assert last.type == "response.completed"
        assert last.response.output_text.endswith(" 99 100")
    finally:
        stopping.join(30)
        owner.start()


def test_without_a_replica_the_proxy_answers_as_the_server_does(proxied: Cluster, tmp_path: Path) -> None:
    with proxy(proxied.kind, free_ports(2), tmp_path) as alone:
        answer = httpx2.post(
            f"{alone}/responses", json={"model": "scripted", "input": "hi"}, timeout=30, trust_env=False
        )
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["error"]["code"] == "service_unavailable"
