"""Behaviours of the tools over documents."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["CORPUS_TOOLS"]

R = Requirement

CORPUS_TOOLS: tuple[Requirement, ...] = (
    R(
        "corpus-tools:file-search",
        "hosted-tools A1, issue 6 section 2",
        "`file_search` is told to the model as one function of `queries`, searches every vector store of every entry, and gives what OpenAI's items hold.",
    ),
    R(
        "corpus-tools:search",
        "hosted-search 3.1 `search_corpus`",
        "`search_corpus` gives passages with their ids, scores of four decimals and the metadata of their documents.",
    ),
    R(
        "corpus-tools:note",
        "issue 6, part 3",
        "What a search did without, such as vectors, is told in its item, to the model, and by every route of search.",
    ),
    R("corpus-tools:grep", "hosted-search 3.1 `grep`", "`grep` gives the windows around the matches of a pattern."),
    R(
        "corpus-tools:filter-chunks",
        "hosted-search 3.1 `filter_chunks`",
        "`filter_chunks` lists passages by metadata, and says so where it cannot rank by a field.",
    ),
    R(
        "corpus-tools:inspect-metadata",
        "hosted-search 3.1 `inspect_metadata`",
        "`inspect_metadata` tells the fields of the metadata, their frequent values, and which can be ranked by.",
    ),
    R(
        "corpus-tools:get-chunks",
        "hosted-search 3.1 `get_chunks`",
        "`get_chunks` reads at most 20 passages by their ids, and each id that is not there has an error of its own.",
    ),
    R("corpus-tools:list-stores", "hosted-search 3.1 `list_stores`", "`list_stores` lists the stores page by page."),
    R(
        "corpus-tools:aliases",
        "hosted-search 3.1, deprecated names",
        "The older names of corpus tools work, and their items have those names.",
    ),
    R(
        "corpus-tools:entries",
        "hosted-search 3.1, B12",
        "A field of a tool that is of a wrong type or out of range is a 400 that names it.",
    ),
    R(
        "corpus-tools:scope",
        "hosted-search B10",
        "All corpus tools have one scope; without one `list_stores` is required, and each call names its store.",
    ),
    R(
        "corpus-tools:filters",
        "hosted-search B11",
        "Filters and thresholds of an entry hold in every call; the model neither sees nor lifts them.",
    ),
    R(
        "corpus-tools:unknown-store",
        "hosted-search B10; issue 6 section 2",
        "A store that is not there, or another tenant's, gives a failed item with an error, not a refused request.",
    ),
    R(
        "corpus-tools:arguments",
        "hosted-search B3",
        "Arguments that cannot be used give a failed item that says what is wrong.",
    ),
    R(
        "corpus-tools:seen",
        "hosted-search 3.1 `seen`",
        "A passage that the run has given already is referred to, or left out by a search, and not given again.",
    ),
    R(
        "corpus-tools:citations",
        "hosted-search B15",
        "Results of tools that cite have numbers, the same for the same passage, which stand for its citation over a chain.",
    ),
    R(
        "corpus-tools:payload",
        "hosted-search 3.3",
        "The texts of results are cut so that all fit into what the model may be given, each with a fair share.",
    ),
    R("corpus-tools:forced", "hosted-search B7", "`get_chunks` cannot be forced."),
    R(
        "corpus-tools:prune",
        "hosted-search B14",
        "`prune_context` is a tool of its own where the request declares that edit, and nothing else.",
    ),
)
"""All of them."""
