"""Requests through Ray Serve's proxy: whole, streamed, left, in numbers, and while nodes are killed."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO

import httpx2
import ray
from websockets.sync.client import connect

from antiphon.protocol.sse import SSEParser
from ray_cluster.nodes import PIECES, Nodes, running, until

__all__ = ["run"]

LONG = 2_000
"""Tokens of an answer in whose middle something happens."""

STREAMS = 6
CLIENTS = 16
RATE_SECONDS = 6.0
SHORT, STREAMED = 16, 200
MOST_SECONDS = 120.0


def expect(found: object, wanted: object, what: str = "") -> None:
    """Fail where they differ."""
    if found != wanted:
        raise AssertionError(f"{what}: expected {str(wanted)[-120:]!r}, found {str(found)[-120:]!r}")


def written(tokens: int) -> str:
    """What the model writes in so many tokens."""
    return "".join(PIECES[:tokens])


def text_of(response: dict[str, Any]) -> str:
    """The text of an answer."""
    return "".join(part["text"] for item in response["output"] for part in item.get("content", ()))


class Reading:
    """Reads a stream in a thread: its text, the longest gap in it, and whether all events came once."""

    def __init__(self, client: httpx2.Client, method: str, path: str, **options: Any) -> None:
        self.text = ""
        self.last: dict[str, Any] = {}
        self.numbers: list[int] = []
        self.gap = 0.0
        self._events = self._read(client, method, path, options)

    def _read(self, client: httpx2.Client, method: str, path: str, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
        parser = SSEParser()
        with client.stream(method, path, **options) as answer:
            answer.raise_for_status()
            for chunk in answer.iter_bytes():
                for frame in parser.feed(chunk):
                    if frame.data != "[DONE]":
                        yield json.loads(frame.data)

    def go_on(self, *, enough: Callable[[], bool] = lambda: False) -> None:
        """Read to the end, or until it is enough."""
        came = time.monotonic()
        for event in self._events:
            now = time.monotonic()
            self.gap, came = max(self.gap, now - came), now
            self.numbers.append(event["sequence_number"])
            self.last = event
            if event["type"] == "response.output_text.delta":
                self.text += event["delta"]
            if enough():
                return

    def whole(self, tokens: int) -> None:
        """Fail where it is not what was due, each event once and in its order."""
        ended = self.last.get("response", {})
        expect(self.last.get("type"), "response.incomplete", f"the end, with the error {ended.get('error')}")
        expect(ended["incomplete_details"], {"reason": "max_output_tokens"})
        expect(self.text, written(tokens), "the text of the deltas")
        expect(text_of(self.last["response"]), written(tokens), "the text of the response")
        expect(self.numbers, list(range(self.numbers[0], self.numbers[0] + len(self.numbers))), "the sequence")


class Run:
    """The checks; each prints a line."""

    def __init__(self, nodes: Nodes, out: TextIO) -> None:
        self._nodes = nodes
        self._out = out
        self._client = httpx2.Client(
            base_url=f"http://127.0.0.1:{nodes.port}/v1",
            timeout=MOST_SECONDS,
            limits=httpx2.Limits(max_connections=100, max_keepalive_connections=100),
        )
        self.broken: list[str] = []
        """What does not hold."""

    def check(self, title: str, work: Callable[[], str]) -> None:
        """Do one check and print what it found."""
        began = time.monotonic()
        try:
            found = work()
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is the result of the check
            found = f"BROKEN: {type(error).__name__} {error}"[:700]
            self.broken.append(title)
        print(f"{title}: {found} ({time.monotonic() - began:.1f} s)", file=self._out, flush=True)

    def answers(self) -> str:
        """One answer whole, streamed, and as a chat completion."""
        whole = self._post("/responses", self._asked("whole", 100))
        expect(text_of(whole), written(100))
        reading = self._stream("stream", 100)
        reading.go_on()
        reading.whole(100)
        messages = [{"role": "user", "content": "hello"}]
        chat = self._post("/chat/completions", {"model": "tiny", "messages": messages, "max_tokens": 50})
        expect(chat["choices"][0]["message"]["content"], written(50))
        following = self._asked("and now?", 50, previous_response_id=whole["id"])
        expect(text_of(self._post("/responses", following)), written(50))
        expect(self._over_socket(self._asked("socket", 40)), written(40), "over a WebSocket")
        return f"100 tokens whole, streamed and over a WebSocket alike; first event after {reading.gap * 1000:.0f} ms"

    def leaving(self) -> str:
        """A client that leaves in the middle has its slot freed on the other node."""
        took = []
        for number in range(5):
            reading = self._stream(f"leave {number}", 5_000)
            reading.go_on(enough=lambda reading=reading: len(reading.text) > 100)
            expect(self._nodes.working() > 0, True, "an engine works")
            began = time.monotonic()
            reading._events.close()
            until(lambda: self._nodes.working() == 0, "the engine has let go of the turn")
            took.append(time.monotonic() - began)
        return f"the engines are idle after {max(took) * 1000:.0f} ms at most"

    def rate(self) -> str:
        """Requests per second, short answers and streams for many clients."""

        def whole(client: int) -> None:
            answer = self._post("/responses", self._asked(f"rate {client}", SHORT, store=False))
            expect(text_of(answer), written(SHORT))

        def streamed(client: int) -> None:
            reading = self._stream(f"rate {client}", STREAMED)
            reading.go_on()
            reading.whole(STREAMED)

        wholes, streams = self._counted(whole), self._counted(streamed)
        return (
            f"{CLIENTS} clients: {wholes / RATE_SECONDS:.0f} requests/s of {SHORT} tokens; "
            f"{streams / RATE_SECONDS:.1f} streams/s of {STREAMED} tokens"
        )

    def _counted(self, ask: Callable[[int], None]) -> int:
        """How many requests all clients get answered in the time."""
        counts = itertools.count()
        end = time.monotonic() + RATE_SECONDS

        def work(client: int) -> None:
            while time.monotonic() < end:
                ask(client)
                next(counts)

        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(work, range(CLIENTS)))
        return next(counts)

    def engine_killed(self) -> str:
        """A node with an engine is killed while both engines are in the middle of streams."""
        readings = [self._stream(f"engine {number}", LONG) for number in range(STREAMS)]
        with ThreadPoolExecutor(STREAMS) as pool:
            reads = [pool.submit(reading.go_on) for reading in readings]
            lost = 0

            def in_the_middle() -> bool:
                nonlocal lost
                lost = self._working_on(self._nodes.engine_only)
                return lost > 0 and min(len(reading.text) for reading in readings) > 100

            until(in_the_middle, "all streams have begun, and some are on the node")
            self._nodes.kill(self._nodes.engine_only)
            for done in reads:
                done.result()
        for reading in readings:
            reading.whole(LONG)
        gap = max(reading.gap for reading in readings)
        return f"{lost} of {STREAMS} streams lost their engine and went on, none ended; the longest gap was {gap:.1f} s"

    def engine_back(self) -> str:
        """Ray starts the lost engine on a new node, and turns go to it."""
        self._nodes.engine_only = self._nodes.add(num_cpus=1, resources={"engine": 1})
        node = self._nodes.engine_only.node_id
        took = until(lambda: node in [where for where, _ in self._places()], "the engine is on the new node")

        def asked() -> bool:
            with ThreadPoolExecutor(CLIENTS) as pool:
                asks = [pool.submit(self._post, "/responses", self._asked(f"{n}", 300)) for n in range(CLIENTS)]
                came = False
                while not all(ask.done() for ask in asks):
                    came = came or self._working_on(self._nodes.engine_only) > 0
                for ask in asks:
                    expect(text_of(ask.result()), written(300))
            return came

        until(asked, "turns go to the engine that came back")
        return f"there after {took:.1f} s"

    def server_killed(self) -> str:
        """A node with a server and an engine is killed while both servers run background responses."""
        asked = [self._asked(f"background {n}", LONG, background=True) for n in range(STREAMS)]
        names = [self._post("/responses", body)["id"] for body in asked]
        until(lambda: all(self._drawn(name) > 50 for name in names), "all of them are in their middle", pause=0.2)
        before = self._owners()
        expect(len(set(before.values())), 2, "servers that run them")
        self._nodes.kill(self._nodes.both)
        killed = time.monotonic()
        with ThreadPoolExecutor(STREAMS) as pool:
            polls = [pool.submit(self._polled, name) for name in names[::2]]
            streams = [pool.submit(self._followed, name) for name in names[1::2]]
            ended = [done.result() for done in polls]
            readings = [done.result() for done in streams]
        for response in ended:
            expect(text_of(response), written(LONG), "a polled response")
        for reading in readings:
            reading.whole(LONG)
        took = time.monotonic() - killed
        moved = self._moved(before)
        expect(moved > 0, True, "responses that changed their server")
        return f"{moved} of {STREAMS} changed their server; all ended as they were due, {took:.1f} s after the kill"

    def update(self) -> str:
        """A changed configuration is rolled out while requests go on."""
        self._nodes.both = self._nodes.add(num_cpus=2, resources={"server": 1, "engine": 1})
        until(lambda: self._nodes.replicas() == 2, "two servers run again")
        stop = threading.Event()
        counts, failed = itertools.count(), []

        def work(client: int) -> None:
            while not stop.is_set():
                try:
                    answer = self._post("/responses", self._asked(f"update {client}", SHORT))
                    expect(text_of(answer), written(SHORT))
                    next(counts)
                except Exception as error:  # noqa: BLE001 - it is counted
                    failed.append(f"{type(error).__name__} {error}")

        with ThreadPoolExecutor(4) as pool:
            works = [pool.submit(work, client) for client in range(4)]
            try:
                before = self._server_actors()
                self._nodes.deploy(keep_alive_seconds=14)
                took = until(
                    lambda: self._nodes.replicas() == 2 and not (self._server_actors() & before),
                    "both servers are new ones",
                )
            finally:
                stop.set()
            for done in works:
                done.result()
        expect(failed, [], "requests that failed")
        return f"both servers replaced in {took:.1f} s, {next(counts)} requests meanwhile, none failed"

    def _asked(self, text: str, tokens: int, **fields: Any) -> dict[str, Any]:
        return {"model": "tiny", "input": text, "max_output_tokens": tokens, "temperature": 0, **fields}

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._client.post(path, json=body)
        expect(answer.status_code, 200, answer.text)
        return answer.json()

    def _stream(self, text: str, tokens: int) -> Reading:
        body = self._asked(text, tokens, stream=True, prompt_cache_key=text)
        return Reading(self._client, "POST", "/responses", json=body)

    def _over_socket(self, body: dict[str, Any]) -> str:
        text = ""
        with connect(f"ws://127.0.0.1:{self._nodes.port}/v1/responses") as socket:
            socket.send(json.dumps({"type": "response.create", **body}))
            while (event := json.loads(socket.recv(MOST_SECONDS)))["type"] != "response.incomplete":
                text += event["delta"] if event["type"] == "response.output_text.delta" else ""
        return text

    def _places(self) -> list[tuple[str, int]]:
        return ray.get([actor.process.remote() for actor in self._nodes.actors()], timeout=10)

    def _working_on(self, node: Any) -> int:
        actors = self._nodes.actors()
        places = ray.get([actor.process.remote() for actor in actors], timeout=10)
        turns = ray.get([actor.working.remote() for actor in actors], timeout=10)
        return sum(turns for (where, _), turns in zip(places, turns, strict=True) if where == node.node_id)

    def _owners(self) -> dict[str, str]:
        return dict(
            row.split("|")
            for row in self._nodes.database.execute(
                "SELECT id, owner FROM responses WHERE status IN ('queued', 'in_progress')", self._nodes.name
            ).splitlines()
        )

    def _moved(self, before: dict[str, str]) -> int:
        rows = self._nodes.database.execute("SELECT id, fence FROM responses", self._nodes.name).splitlines()
        return sum(name in before and int(fence) > 1 for name, fence in (row.split("|") for row in rows))

    def _drawn(self, name: str) -> int:
        return len(text_of(self._client.get(f"/responses/{name}").json()).split())

    def _polled(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def ended() -> bool:
            nonlocal found
            answer = self._client.get(f"/responses/{name}")
            found = answer.json() if answer.status_code == 200 else {}
            return found.get("status") not in (None, "queued", "in_progress")

        until(ended, f"{name} has ended", MOST_SECONDS, pause=1.0)
        return found

    def _followed(self, name: str) -> Reading:
        """Read the events of a response from its start, going on where the connection breaks."""
        whole = Reading(self._client, "GET", f"/responses/{name}", params={"stream": "true"})
        deadline = time.monotonic() + MOST_SECONDS
        part = whole
        while True:
            with contextlib.suppress(httpx2.HTTPError):
                part.go_on()
            if part is not whole:
                whole.text += part.text
                whole.numbers += part.numbers
                whole.last = part.last or whole.last
            if "response" in whole.last and whole.last["type"] not in ("response.created", "response.in_progress"):
                return whole
            if time.monotonic() > deadline:
                raise AssertionError(f"{name} has not ended")
            threading.Event().wait(0.1)
            params = {"stream": "true"}
            if whole.numbers:
                params["starting_after"] = str(whole.numbers[-1])
            part = Reading(self._client, "GET", f"/responses/{name}", params=params)

    def _server_actors(self) -> set[str]:
        from ray.util.state import list_actors

        states = list_actors(address=self._nodes.dashboard, filters=[("state", "=", "ALIVE")], limit=1000)
        return {state.actor_id for state in states if state.class_name.startswith("ServeReplica:antiphon")}


def run(folder: Path, out: TextIO) -> list[str]:
    """Do all checks; what is broken."""
    began = time.monotonic()
    with running(folder) as nodes:
        print(f"three nodes, two servers, two engines: {time.monotonic() - began:.1f} s", file=out, flush=True)
        checks = Run(nodes, out)
        checks.check("answers", checks.answers)
        checks.check("a client leaves", checks.leaving)
        checks.check("rate, two engines", checks.rate)
        checks.check("a node with an engine is killed", checks.engine_killed)
        checks.check("rate, one engine", checks.rate)
        checks.check("the engine comes back", checks.engine_back)
        checks.check("a node with a server is killed", checks.server_killed)
        checks.check("a rolling update", checks.update)
        return checks.broken
