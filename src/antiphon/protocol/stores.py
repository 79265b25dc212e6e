"""Document stores on the wire, as Mixedbread's clients know them (hosted-search 3.5): the same rows as vector stores.

A store is named by its id or its name, a file by its id or the name that its owner gave it (`external_id`). Times are
ISO 8601 in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from antiphon.errors import InvalidRequestError, UnsupportedError
from antiphon.protocol.depth import check_value
from antiphon.protocol.json import decode_body, encode

__all__ = [
    "FILE_KEY",
    "ChangeStore",
    "CreateStore",
    "FacetsRequest",
    "GrepRequest",
    "ListChunksRequest",
    "ListFilesRequest",
    "NewStoreDocument",
    "SearchOptions",
    "SearchRequest",
    "StoreExpiry",
    "decode_change",
    "decode_chunks",
    "decode_create",
    "decode_document",
    "decode_facets",
    "decode_grep",
    "decode_listing",
    "decode_metadata",
    "decode_search_stores",
    "refuse_questions",
    "trees",
    "when",
]

_INSTEAD: Final = "POST /v1/responses with the tool 'search_corpus' searches in several rounds and answers"

FILE_KEY: Final = "__file_id"
"""The key by which filters name a file's id."""

MAX_METADATA_BYTES: Final = 16 * 1024
_Name = Annotated[str, Meta(pattern=r"^[a-z0-9.-]{1,128}\Z")]
_Identifiers = Annotated[list[Annotated[str, Meta(min_length=1, max_length=256)]], Meta(min_length=1, max_length=16)]
_TopK = Annotated[int, Meta(ge=1, le=100)]
_Text = Annotated[str, Meta(max_length=4_096)]
Trees = dict[str, Any] | list[dict[str, Any]] | None


class StoreExpiry(Struct):
    """When a store expires: so many days after it was last used."""

    anchor: Literal["last_active_at"] = "last_active_at"
    days: Annotated[int, Meta(ge=1, le=365)] | None = None


class CreateStore(Struct):
    """The body of `POST /stores`."""

    name: _Name | None = None
    description: Annotated[str, Meta(max_length=1024)] | None = None
    is_public: bool | None = None
    expires_after: StoreExpiry | None = None
    metadata: dict[str, Any] | None = None
    config: dict[str, Any] | None = None
    file_ids: Annotated[list[str], Meta(max_length=500)] | None = None


class ChangeStore(Struct):
    """The body of `PUT /stores/{identifier}`; what is absent stays."""

    name: _Name | None = None
    description: Annotated[str, Meta(max_length=1024)] | None | UnsetType = UNSET
    is_public: bool | None = None
    expires_after: StoreExpiry | None | UnsetType = UNSET
    metadata: dict[str, Any] | None | UnsetType = UNSET


class NewStoreDocument(Struct):
    """The body of `POST /stores/{identifier}/files`."""

    file_id: Annotated[str, Meta(min_length=1, max_length=128)]
    metadata: dict[str, Any] | None = None
    external_id: Annotated[str, Meta(min_length=1, max_length=512)] | None = None
    overwrite: bool | None = None
    config: dict[str, Any] | None = None


class ListFilesRequest(Struct):
    """The body of `POST /stores/{identifier}/files/list`."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    after: str | None = None
    before: str | None = None
    include_total: bool | None = None
    statuses: list[Literal["pending", "in_progress", "cancelled", "completed", "failed"]] | None = None
    metadata_filter: Trees = None
    q: _Text | None = None


class SearchOptions(Struct):
    """`search_options`: nothing rewrites queries here."""

    score_threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    rerank: bool | dict[str, Any] | None = None
    return_metadata: bool | None = None
    agentic: bool | dict[str, Any] | None = None


class _Scoped(Struct):
    store_identifiers: _Identifiers
    top_k: _TopK | None = None
    filters: Trees = None
    file_ids: list[Any] | None = None
    search_options: SearchOptions | None = None


class _TextQuery(Struct):
    text: Annotated[str, Meta(min_length=1, max_length=4_096)]


class SearchRequest(_Scoped, kw_only=True):
    """The body of `POST /stores/search`."""

    query: Annotated[str, Meta(min_length=1, max_length=4_096)] | _TextQuery

    @property
    def text(self) -> str:
        """What is searched for."""
        return self.query if isinstance(self.query, str) else self.query.text


class GrepRequest(_Scoped, kw_only=True):
    """The body of `POST /stores/grep`."""

    pattern: Annotated[str, Meta(min_length=1, max_length=1_024)]
    targets: list[Literal["text", "generated"]] | None = None
    case_sensitive: bool | None = None
    return_metadata: bool | None = None


class ListChunksRequest(_Scoped, kw_only=True):
    """The body of `POST /stores/list-chunks`; `sort_by` is a field of the metadata, or that and whether it ascends."""

    sort_by: str | tuple[str, bool] | None = None


class FacetsRequest(_Scoped, kw_only=True):
    """The body of `POST /stores/metadata-facets`."""

    query: _Text | None = None
    facets: list[str] | None = None
    max_fields: Annotated[int, Meta(ge=1, le=64)] | None = None
    max_values_per_field: Annotated[int, Meta(ge=1, le=32)] | None = None
    max_files: Annotated[int, Meta(ge=1, le=10_000)] | None = None


class _NewMetadata(Struct):
    metadata: dict[str, Any] | None = None


_create = msgspec.json.Decoder(CreateStore)
_change = msgspec.json.Decoder(ChangeStore)
_document = msgspec.json.Decoder(NewStoreDocument)
_listing = msgspec.json.Decoder(ListFilesRequest)
_search = msgspec.json.Decoder(SearchRequest)
_grep = msgspec.json.Decoder(GrepRequest)
_chunks = msgspec.json.Decoder(ListChunksRequest)
_facets = msgspec.json.Decoder(FacetsRequest)
_metadata = msgspec.json.Decoder(_NewMetadata)


def decode_create(data: bytes) -> CreateStore:
    """A new store; an empty body is one of defaults. Raises InvalidRequestError as all of these."""
    body = decode_body(_create, data or b"{}")
    _check_metadata(body.metadata)
    _check_metadata(body.config, "config")
    if body.config is not None and body.config.get("save_content") is False:
        # A promise that is not kept is worse than none: what is searched and shown is the text itself.
        raise UnsupportedError(
            "'config.save_content' cannot be false: the text of documents is kept, since searches show it.",
            param="config.save_content",
        )
    if body.is_public:
        raise _not_public()
    return body


def decode_change(data: bytes) -> ChangeStore:
    """A change of a store. Raises InvalidRequestError where a field cannot be used."""
    body = decode_body(_change, data)
    if body.metadata is not UNSET:
        _check_metadata(body.metadata)
    if body.is_public:
        raise _not_public()
    return body


def decode_document(data: bytes) -> NewStoreDocument:
    """A file for a store. Raises InvalidRequestError where a field cannot be used."""
    body = decode_body(_document, data)
    _check_metadata(body.metadata)
    return body


def decode_metadata(data: bytes) -> dict[str, Any]:
    """The metadata that a file gets. Raises InvalidRequestError where it cannot be used."""
    metadata = decode_body(_metadata, data).metadata
    _check_metadata(metadata)
    return metadata or {}


def decode_listing(data: bytes) -> ListFilesRequest:
    """Which files are listed. Raises InvalidRequestError where a field cannot be used."""
    return decode_body(_listing, data or b"{}")


def decode_search_stores(data: bytes) -> SearchRequest:
    """A search. Raises InvalidRequestError where a field cannot be used."""
    body = decode_body(_search, data)
    options = body.search_options
    if options is not None and options.agentic not in (None, False):
        raise UnsupportedError(
            f"'search_options.agentic' is not supported: {_INSTEAD}.", param="search_options.agentic"
        )
    return body


def refuse_questions() -> UnsupportedError:
    """Why no question is answered over stores without a response."""
    return UnsupportedError(f"Question answering over stores is not supported: {_INSTEAD}.")


def decode_grep(data: bytes) -> GrepRequest:
    """A search for a pattern. Raises InvalidRequestError where a field cannot be used."""
    return decode_body(_grep, data)


def decode_chunks(data: bytes) -> ListChunksRequest:
    """A listing of chunks. Raises InvalidRequestError where a field cannot be used."""
    return decode_body(_chunks, data)


def decode_facets(data: bytes) -> FacetsRequest:
    """Which metadata there is. Raises InvalidRequestError where a field cannot be used."""
    body = decode_body(_facets, data)
    if body.query:
        raise UnsupportedError("'query' is not supported here: facets go by 'filters' and 'file_ids'.", param="query")
    return body


def trees(filters: Trees, file_ids: Sequence[Any] | None = None) -> list[Mapping[str, Any]]:
    """Filters as a list of trees that must all hold; `file_ids` are ids, or whether they are wanted and then the ids.

    Raises:
        InvalidRequestError: `file_ids` is neither.
    """
    found: list[Mapping[str, Any]] = []
    if isinstance(filters, list):
        found += filters
    elif filters is not None:
        found.append(filters)
    if file_ids is not None:
        found.append(_of_files(file_ids))
    return found


def when(seconds: int) -> str:
    """A time in seconds since the epoch, as these clients read it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _of_files(given: Sequence[Any]) -> Mapping[str, Any]:
    operator, ids = "in", given
    if len(given) == 2 and given[0] in ("in", "not_in") and isinstance(given[1], list):
        operator, ids = str(given[0]), cast("list[Any]", given[1])
    if not all(isinstance(identity, str) for identity in ids):
        raise InvalidRequestError(
            "Invalid 'file_ids': ids of files are expected, or 'in' or 'not_in' and a list of them.",
            param="file_ids",
            code="invalid_value",
        )
    return {"key": FILE_KEY, "operator": operator, "value": list(ids)}


def _check_metadata(metadata: Mapping[str, Any] | None, path: str = "metadata") -> None:
    check_value(metadata, path)
    if metadata and len(encode(metadata)) > MAX_METADATA_BYTES:
        raise InvalidRequestError(
            f"Invalid '{path}': at most {MAX_METADATA_BYTES} bytes of JSON are kept.", param=path, code="invalid_value"
        )


def _not_public() -> InvalidRequestError:
    return InvalidRequestError(
        "Invalid 'is_public': stores are seen by their owner only.", param="is_public", code="unsupported_value"
    )
