"""The tools that a client runs and that have items of their own: a shell, patches, a computer. Pure.

A model is told of them as functions with the schemas here. Their calls and outputs in a history are told as calls of
these functions and as text; so are those of tools that others ran, as far as they can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from antiphon.machine.computer import ACTIONS, COMPUTER, MOST_ACTIONS, PREVIEW
from antiphon.machine.router import APPLY_PATCH, COMPUTER_CALL, LOCAL_SHELL, SHELL, TOOL_SEARCH
from antiphon.protocol.json import encode
from antiphon.protocol.parts import InputImage
from antiphon.protocol.tools import FunctionTool

__all__ = ["CLIENT_TOOLS", "client_call", "client_output", "client_tool", "screenshot"]

CLIENT_TOOLS: Final[Mapping[str, str]] = {
    "shell": SHELL,
    "apply_patch": APPLY_PATCH,
    "local_shell": LOCAL_SHELL,
    COMPUTER: COMPUTER_CALL,
    PREVIEW: COMPUTER_CALL,
}
"""The type of each such tool, by which it is called too, and that of the items of its calls."""

_STRING: Final = {"type": "string"}
_MILLISECONDS: Final = {"type": "integer", "minimum": 1, "description": "How long it may take, in milliseconds."}

_SHELL: Final = FunctionTool(
    name="shell",
    description="Run commands in a shell of the user's machine. The output of each command comes back.",
    parameters={
        "type": "object",
        "properties": {
            "commands": {"type": "array", "items": _STRING, "minItems": 1, "description": "One string a command."},
            "timeout_ms": _MILLISECONDS,
            "max_output_length": {
                "type": "integer",
                "minimum": 1,
                "description": "The most characters of output that each command may give.",
            },
        },
        "required": ["commands"],
        "additionalProperties": False,
    },
)
_PATCH: Final = FunctionTool(
    name="apply_patch",
    description=(
        "Create, change or delete one file of the user's. A new file is given as a diff in which every line begins "
        "with '+'. A change is given as hunks: a line '@@' and some line near the place, then the lines there, each "
        "with ' ' before it where it stays, '-' where it goes and '+' where it is new."
    ),
    parameters={
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            "path": {"type": "string", "minLength": 1, "description": "The file, from the working directory."},
            "diff": {"type": "string", "description": "The diff; none to delete a file."},
        },
        "required": ["type", "path"],
        "additionalProperties": False,
    },
)
_LOCAL_SHELL: Final = FunctionTool(
    name="local_shell",
    description="Run one program on the user's machine. Its output comes back.",
    parameters={
        "type": "object",
        "properties": {
            "command": {
                "type": "array",
                "items": _STRING,
                "minItems": 1,
                "description": "The program and its arguments.",
            },
            "env": {"type": "object", "additionalProperties": _STRING, "description": "Environment variables to set."},
            "working_directory": _STRING,
            "timeout_ms": _MILLISECONDS,
        },
        "required": ["command"],
        "additionalProperties": False,
    },
)
_ACTIONS: Final = [
    {
        "type": "object",
        "properties": {"type": {"const": kind}, **fields},
        "required": ["type", *fields],
        "additionalProperties": False,
    }
    for kind, fields in ACTIONS.items()
]
_ON_A_COMPUTER: Final = (
    "Use the computer of the user by mouse and keyboard. A screenshot comes back after each call; take one first. "
    "Places are in pixels of the last one, from its upper left corner."
)
_COMPUTER: Final = FunctionTool(
    name=COMPUTER,
    description=_ON_A_COMPUTER,
    parameters={
        "type": "object",
        "properties": {
            "actions": {
                "type": "array",
                "items": {"anyOf": _ACTIONS},
                "minItems": 1,
                "maxItems": MOST_ACTIONS,
                "description": "What to do, one after the other.",
            }
        },
        "required": ["actions"],
        "additionalProperties": False,
    },
)
_PREVIEW: Final = FunctionTool(
    name=PREVIEW,
    description=_ON_A_COMPUTER,
    parameters={
        "type": "object",
        "properties": {"action": {"anyOf": _ACTIONS}},
        "required": ["action"],
        "additionalProperties": False,
    },
)
_FUNCTIONS: Final = {tool.name: tool for tool in (_SHELL, _PATCH, _LOCAL_SHELL, _COMPUTER, _PREVIEW)}
_CALLED_AS: Final = {item: name for name, item in CLIENT_TOOLS.items() if item != COMPUTER_CALL}
_CALL_BODY: Final = ("arguments", "input", "action", "operation", "code", "queries")
_OUTPUT_BODY: Final = ("output", "result")


def client_tool(tool: Mapping[str, Any], *, computer: bool = False) -> FunctionTool | None:
    """The function that such a tool is shown as; None for other types, and for a shell in a container.

    One of a computer is shown where `computer` says so.
    """
    name = str(tool.get("type"))
    if name in (COMPUTER, PREVIEW) and not computer:
        return None
    if name == "shell":
        environment: Any = tool.get("environment")
        if isinstance(environment, dict) and cast("dict[str, Any]", environment).get("type") != "local":
            return None
    return _FUNCTIONS.get(name)


def client_call(item_type: str, body: Mapping[str, Any]) -> tuple[str, str, bool]:
    """The name and the arguments by which a call is told, and whether the name is one of ours."""
    if item_type == TOOL_SEARCH:
        return "tool_search", encode(body.get("arguments") or {}).decode(), True
    if item_type == COMPUTER_CALL:
        name = "actions" if body.get("actions") is not None else "action"
        return COMPUTER if name == "actions" else PREVIEW, encode({name: body.get(name)}).decode(), True
    if item_type in _CALLED_AS:
        name = _CALLED_AS[item_type]
        given: Any = body.get("operation" if item_type == APPLY_PATCH else "action")
        fields = dict(cast("dict[str, Any]", given)) if isinstance(given, dict) else {}
        if item_type == LOCAL_SHELL:
            fields.pop("type", None)
        told = {key: value for key, value in fields.items() if value is not None and value != {}}
        return name, encode(told).decode(), True
    arguments: Any = next((body[key] for key in _CALL_BODY if key in body), "{}")
    text = arguments if isinstance(arguments, str) else encode(arguments).decode()
    return item_type.removesuffix("_call"), text, False


def client_output(item_type: str, body: Mapping[str, Any]) -> str:
    """The text by which an output is told."""
    output: Any = next((body[key] for key in _OUTPUT_BODY if body.get(key) is not None), "")
    if item_type == "shell_call_output" and isinstance(output, list):
        return _shell_output(cast("list[Any]", output))
    if item_type == "apply_patch_call_output" and not output:
        return str(body.get("status") or "")
    return output if isinstance(output, str) else encode(output).decode()


def screenshot(item_type: str, body: Mapping[str, Any]) -> InputImage | None:
    """The image of an output of a computer; None of other outputs, and of one that names no image."""
    output: Any = body.get("output")
    if item_type != f"{COMPUTER_CALL}_output" or not isinstance(output, dict):
        return None
    said = cast("dict[str, Any]", output)
    url, file = (each if isinstance(each, str) else None for each in (said.get("image_url"), said.get("file_id")))
    return InputImage(image_url=url, file_id=file) if url or file else None


def _shell_output(chunks: Sequence[Any]) -> str:
    lines: list[str] = []
    for chunk in chunks:
        if not isinstance(chunk, dict):
            lines.append(chunk if isinstance(chunk, str) else encode(chunk).decode())
            continue
        said = cast("dict[str, Any]", chunk)
        lines += [str(said["stdout"])] if said.get("stdout") else []
        lines += [f"[stderr]\n{said['stderr']}"] if said.get("stderr") else []
        outcome: Any = said.get("outcome")
        ended = cast("dict[str, Any]", outcome) if isinstance(outcome, dict) else {}
        if ended.get("type") == "timeout":
            lines.append("[timed out]")
        elif ended.get("exit_code"):
            lines.append(f"[exit code {ended['exit_code']}]")
    return "\n".join(lines)
