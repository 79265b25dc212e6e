"""Containers on the wire: the objects, what creates them, and paths of files that are safe to write (hosted-tools A3).

A path comes from code that a model wrote, or from whoever uploads. What is kept of it is a few parts, each of them what
is kept of a file's name (faults B3 31).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from antiphon.errors import InvalidRequestError, UnsupportedError
from antiphon.protocol.files import safe_filename
from antiphon.protocol.ids import is_id
from antiphon.protocol.json import decode_body, quoted

__all__ = [
    "DEFAULT_MEMORY",
    "MAX_FILE_IDS",
    "MAX_MINUTES",
    "MEMORY_LIMITS",
    "ContainerFileObject",
    "ContainerObject",
    "CreateContainer",
    "ExpiresAfter",
    "Removed",
    "check_network",
    "decode_container",
    "decode_file_id",
    "is_container_file_id",
    "is_container_id",
    "memory_bytes",
    "safe_path",
]

MAX_MINUTES: Final = 20
MAX_NAME: Final = 256
MAX_FILE_IDS: Final = 50
DEFAULT_MEMORY: Final = "1g"

_GIB: Final = 1024**3
MEMORY_LIMITS: Final = {"1g": _GIB, "4g": 4 * _GIB, "16g": 16 * _GIB, "64g": 64 * _GIB}
_MAX_PARTS: Final = 16
_MAX_PATH: Final = 512


class ExpiresAfter(Struct):
    """When a container expires: so many minutes after it was last active."""

    minutes: int = MAX_MINUTES
    anchor: str = "last_active_at"


class CreateContainer(Struct):
    """What creates a container."""

    name: str
    expires_after: ExpiresAfter | None = None
    file_ids: list[str] | None = None
    memory_limit: str | None = None
    network_policy: dict[str, Any] | None = None
    skills: list[Any] | None = None


class ContainerObject(Struct):
    """A container. Times in seconds since the epoch; `memory_limit` is what it has, by the server's settings."""

    id: str
    created_at: int
    status: str
    name: str
    last_active_at: int
    expires_after: ExpiresAfter
    memory_limit: str
    network_policy: dict[str, Any]
    object: str = "container"


class ContainerFileObject(Struct):
    """A file of a container; `source` is `user` where it was sent, `assistant` where code wrote it."""

    id: str
    bytes: int
    container_id: str
    created_at: int
    path: str
    source: str
    object: str = "container.file"


class Removed(Struct):
    """What a deletion answers."""

    id: str
    object: str
    deleted: bool = True


class _FileById(Struct):
    file_id: str | UnsetType = UNSET


_CREATE = msgspec.json.Decoder(CreateContainer)
_FILE = msgspec.json.Decoder(_FileById)


def decode_container(body: bytes) -> CreateContainer:
    """The body of `POST /containers`.

    Raises:
        InvalidRequestError: a field is missing, has a wrong type or is out of range.
    """
    asked = decode_body(_CREATE, body)
    if not 1 <= len(asked.name) <= MAX_NAME:
        raise _invalid("name", f"a string of 1 to {MAX_NAME} characters is expected")
    if len(asked.file_ids or ()) > MAX_FILE_IDS:
        raise _invalid("file_ids", f"at most {MAX_FILE_IDS} ids are expected")
    if asked.skills:
        raise UnsupportedError("Skills are not supported in containers.", param="skills")
    if asked.expires_after is not None:
        _check_expiry(asked.expires_after)
    memory_bytes(asked.memory_limit, "memory_limit")
    check_network(asked.network_policy, "network_policy")
    return asked


def decode_file_id(body: bytes) -> str:
    """The body of `POST /containers/{id}/files` that names an uploaded file.

    Raises:
        InvalidRequestError: it names none.
    """
    given = decode_body(_FILE, body).file_id
    if given is UNSET:
        raise InvalidRequestError(
            "Missing required parameter: 'file_id', or a form with the part 'file'.",
            param="file_id",
            code="missing_required_parameter",
        )
    return given


def memory_bytes(asked: str | None, param: str) -> int:
    """The bytes that a `memory_limit` means.

    Raises:
        InvalidRequestError: it is none of those that there are.
    """
    found = MEMORY_LIMITS.get(asked or DEFAULT_MEMORY)
    if found is None:
        raise _invalid(param, f"one of {', '.join(MEMORY_LIMITS)} is expected, but got '{quoted(str(asked))}'")
    return found


def check_network(policy: dict[str, Any] | None, param: str) -> None:
    """See that a container is asked for without a network, as all are.

    Raises:
        UnsupportedError: it is to have one.
    """
    if policy is not None and policy.get("type") != "disabled":
        raise UnsupportedError(
            'Containers of this server have no network: \'network_policy\' can only be {"type": "disabled"}.',
            param=param,
        )


def is_container_id(value: object) -> bool:
    """Whether a value has the form of a container's id."""
    return isinstance(value, str) and is_id("cntr", value)


def is_container_file_id(value: object) -> bool:
    """Whether a value has the form of the id of a container's file."""
    return isinstance(value, str) and is_id("cfile", value)


def safe_path(given: str) -> str | None:
    """What is kept of a path below the work folder; None where nothing of it can be kept."""
    parts = [part for part in given.replace("\\", "/").split("/") if part.strip(". ")]
    if not 1 <= len(parts) <= _MAX_PARTS:
        return None
    path = "/".join(safe_filename(part) for part in parts)
    return path if len(path) <= _MAX_PATH else None


def _check_expiry(given: ExpiresAfter) -> None:
    if given.anchor != "last_active_at":
        raise _invalid("expires_after.anchor", "'last_active_at' is expected")
    if not 1 <= given.minutes <= MAX_MINUTES:
        raise _invalid("expires_after.minutes", f"an integer from 1 to {MAX_MINUTES} is expected")


def _invalid(param: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"Invalid '{param}': {what}.", param=param, code="invalid_value")
