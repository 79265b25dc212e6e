"""Requirements of vector stores and document stores over HTTP."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["VECTOR_STORES"]

R = Requirement

VECTOR_STORES: tuple[Requirement, ...] = (
    R(
        "vector-stores:life",
        "hosted-tools A3",
        "A vector store is made, read, listed page by page, changed and deleted, with the fields of OpenAI's object.",
    ),
    R(
        "vector-stores:expiry",
        "hosted-tools A3 `expires_after`",
        "A vector store expires so many days after it was last used, and a null ends that.",
    ),
    R(
        "vector-stores:files",
        "hosted-tools A3",
        "An uploaded file that is put into a vector store is ingested in the background, listed by status, read as text, given other attributes, and taken out again, while the upload stays.",
    ),
    R(
        "vector-stores:poll",
        "hosted-tools A3 `openai-poll-after-ms`",
        "A file or batch that is being ingested says when to look again.",
    ),
    R(
        "vector-stores:batches",
        "hosted-tools A3 file batches",
        "Files come in batches, with what holds for all or each with its own, and a batch that is cancelled ingests no more.",
    ),
    R(
        "vector-stores:search",
        "hosted-tools A3 search",
        "A search takes one query or several, filters and options of ranking, and gives the best passages with their files.",
    ),
    R("vector-stores:bounds", "hosted-tools A3", "Fields of a wrong type or out of range are a 400 that names them."),
    R(
        "vector-stores:missing",
        "faults B2 18",
        "Vector stores, files and batches that are missing, malformed or another tenant's are one 404.",
    ),
    R("vector-stores:limits", "faults B1", "A tenant has so many vector stores and files in one, and no more."),
    R(
        "vector-stores:off",
        "issue 2, persistence",
        "Without persistence there are no vector stores, and the error says so.",
    ),
    R(
        "vector-stores:sdk",
        "issue 6 section 3",
        "The official `openai` package makes, fills, polls and searches vector stores.",
    ),
    R(
        "stores:life",
        "hosted-search 3.5",
        "A document store is the same row as a vector store, named by its id or by a name that nobody else has.",
    ),
    R(
        "stores:files",
        "hosted-search 3.5",
        "A file of a store goes by its id or its owner's name for it, with metadata, chunks on demand, and lists by status and metadata.",
    ),
    R(
        "stores:search",
        "hosted-search 3.5",
        "Search, search by pattern, lists of chunks and facets go over several stores, with filters and sets of files.",
    ),
    R(
        "stores:beyond",
        "hosted-search 3.5",
        "Agentic search and question answering are a 400 that says which request does that here.",
    ),
    R(
        "stores:agentic",
        "hosted-search B29",
        "A search of stores in several rounds.",
        deferred="A response with `search_corpus` searches in rounds; a search of stores is one round, and says so.",
    ),
    R(
        "stores:question-answering",
        "hosted-search 3.5",
        "Questions are answered over stores by a route of their own.",
        deferred="A response with `search_corpus` does that, with citations, on the model that the request names.",
    ),
    R(
        "stores:copy",
        "hosted-search 3.5",
        "A store is copied.",
        deferred="Its files are uploads that another store can take in as well.",
    ),
    R(
        "stores:hostile",
        "faults B3 17, 25, 30",
        "No value in a body, an id, a query or a tool's arguments is a fault of the server, or learns of its inside.",
    ),
    R("stores:sdk", "issue 6 section 3", "The `mixedbread` package works on document stores."),
)
"""All of them."""
