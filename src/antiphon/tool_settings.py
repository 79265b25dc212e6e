"""The settings of hosted tools and of the documents behind them: a part of `Settings`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

__all__ = ["McpServerConfig", "ToolSettings"]

Doc = Meta


class McpServerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """An `[[mcp_servers]]` table of the configuration file: a server that requests name by its `label`.

    It is a program, `command` with `args`, that is spoken to over its standard input and output, or the server at
    `url`. `env` names, for each variable of the program, the variable of this server's environment that has its value,
    and `headers` does so for each header; no secret stands here. `allowed_tools` are all that it may be asked for,
    whatever a request says. `require_approval`, always or never, is what holds where a request does not say.
    `timeout` are the seconds that a call may take. `transport` is streamable HTTP, or the older SSE.
    """

    label: Annotated[str, Meta(min_length=1, max_length=64)]
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    url: str | None = None
    headers: dict[str, str] = {}
    allowed_tools: tuple[str, ...] | None = None
    require_approval: Annotated[str, Meta(pattern="^(always|never)$")] = "always"
    timeout: Annotated[float, Meta(gt=0)] = 60.0
    transport: Annotated[str, Meta(pattern="^(http|sse)$")] = "http"


class ToolSettings(Struct, frozen=True, kw_only=True):
    """What is set of hosted tools."""

    max_vector_stores: Annotated[int, Doc(description="Most vector stores of one tenant.", ge=0)] = 1_000
    max_vector_store_files: Annotated[int, Doc(description="Most files in one vector store.", ge=0)] = 10_000
    ingestion_workers: Annotated[
        int, Doc(description="Files that are read into vector stores at once; 0 leaves them to other servers.", ge=0)
    ] = 2
    document_embedding: Annotated[
        str,
        Doc(
            description="What makes the vectors of documents: 'all-minilm-l6-v2', an embedding model that is served "
            "here, the URL of an upstream up to its /v1, or 'none'."
        ),
    ] = "all-minilm-l6-v2"
    document_embedding_model: Annotated[
        str | None, Doc(description="The name of the embedding model at the upstream of --document-embedding.")
    ] = None
    document_embedding_key_env: Annotated[
        str | None, Doc(description="The variable with the key of the upstream of --document-embedding.")
    ] = None
    reranker: Annotated[
        str | None,
        Doc(
            description="What puts results in order: the URL, up to its /v1, of an upstream with /rerank, or a model "
            "that is served here."
        ),
    ] = None
    reranker_model: Annotated[str | None, Doc(description="The name of the model at the reranker.")] = None
    reranker_key_env: Annotated[str | None, Doc(description="The variable with the key of the reranker.")] = None
    max_vector_bytes: Annotated[
        int, Doc(description="Most bytes of vectors of documents that are kept in memory.", ge=2**20)
    ] = 536_870_912
    mcp_servers: Annotated[
        tuple[McpServerConfig, ...],
        Doc(description="MCP servers of the configuration file, as [[mcp_servers]] tables; see docs/guide/mcp.md."),
    ] = ()
    mcp_configured_only: Annotated[
        bool, Doc(description="Ask only MCP servers of the configuration file, and none that a request names by URL.")
    ] = False
    web_search: Annotated[
        str,
        Doc(
            description="Where the tool web_search asks: 'searxng', 'brave' or 'tavily'; 'none' lets its calls fail.",
            pattern="^(none|searxng|brave|tavily)$",
        ),
    ] = "none"
    web_search_url: Annotated[
        str | None, Doc(description="URL of the SearXNG instance, or of another place that answers like the service.")
    ] = None
    web_search_key: Annotated[
        str | None, Doc(description="Key of the search service; better given in the environment than as a flag.")
    ] = None
    mcp_timeout: Annotated[
        float, Doc(description="Seconds that a call of a tool may take whose MCP server a request named.", gt=0)
    ] = 60.0
    sandbox: Annotated[
        str,
        Doc(
            description="What code of models runs in: 'bwrap' (bubblewrap), 'monty' (a small Python without files), "
            "'none', or 'auto' for the first of them that works here."
        ),
    ] = "auto"
    sandbox_python: Annotated[
        str | None, Doc(description="The Python that runs in bubblewrap; /usr/bin/python3 where it is there.")
    ] = None
    sandbox_memory: Annotated[int, Doc(description="Most bytes of memory of one container.", ge=1024)] = 1_073_741_824
    sandbox_disk: Annotated[int, Doc(description="Most bytes of the files of one container.", ge=1024)] = 268_435_456
    sandbox_processes: Annotated[int, Doc(description="Most processes of one container.", ge=4)] = 64
    sandbox_seconds: Annotated[
        float, Doc(description="Seconds that a cell of Python or a shell command may take.", gt=0)
    ] = 30.0
    max_sandboxes: Annotated[int, Doc(description="Most containers whose code is kept running.", ge=1)] = 8
    max_containers: Annotated[int, Doc(description="Most containers of one tenant.", ge=1)] = 32
