"""Namespaces, searches, shells, patches and summaries as the `openai` package and the Agents SDK meet them.

Each test's fixtures hold every object and every event that went over the wire strictly against the package's types.
"""

from __future__ import annotations

from typing import Any

import agents
import openai
import pytest
from agents import Agent, ApplyPatchTool, OpenAIResponsesModel, Runner, ShellTool, ToolSearchTool, tool_namespace

from clients.conftest import Target

agents.set_tracing_disabled(True)
requirement = pytest.mark.requirement

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a place.",
    "parameters": CITY,
    "strict": True,
    "defer_loading": True,
}
CRM: Any = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [
        {"type": "function", "name": "find", "parameters": CITY, "strict": True},
        {"type": "custom", "name": "n"},
    ],
}
SHELL: Any = {"type": "shell", "environment": {"type": "local"}}
PATCH: Any = {"type": "apply_patch"}
LOCAL: Any = {"type": "local_shell"}
SEARCH: Any = {"type": "tool_search"}

CASES: dict[str, tuple[str, list[Any], dict[str, Any], list[str]]] = {
    "namespace": (
        '!CALL crm::find {"city":"Oslo"}\n!CUSTOM crm::n some text',
        [CRM],
        {},
        ["function_call", "custom_tool_call"],
    ),
    "server-search": (
        '!CALL tool_search {"query":"weather"}\n!THEN\n!CALL get_weather {"city":"Oslo"}',
        [WEATHER, CRM, SEARCH],
        {},
        ["tool_search_call", "tool_search_output", "function_call"],
    ),
    "client-search": (
        '!CALL tool_search {"city":"Oslo"}',
        [WEATHER, {**SEARCH, "execution": "client", "description": "Ask.", "parameters": CITY}],
        {},
        ["tool_search_call"],
    ),
    "shell": ('!CALL shell {"commands":["ls -l","pwd"],"timeout_ms":5}', [SHELL], {}, ["shell_call"]),
    "patch": (
        '!CALL apply_patch {"type":"create_file","path":"a","diff":"+one"}\n'
        '!CALL apply_patch {"type":"delete_file","path":"b"}',
        [PATCH],
        {},
        ["apply_patch_call", "apply_patch_call"],
    ),
    "local-shell": ('!CALL local_shell {"command":["ls"]}', [LOCAL], {}, ["local_shell_call"]),
    "summary": ("!REASON one two\n!TEXT a", [], {"reasoning": {"summary": "auto"}}, ["reasoning", "message"]),
}


@requirement("client:openai:tools")
@pytest.mark.parametrize("case", CASES)
def test_items_and_events_of_every_tool_are_the_packages_own(scripted: Target, case: str) -> None:
    text, tools, fields, kinds = CASES[case]
    whole = scripted.responses.create(model="scripted", input=text, tools=tools, **fields)
    assert [item.type for item in whole.output] == kinds
    events = list(scripted.responses.create(model="scripted", input=text, tools=tools, stream=True, **fields))
    final = events[-1].response  # type: ignore[union-attr]
    assert [item.type for item in final.output] == kinds
    assert scripted.responses.retrieve(final.id).output == final.output


@requirement("client:openai:tools")
@pytest.mark.parametrize("case", CASES)
def test_the_stream_helper_puts_every_tool_together(scripted: Target, case: str) -> None:
    text, tools, fields, kinds = CASES[case]
    with scripted.responses.stream(model="scripted", input=text, tools=tools, **fields) as stream:
        for _ in stream:
            pass
        assert [item.type for item in stream.get_final_response().output] == kinds


@requirement("client:openai:tools", "tools:apply-patch:diffs")
def test_events_of_diffs_are_there_where_they_are_asked_for(scripted: Target) -> None:
    text, tools, _, kinds = CASES["patch"]
    include: Any = ["apply_patch_call.operation_diff"]
    events = list(scripted.responses.create(model="scripted", input=text, tools=tools, stream=True, include=include))
    seen = {event.type for event in events}
    assert {f"response.apply_patch_call_operation_diff.{end}" for end in ("delta", "done")} <= seen
    assert [item.type for item in events[-1].response.output] == kinds  # type: ignore[union-attr]


@requirement("client:openai:tools")
def test_items_that_the_package_gave_can_be_sent_again_as_they_are(scripted: Target) -> None:
    for text, tools, fields, _ in CASES.values():
        first = scripted.responses.create(model="scripted", input=text, tools=tools, **fields)
        given: Any = [item.to_dict() for item in first.output]
        outputs = [_output(item) for item in given if "call_id" in item and item["call_id"] and "tools" not in item]
        again: Any = [{"role": "user", "content": text}, *given, *outputs, {"role": "user", "content": "hi"}]
        answer = scripted.responses.create(model="scripted", input=again, tools=tools)
        assert answer.output_text == "Hello from scripted."
        listed = list(scripted.responses.input_items.list(answer.id, order="asc", limit=100))
        assert len(listed) == len(again)
        assert [item.id for item in listed][1 : 1 + len(given)] == [item["id"] for item in given]


def _output(call: dict[str, Any]) -> dict[str, Any]:
    kind = {
        "function_call": {"type": "function_call_output", "output": "x"},
        "custom_tool_call": {"type": "custom_tool_call_output", "output": "x"},
        "tool_search_call": {"type": "tool_search_output", "execution": "client", "status": "completed", "tools": []},
        "shell_call": {
            "type": "shell_call_output",
            "output": [{"stdout": "x", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
        "apply_patch_call": {"type": "apply_patch_call_output", "status": "completed", "output": "x"},
        "local_shell_call": {"type": "local_shell_call_output", "id": call["call_id"], "output": "x"},
    }[call["type"]]
    return kind if call["type"] == "local_shell_call" else {**kind, "call_id": call["call_id"]}


class Editor:
    """Keeps the patches that it is asked to apply."""

    def __init__(self) -> None:
        self.applied: list[tuple[str, str, str | None]] = []

    async def create_file(self, operation: Any) -> Any:
        self.applied.append((operation.type, operation.path, operation.diff))
        return agents.ApplyPatchResult(status="completed", output=f"{operation.type} {operation.path}")

    update_file = delete_file = create_file


def model(client: openai.AsyncOpenAI) -> OpenAIResponsesModel:
    return OpenAIResponsesModel(model="scripted", openai_client=client)


@requirement("client:agents:shell", "client:agents:apply-patch")
@pytest.mark.parametrize("streamed", [False, True])
async def test_the_agents_sdk_runs_commands_and_applies_patches(
    async_scripted: openai.AsyncOpenAI, streamed: bool
) -> None:
    ran: list[Any] = []
    editor = Editor()

    def shell(request: Any) -> str:
        ran.append(list(request.data.action.commands))
        return "two files"

    tools: list[Any] = [ShellTool(executor=shell), ApplyPatchTool(editor=editor)]
    agent = Agent(name="A", model=model(async_scripted), tools=tools)

    async def answer(text: str) -> str:
        if not streamed:
            return (await Runner.run(agent, text)).final_output
        running = Runner.run_streamed(agent, text)
        async for _ in running.stream_events():
            pass
        return running.final_output

    assert await answer('!CALL shell {"commands":["ls","pwd"],"timeout_ms":1000}') == "FINAL: two files"
    assert ran == [["ls", "pwd"]]
    patch = '{"type":"update_file","path":"a.txt","diff":"@@\\n-a\\n+b\\n"}'
    assert await answer(f"!CALL apply_patch {patch}") == "FINAL: update_file a.txt"
    assert await answer('!CALL apply_patch {"type":"delete_file","path":"b"}') == "FINAL: delete_file b"
    assert editor.applied == [("update_file", "a.txt", "@@\n-a\n+b\n"), ("delete_file", "b", None)]


@agents.function_tool
def get_weather(city: str) -> str:
    """The weather of a place."""
    return f"12C in {city}"


@agents.function_tool(defer_loading=True)
def send_mail(to: str) -> str:
    """Send a mail to someone."""
    return f"sent to {to}"


@agents.function_tool(defer_loading=True)
def find_customer(name: str) -> str:
    """Find a customer by name."""
    return f"found {name}"


@requirement("client:agents:tool-search")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('!CALL crm::get_weather {"city": "Oslo"}', "FINAL: 12C in Oslo"),
        ('!CALL tool_search {"query": "mail"}\n!THEN\n!CALL send_mail {"to": "Ola"}', "FINAL: sent to Ola"),
        (
            '!CALL tool_search {"query": "customer"}\n!THEN\n!CALL crm::find_customer {"name": "Ola"}',
            "FINAL: found Ola",
        ),
    ],
)
async def test_the_agents_sdk_calls_tools_of_namespaces_and_tools_that_were_searched_for(
    async_scripted: openai.AsyncOpenAI, text: str, said: str
) -> None:
    inside = tool_namespace(name="crm", description="Customers.", tools=[get_weather, find_customer])
    agent = Agent(name="A", model=model(async_scripted), tools=[*inside, send_mail, ToolSearchTool()])
    result = await Runner.run(agent, text)
    assert result.final_output == said
    chained = await Runner.run(agent, text, auto_previous_response_id=True)
    assert chained.final_output == said
