"""What a request declares, checked before anything is sent: schemas and grammars that nothing could be checked by."""

from __future__ import annotations

from antiphon.engines.checks.checker import Checker
from antiphon.errors import InvalidRequestError
from antiphon.prompt.arguments import bare_input, custom_format
from antiphon.prompt.dialects.base import callable_tools
from antiphon.prompt.grammar import SCHEMA_PATH
from antiphon.prompt.prompt import Prompt
from antiphon.prompt.schema import MAX_BYTES, check_schema
from antiphon.protocol.json import quoted
from antiphon.protocol.tools import CustomTool

__all__ = ["check_declared"]


async def check_declared(checker: Checker, prompt: Prompt) -> None:
    """Refuse what no answer could be checked by.

    Raises:
        InvalidRequestError: a schema or a grammar is malformed or too large; `param` says which.
        EngineUnavailableError: what checks them cannot be started.
    """
    names = callable_tools(prompt)
    for tool in prompt.tools:
        if tool.name not in names:
            continue
        if isinstance(tool, CustomTool):
            await _custom(checker, tool)
        elif tool.parameters is not None:
            check_schema(tool.parameters, "tools")
            fault = await checker.schema(tool.parameters)
            _refuse(f"schema for function '{quoted(tool.name)}'", fault, "tools", "invalid_function_parameters")
    form = prompt.format
    if form is not None and form.type == "json_schema" and form.schema is not None:
        _refuse("schema for the output format", await checker.schema(form.schema), SCHEMA_PATH, "invalid_json_schema")


async def _custom(checker: Checker, tool: CustomTool) -> None:
    syntax, definition = custom_format(tool)
    if syntax == "text":
        return
    if syntax not in ("lark", "regex"):
        fault = "its syntax must be 'lark' or 'regex'"
    elif len(definition) > MAX_BYTES:
        fault = f"at most {MAX_BYTES} characters are supported"
    else:
        fault = await checker.grammar(definition if syntax == "lark" else f"start: {bare_input(tool)}\n")
    _refuse(f"grammar of custom tool '{quoted(tool.name)}'", fault, "tools", "invalid_grammar")


def _refuse(what: str, fault: str, path: str, code: str) -> None:
    if fault:
        raise InvalidRequestError(f"Invalid {what}: {fault}.", param=path, code=code)
