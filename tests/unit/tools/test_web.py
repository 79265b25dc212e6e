"""Web search: what engines are asked, what becomes of their answers, and pages that are opened."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from antiphon.errors import APIError, ConfigurationError, InvalidRequestError
from antiphon.protocol.request import decode_create_response
from antiphon.settings import Settings
from antiphon.store.base import Scope
from antiphon.tools.base import HostedCall, Session
from antiphon.tools.web.provider import WebProvider
from support.denied import DENIED_NAMES, DENIED_URLS, Names
from support.receiver import Receiver, receiver, reply

requirement = pytest.mark.requirement

JSON = "content-type: application/json"

OPENED: list[WebProvider] = []
"""What a test has opened, to be closed after it."""


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    yield
    while OPENED:
        await OPENED.pop().close()


@pytest.fixture
async def server() -> AsyncIterator[Receiver]:
    async with receiver() as found:
        yield found


class Web:
    """The two tools of one response."""

    def __init__(self, provider: WebProvider, session: Session) -> None:
        self.provider = provider
        self.session = session

    async def call(self, name: str, arguments: Any, characters: int = 100_000) -> dict[str, Any]:
        """The item of a call once it is done, as the loop makes it."""
        declared: list[dict[str, Any]] = [tool for tool in self.session.request.tools if isinstance(tool, dict)]
        self.provider.check(declared, self.session.request)
        opened = await self.provider.open(declared, self.session)
        tool = {tool.function.name: tool for tool in opened.tools}[name]
        call = HostedCall("call_1", "ws_1", name, json.dumps(arguments), arguments, characters)
        try:
            outcome = tool.settle(call, await tool.run(call, self.session), self.session)
        except APIError as error:
            outcome = tool.failed(call, error)
        return tool.item(call) | outcome.fields


def web(settings: Settings, *allow: str, names: Names | None = None, **fields: Any) -> Web:
    """The tools of a response whose entry has these fields."""
    body = {"model": "m", "input": "hello", "tools": [{"type": "web_search", **fields}]}
    request = decode_create_response(msgspec.json.encode(body))
    provider = WebProvider(settings, allow, lookup=names)
    OPENED.append(provider)
    return Web(provider, Session(Scope("tenant"), "resp_1", request))


def found(*urls: str, text: str = "content") -> list[dict[str, str]]:
    return [{"url": url, "title": f"Title of {url}", text: f"Text of {url}"} for url in urls]


def answers(body: Any) -> bytes:
    return reply(200, json.dumps(body).encode(), JSON)


def searxng(server: Receiver) -> Settings:
    return Settings(web_search="searxng", web_search_url=server.url)


@requirement("web:search")
async def test_searxng_is_asked_and_its_sources_are_numbered(server: Receiver) -> None:
    server.answers = [
        answers({"results": found("https://a.example/", "https://b.example/")}),
        answers({"results": found("https://b.example/", "https://c.example/")}),
    ]
    tools = web(searxng(server))
    item = await tools.call("web_search", {"queries": ["one & two", "three"]})
    order = ["https://a.example/", "https://b.example/", "https://c.example/"]
    assert item == {
        "type": "web_search_call",
        "status": "completed",
        "action": {
            "type": "search",
            "query": "one & two",
            "queries": ["one & two", "three"],
            "sources": [{"type": "url", "url": url} for url in order],
        },
        "results": [
            {"url": url, "title": f"Title of {url}", "text": f"Text of {url}", "_number": number}
            for number, url in enumerate(order, 1)
        ],
    }
    asked = [parse_qs(urlsplit(request.path).query) for request in server.requests]
    assert sorted(query["q"][0] for query in asked) == ["one & two", "three"]
    assert {query["format"][0] for query in asked} == {"json"}
    assert tools.session.sources[2] == {
        "type": "url_citation",
        "url": "https://b.example/",
        "title": "Title of https://b.example/",
    }


@requirement("web:search")
async def test_brave_is_asked_with_its_key_and_where_the_user_is(server: Receiver) -> None:
    server.answers = [answers({"web": {"results": found("https://a.example/", text="description")}})]
    settings = Settings(web_search="brave", web_search_url=server.url, web_search_key="brave-key")
    place = {"type": "approximate", "city": "Bern", "country": "CH", "timezone": "Europe/Zurich"}
    tools = web(settings, user_location=place, search_context_size="low")
    item = await tools.call("web_search", {"queries": ["q"]})
    assert item["results"][0]["text"] == "Text of https://a.example/"
    (asked,) = server.requests
    assert asked.headers["x-subscription-token"] == "brave-key"
    assert (asked.headers["x-loc-city"], asked.headers["x-loc-timezone"]) == ("Bern", "Europe/Zurich")
    query = parse_qs(urlsplit(asked.path).query)
    assert (query["count"], query["country"], query["q"]) == (["5"], ["CH"], ["q"])


@requirement("web:search")
async def test_tavily_is_asked_with_its_key_and_the_domains(server: Receiver) -> None:
    server.answers = [answers({"results": found("https://docs.a.example/x", "https://evil.example/")})]
    settings = Settings(web_search="tavily", web_search_url=server.url, web_search_key="tavily-key")
    tools = web(settings, filters={"allowed_domains": ["A.example", "https://b.example/"]}, search_context_size="high")
    item = await tools.call("web_search", {"queries": ["q"]})
    # What is of no allowed domain is left out, whatever the engine says.
    assert [result["url"] for result in item["results"]] == ["https://docs.a.example/x"]
    (asked,) = server.requests
    assert asked.headers["authorization"] == "Bearer tavily-key"
    assert json.loads(asked.body) == {"query": "q", "max_results": 20, "include_domains": ["a.example", "b.example"]}


@requirement("web:domains")
@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://a.example/x", True),
        ("https://sub.a.example:8443/", True),
        ("https://a.example./", True),
        ("https://nota.example/", False),
        ("https://a.example.evil/", False),
        ("https://evil/?a.example", False),
        ("https://a.example@evil/", False),
        ("https://evil#a.example", False),
        ("https://[broken", False),
    ],
)
async def test_only_pages_of_allowed_domains_are_given(url: str, allowed: bool, server: Receiver) -> None:
    server.answers = [answers({"results": found(url)})]
    tools = web(searxng(server), filters={"allowed_domains": ["a.example"]})
    item = await tools.call("web_search", {"queries": ["q"]})
    assert [result["url"] for result in item["results"]] == ([url] if allowed else [])
    assert "site:a.example" in server.requests[0].path
    if not allowed:
        assert (await tools.call("open_page", {"url": url}))["status"] == "failed"


@requirement("web:bounds")
async def test_what_a_search_gives_is_bounded(server: Receiver) -> None:
    many = [{"url": f"https://a.example/{index}", "title": "t", "content": "x" * 9_000} for index in range(50)]
    server.answers = [answers({"results": many}) for _ in range(4)]
    for size, results, characters in (("low", 5, 500), ("medium", 10, 1_500), ("high", 20, 4_000)):
        item = await web(searxng(server), search_context_size=size).call("web_search", {"queries": ["q"]})
        assert [len(result["text"]) for result in item["results"]] == [characters] * results
    item = await web(searxng(server)).call("web_search", {"queries": ["q"]}, characters=4_000)
    assert len(item["results"]) == 2


@requirement("web:unconfigured")
async def test_without_an_engine_a_call_fails_with_the_reason() -> None:
    for name, arguments in (("web_search", {"queries": ["q"]}), ("open_page", {"url": "https://a.example/"})):
        item = await web(Settings()).call(name, arguments)
        assert item["status"] == "failed"
        assert item["error"]["code"] == "web_search_unavailable"
        assert "--web-search" in item["error"]["message"]
        assert item["action"]["type"] in ("search", "open_page")


@requirement("web:unconfigured")
async def test_without_the_live_web_a_call_fails_with_the_reason(server: Receiver) -> None:
    item = await web(searxng(server), external_web_access=False).call("web_search", {"queries": ["q"]})
    assert (item["status"], server.connections) == ("failed", 0)
    assert "live web" in item["error"]["message"]


@requirement("web:unconfigured")
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"web_search": "searxng"}, "--web-search-url"),
        ({"web_search": "brave"}, "WEB_SEARCH_KEY"),
        ({"web_search": "tavily"}, "WEB_SEARCH_KEY"),
        ({"web_search": "searxng", "web_search_url": "ftp://a.example"}, "cannot be asked"),
    ],
)
async def test_an_engine_that_cannot_be_used_is_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        WebProvider(Settings(**fields))


@requirement("web:fault")
@pytest.mark.parametrize(
    "answer",
    [
        reply(500, b"Traceback 127.0.0.1"),
        reply(200, b"{nope"),
        reply(200, b"[" * 100_000),
        reply(302, b"", "location: http://127.0.0.2/"),
        b"220 mail\r\n",
    ],
    ids=["500", "no JSON", "deep JSON", "redirect", "no HTTP"],
)
async def test_an_engine_that_fails_is_a_failed_item(answer: bytes, server: Receiver) -> None:
    server.answers = [answer]
    item = await web(searxng(server)).call("web_search", {"queries": ["q"]})
    assert (item["status"], item["error"]["code"]) == ("failed", "web_search_failed")
    assert "127.0.0" not in item["error"]["message"]


@requirement("web:fault")
async def test_one_query_that_fails_leaves_the_others(server: Receiver) -> None:
    server.answers = [reply(500), answers({"results": [*found("https://a.example/"), 5, {"url": "javascript:x"}]})]
    item = await web(searxng(server)).call("web_search", {"queries": ["one", "two"]})
    assert [result["url"] for result in item["results"]] == ["https://a.example/"]
    none = await web(searxng(server)).call("web_search", {"queries": []})
    assert none["error"]["code"] == "invalid_arguments"


@requirement("web:refused")
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"search_context_size": "huge"}, "tools[0].search_context_size"),
        ({"filters": {"allowed_domains": "a.example"}}, "tools[0].filters.allowed_domains"),
        ({"filters": {"allowed_domains": ["a b"]}}, "tools[0].filters.allowed_domains"),
        ({"filters": {"allowed_domains": ["a.example"] * 101}}, "tools[0].filters.allowed_domains"),
        ({"user_location": "Bern"}, "tools[0].user_location"),
    ],
)
async def test_what_cannot_be_read_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        await web(Settings(), **fields).call("web_search", {"queries": ["q"]})
    assert caught.value.param == param


@requirement("web:page")
async def test_a_page_is_opened_as_markdown(server: Receiver) -> None:
    pytest.importorskip("markdownify")
    html = b"<html><head><script>x()</script></head><body><h1>The page</h1><p>Some <b>words</b>.</p></body></html>"
    server.answers = [
        reply(302, b"", "location: /there"),
        reply(200, html, "content-type: text/html; charset=utf-8"),
    ]
    # The engine's host may be asked by the engine only.
    tools = web(searxng(server), "127.0.0.1")
    item = await tools.call("open_page", {"url": f"{server.url}/here"})
    assert item["action"] == {"type": "open_page", "url": f"{server.url}/here"}
    assert (item["status"], item["results"]) == (
        "completed",
        [
            {
                "url": f"{server.url}/here",
                "title": "The page",
                "text": "# The page\n\nSome **words**.\n",
                "_number": 1,
            }
        ],
    )
    assert [request.path for request in server.requests] == ["/here", "/there"]


@requirement("web:page")
async def test_a_page_that_is_no_text_or_too_much_is_cut_or_fails(server: Receiver) -> None:
    server.answers = [
        reply(200, b"y" * 5_000, "content-type: text/plain"),
        reply(200, b"GIF89a", "content-type: image/gif"),
        reply(404, b"", "content-type: text/plain"),
        reply(200, b"z" * (8 * 1024 * 1024 + 1), "content-type: text/plain"),
    ]
    tools = web(searxng(server), "127.0.0.1")
    item = await tools.call("open_page", {"url": server.url}, characters=1_000)
    assert 800 < len(item["results"][0]["text"]) < 1_000
    for words in ("neither text", "404", "more than"):
        item = await tools.call("open_page", {"url": server.url})
        assert (item["status"], item["error"]["code"]) == ("failed", "open_page_failed")
        assert words in item["error"]["message"]


@requirement("web:page")
async def test_a_page_that_leads_to_another_domain_is_not_followed_there(server: Receiver) -> None:
    async with receiver("127.0.0.2", server.port) as other:
        server.answers = [reply(302, b"", f"location: http://other.example:{server.port}/")]
        tools = web(
            searxng(server),
            "a.example",
            "other.example",
            names=Names(["127.0.0.1"], ["127.0.0.2"]),
            filters={"allowed_domains": ["a.example"]},
        )
        item = await tools.call("open_page", {"url": f"http://a.example:{server.port}/"})
        assert "domain" in item["error"]["message"]
        assert other.connections == 0


@requirement("web:guard")
async def test_no_page_is_opened_that_is_not_public() -> None:
    async with receiver("0.0.0.0") as listener:
        settings = Settings(web_search="searxng", web_search_url=f"http://127.0.0.1:{listener.port}")
        for url in DENIED_URLS.values():
            tools = web(settings, names=Names(["127.0.0.1"]))
            item = await tools.call("open_page", {"url": url.replace("PORT", str(listener.port))})
            assert item["status"] == "failed", url
        for host, addresses in DENIED_NAMES.items():
            tools = web(settings, names=Names(addresses))
            item = await tools.call("open_page", {"url": f"http://{host}:{listener.port}/"})
            assert item["status"] == "failed", host
            assert listener.connections == 0
