"""Hosted items as the `openai` package meets them: strictly by its types, in its stream helper, beside the output."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest

from antiphon.http.app import create_app
from antiphon.machine.assembler import Assembler
from antiphon.machine.deltas import HostedEnd, HostedStart, Stop, TextDelta
from antiphon.machine.log import EventLog
from antiphon.machine.opening import open_response
from antiphon.protocol.request import decode_create_response
from clients.strict import DONE, strict_events, strict_response
from support.fake_tools import Corpus, Servers
from support.inprocess import BASE_URL, inprocess_app
from support.programs import USAGE

requirement = pytest.mark.requirement

FILES: Any = {"type": "file_search", "vector_store_ids": ["vs_1"]}
SEARCH: Any = {"type": "search_corpus"}
OPEN: Any = {"type": "mcp", "server_label": "here", "server_url": "https://mcp.test", "require_approval": "never"}
ASKS: Any = {**OPEN, "require_approval": "always"}
OUTCOME = {"type": "exit", "exit_code": 0}
CONTAINER = {"type": "container_reference", "container_id": "cntr_1"}
ACTION = {"commands": ["ls", "cat a"], "timeout_ms": None, "max_output_length": None}
SEARCHED = b'"action":{"type":"search","query":"q"}'
RESULT = {"file_id": "f", "filename": "a.md", "score": 0.5, "text": "t", "attributes": {}}

ITEMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "file_search_call": ({"queries": ["q"], "results": None}, {"queries": ["q"], "results": [RESULT]}),
    "web_search_call": (
        {"action": {"type": "search", "query": "q"}},
        {"action": {"type": "search", "query": "q", "sources": [{"type": "url", "url": "https://a"}]}},
    ),
    "code_interpreter_call": (
        {"code": "1+1", "container_id": "cntr_1", "outputs": None},
        {"code": "1+1", "container_id": "cntr_1", "outputs": [{"type": "logs", "logs": "2"}]},
    ),
    "image_generation_call": ({"result": None}, {"result": "aGk="}),
    "mcp_list_tools": (
        {"server_label": "s", "tools": []},
        {"server_label": "s", "tools": [{"name": "add", "input_schema": {}, "description": None, "annotations": None}]},
    ),
    "mcp_call": (
        {"name": "add", "server_label": "s", "arguments": "{}", "output": None, "error": None},
        {"name": "add", "server_label": "s", "arguments": "{}", "output": "3", "error": None},
    ),
    "mcp_approval_request": (
        {"name": "add", "server_label": "s", "arguments": "{}"},
        {"name": "add", "server_label": "s", "arguments": "{}"},
    ),
    "shell_call": (
        {"call_id": "c", "environment": CONTAINER, "action": ACTION},
        {"call_id": "c", "environment": CONTAINER, "action": ACTION},
    ),
    "shell_call_output": (
        {"call_id": "c", "output": [], "max_output_length": None},
        {
            "call_id": "c",
            "max_output_length": None,
            "output": [
                {"stdout": "a", "stderr": "", "outcome": OUTCOME},
                {"stdout": "", "stderr": "no", "outcome": {"type": "timeout"}},
            ],
        },
    ),
}


@requirement("hosted:sdk")
@pytest.mark.parametrize("kind", ITEMS)
def test_every_event_of_every_type_is_one_of_the_package(kind: str) -> None:
    request = decode_create_response(b'{"model":"scripted","input":"hi"}')
    log = EventLog(open_response(request, stored=True, response_id="resp_1", model="scripted", created_at=1))
    log.open()
    assembler = Assembler(log)
    stateless = {"mcp_list_tools", "mcp_approval_request"}
    begun, done = (
        {"id": "item_1", "type": kind, **({} if kind in stateless else {"status": status}), **said}
        for status, said in zip(
            ("completed" if kind == "shell_call_output" else "in_progress", "completed"), ITEMS[kind], strict=True
        )
    )
    assembler.feed([HostedStart(begun), HostedEnd(done), TextDelta("so"), Stop("stop", USAGE)])
    assembler.finish(2)
    frames = log.frames
    if kind == "web_search_call":
        # As in real streams it is added without the action that the package's type asks for.
        assert b'"action"' not in frames[2]
        frames = [
            *frames[:2],
            frames[2].replace(b'"status":"in_progress"', b'"status":"in_progress",' + SEARCHED),
            *frames[3:],
        ]
    events = strict_events(b"".join(frames) + DONE)
    assert events[-1].response.output[0].type == kind


@pytest.fixture
async def client() -> AsyncIterator[openai.AsyncOpenAI]:
    async with inprocess_app(tools=[Corpus(), Servers()]) as api:
        http = httpx2.AsyncClient(transport=httpx2.ASGITransport(create_app(api.service)))
        async with openai.AsyncOpenAI(base_url=BASE_URL, api_key="k", max_retries=0, http_client=http) as sdk:
            yield sdk


async def streamed(client: openai.AsyncOpenAI, asked: str, tools: list[Any]) -> tuple[Any, list[str]]:
    async with client.responses.stream(model="scripted", input=asked, tools=tools) as stream:
        kinds = [event.type async for event in stream]
        return await stream.get_final_response(), kinds


@requirement("hosted:sdk", "api:hosted-tools")
async def test_the_stream_helper_takes_hosted_items(client: openai.AsyncOpenAI) -> None:
    asked = '!CALL file_search {"queries":["q"]}\n!CALL look {"queries":["r"]}\n!THEN\n!TEXT so'
    final, kinds = await streamed(client, asked, [FILES, OPEN])
    assert [item.type for item in final.output] == ["mcp_list_tools", "file_search_call", "mcp_call", "message"]
    assert final.output_text == "so"
    assert [kind for kind in kinds if "file_search" in kind] == [
        "response.file_search_call.in_progress",
        "response.file_search_call.searching",
        "response.file_search_call.completed",
    ]
    again = await client.responses.retrieve(final.id, include=["file_search_call.results"])
    assert again.output[1].results[0].text == "found q"


@requirement("hosted:sdk", "hosted:beside")
# The package has no type for the tool that is echoed, and says so when it copies the response.
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
async def test_the_stream_helper_takes_calls_beside_the_output(client: openai.AsyncOpenAI) -> None:
    asked = '!REASON hm\n!CALL search_corpus {"queries":["q"]}\n!THEN\n!TEXT so'
    final, kinds = await streamed(client, asked, [SEARCH])
    assert [item.type for item in final.output] == ["reasoning", "message"]
    assert final.output_text == "so"
    assert [call["queries"] for call in final.hosted_tool_calls] == [["q"]]
    assert not [kind for kind in kinds if "corpus" in kind]


@requirement("hosted:sdk", "hosted:approval")
async def test_an_approval_goes_through_the_package(client: openai.AsyncOpenAI) -> None:
    asked = '!CALL change {"queries":["q"]}\n!THEN\n!ECHO'
    first, _ = await streamed(client, asked, [ASKS])
    assert first.status == "completed"
    (request,) = [item for item in first.output if item.type == "mcp_approval_request"]
    answer: Any = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
    second = await client.responses.create(
        model="scripted", input=[answer], tools=[ASKS], previous_response_id=first.id
    )
    kinds = [item.type for item in second.output]
    assert kinds[:2] == ["mcp_list_tools", "mcp_call"]
    assert second.output[1].approval_request_id == request.id


@requirement("hosted:sdk")
async def test_what_goes_over_the_wire_is_strictly_of_the_types() -> None:
    async with inprocess_app(tools=[Corpus(), Servers()]) as api:
        asked = '!CALL file_search {"queries":["q"]}\n!CALL look {"queries":["r"]}\n!THEN\n!TEXT so'
        body = {"model": "scripted", "input": asked, "tools": [FILES, OPEN]}
        streamed = await api.client.post("/responses", json={**body, "stream": True})
        assert len(strict_events(streamed.content)) > 20
        whole = await api.client.post("/responses", json=body)
        assert len(strict_response(whole.content).output) == 4
