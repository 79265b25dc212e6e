"""Keeps the credentials of a background response's tools sealed, for as long as another process may have to run it.

They are taken out of the request that is kept with its plan and lie beside it in a blob of the codec, bound to the
tenant; the plan goes with the terminal event, and they with it (architecture, Secrets).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw

from antiphon.protocol.credentials import has_secrets, secrets_of, without_secrets
from antiphon.protocol.json import encode
from antiphon.protocol.request import CreateResponse
from antiphon.runtime.codec import Codec
from antiphon.store.base import Scope

__all__ = ["revealed", "veiled"]

_KIND: Final = "mcp_credentials"
_FIELD: Final = "_credentials"

_body = msgspec.json.Decoder(dict[str, Raw])
_tools = msgspec.json.Decoder(list[Any])
_blob = msgspec.json.Decoder(str)
_secrets = msgspec.json.Decoder(dict[int, dict[str, Any]])


def veiled(codec: Codec, scope: Scope, sent: bytes, request: CreateResponse) -> bytes:
    """A request as it came, in the form that may be stored.

    Raises:
        ValueError: its credentials are larger than what the codec seals.
    """
    if not any(has_secrets(tool) for tool in request.tools):
        return sent
    body = _body.decode(sent)
    tools = _tools.decode(body["tools"])
    secrets = {index: secrets_of(tool) for index, tool in enumerate(tools) if has_secrets(tool)}
    shown = [without_secrets(tool) if index in secrets else tool for index, tool in enumerate(tools)]
    sealed = codec.seal(scope, _KIND, msgspec.json.encode(secrets))
    return encode(body | {"tools": Raw(encode(shown)), _FIELD: Raw(encode(sealed))})


async def revealed(codec: Codec, scope: Scope, kept: bytes) -> bytes:
    """The request as it came; without its credentials where no key opens them any more.

    Raises:
        UnavailableError: the store that has the keys cannot be asked.
    """
    if _FIELD.encode() not in kept:
        return kept
    body = _body.decode(kept)
    blob = body.pop(_FIELD, None)
    if blob is None:
        return kept
    payload = await codec.open(scope, _KIND, _blob.decode(blob))
    tools = _tools.decode(body["tools"])
    for index, secrets in (_secrets.decode(payload) if payload is not None else {}).items():
        tools[index].update(secrets)
    return encode(body | {"tools": Raw(encode(tools))})
