"""Requirements of ingestion: how documents become chunks, in what process, and what becomes of them in a crash."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["INGEST"]

R = Requirement

INGEST: tuple[Requirement, ...] = (
    R("ingest:chunks:whole", "issue 6, section 3", "Nothing of a document is lost in its chunks, nor its order."),
    R("ingest:chunks:sizes", "responses-api 1.3", "No chunk has more tokens, as they are estimated, than it may have."),
    R(
        "ingest:chunks:overlap",
        "responses-api 1.3",
        "An overlap is the longest end that is allowed, in whole words or rows.",
    ),
    R(
        "ingest:chunks:markdown",
        "hosted-search 3.5",
        "Markdown is cut at its headings, which are told as paths; fences, tables and lists are kept together.",
    ),
    R("ingest:chunks:code", "hosted-search 3.5", "Source code is cut at its definitions, and knows its lines."),
    R(
        "ingest:chunks:records",
        "issue 6, section 3",
        "Rows keep their header, and members of JSON the names over them.",
    ),
    R("ingest:bounded", "issue 6, Must show 6", "What a file takes to be cut goes by its size, not by its square."),
    R("ingest:chunks:pages", "hosted-search 3.5", "Chunks know their page, slide, or sheet and rows."),
    R("ingest:chunks:strategy", "responses-api 1.3", "`chunking_strategy` is auto, or static within OpenAI's limits."),
    R(
        "ingest:parse",
        "issue 6, section 3",
        "Each format is read in a process apart, and cut with what is known of places.",
    ),
    R(
        "ingest:parse:faults",
        "faults B2 15",
        "What cannot be read is `unsupported_file` or `invalid_file` and says what to do, whatever became of its process.",
    ),
    R("ingest:parse:pieces", "issue 6, section 3", "A big text goes through in pieces, no faster than they are taken."),
    R("ingest:formats", "issue 6, section 3", "A file's format goes by its name and its first bytes."),
    R("ingest:file", "issue 6, section 3", "A file that was added is cut, embedded and found, in the background."),
    R(
        "ingest:crash",
        "issue 6, must show 8",
        "What a dead server has begun is begun anew, with the same chunks, none twice.",
    ),
    R("ingest:attempts", "issue 6, section 3", "A file that takes its server down three times has failed."),
    R("ingest:stop", "issue 6, section 3", "A server that stops gives back what it has begun; that is no attempt."),
    R("ingest:cancel", "hosted-tools A3", "A batch that is cancelled stops in the middle of a file."),
    R("ingest:deleted", "responses-api 1.3", "A file that is deleted before it was read leaves nothing."),
    R(
        "ingest:vectors",
        "issue 6, section 3",
        "Where no embedding model can be had, words alone come in, and the log tells it.",
    ),
    R("ingest:idle", "issue 6, section 3", "Nothing is asked of the store while nothing waits."),
    R("ingest:faults", "faults B2 11", "A store that is away is waited for; one file keeps no other back."),
    R("ingest:tenants", "faults B3 28", "What the background writes is each tenant's own."),
    R(
        "ingest:command",
        "issue 6, section 3",
        "`antiphon corpus add` brings folders in and is idempotent; `list`, `remove` and `search` tell what is there.",
    ),
    R(
        "ingest:command:local",
        "issue 6, section 3",
        "Where no server runs, it works on the local store in a file itself.",
    ),
    R(
        "ingest:command:server",
        "issue 6, section 3",
        "It works over a server's API; a store that one holds is left to it.",
    ),
    R(
        "ingest:command:folder",
        "issue 6, section 3",
        "No link is followed; what is hidden, no document or too large is left out, and told with the reason.",
    ),
    R(
        "ingest:command:again",
        "issue 6, section 3",
        "A run that was broken off is gone on with, and what failed is tried again only where that can help.",
    ),
)
