"""Prompt templates: a text with `{{names}}`, filled in with the variables of a request. Pure.

There is no template language: a name between double braces is replaced by the value of that variable, once, and what
the value holds is never read again. A value is text, or a part that is an image or a file (responses-api 2, `prompt`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.errors import InvalidRequestError
from antiphon.protocol.items import Item, decode_item
from antiphon.protocol.json import encode, field_error, quoted
from antiphon.protocol.parts import InputFile, InputImage, InputText

__all__ = ["MAX_TEMPLATE", "Template", "decode_template", "encode_template", "names_of", "rendered"]

MAX_TEMPLATE = 256 * 1024
"""Characters of a template's text."""

_NAME = re.compile(r"\{\{[ \t]*([A-Za-z_][A-Za-z0-9_]{0,63})[ \t]*\}\}")


class Template(Struct, frozen=True):
    """A prompt template: the text that becomes the instructions of a request, and a name for people."""

    text: str
    name: str = ""


_Value = str | InputText | InputImage | InputFile
_template = msgspec.json.Decoder(Template)


def encode_template(template: Template) -> bytes:
    """The JSON of a template, as it is stored."""
    return encode(template)


def decode_template(body: bytes) -> Template:
    """A template that `encode_template` wrote."""
    return _template.decode(body)


def names_of(text: str) -> list[str]:
    """The names of the variables in a text, each once, in the order in which they come."""
    return list(dict.fromkeys(_NAME.findall(text)))


def rendered(template: Template, variables: Mapping[str, Any]) -> str | list[Item]:
    """The instructions that a template gives: text, or one message where a value is an image or a file.

    Variables that the text does not name are left alone.

    Raises:
        InvalidRequestError: a variable is missing, or is neither text nor a part.
    """
    values: dict[str, _Value] = {}
    for name in names_of(template.text):
        if variables.get(name) is None:
            raise InvalidRequestError(
                f"Missing prompt variable: '{name}'.", param=f"prompt.variables.{name}", code="missing_prompt_variable"
            )
        values[name] = _value(variables[name], f"prompt.variables.{name}")
    content: list[dict[str, Any]] = []
    place = 0
    for match in _NAME.finditer(template.text):
        _say(template.text[place : match.start()], content)
        value = values[match.group(1)]
        if isinstance(value, str | InputText):
            _say(value if isinstance(value, str) else value.text, content)
        else:
            content.append(msgspec.to_builtins(value))
        place = match.end()
    _say(template.text[place:], content)
    if all(part["type"] == "input_text" for part in content):
        return "".join(part["text"] for part in content)
    return [decode_item(encode({"type": "message", "role": "developer", "content": content}), "prompt")]


def _say(text: str, content: list[dict[str, Any]]) -> None:
    if not text:
        return
    if content and content[-1]["type"] == "input_text":
        content[-1]["text"] += text
    else:
        content.append({"type": "input_text", "text": text})


def _value(value: Any, path: str) -> _Value:
    if not isinstance(value, str | dict):
        raise InvalidRequestError(
            f"Invalid value for '{path}': a string, an input_text, an input_image or an input_file is expected, but "
            f"got {quoted(encode(value).decode())}.",
            param=path,
            code="invalid_value",
        )
    try:
        return msgspec.convert(value, _Value)
    except msgspec.ValidationError as error:
        raise field_error(error, path) from None
