"""Streams as real endpoints send them, written from the items that they end with: each item in its tool's own order.

The orders are those of hosted-tools A2. `Scene` holds one answer: its items at their output indexes, which may have
gaps, and how it ends; `events()` is its stream, `body()` its whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import msgspec

__all__ = ["SCENES", "Scene", "frames", "message", "reasoning"]

Event = dict[str, Any]
Item = dict[str, Any]

USAGE = {
    "input_tokens": 120,
    "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 8},
    "output_tokens": 60,
    "output_tokens_details": {"reasoning_tokens": 32},
    "total_tokens": 180,
}


def pieces(text: str, size: int = 7) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


@dataclass
class Scene:
    """One answer; `deltas` False leaves every text to the events that bring it whole."""

    items: list[Item]
    indexes: list[int] | None = None
    status: str = "completed"
    reason: str | None = None
    background: bool = False
    deltas: bool = True
    open_responses: bool = False
    beside: Event = field(default_factory=dict)

    def body(self, status: str | None = None) -> Event:
        status = status or self.status
        running = status in ("queued", "in_progress")
        error = {"code": "server_error", "message": "The model broke down."} if status == "failed" else None
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1_764_000_000,
            "status": status,
            "error": error,
            "incomplete_details": {"reason": self.reason} if status == "incomplete" and self.reason else None,
            "model": "model-1",
            "output": [] if running else deepcopy(self.items),
            "metadata": {},
            "service_tier": "default",
            "usage": None if running else deepcopy(USAGE),
            **deepcopy(self.beside),
        }

    def events(self) -> list[Event]:
        found: list[Event] = [{"type": "response.created", "response": self.body("in_progress")}]
        if self.background:
            found[0]["response"]["status"] = "queued"
            found.append({"type": "response.queued", "response": self.body("queued")})
        found.append({"type": "response.in_progress", "response": self.body("in_progress")})
        for index, item in zip(self.indexes or range(len(self.items)), self.items, strict=False):
            for event in ORDERS[item["type"]](item, self):
                name = event.pop("type")
                if self.open_responses:
                    name = name.replace("response.reasoning_text.", "response.reasoning.")
                found.append({"type": name, "output_index": index, **event})
        if self.status == "failed":
            failure = {
                "type": "server_error",
                "code": "server_error",
                "message": "The model broke down.",
                "param": None,
            }
            found.append({"type": "error", "error": failure})
        found.append({"type": f"response.{self.status}", "response": self.body()})
        return [{**deepcopy(event), "sequence_number": number} for number, event in enumerate(found)]


def frames(events: list[Event], *, named: bool = True, done: bool = True, end: bytes = b"\n") -> bytes:
    """The stream's bytes."""
    lines: list[bytes] = []
    for event in events:
        if named:
            lines.append(b"event: " + event["type"].encode())
        lines += [b"data: " + msgspec.json.encode(event), b""]
    if done:
        lines += [b"data: [DONE]", b""]
    return end.join([*lines, b""])


def _added(item: Item, **zero: Any) -> Event:
    return {"type": "response.output_item.added", "item": {**deepcopy(item), "status": "in_progress", **zero}}


def _done(item: Item) -> Event:
    return {"type": "response.output_item.done", "item": deepcopy(item)}


def _steps(item: Item, *names: str) -> Iterator[Event]:
    for name in names:
        yield {"type": f"response.{item['type']}.{name}", "item_id": item["id"]}


def _message(item: Item, scene: Scene) -> Iterator[Event]:
    yield _added(item, content=[])
    for index, part in enumerate(item["content"]):
        place = {"item_id": item["id"], "content_index": index}
        kind, name = ("refusal", "refusal") if part["type"] == "refusal" else ("text", "output_text")
        empty = {**deepcopy(part), kind: ""}
        if kind == "text":
            empty["annotations"] = []
        yield {"type": "response.content_part.added", **place, "part": empty}
        text = part[kind]
        halves = pieces(text) if scene.deltas else []
        annotations = list(enumerate(part.get("annotations") or []))
        for number, piece in enumerate(halves):
            yield {"type": f"response.{name}.delta", **place, "delta": piece}
            if number >= 1 and annotations:
                place_of, annotation = annotations.pop(0)
                yield _annotated(place, place_of, annotation)
        for place_of, annotation in annotations:
            yield _annotated(place, place_of, annotation)
        yield {"type": f"response.{name}.done", **place, kind: text}
        yield {"type": "response.content_part.done", **place, "part": deepcopy(part)}
    yield _done(item)


def _annotated(place: Event, index: int, annotation: Event) -> Event:
    return {
        "type": "response.output_text.annotation.added",
        **place,
        "annotation_index": index,
        "annotation": deepcopy(annotation),
    }


def _reasoning(item: Item, scene: Scene) -> Iterator[Event]:
    zero: Event = {"summary": []}
    if "content" in item:
        zero["content"] = []
    yield _added(item, **zero)
    for index, part in enumerate(item["summary"]):
        place = {"item_id": item["id"], "summary_index": index}
        yield {
            "type": "response.reasoning_summary_part.added",
            **place,
            "part": {"type": "summary_text", "text": ""},
        }
        for piece in pieces(part["text"]) if scene.deltas else []:
            yield {"type": "response.reasoning_summary_text.delta", **place, "delta": piece}
        yield {"type": "response.reasoning_summary_text.done", **place, "text": part["text"]}
        yield {"type": "response.reasoning_summary_part.done", **place, "part": deepcopy(part)}
    for index, part in enumerate(item.get("content") or []):
        place = {"item_id": item["id"], "content_index": index}
        yield {"type": "response.content_part.added", **place, "part": {"type": "reasoning_text", "text": ""}}
        for piece in pieces(part["text"]) if scene.deltas else []:
            yield {"type": "response.reasoning_text.delta", **place, "delta": piece}
        yield {"type": "response.reasoning_text.done", **place, "text": part["text"]}
        yield {"type": "response.content_part.done", **place, "part": deepcopy(part)}
    yield _done(item)


def _function_call(item: Item, scene: Scene) -> Iterator[Event]:
    yield _added(item, arguments="")
    for piece in pieces(item["arguments"]) if scene.deltas else []:
        yield {"type": "response.function_call_arguments.delta", "item_id": item["id"], "delta": piece}
    yield {
        "type": "response.function_call_arguments.done",
        "item_id": item["id"],
        "name": item["name"],
        "arguments": item["arguments"],
    }
    yield _done(item)


def _custom_tool_call(item: Item, scene: Scene) -> Iterator[Event]:
    yield _added(item, input="")
    for piece in pieces(item["input"]) if scene.deltas else []:
        yield {"type": "response.custom_tool_call_input.delta", "item_id": item["id"], "delta": piece}
    if not item["id"].startswith("old"):
        yield {"type": "response.custom_tool_call_input.done", "item_id": item["id"], "input": item["input"]}
    yield _done(item)


def _file_search(item: Item, scene: Scene) -> Iterator[Event]:
    yield _added(item, queries=[], results=None)
    yield from _steps(item, "in_progress", "searching", "completed")
    yield _done(item)


def _web_search(item: Item, scene: Scene) -> Iterator[Event]:
    added = _added(item)
    del added["item"]["action"]
    yield added
    yield from _steps(item, "in_progress", "searching", "completed")
    yield _done(item)


def _code_interpreter(item: Item, scene: Scene) -> Iterator[Event]:
    yield _added(item, code="", outputs=[])
    yield from _steps(item, "in_progress")
    place = {"item_id": item["id"]}
    for piece in pieces(item["code"]) if scene.deltas else []:
        yield {"type": "response.code_interpreter_call_code.delta", **place, "delta": piece}
    yield {"type": "response.code_interpreter_call_code.done", **place, "code": item["code"]}
    yield from _steps(item, "interpreting", "completed")
    yield _done(item)


def _mcp_list_tools(item: Item, scene: Scene) -> Iterator[Event]:
    yield _added(item, tools=[])
    yield from _steps(item, "in_progress", "failed" if item.get("error") else "completed")
    yield _done(item)


def _mcp_call(item: Item, scene: Scene) -> Iterator[Event]:
    yield _added(item, arguments="", output=None)
    yield from _steps(item, "in_progress")
    yield {"type": "response.mcp_call_arguments.delta", "item_id": item["id"], "delta": item["arguments"]}
    if item.get("approval_request_id"):
        yield from _steps(item, "in_progress")
    yield {"type": "response.mcp_call_arguments.done", "item_id": item["id"], "arguments": item["arguments"]}
    yield from _steps(item, "failed" if item.get("error") else "completed")
    yield _done(item)


def _image_generation(item: Item, scene: Scene) -> Iterator[Event]:
    yield _added(item, result=None)
    yield from _steps(item, "in_progress", "generating")
    yield {
        "type": "response.image_generation_call.partial_image",
        "item_id": item["id"],
        "partial_image_index": 0,
        "partial_image_b64": "AAAA",
    }
    yield from _steps(item, "completed")
    yield _done(item)


def _shell_call(item: Item, scene: Scene) -> Iterator[Event]:
    commands = item["action"]["commands"]
    yield _added(item, action={**item["action"], "commands": []})
    for index, command in enumerate(commands):
        yield {"type": "response.shell_call_command.added", "command_index": index, "command": ""}
        for piece in pieces(command) if scene.deltas else []:
            yield {"type": "response.shell_call_command.delta", "command_index": index, "delta": piece}
        yield {"type": "response.shell_call_command.done", "command_index": index, "command": command}
    yield _done(item)


def _shell_output(item: Item, scene: Scene) -> Iterator[Event]:
    yield _added(item, status="completed", output=[])
    for index, output in enumerate(item["output"]):
        yield {
            "type": "response.shell_call_output_content.delta",
            "item_id": item["id"],
            "command_index": index,
            "delta": {"stdout": output["stdout"]},
        }
    yield {"type": "response.shell_call_output_content.done", "item_id": item["id"], "output": item["output"]}
    yield _done(item)


def _apply_patch(item: Item, scene: Scene) -> Iterator[Event]:
    operation = item["operation"]
    yield _added(item, operation={**operation, "diff": ""} if "diff" in operation else operation)
    if "diff" in operation:
        name, place = "response.apply_patch_call_operation_diff", {"item_id": item["id"]}
        for piece in pieces(operation["diff"]) if scene.deltas else []:
            yield {"type": f"{name}.delta", **place, "delta": piece}
        yield {"type": f"{name}.done", **place, "diff": operation["diff"]}
    yield _done(item)


def _bare(item: Item, scene: Scene) -> Iterator[Event]:
    yield _added(item)
    yield _done(item)


ORDERS: dict[str, Callable[[Item, Scene], Iterator[Event]]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _function_call,
    "custom_tool_call": _custom_tool_call,
    "file_search_call": _file_search,
    "web_search_call": _web_search,
    "code_interpreter_call": _code_interpreter,
    "mcp_list_tools": _mcp_list_tools,
    "mcp_approval_request": _bare,
    "mcp_call": _mcp_call,
    "image_generation_call": _image_generation,
    "shell_call": _shell_call,
    "shell_call_output": _shell_output,
    "local_shell_call": _bare,
    "computer_call": _bare,
    "apply_patch_call": _apply_patch,
    "tool_search_call": _bare,
    "tool_search_output": _bare,
    "compaction": _bare,
}


def message(text: str, name: str = "msg_1", *, annotations: list[Event] | None = None, **more: Any) -> Item:
    part = {"type": "output_text", "text": text, "annotations": annotations or [], "logprobs": []}
    return {"id": name, "type": "message", "status": "completed", "role": "assistant", "content": [part], **more}


def reasoning(name: str = "rs_1", *summary: str, content: list[str] | None = None, **more: Any) -> Item:
    item: Item = {
        "id": name,
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": text} for text in summary],
        **more,
    }
    if content is not None:
        item["content"] = [{"type": "reasoning_text", "text": text} for text in content]
    return item


def call(kind: str, identity: str, **more: Any) -> Item:
    return {"id": identity, "type": kind, "status": "completed", **more}


def function(name: str, arguments: str, number: int = 1) -> Item:
    return call("function_call", f"fc_{number}", call_id=f"call_{number}", name=name, arguments=arguments)


CITED = [
    {"type": "file_citation", "file_id": "file-1", "filename": "sea.pdf", "index": 11},
    {"type": "file_citation", "file_id": "file-2", "filename": "sky.pdf", "index": 25},
]
LINKED = [{"type": "url_citation", "start_index": 0, "end_index": 8, "title": "Sea", "url": "https://example.com/sea"}]
REFUSED = message("")
REFUSED["content"] = [{"type": "refusal", "refusal": "I will not help with that."}]
MCP_TOOLS = call("mcp_list_tools", "mcpl_1", server_label="zip", tools=[{"name": "shorten", "input_schema": {}}])
SEARCH = {"type": "search", "query": "the sea", "sources": [{"type": "url", "url": "https://example.com/sea"}]}

SCENES: dict[str, Scene] = {
    "text": Scene([message("The sea is wide, the sky is wider: 🌊 and ünï.")]),
    "queued": Scene([message("Done in the background.")], background=True),
    "refusal": Scene([REFUSED]),
    "reasoning": Scene(
        [reasoning("rs_1", "First I look.", "Then I leap.", encrypted_content="gAAA"), message("A leap it is.")]
    ),
    "reasoning-between": Scene(
        [
            reasoning("rs_1", encrypted_content="gAAA"),
            call("web_search_call", "ws_1", action=SEARCH),
            reasoning("rs_2", "It is blue."),
            message("The sea is blue.", annotations=LINKED),
        ]
    ),
    "raw-reasoning": Scene([reasoning("rs_1", content=["Let me think about the sea."]), message("It is wide.")]),
    "open-responses": Scene([reasoning("rs_1", content=["Let me think."]), message("So.")], open_responses=True),
    "calls": Scene([function("weather", '{"city":"Rome"}'), function("time", '{"zone":"CET"}', 2)]),
    "call-without-deltas": Scene([function("weather", '{"city":"Rome"}')], deltas=False),
    "text-without-deltas": Scene([reasoning("rs_1", "Short."), message("All at once.")], deltas=False),
    "said-and-called": Scene([message("I look it up."), function("weather", "{}")]),
    "custom": Scene([call("custom_tool_call", "ctc_1", call_id="call_1", name="sql", input="SELECT * FROM sea")]),
    "custom-old": Scene([call("custom_tool_call", "old_1", call_id="call_1", name="sql", input="SELECT 1")]),
    "file-search": Scene(
        [
            call("file_search_call", "fs_1", queries=["sea", "salt", "tide"], results=None),
            message("The sea is salt, and it has tides.", annotations=CITED),
        ]
    ),
    "web-searches": Scene(
        [
            *(call("web_search_call", f"ws_{number}", action=SEARCH) for number in range(6)),
            message("Six searches later.", annotations=LINKED),
        ]
    ),
    "code-interpreter": Scene(
        [
            call(
                "code_interpreter_call",
                "ci_1",
                code="print(6 * 7)",
                container_id="cntr_1",
                outputs=[{"type": "logs", "logs": "42\n"}],
            ),
            message("It is 42."),
        ]
    ),
    "mcp": Scene(
        [
            MCP_TOOLS,
            call("mcp_call", "mcp_1", name="shorten", arguments='{"url":"a"}', server_label="zip", output="b"),
            message("It is b."),
        ]
    ),
    "mcp-failed": Scene(
        [
            {**MCP_TOOLS, "error": "no such server"},
            {
                **call("mcp_call", "mcp_1", name="shorten", arguments="{}", server_label="zip", output=None),
                "status": "failed",
                "error": {"type": "http_error", "code": 500, "message": "broken"},
            },
            message("It is broken."),
        ]
    ),
    "mcp-approval": Scene(
        [
            MCP_TOOLS,
            reasoning("rs_1"),
            {
                "id": "mcpr_1",
                "type": "mcp_approval_request",
                "name": "shorten",
                "arguments": "{}",
                "server_label": "zip",
            },
        ]
    ),
    "mcp-approved": Scene(
        [
            MCP_TOOLS,
            call(
                "mcp_call",
                "mcp_1",
                name="shorten",
                arguments='{"url":"a"}',
                server_label="zip",
                output="b",
                approval_request_id="mcpr_1",
            ),
            message("It is b."),
        ]
    ),
    "image": Scene(
        [call("image_generation_call", "ig_1", result="UklGRg==", output_format="webp"), message("", "msg_1")]
    ),
    "shell": Scene(
        [
            call(
                "shell_call",
                "sh_1",
                call_id="call_1",
                action={"commands": ["ls -la", "pwd"], "timeout_ms": None},
                environment={"type": "container_reference", "container_id": "cntr_1"},
            ),
            call(
                "shell_call_output",
                "sho_1",
                call_id="call_1",
                output=[{"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
            ),
            message("There is a file."),
        ]
    ),
    "shell-local": Scene(
        [call("shell_call", "sh_1", call_id="call_1", action={"commands": ["ls"]}, environment={"type": "local"})]
    ),
    "old-shell": Scene(
        [call("local_shell_call", "lsh_1", call_id="call_1", action={"type": "exec", "command": ["ls"]})]
    ),
    "computer": Scene(
        [call("computer_call", "cu_1", call_id="call_1", action={"type": "screenshot"}, pending_safety_checks=[])]
    ),
    "patch": Scene(
        [
            call(
                "apply_patch_call",
                "apc_1",
                call_id="call_1",
                operation={"type": "create_file", "path": "sea.md", "diff": "+# The sea\n+It is wide.\n"},
            )
        ]
    ),
    "patch-delete": Scene(
        [call("apply_patch_call", "apc_1", call_id="call_1", operation={"type": "delete_file", "path": "sea.md"})]
    ),
    "tool-search": Scene(
        [
            call("tool_search_call", "tsc_1", arguments={"paths": ["weather"]}, call_id=None, execution="server"),
            call("tool_search_output", "tso_1", call_id=None, execution="server", tools=[{"name": "weather"}]),
            {**function("weather", "{}"), "namespace": "sky"},
        ]
    ),
    "tool-search-client": Scene(
        [call("tool_search_call", "tsc_1", arguments={"goal": "weather"}, call_id="call_1", execution="client")]
    ),
    "phases": Scene(
        [
            message("I look.", "msg_1", phase="commentary"),
            message("It is wide.", "msg_2", phase="final_answer"),
        ],
        indexes=[0, 2],
    ),
    "twins": Scene(
        [message("It is wide.", "msg_1", phase="commentary"), message("It is wide.", "msg_2", phase="final_answer")]
    ),
    "compaction": Scene([message("So far."), {"id": "cmp_1", "type": "compaction", "encrypted_content": "gBBB"}]),
    "incomplete": Scene([message("It was a dark and")], status="incomplete", reason="max_output_tokens"),
    "max-tool-calls": Scene(
        [call("web_search_call", "ws_1", action=SEARCH), message("Enough.")],
        status="incomplete",
        reason="max_tool_calls",
    ),
    "filtered": Scene([message("It was")], status="incomplete", reason="content_filter"),
    "failed": Scene([message("It was a dark")], status="failed"),
    "vendor": Scene(
        [message("Found it.")],
        beside={"hosted_tool_calls": [{"id": "sc_1", "type": "search_corpus_call", "queries": ["sea"]}]},
    ),
}
