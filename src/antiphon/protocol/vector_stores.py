"""Vector stores on the wire: bodies, objects and their bounds (hosted-tools A3, responses-api 1.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from antiphon.errors import InvalidRequestError
from antiphon.protocol.bounds import MAX_METADATA_ENTRIES, MAX_METADATA_KEY, MAX_METADATA_VALUE, too_long
from antiphon.protocol.json import decode_body

__all__ = [
    "MAX_BATCH",
    "ChangeVectorStore",
    "ChunkingStrategy",
    "CreateBatch",
    "CreateVectorStore",
    "DeletedVectorStore",
    "ExpiresAfter",
    "HybridWeights",
    "NewFile",
    "RankingOptions",
    "SearchVectorStore",
    "VectorStore",
    "VectorStoreBatch",
    "VectorStoreCounts",
    "VectorStoreFile",
    "check_attributes",
    "decode_batch",
    "decode_changed_store",
    "decode_new_attributes",
    "decode_new_file",
    "decode_new_store",
    "decode_search",
]

MAX_BATCH: Final = 2_000
"""Files of one batch, and of a vector store that is created with files."""

MAX_STORE_FILES: Final = 500
MAX_QUERIES: Final = 16

_Name = Annotated[str, Meta(max_length=256)]
_Query = Annotated[str, Meta(min_length=1, max_length=4_096)]
_FileId = Annotated[str, Meta(min_length=1, max_length=128)]
Attributes = dict[str, Any]


class ExpiresAfter(Struct):
    """When a vector store expires: so many days after it was last used."""

    anchor: Literal["last_active_at"]
    days: Annotated[int, Meta(ge=1, le=365)]


class StaticChunks(Struct):
    """The size of chunks, and how much of one the next repeats, in tokens."""

    max_chunk_size_tokens: Annotated[int, Meta(ge=100, le=4096)] = 800
    chunk_overlap_tokens: Annotated[int, Meta(ge=0, le=2048)] = 400


class ChunkingStrategy(Struct, omit_defaults=True):
    """`auto` goes by the structure of a document, `static` by sizes as well."""

    type: Literal["auto", "static"]
    static: StaticChunks | None = None


class CreateVectorStore(Struct):
    """The body of `POST /vector_stores`."""

    name: _Name | None = None
    description: Annotated[str, Meta(max_length=1024)] | None = None
    file_ids: Annotated[list[_FileId], Meta(max_length=MAX_STORE_FILES)] | None = None
    chunking_strategy: ChunkingStrategy | None = None
    expires_after: ExpiresAfter | None = None
    metadata: dict[str, str | None] | None = None


class ChangeVectorStore(Struct):
    """The body of `POST /vector_stores/{id}`; what is absent stays, and a null of `expires_after` ends that."""

    name: _Name | None | UnsetType = UNSET
    description: Annotated[str, Meta(max_length=1024)] | None | UnsetType = UNSET
    expires_after: ExpiresAfter | None | UnsetType = UNSET
    metadata: dict[str, str | None] | None | UnsetType = UNSET


class NewFile(Struct):
    """A file that is put into a vector store."""

    file_id: _FileId
    attributes: Attributes | None = None
    chunking_strategy: ChunkingStrategy | None = None


class CreateBatch(Struct):
    """The body of `POST /vector_stores/{id}/file_batches`: ids with what holds for all, or files each with its own."""

    file_ids: Annotated[list[_FileId], Meta(min_length=1, max_length=MAX_BATCH)] | None = None
    files: Annotated[list[NewFile], Meta(min_length=1, max_length=MAX_BATCH)] | None = None
    attributes: Attributes | None = None
    chunking_strategy: ChunkingStrategy | None = None


class HybridWeights(Struct):
    """The weights of reciprocal rank fusion."""

    embedding_weight: Annotated[float, Meta(ge=0, le=100)] = 1.0
    text_weight: Annotated[float, Meta(ge=0, le=100)] = 1.0


class RankingOptions(Struct):
    """How results are ranked: the ranker `none` asks no reranker."""

    ranker: str | None = None
    score_threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    hybrid_search: HybridWeights | None = None


class SearchVectorStore(Struct):
    """The body of `POST /vector_stores/{id}/search`; nothing rewrites queries here, so `rewrite_query` does nothing."""

    query: _Query | Annotated[list[_Query], Meta(min_length=1, max_length=MAX_QUERIES)]
    filters: dict[str, Any] | None = None
    max_num_results: Annotated[int, Meta(ge=1, le=50)] | None = None
    ranking_options: RankingOptions | None = None
    rewrite_query: bool | None = None

    @property
    def queries(self) -> list[str]:
        """The queries, one or several."""
        return [self.query] if isinstance(self.query, str) else self.query


class VectorStoreCounts(Struct):
    """The files of a vector store or a batch by status."""

    in_progress: int
    completed: int
    failed: int
    cancelled: int
    total: int


class VectorStore(Struct):
    """A vector store. Times in seconds since the epoch."""

    id: str
    created_at: int
    name: str | None
    description: str | None
    usage_bytes: int
    file_counts: VectorStoreCounts
    status: str
    expires_after: ExpiresAfter | None
    expires_at: int | None
    last_active_at: int
    metadata: dict[str, str]
    object: str = "vector_store"


class VectorStoreFile(Struct):
    """A file in a vector store."""

    id: str
    created_at: int
    vector_store_id: str
    status: str
    usage_bytes: int
    last_error: dict[str, str] | None
    attributes: Attributes
    chunking_strategy: dict[str, Any]
    object: str = "vector_store.file"


class VectorStoreBatch(Struct):
    """A batch of files."""

    id: str
    created_at: int
    vector_store_id: str
    status: str
    file_counts: VectorStoreCounts
    object: str = "vector_store.files_batch"


class DeletedVectorStore(Struct):
    """What a deletion answers: of a vector store, or of a file in one, which stays as an uploaded file."""

    id: str
    object: str = "vector_store.deleted"
    deleted: bool = True


class _Attributes(Struct):
    attributes: Attributes | None


_new_store = msgspec.json.Decoder(CreateVectorStore)
_changed_store = msgspec.json.Decoder(ChangeVectorStore)
_new_file = msgspec.json.Decoder(NewFile)
_batch = msgspec.json.Decoder(CreateBatch)
_search = msgspec.json.Decoder(SearchVectorStore)
_attributes = msgspec.json.Decoder(_Attributes)


def decode_new_store(data: bytes) -> CreateVectorStore:
    """A new vector store; an empty body is one of defaults.

    Raises:
        InvalidRequestError: a field has a wrong type or is out of range.
    """
    body = decode_body(_new_store, data or b"{}")
    check_chunking(body.chunking_strategy, "chunking_strategy")
    return body


def decode_changed_store(data: bytes) -> ChangeVectorStore:
    """A change of a vector store.

    Raises:
        InvalidRequestError: a field has a wrong type or is out of range.
    """
    return decode_body(_changed_store, data)


def decode_new_file(data: bytes) -> NewFile:
    """A file for a vector store.

    Raises:
        InvalidRequestError: a field has a wrong type or is out of range.
    """
    body = decode_body(_new_file, data)
    _check_file(body, "")
    return body


def decode_batch(data: bytes) -> list[NewFile]:
    """The files of a batch.

    Raises:
        InvalidRequestError: a field has a wrong type or is out of range, or not just one of the two lists is there.
    """
    body = decode_body(_batch, data)
    if (body.file_ids is None) == (body.files is None):
        raise InvalidRequestError(
            "Give either 'file_ids' or 'files'.", param="file_ids", code="missing_required_parameter"
        )
    if body.files is not None:
        for index, file in enumerate(body.files):
            _check_file(file, f"files[{index}].")
        return body.files
    check_attributes(body.attributes)
    check_chunking(body.chunking_strategy, "chunking_strategy")
    return [NewFile(identity, body.attributes, body.chunking_strategy) for identity in body.file_ids or ()]


def decode_new_attributes(data: bytes) -> Attributes:
    """The attributes that a file gets.

    Raises:
        InvalidRequestError: they are missing, too many, or one is too long or of a wrong type.
    """
    attributes = decode_body(_attributes, data).attributes
    check_attributes(attributes)
    return attributes or {}


def decode_search(data: bytes) -> SearchVectorStore:
    """A search.

    Raises:
        InvalidRequestError: a field has a wrong type or is out of range.
    """
    return decode_body(_search, data)


def check_attributes(attributes: Mapping[str, Any] | None, path: str = "attributes") -> None:
    """See that attributes are within their bounds: 16 of them, with values that are strings, numbers or booleans.

    Raises:
        InvalidRequestError: which one is not.
    """
    given = attributes or {}
    if len(given) > MAX_METADATA_ENTRIES:
        raise InvalidRequestError(
            f"Invalid '{path}': at most {MAX_METADATA_ENTRIES} entries are expected, but got {len(given)}.",
            param=path,
            code="object_above_max_properties",
        )
    for key, value in given.items():
        if len(key) > MAX_METADATA_KEY:
            raise too_long(path, MAX_METADATA_KEY, len(key))
        if not isinstance(value, str | int | float):
            raise InvalidRequestError(
                f"Invalid '{path}': the values of attributes are strings, numbers or booleans.",
                param=path,
                code="invalid_value",
            )
        if isinstance(value, str) and len(value) > MAX_METADATA_VALUE:
            raise too_long(path, MAX_METADATA_VALUE, len(value))


def check_chunking(strategy: ChunkingStrategy | None, path: str) -> None:
    """See that a chunk repeats at most half of the one before.

    Raises:
        InvalidRequestError: it does not, or `static` has no sizes.
    """
    if strategy is None or strategy.type == "auto":
        return
    sizes = strategy.static
    if sizes is None:
        raise InvalidRequestError(
            f"Missing required parameter: '{path}.static'.", param=f"{path}.static", code="missing_required_parameter"
        )
    if sizes.chunk_overlap_tokens * 2 > sizes.max_chunk_size_tokens:
        raise InvalidRequestError(
            f"Invalid '{path}.static.chunk_overlap_tokens': at most half of 'max_chunk_size_tokens' is expected.",
            param=f"{path}.static.chunk_overlap_tokens",
            code="invalid_value",
        )


def _check_file(file: NewFile, path: str) -> None:
    check_attributes(file.attributes, f"{path}attributes")
    check_chunking(file.chunking_strategy, f"{path}chunking_strategy")
