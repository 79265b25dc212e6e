"""Prompt templates of the store, put into the requests that name them (`prompt`)."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from antiphon.errors import InvalidRequestError, NotFoundError
from antiphon.prompt.templates import decode_template, rendered
from antiphon.protocol.ids import is_id
from antiphon.protocol.json import quoted
from antiphon.protocol.request import CreateResponse
from antiphon.store.base import Scope, Store

__all__ = ["PREFIX", "with_template"]

PREFIX = "pmpt"
"""The prefix of the ids of prompt templates."""

_MAX_VERSION = 2**31 - 1


async def with_template(store: Store | None, scope: Scope, request: CreateResponse) -> CreateResponse:
    """The request with the instructions of the template that it names, and with the version that they are of.

    Instructions of the request's own stand in their place.

    Raises:
        NotFoundError: `prompt_not_found`, there is no such template or version in this scope.
        InvalidRequestError: `prompt` has a wrong shape, or a variable is missing.
    """
    asked = request.prompt
    if asked is None:
        return request
    identity, version, variables = _read(asked)
    found = None
    if store is not None and is_id(PREFIX, identity):
        found = await store.find_prompt(scope, identity, version)
    if found is None:
        raise NotFoundError(
            f"Prompt with id '{quoted(identity)}'{f' and version {version}' if version else ''} not found.",
            param="prompt.id",
            code="prompt_not_found",
        )
    told = {"id": identity, "version": str(found.version), "variables": asked.get("variables")}
    if request.instructions is not None or request.instruction_items is not None:
        return msgspec.structs.replace(request, prompt=told)
    instructions = rendered(decode_template(found.body), variables)
    if isinstance(instructions, str):
        return msgspec.structs.replace(request, prompt=told, instructions=instructions)
    return msgspec.structs.replace(request, prompt=told, instruction_items=instructions)


def _read(asked: dict[str, Any]) -> tuple[str, int | None, dict[str, Any]]:
    identity = asked.get("id")
    if not isinstance(identity, str) or not identity:
        raise InvalidRequestError(
            "Missing required parameter: 'prompt.id'.", param="prompt.id", code="missing_required_parameter"
        )
    variables: Any = asked.get("variables")
    if not isinstance(variables, dict | None):
        raise _invalid("variables", "an object of variables is expected")
    version: Any = asked.get("version")
    if version is None:
        return identity, None, cast("dict[str, Any]", variables or {})
    digits = version if isinstance(version, str) else ""
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and 0 < int(digits) <= _MAX_VERSION):
        raise _invalid("version", "the number of a version is expected, as a string")
    return identity, int(digits), cast("dict[str, Any]", variables or {})


def _invalid(field: str, expected: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"Invalid value for 'prompt.{field}': {expected}.", param=f"prompt.{field}", code="invalid_value"
    )
