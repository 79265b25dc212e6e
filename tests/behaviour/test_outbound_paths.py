"""Every way by which someone else's URL makes this server ask somewhere, with every URL and name that may not be asked.

The whole table goes through each way of a whole server, and no socket may so much as begin to connect: a listener on
all addresses of this machine, and whatever would dial it, see nothing.
"""

from __future__ import annotations

import base64
import itertools
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from antiphon.errors import ConfigurationError
from antiphon.runtime.webhooks import Webhooks
from antiphon.settings import Settings
from antiphon.tables import ModelConfig, WebhookConfig
from support import tiny_gguf, tiny_mmproj
from support.denied import DENIED_NAMES, DENIED_URLS
from support.inprocess import InProcess, inprocess_app
from support.receiver import Receiver, receiver, reply

requirement = pytest.mark.requirement

CASES = len(DENIED_URLS) + len(DENIED_NAMES)
ALLOWED = "127.0.0.2"
"""An address of this machine that may be asked, and is not in the table."""


class NameService:
    """What names stand for, in place of the system's; a name that is unknown has one public address."""

    def __init__(self) -> None:
        self.known: dict[str, list[Sequence[str]]] = {}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        turns = self.known.get(host, [["93.184.216.34"]])
        return turns.pop(0) if len(turns) > 1 else turns[0]


class World:
    """A server, a listener, what was dialled, and the name service."""

    def __init__(self, api: InProcess, listener: Receiver, dialled: list[Any], names: NameService) -> None:
        self.api = api
        self.listener = listener
        self.dialled = dialled
        self.names = names


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for the whole module, which shares a server."""
    return "asyncio"


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[World]:
    """A server with a model that sees and a search engine; one address beside the public internet may be asked."""
    dialled: list[Any] = []
    names = NameService()
    names.known.update({host.lower(): [addresses] for host, addresses in DENIED_NAMES.items()})
    connect = socket.socket.connect

    def spy(self: socket.socket, address: Any) -> None:
        dialled.append(address)
        connect(self, address)

    folder = tmp_path_factory.mktemp("eye")
    eye, mmproj = str(tiny_gguf.build(folder, template=tiny_gguf.CHATML)), str(tiny_mmproj.build(folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("antiphon.outbound.client._system_lookup", names)
        async with receiver("0.0.0.0") as listener:
            settings = Settings(
                models=(ModelConfig(path="scripted"), ModelConfig(path=eye, name="eye", mmproj=mmproj)),
                threads=1,
                document_embedding="none",
                allow_outbound=(ALLOWED,),
                web_search="searxng",
                web_search_url=f"http://127.0.0.1:{listener.port}",
            )
            async with inprocess_app(settings=settings) as api:
                await api.client.post("/responses", json={"model": "eye", "input": "hi", "max_output_tokens": 1})
                patch.setattr(socket.socket, "connect", spy)
                yield World(api, listener, dialled, names)


Way = Callable[[World, str], Awaitable[str]]


async def asked_image(world: World, url: str) -> str:
    return await _asked(world, {"type": "input_image", "image_url": url})


async def asked_file(world: World, url: str) -> str:
    return await _asked(world, {"type": "input_file", "file_url": url})


async def _asked(world: World, part: dict[str, Any]) -> str:
    body = {"model": "eye", "input": [{"role": "user", "content": [part]}], "max_output_tokens": 1}
    answer = await world.api.client.post("/responses", json=body)
    assert answer.status_code == 400, answer.text
    return answer.text


async def asked_chat(world: World, url: str) -> str:
    content = [{"type": "image_url", "image_url": {"url": url}}]
    body = {"model": "eye", "messages": [{"role": "user", "content": content}], "max_tokens": 1}
    answer = await world.api.client.post("/chat/completions", json=body)
    assert answer.status_code == 400, answer.text
    return answer.text


async def asked_output(world: World, url: str) -> str:
    """An image that a client's tool gave."""
    items = [
        {"role": "user", "content": "Look."},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": url}]},
    ]
    answer = await world.api.client.post("/responses", json={"model": "eye", "input": items, "max_output_tokens": 1})
    assert answer.status_code == 400, answer.text
    return answer.text


async def asked_mcp(world: World, url: str) -> str:
    """An MCP server, whose path says which transport is tried first."""
    pytest.importorskip("mcp")
    tool = {"type": "mcp", "server_label": "it", "server_url": url, "require_approval": "never"}
    answer = await world.api.create("hi", tools=[{**tool, "authorization": "secret-token"}])
    (listed, *_) = answer["output"]
    assert (listed["type"], listed["tools"]) == ("mcp_list_tools", [])
    assert listed["error"]
    return json.dumps(listed["error"])


async def asked_sse(world: World, url: str) -> str:
    return await asked_mcp(world, url.rstrip("/") + "/sse" if "://" in url else url)


async def asked_page(world: World, url: str) -> str:
    script = f"!CALL open_page {json.dumps({'url': url})}\n!THEN\n!TEXT done"
    answer = await world.api.create(script, tools=[{"type": "web_search"}])
    (call, *_) = [item for item in answer["output"] if item["type"] == "web_search_call"]
    assert call["status"] == "failed"
    return json.dumps(call["error"])


async def asked_webhook(world: World, url: str) -> str:
    """An endpoint of the operator's, which is held to the same rules unless it is named."""
    secret = "whsec_" + base64.b64encode(b"k" * 24).decode()
    settings = Settings(webhooks=(WebhookConfig(url=url, secret=secret),), allow_outbound=(ALLOWED,))
    try:
        webhooks = Webhooks(settings, None, _NoObserver())  # pyright: ignore[reportArgumentType]
    except ConfigurationError as error:
        return str(error)
    try:
        (endpoint,) = webhooks._endpoints.values()
        made = webhooks.deliveries(_Ended())  # pyright: ignore[reportArgumentType]
        outcome = await webhooks._send(endpoint, made[0])  # pyright: ignore[reportArgumentType]
    finally:
        await webhooks.stop()
    assert outcome in ("refused", "failed")
    return outcome


class _NoObserver:
    def fault(self, message: str, error: BaseException) -> None:
        raise AssertionError(message) from error


class _Ended:
    status = "completed"
    background = True
    id = "resp_1"


WAYS: dict[str, Way] = {
    "image": asked_image,
    "file": asked_file,
    "chat": asked_chat,
    "output": asked_output,
    "mcp": asked_mcp,
    "mcp over sse": asked_sse,
    "page": asked_page,
    "webhook": asked_webhook,
}


@requirement("outbound:ways")
@pytest.mark.parametrize("way", WAYS)
async def test_nothing_of_the_table_is_asked_by_any_way(world: World, way: str) -> None:
    assert CASES >= 60
    port = str(world.listener.port)
    urls = [url.replace("PORT", port) for url in DENIED_URLS.values() if url]
    urls += [f"http://{host}:{port}/a" for host in DENIED_NAMES]
    addresses = {address for known in DENIED_NAMES.values() for address in known if address != "localhost"}
    for url in urls:
        said = await WAYS[way](world, url)
        assert not any(address in said.replace(url, "") for address in addresses), (url, said)
        assert (world.listener.connections, world.dialled) == (0, []), url


def moved(location: str) -> bytes:
    """A redirect, by the statuses in turn."""
    return reply(next(MOVES), b"", f"location: {location}")


MOVES = itertools.cycle((301, 302, 303, 307, 308))


@pytest.fixture
def watched(world: World) -> Iterator[World]:
    """The world with nothing seen yet, and forgotten again."""
    world.dialled.clear()
    yield world
    world.dialled.clear()
    world.listener.connections = 0
    world.listener.answers.clear()


@requirement("outbound:ways")
@pytest.mark.parametrize("way", WAYS)
async def test_no_way_is_led_on_by_a_redirect(watched: World, way: str) -> None:
    port = watched.listener.port
    urls = [url.replace("PORT", str(port)) for url in DENIED_URLS.values()]
    # What cannot stand in a header cannot be sent to begin with.
    urls = [url for url in urls if url and url.isascii() and url.isprintable()]
    if "mcp" in way:
        urls = urls[::6]
    places = [*urls, *(f"http://{host}:{port}/" for host in DENIED_NAMES)]
    for place in places:
        watched.listener.answers[:] = [moved(place)] * 2
        await WAYS[way](watched, f"http://{ALLOWED}:{port}/{len(watched.dialled)}")
        # It was asked, and nobody else.
        assert watched.dialled, place
        assert set(watched.dialled) == {(ALLOWED, port)}, place


@requirement("outbound:ways")
@pytest.mark.parametrize("way", WAYS)
async def test_no_way_is_fooled_by_a_name_that_changes_its_address(watched: World, way: str) -> None:
    port = watched.listener.port
    host = f"{way.replace(' ', '-')}.turning.example"
    watched.names.known[host] = [[ALLOWED], ["127.0.0.1"]]
    watched.listener.answers[:] = [moved(f"http://{host}:{port}/again")] * 2
    watched.names.asked.clear()
    await WAYS[way](watched, f"http://{host}:{port}/a")
    assert set(watched.dialled) == {(ALLOWED, port)}
    await WAYS[way](watched, f"http://{host}:{port}/b")
    assert set(watched.dialled) == {(ALLOWED, port)}
    assert set(watched.names.asked) == {host}
    assert len(watched.names.asked) >= 2
