"""llama.cpp's native endpoints over the child's Unix socket.

Every call is on a connection of its own. A pooled one that has carried a stream is sometimes closed by llama.cpp just
when it is used again, and on a Unix socket a fresh one costs next to nothing.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from io import BytesIO
from typing import Any, Final, TypeVar

import aiohttp
import msgspec

from antiphon.engines.llamacpp.wire import (
    Chunk,
    Detokenized,
    Embeddings,
    Failure,
    InputTokens,
    Props,
    Rendered,
    Tokenized,
    TokenizedPieces,
    TokenPiece,
)
from antiphon.errors import EngineError, EngineUnavailableError
from antiphon.protocol.json import encode
from antiphon.protocol.sse import SSEError, SSEParser

__all__ = ["ChildDiedError", "ChildError", "Client", "answers"]

T = TypeVar("T")

_DIED: Final = "The engine died while it generated."
_chunk = msgspec.json.Decoder(Chunk)
_failure = msgspec.json.Decoder(Failure)
_HEADERS = {"content-type": "application/json"}
_GONE: Final = frozenset({errno.ECONNREFUSED, errno.ECONNRESET, errno.ENOENT, errno.EPIPE})
"""What the system says where nobody listens any more; anything else, as too many open files, is our own trouble."""


class ChildError(Exception):
    """llama.cpp refused a call: its status and its own message."""

    def __init__(self, status: int, message: str, type: str = "") -> None:  # noqa: A002 - the wire's name
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type


class ChildDiedError(EngineError):
    """The child seems to have died before it had answered; the call can be made again."""


class Client:
    """Calls to one life of the child."""

    def __init__(self, socket: str) -> None:
        connector = aiohttp.UnixConnector(path=socket, force_close=True, limit=0)
        self._session = aiohttp.ClientSession(
            "http://engine", connector=connector, timeout=aiohttp.ClientTimeout(total=None), trust_env=False
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def props(self) -> Props:
        """The model's context, template and abilities."""
        return await self._call("GET", "/props", None, Props)

    async def health(self) -> None:
        """Return when the child answers."""
        await self._call("GET", "/health", None, dict[str, Any])

    async def slots(self) -> list[dict[str, Any]]:
        """The state of every slot."""
        return await self._call("GET", "/slots", None, list[dict[str, Any]])

    async def apply_template(self, body: Mapping[str, Any]) -> str:
        """The prompt that the chat template makes.

        Raises:
            ChildError: the template refuses.
            ChildDiedError: the child died.
            EngineUnavailableError: it cannot be reached, for a reason that is not its own.
            EngineError: it answered nonsense.
        """
        return (await self._call("POST", "/apply-template", body, Rendered)).prompt

    async def count_tokens(self, body: Mapping[str, Any]) -> int:
        """Tokens of the prompt that the template makes of a conversation, those of its media included.

        Raises:
            ChildError: media cannot be read.
        """
        return (await self._call("POST", "/v1/chat/completions/input_tokens", body, InputTokens)).input_tokens

    async def tokenize(self, text: str, *, add_special: bool) -> list[int]:
        """Token ids; special tokens in the text are recognized. `add_special` adds what the model wants in front."""
        body = {"content": text, "add_special": add_special, "parse_special": True}
        return (await self._call("POST", "/tokenize", body, Tokenized)).tokens

    async def tokenize_plain(self, text: str) -> list[int]:
        """Token ids of the text as mere text, special tokens spelled out."""
        body = {"content": text, "add_special": False, "parse_special": False}
        return (await self._call("POST", "/tokenize", body, Tokenized)).tokens

    async def tokenize_pieces(self, text: str, *, add_special: bool, parse_special: bool) -> list[TokenPiece]:
        """Tokens with what they stand for."""
        body = {"content": text, "add_special": add_special, "parse_special": parse_special, "with_pieces": True}
        return (await self._call("POST", "/tokenize", body, TokenizedPieces)).tokens

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones spelled out."""
        return (await self._call("POST", "/detokenize", {"tokens": tokens}, Detokenized)).content

    async def embeddings(self, inputs: Sequence[str | Sequence[int]]) -> Embeddings:
        """The vectors of texts, or of tokens; those of one call are not in order.

        Raises:
            ChildError: an input is too long, or is none; or this child makes no vectors.
        """
        return await self._call("POST", "/v1/embeddings", {"input": inputs, "encoding_format": "base64"}, Embeddings)

    async def completion(self, body: Mapping[str, Any]) -> AsyncGenerator[Sequence[Chunk]]:
        """The chunks of a streamed completion, in lists of what one read brought; closing it closes the socket.

        Raises:
            ChildError: llama.cpp refuses the request.
            ChildDiedError: the child died, before it answered or in the middle of the stream.
            EngineUnavailableError: it cannot be reached, for a reason that is not its own.
            EngineError: what it sent is not a stream of chunks.
        """
        parser = SSEParser()
        response: aiohttp.ClientResponse | None = None
        try:
            response = await self._session.post("/completion", data=BytesIO(encode(body)), headers=_HEADERS)
            if response.status != 200:
                raise _refusal(response.status, await response.read())
            async for data in response.content.iter_any():
                chunks = [_chunk.decode(event.data) for event in parser.feed(data)]
                if chunks:
                    yield chunks
        except (aiohttp.ClientError, OSError) as error:
            raise ChildDiedError(_DIED) if response is not None else _broken(error) from None
        except (SSEError, msgspec.DecodeError):
            raise EngineError("The engine sent invalid data.") from None
        finally:
            if response is not None:
                response.close()

    async def _call(self, method: str, path: str, body: Mapping[str, Any] | None, type: type[T]) -> T:  # noqa: A002
        data = None if body is None else BytesIO(encode(body))
        try:
            async with self._session.request(method, path, data=data, headers=_HEADERS) as response:
                answer = await response.read()
                if response.status != 200:
                    raise _refusal(response.status, answer)
        except (aiohttp.ClientError, OSError) as error:
            raise _broken(error) from None
        try:
            return msgspec.json.decode(answer, type=type)
        except msgspec.DecodeError:
            raise EngineError("The engine sent invalid data.") from None


async def answers(socket: str, seconds: float) -> bool:
    """Whether a child answers on its socket at all; also where we cannot tell."""
    client = Client(socket)
    try:
        async with asyncio.timeout(seconds):
            await client.health()
    except (ChildDiedError, TimeoutError):
        return False
    except (ChildError, EngineError, EngineUnavailableError):
        return True
    finally:
        await client.close()
    return True


def _broken(error: aiohttp.ClientError | OSError) -> EngineError | EngineUnavailableError:
    """What a call that had no whole answer tells of the child."""
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError | ConnectionResetError):
        return ChildDiedError(_DIED)
    if not isinstance(error, OSError):
        return EngineError("The engine sent invalid data.")
    if error.errno in _GONE:
        return ChildDiedError(_DIED)
    reason = os.strerror(error.errno).lower() if error.errno else "the connection failed"
    return EngineUnavailableError(f"The engine cannot be reached now ({reason}); try again.")


def _refusal(status: int, body: bytes) -> ChildError:
    try:
        error = _failure.decode(body).error
    except msgspec.DecodeError:
        return ChildError(status, f"status {status}")
    return ChildError(status, error.message, error.type)
