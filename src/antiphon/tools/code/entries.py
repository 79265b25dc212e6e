"""What a request says of the container of a tool: the entries `code_interpreter` and `shell` of `tools`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from antiphon.errors import InvalidRequestError, NotFoundError
from antiphon.protocol.containers import MAX_FILE_IDS, check_network, is_container_id, memory_bytes
from antiphon.protocol.ids import new_id
from antiphon.protocol.json import field_error, quoted
from antiphon.tools.base import Session
from antiphon.tools.code.containers import Containers
from antiphon.tools.code.record import Container

__all__ = ["Place", "Wanted", "is_local", "read_entry"]


class _Auto(Struct):
    type: str = "auto"
    container_id: str | None = None
    file_ids: list[str] | None = None
    memory_limit: str | None = None
    network_policy: dict[str, Any] | None = None
    skills: list[Any] | None = None


class Wanted(Struct, frozen=True):
    """The container that an entry wants: the one by an id, or one of its own with these files and this memory.

    `refusal` says why it cannot be had as it is wanted.
    """

    container_id: str | None = None
    file_ids: tuple[str, ...] = ()
    memory_limit: str | None = None
    refusal: InvalidRequestError | None = None


class Place:
    """The container of one tool in one response; one of its own is made when it is first needed."""

    def __init__(self, containers: Containers, wanted: Wanted, session: Session) -> None:
        self._containers = containers
        self._wanted = wanted
        self._session = session
        self.id = wanted.container_id or self._used_before() or new_id("cntr")

    async def container(self) -> Container:
        """The container.

        Raises:
            APIError: it is not there, or cannot be had.
        """
        if self._wanted.refusal is not None:
            raise self._wanted.refusal
        scope, wanted = self._session.scope, self._wanted
        if wanted.container_id is not None:
            if not is_container_id(wanted.container_id):
                raise NotFoundError(f"Container with id '{quoted(wanted.container_id)}' not found.")
            return self._containers.get_running(scope, wanted.container_id)
        name = f"container of {self._session.response_id}"
        return await self._containers.ensure(
            scope, self.id, name=name, file_ids=wanted.file_ids, memory_limit=wanted.memory_limit
        )

    def files(self) -> Sequence[str]:
        """Where the files are that it has already."""
        found = self._containers.find(self._session.scope, self.id)
        return [] if found is None else sorted(file.place for file in found.files.values())

    def _used_before(self) -> str | None:
        """The container that was used last in this chain, if it still runs here."""
        for body in reversed(self._session.evidence):
            given: Any = body.get("container_id")
            environment: Any = body.get("environment")
            if given is None and isinstance(environment, dict):
                given = cast("dict[str, Any]", environment).get("container_id")
            if self._containers.find(self._session.scope, given) is not None:
                return str(given)
        return None


def is_local(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of `shell` is for the client's own machine."""
    environment: Any = entry.get("environment")
    return not isinstance(environment, dict) or cast("dict[str, Any]", environment).get("type", "local") == "local"


def read_entry(entry: Mapping[str, Any], path: str) -> Wanted:
    """The container that an entry wants; `path` names the entry in messages.

    Raises:
        InvalidRequestError: a field has a wrong type or is out of range.
    """
    field = "environment" if entry.get("type") == "shell" else "container"
    given: Any = entry.get(field)
    if isinstance(given, str):
        return Wanted(given)
    try:
        asked = msgspec.convert({} if given is None else given, _Auto)
    except msgspec.ValidationError as error:
        raise field_error(error, f"{path}.{field}") from None
    if asked.type == "container_reference":
        if asked.container_id is None:
            raise InvalidRequestError(
                f"Missing required parameter: '{path}.{field}.container_id'.",
                param=f"{path}.{field}.container_id",
                code="missing_required_parameter",
            )
        return Wanted(asked.container_id)
    if asked.type not in ("auto", "container_auto"):
        raise _invalid(f"{path}.{field}.type", "a container by its id, or one of its own, is expected")
    if len(asked.file_ids or ()) > MAX_FILE_IDS:
        raise _invalid(f"{path}.{field}.file_ids", f"at most {MAX_FILE_IDS} ids are expected")
    memory_bytes(asked.memory_limit, f"{path}.{field}.memory_limit")
    refusal = None
    try:
        check_network(asked.network_policy, f"{path}.{field}.network_policy")
    except InvalidRequestError as error:
        refusal = error
    if asked.skills:
        refusal = InvalidRequestError("Skills are not supported in containers.", code="unsupported_value")
    return Wanted(None, tuple(asked.file_ids or ()), asked.memory_limit, refusal)


def _invalid(param: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"Invalid '{param}': {what}.", param=param, code="invalid_value")
