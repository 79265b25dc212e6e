"""Media of requests: what a model reads of images, sounds and documents, brought in, checked and put in their place.

A prompt's parts say where their data is: in the request, at a URL, or in an uploaded file. An engine gets data only:
images and sounds in base64, documents as text. What is brought in once is kept for a while, so that the next turn of a
conversation need not ask for it again (issue 4, section 7; faults B2 15 and 17).
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import time
from collections import OrderedDict
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from antiphon.corpus.documents import DocumentReader
from antiphon.errors import InvalidRequestError, NotFoundError, OutboundError, OutboundRefusedError
from antiphon.outbound.client import OutboundClient
from antiphon.prompt.messages import Conversation
from antiphon.prompt.prompt import ChatMessage
from antiphon.protocol.items import Item
from antiphon.protocol.parts import ContentPart, ImageUrlPart, InputAudio, InputFile, InputImage
from antiphon.runtime.files import Files
from antiphon.runtime.media_bytes import MediaRoom, decoded, encoded
from antiphon.runtime.rules import place_of
from antiphon.settings import Settings
from antiphon.store.base import Scope, Store

__all__ = ["MAX_FILE_BYTES", "MAX_HELD_BYTES", "MAX_IMAGE_BYTES", "MAX_MEDIA", "MAX_TOTAL_BYTES", "Media"]

MAX_IMAGE_BYTES: Final = 20 * 1024 * 1024
"""Bytes of an image or a sound before base64: OpenAI's limit (responses-api 4)."""

MAX_FILE_BYTES: Final = 32 * 1024 * 1024
"""Bytes of a document that a request holds or names."""

MAX_MEDIA: Final = 64
"""Images, sounds and documents of one request, its history included."""

MAX_TOTAL_BYTES: Final = 128 * 1024 * 1024
"""Bytes of all of them together: files and URLs are not held against the limit of request bodies."""

MAX_HELD_BYTES: Final = 4 * MAX_TOTAL_BYTES
"""Bytes of media that all requests of a server hold at once, from when they are there until their responses end."""

FETCH_SECONDS: Final = 20.0
TOTAL_SECONDS: Final = 120.0
REDIRECTS: Final = 3
MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
KEPT_SECONDS: Final = 3600.0
"""How long what a URL gave stands for it: what is there may change."""

ENTRY_BYTES: Final = 512
"""What an entry is counted for beside its text: many small ones must not take more memory than the bound means."""

_DATA_HEAD: Final = re.compile(r"data:[\w.+/-]*(?:;[\w.+-]+=[\w.+-]*)*;base64", re.ASCII | re.IGNORECASE)
_SOUNDS: Final = ("wav", "mp3")


class _Codes(Struct, frozen=True):
    """What a kind of part is called, and OpenAI's codes for what is wrong with one."""

    name: str
    most: int
    base64: str
    url: str
    fetch: str
    large: str
    empty: str
    missing: str


_IMAGE: Final = _Codes(
    "image",
    MAX_IMAGE_BYTES,
    "invalid_base64_image",
    "invalid_image_url",
    "failed_to_download_image",
    "image_too_large",
    "empty_image_file",
    "image_file_not_found",
)
_FILE: Final = _Codes(
    "file",
    MAX_FILE_BYTES,
    "invalid_file_data",
    "invalid_file_url",
    "failed_to_download_file",
    "file_too_large",
    "empty_file",
    "file_not_found",
)
_AUDIO: Final = _Codes(
    "sound",
    MAX_IMAGE_BYTES,
    "invalid_base64_audio",
    "invalid_audio_url",
    "failed_to_download_audio",
    "audio_too_large",
    "empty_audio",
    "audio_not_found",
)


class _Kept:
    """What was brought in or read, the least recently used dropped first when it is more than the bound.

    `seconds` is how long it is kept at most, however often it is used.
    """

    def __init__(self, most: int, seconds: float = math.inf) -> None:
        self._most = most
        self._seconds = seconds
        self._size = 0
        self._found: OrderedDict[tuple[str, ...], tuple[float, bytes | str]] = OrderedDict()

    def get(self, key: tuple[str, ...]) -> bytes | str | None:
        """What is kept under the key."""
        found = self._found.get(key)
        if found is None:
            return None
        if time.monotonic() >= found[0] + self._seconds:
            self._drop(key)
            return None
        self._found.move_to_end(key)
        return found[1]

    def put(self, key: tuple[str, ...], value: bytes | str) -> None:
        """Keep it, if it is within the bound at all."""
        self._drop(key)
        if _size(key, value) > self._most:
            return
        self._size += _size(key, value)
        self._found[key] = time.monotonic(), value
        while self._size > self._most:
            self._drop(next(iter(self._found)))

    def _drop(self, key: tuple[str, ...]) -> None:
        found = self._found.pop(key, None)
        if found is not None:
            self._size -= _size(key, found[1])


class _Asked(Struct):
    """A request whose media are brought in, and the bytes that are left for them.

    `fetched` says that its engine brings the images itself that a URL names, and `native` that it is given outputs of
    tools as they are.
    """

    scope: Scope
    items: Sequence[Item]
    left: int
    fetched: bool
    native: bool

    def take(self, size: int) -> None:
        """Count bytes that were brought in.

        Raises:
            InvalidRequestError: they are more than is left.
        """
        self.left -= size
        if self.left < 0:
            raise InvalidRequestError(
                f"The images, sounds and files of a conversation may have {MAX_TOTAL_BYTES} bytes together. "
                "Send fewer, or smaller ones.",
                code="request_too_large",
            )


class Media:
    """Puts the data of media into the messages of a history; one a server."""

    def __init__(
        self,
        settings: Settings,
        store: Store | None,
        *,
        reader: DocumentReader | None = None,
        client: OutboundClient | None = None,
    ) -> None:
        self._settings = settings
        self._files = Files(store, settings)
        self._reader = reader or DocumentReader()
        self._client = client or OutboundClient(settings.allow_outbound)
        self._fetched = _Kept(MAX_KEPT_BYTES, KEPT_SECONDS)
        self._read = _Kept(MAX_KEPT_BYTES)
        self._room = MediaRoom(MAX_HELD_BYTES)

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()

    async def resolve(
        self,
        scope: Scope,
        parts: Sequence[Conversation],
        items: Sequence[Item],
        *,
        fetched: bool = False,
        native: bool = False,
    ) -> list[Conversation]:
        """The parts of a history with data in the place of URLs and files; `items` are those of the request.

        Images that are `fetched` by who is given them stay URLs, unless the operator has named places beside the public
        internet: those are for this server to reach. Where outputs of tools are `native`, what they show is left as it
        is.

        Raises:
            InvalidRequestError: one of the media cannot be had, is too large, or is not what it says; `param` is its
                place in the request, where it is there.
            ServerBusyError: all requests together hold as much as they may.
            UnavailableError: what reads files cannot be started.
        """
        count = sum(_media_in(part) for part in parts if part.media)
        if not count:
            return list(parts)
        if count > MAX_MEDIA:
            raise InvalidRequestError(
                f"Invalid 'input': at most {MAX_MEDIA} images, sounds and files can be read for one response, but "
                f"with those of the conversation there are {count}.",
                param="input",
                code="array_above_max_length",
            )
        try:
            async with asyncio.timeout(TOTAL_SECONDS):
                asked = _Asked(scope, items, MAX_TOTAL_BYTES, fetched and not self._settings.allow_outbound, native)
                return [await self._conversation(asked, part) if part.media else part for part in parts]
        except TimeoutError:
            raise InvalidRequestError(
                "The images and files of the request could not be read in time. Send fewer, or their data.",
                param="input",
                code="failed_to_download_file",
            ) from None

    async def _conversation(self, asked: _Asked, part: Conversation) -> Conversation:
        messages = [await self._message(asked, message) for message in part.messages]
        turn = part.open_turn
        if turn.images:
            images = tuple([await self._placed(asked, image) for image in turn.images])
            turn = replace(turn, images=images)
        return replace(part, messages=tuple(messages), open_turn=turn, media=part.media - {"file"})

    async def _message(self, asked: _Asked, message: ChatMessage) -> ChatMessage:
        if isinstance(message.content, str) or (asked.native and message.role == "user" and message.items):
            return message
        found = [await self._placed(asked, part) for part in message.content]
        if all(part["type"] == "text" for part in found):
            return replace(message, content="\n".join(part["text"] for part in found))
        return replace(message, content=found)

    async def _placed(self, asked: _Asked, part: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return await self._part(asked, part)
        except InvalidRequestError as error:
            error.param = place_of(asked.items, lambda sent: _same(sent, part))
            raise

    async def _part(self, asked: _Asked, part: Mapping[str, Any]) -> Mapping[str, Any]:
        kind = part.get("type")
        if kind == "image_url":
            return await self._image(asked, part["image_url"])
        if kind == "file":
            return await self._document(asked, part["file"])
        if kind == "input_audio":
            return await self._sound(asked, part["input_audio"])
        return part

    async def _image(self, asked: _Asked, named: str | Mapping[str, Any]) -> Mapping[str, Any]:
        fields = {"url": named} if isinstance(named, str) else named
        url = fields.get("url")
        if asked.fetched and isinstance(url, str) and url and not _is_data(url):
            with _refused(_IMAGE):
                self._client.check(url)
            return {"type": "image_url", "image_url": _shown(url, fields)}
        data, _ = await self._data(asked.scope, fields.get("url"), fields.get("file_id"), _IMAGE)
        asked.take(len(data))
        with self._room.taken(len(data)):
            digest = await asyncio.to_thread(_digest, data)
            form = self._read.get(("image", digest))
            if form is None:
                form = await self._reader.image(data, self._settings.max_image_pixels, asked.scope.tenant)
                self._read.put(("image", digest), form)
            url = await asyncio.to_thread(encoded, f"data:image/{cast('str', form)};base64,", data)
        return {"type": "image_url", "image_url": self._room.hold(_shown(url, fields), len(url))}

    async def _document(self, asked: _Asked, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        source = fields.get("file_data") or fields.get("file_url")
        data, own = await self._data(asked.scope, source, fields.get("file_id"), _FILE, plain="file_data" in fields)
        asked.take(len(data))
        name = str(fields.get("filename") or own)
        with self._room.taken(len(data)):
            key = ("text", name, await asyncio.to_thread(_digest, data))
            text = self._read.get(key)
            if text is None:
                most = self._settings.max_document_characters
                text = await self._reader.text(data, name, most, asked.scope.tenant)
                self._read.put(key, text)
        return {"type": "text", "text": f"File: {name}\n\n{cast('str', text)}"}

    async def _sound(self, asked: _Asked, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        form, data = fields.get("format"), fields.get("data")
        if form not in _SOUNDS:
            raise InvalidRequestError("Invalid 'input_audio': 'format' must be wav or mp3.", code="invalid_value")
        if not isinstance(data, str):
            raise InvalidRequestError("An input_audio needs 'data' in base64.", code="missing_required_parameter")
        found = await asyncio.to_thread(_decoded, data, _AUDIO)
        asked.take(len(found))
        # It is valid by now, and goes on as it came.
        held = self._room.hold({"data": data, "format": form}, len(data))
        return {"type": "input_audio", "input_audio": held}

    async def _data(
        self, scope: Scope, source: object, file_id: object, codes: _Codes, *, plain: bool = False
    ) -> tuple[bytes, str]:
        """The bytes, and the name that they have of their own; `plain` says that base64 may come without a head."""
        if isinstance(source, str) and source:
            if _is_data(source):
                return await asyncio.to_thread(_decoded_uri, source, codes), codes.name
            if plain:
                return await asyncio.to_thread(_decoded, source, codes), codes.name
            return await self._fetch(scope, source, codes), source.rsplit("?", 1)[0].rsplit("/", 1)[-1] or codes.name
        if isinstance(file_id, str) and file_id:
            try:
                size = (await self._files.retrieve(scope, file_id)).bytes
                if size > codes.most:
                    raise _too_large(codes)
                with self._room.taken(size):
                    file = await self._files.content(scope, file_id, codes.most)
            except NotFoundError as error:
                raise InvalidRequestError(error.message, code=codes.missing) from None
            return file.data, file.filename
        raise InvalidRequestError(f"The {codes.name} names neither data nor a URL nor a file.", code="invalid_value")

    async def _fetch(self, scope: Scope, url: str, codes: _Codes) -> bytes:
        key = (scope.tenant, codes.name, url)
        found = self._fetched.get(key)
        if found is not None:
            return cast("bytes", found)
        try:
            with _refused(codes):
                answer = await self._client.request(
                    "GET", url, seconds=FETCH_SECONDS, max_bytes=codes.most, redirects=REDIRECTS
                )
        except OutboundError as error:
            raise InvalidRequestError(
                f"The {codes.name} could not be downloaded: {error} Send its data instead.", code=codes.fetch
            ) from None
        if not 200 <= answer.status < 300:
            raise InvalidRequestError(
                f"The {codes.name} could not be downloaded: the other side answered {answer.status}.", code=codes.fetch
            )
        if not answer.body:
            raise InvalidRequestError(f"The {codes.name} is empty.", code=codes.empty)
        self._fetched.put(key, answer.body)
        return answer.body


def _size(key: tuple[str, ...], value: bytes | str) -> int:
    return len(value) + sum(map(len, key)) + ENTRY_BYTES


def _media_in(part: Conversation) -> int:
    messages = sum(
        each["type"] != "text"
        for message in part.messages
        if not isinstance(message.content, str)
        for each in message.content
    )
    return messages + len(part.open_turn.images)


def _is_data(source: str) -> bool:
    return source[:5].lower() == "data:"


def _shown(url: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"url": url, "detail": fields["detail"]} if fields.get("detail") else {"url": url}


@contextmanager
def _refused(codes: _Codes) -> Generator[None]:
    """Tell of a URL that may not be asked."""
    try:
        yield
    except OutboundRefusedError as error:
        raise InvalidRequestError(f"The URL of the {codes.name} cannot be used: {error}", code=codes.url) from None


def _too_large(codes: _Codes) -> InvalidRequestError:
    return InvalidRequestError(f"The {codes.name} has more than {codes.most} bytes.", code=codes.large)


def _decoded_uri(uri: str, codes: _Codes) -> bytes:
    comma = uri.find(",")
    if comma < 0 or _DATA_HEAD.fullmatch(uri, 0, comma) is None:
        raise InvalidRequestError(
            f"The data URI of the {codes.name} must read 'data:<type>;base64,<data>'.", code=codes.base64
        )
    return _decoded(uri, codes, comma + 1)


def _decoded(text: str, codes: _Codes, first: int = 0) -> bytes:
    if len(text) - first > -(-codes.most // 3) * 4:
        raise _too_large(codes)
    try:
        data = decoded(text, first)
    except ValueError:
        raise InvalidRequestError(f"The data of the {codes.name} is no valid base64.", code=codes.base64) from None
    if not data:
        raise InvalidRequestError(f"The {codes.name} is empty.", code=codes.empty)
    return data


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _same(sent: ContentPart, part: Mapping[str, Any]) -> bool:
    kind = part.get("type")
    if kind == "input_audio":
        return isinstance(sent, InputAudio) and sent.input_audio == part["input_audio"]
    if kind == "image_url":
        named = part["image_url"]
        if isinstance(sent, ImageUrlPart):
            return sent.image_url == named
        return isinstance(sent, InputImage) and (sent.image_url or sent.file_id) in (
            named.get("url"),
            named.get("file_id"),
        )
    return isinstance(sent, InputFile) and all(
        getattr(sent, name, None) == value for name, value in part["file"].items()
    )
