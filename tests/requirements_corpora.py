"""The behaviours of vector stores in the store."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["CORPUS_STORE"]

R = Requirement

CORPUS_STORE: tuple[Requirement, ...] = (
    R("corpus-store:stores", "issue 6, section 3", "A vector store is kept, found by id, changed and deleted."),
    R(
        "corpus-store:stores:names",
        "hosted-search 3.1",
        "A vector store is found by its name; the newest of a name is.",
    ),
    R("corpus-store:stores:list", "hosted-tools A3", "Vector stores are listed in pages, and by a part of their name."),
    R(
        "corpus-store:stores:limits",
        "faults B3",
        "A tenant has room for so many vector stores, and each of them for so many files.",
    ),
    R(
        "corpus-store:stores:expiry",
        "hosted-tools A3",
        "A vector store that was not used for its days is gone at once, and the sweep removes it.",
    ),
    R(
        "corpus-store:files",
        "issue 6, section 3",
        "Files come into a vector store and go, are counted by their status, and have attributes that can be changed.",
    ),
    R(
        "corpus-store:files:external",
        "hosted-search 3.5",
        "A file is found by its external id, and one with that of another replaces it.",
    ),
    R("corpus-store:files:list", "hosted-tools A3", "Files are listed in pages, by status and by batch."),
    R(
        "corpus-store:batches",
        "hosted-tools A3",
        "A batch counts its files by status; cancelled, those that were not ingested are cancelled.",
    ),
    R(
        "corpus-store:uploads",
        "issue 6, section 3",
        "An uploaded file that is deleted, or expires, is taken out of every vector store.",
    ),
    R("corpus-store:tenants", "faults B3", "A vector store of another tenant is the same as none, in every method."),
    R(
        "corpus-store:ingestion",
        "issue 6, section 3",
        "A file is claimed, gets its chunks in steps, and is found once it is completed.",
    ),
    R("corpus-store:ingestion:failed", "issue 6, section 3", "A file that failed has its error and no chunks."),
    R(
        "corpus-store:ingestion:claims",
        "architecture, law 4",
        "One owner at a time ingests a file; what a dead one held is claimed anew and counted, and old claims are "
        "refused.",
    ),
    R(
        "corpus-store:ingestion:anew",
        "issue 6, section 3",
        "A file that comes in again is ingested anew, and whatever takes a file away ends its claim.",
    ),
    R(
        "corpus-store:version",
        "issue 6, section 3",
        "The version of a vector store is raised by each change of what a search can find, and by nothing else.",
    ),
    R("corpus-store:text", "issue 6, section 3", "Chunks are found by stemmed words, the rarer the better (BM25)."),
    R(
        "corpus-store:text:words",
        "faults B3",
        "No word of a search is read as an operator, and their number is bounded.",
    ),
    R("corpus-store:text:files", "issue 6, section 4", "What is found can be held to some files."),
    R(
        "corpus-store:text:alone",
        "faults B3",
        "The scores of a search depend on nothing but the vector store that is searched.",
    ),
    R(
        "corpus-store:sealed",
        "issue 3, Encryption at rest",
        "In a sealed store the names, external ids, attributes, texts, vectors and errors of vector stores are sealed; "
        "what is found by a name is found by a tag.",
    ),
    R(
        "corpus-store:sealed:words",
        "issue 3, Encryption at rest",
        "The words of a sealed store are indexed in memory only, by version and within a bound.",
    ),
    R(
        "corpus-store:reports",
        "operations C3",
        "antiphon db status tells how many vector stores there are, and how many chunks are in them.",
    ),
    R(
        "corpus-store:sqlite:steps",
        "ADR 15",
        "SQLite removes a large vector store or file in steps between which others write, and the sweep goes on with "
        "what a process left.",
    ),
    R(
        "corpus-store:sqlite:words",
        "issue 6, section 3",
        "A SQLite without FTS5 is told of at the start: words are not searched, and a store that has an index of words "
        "is not opened.",
    ),
    R(
        "corpus-store:sqlite:whole",
        "architecture, law 4",
        "Rows, chunks and the index of words change together, and are there after the file is opened again.",
    ),
    R(
        "corpus-store:common",
        "ADR 15",
        "Words that very many chunks hold find none by themselves where rarer ones are asked for, and count in full.",
    ),
    R(
        "corpus-store:postgresql:owners",
        "architecture, law 4",
        "Several servers claim files of one database; what an owner of a server that is gone held is claimed anew.",
    ),
    R("corpus-store:model", "M41", "The vector stores of every store do the same, for any sequence of calls."),
    R(
        "corpus-store:pages",
        "issue 6, section 3",
        "Chunks and vectors are read in pages, in the order of their places.",
    ),
    R(
        "corpus-store:pgvector",
        "issue 6, section 3",
        "Where PostgreSQL has pgvector, vectors are searched in the database: the same chunks with the same scores, and "
        "the server keeps no vectors.",
    ),
    R(
        "corpus-store:pgvector:changes",
        "issue 6, section 3",
        "What is removed, or ingested again, is found there no more by any server, and its copy goes with it.",
    ),
    R(
        "corpus-store:pgvector:tenants",
        "faults B3",
        "A search by vectors in the database finds nothing of another vector store or another tenant.",
    ),
    R(
        "corpus-store:pgvector:comes-and-goes",
        "issue 6, section 3",
        "The extension may be missing, come later, be dropped, or not be allowed: then vectors are compared in the "
        "server.",
    ),
    R(
        "corpus-store:pgvector:sealed",
        "issue 3, Encryption at rest",
        "A sealed store never has its vectors searched in the database.",
    ),
    R(
        "corpus-store:pgvector:graph",
        "issue 6, section 3",
        "A large vector store is copied, and gets a graph (HNSW), in the background; a search held to some files compares "
        "all of theirs.",
    ),
)
