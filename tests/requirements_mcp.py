"""Requirements of MCP servers and of web search: what is asked of them, what of it is kept, and what they cannot do."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["MCP"]

R = Requirement

MCP: tuple[Requirement, ...] = (
    R(
        "mcp:secrets:echo",
        "hosted-tools A4",
        "A response echoes an MCP entry without `authorization`, `headers` and what follows the `?` of its URL.",
    ),
    R(
        "mcp:secrets:stored",
        "architecture, Secrets",
        "The credentials of a background response lie sealed beside its plan, and go with it at its end.",
    ),
    R(
        "mcp:secrets:sent",
        "hosted-tools A4",
        "Credentials go to their server, and out of what it says; they are in no log and in no text of an object.",
    ),
    R("mcp:secrets:items", "hosted-tools A4", "An item that adds an MCP entry with credentials is a 400."),
    R(
        "mcp:list",
        "hosted-tools A2",
        "Each server has one `mcp_list_tools` item before the model, with its tools or with the error.",
    ),
    R(
        "mcp:list:cache",
        "hosted-tools A4",
        "A list is kept for five minutes for a server and a credential, within bounds, unless the server takes it back.",
    ),
    R("mcp:list:inline", "hosted-tools A4", "A server whose list is in the input is not listed again."),
    R(
        "mcp:allowed",
        "hosted-tools A1",
        "`allowed_tools` takes names, or names and `read_only`, and nothing else is told.",
    ),
    R(
        "mcp:approval",
        "faults B3 39",
        "Calls need approval unless `require_approval` says never, for all tools or by name and `read_only`.",
    ),
    R(
        "mcp:approval:pinned",
        "faults B3 39",
        "An approval is of the tools as they were told: a description or a schema that changed is asked about again.",
    ),
    R(
        "mcp:call",
        "hosted-tools A1",
        "A call becomes an `mcp_call` with every field; one that only reads may run again.",
    ),
    R(
        "mcp:call:content",
        "issue 6, section 5",
        "Text, data, images, sound and resources become the text of `output`, within its bounds.",
    ),
    R("mcp:call:error", "hosted-tools A1", "The `error` of a call is that of the tool, of the protocol or of HTTP."),
    R("mcp:refused", "hosted-tools A1", "An entry that cannot be read is a 400 that names the field."),
    R(
        "mcp:configured",
        "faults B3 37",
        "Programs and servers of the operator are named by label; no request becomes a command line.",
    ),
    R("mcp:session", "hosted-tools A4", "A session that its server forgot is begun again; nothing else is sent twice."),
    R("mcp:program", "hosted-tools A4", "A program runs once for its tenant, has no variables but its own, and ends."),
    R(
        "mcp:program:hostile",
        "faults B3 36",
        "A program that dies, hangs, floods or babbles fails its call, and is begun anew.",
    ),
    R(
        "mcp:hostile:call",
        "faults B3 36",
        "A call of a server that misbehaves is a failed item, and the next one runs.",
    ),
    R(
        "mcp:hostile:list",
        "faults B3 36",
        "A list of a server that misbehaves has an error, and the next one is whole.",
    ),
    R(
        "mcp:hostile:bounds",
        "faults B3 36",
        "A result of 100 MB is cut off while it comes; 10,000 tools, endless pages and huge schemas are errors.",
    ),
    R("mcp:hostile:one", "faults B3 36", "A server or a call that hangs takes no other with it."),
    R("mcp:guard", "faults B2 17", "No URL or name of an address that is not public is asked; no packet leaves."),
    R("mcp:guard:plain", "issue 6, section 5", "Without https only what the operator has named is asked."),
    R("mcp:guard:redirects", "faults B3 40", "A redirect is followed within the origin, and nowhere else."),
    R(
        "mcp:guard:rebinding",
        "faults B2 17",
        "A name that changes its address between two requests is not asked again.",
    ),
    R(
        "mcp:real",
        "issue 6, must show 4",
        "Servers of the mcp package over streamable HTTP and SSE, and of the protocol of 2026, are listed and called.",
    ),
    R(
        "web:search",
        "issue 6, section 7",
        "SearXNG, Brave and Tavily are asked, and what they find is a `web_search_call` with numbered sources.",
    ),
    R(
        "web:domains",
        "hosted-tools A1",
        "Only pages of `allowed_domains` are given and opened, whatever an engine finds.",
    ),
    R(
        "web:bounds",
        "hosted-tools A1",
        "`search_context_size` bounds the results, and the payload of a call all of them.",
    ),
    R(
        "web:unconfigured",
        "issue 6, section 7",
        "Without an engine, or without access to the live web, a call is a failed item with the reason.",
    ),
    R(
        "web:fault",
        "issue 6, section 7",
        "An engine that fails is a failed item; one query that fails leaves the others.",
    ),
    R("web:refused", "hosted-tools A1", "An entry of `web_search` that cannot be read is a 400 that names the field."),
    R("web:page", "issue 6, section 7", "A page is opened as readable text, within bounds and the allowed domains."),
    R("web:guard", "faults B2 17", "No page is opened at an address that is not public; no packet leaves."),
    R("mcp:response", "hosted-tools A2", "Lists and calls stand in a stream as in OpenAI's, and a fault ends none."),
    R(
        "mcp:response:approval",
        "hosted-tools A2",
        "An approved call runs straight at the start of the next response: over chains, restarts and echoed items.",
    ),
    R("mcp:response:choice", "hosted-tools A1", "`tool_choice` forces a server, or one tool of it."),
    R("web:response", "hosted-tools A2", "A search stands in a stream as in OpenAI's, its action when it is done."),
    R(
        "mcp:guide",
        "issue 6, section 5",
        "The guide's configuration is read, its program runs, and its call is approved.",
    ),
    R(
        "mcp:defer",
        "hosted-tools A1",
        "With `defer_loading` the tools of a server wait for a search, where `tool_search` is declared.",
    ),
    R(
        "images:unavailable",
        "issue 6, section 7",
        "Where no upstream makes images, an `image_generation` call is a failed item with the reason.",
    ),
    R(
        "computer:returned",
        "issue 6, section 7",
        "A call of `computer` or `computer_use_preview` goes to the client, whose screenshot the model sees.",
    ),
    R(
        "mcp:lazy",
        "hosted-tools A4",
        "The library is imported when a server is first asked; without it a list says what to install.",
    ),
    R("web:cited", "issue 6, section 7", "What the model cites of a search by number is a `url_citation` of the text."),
    R("mcp:bounded", "issue 6, section 5", "Connections to MCP servers are bounded, for each tenant and for all."),
    R(
        "client:agents:mcp",
        "client-contract 4.3",
        "The Agents SDK runs hosted MCP tools, streamed and not, and its function decides on their calls.",
    ),
    R(
        "client:pydantic-ai:mcp",
        "client-contract 4.3",
        "pydantic-ai has an MCP server's tools run, and goes on with them.",
    ),
    R(
        "mcp:doctor",
        "operations C2",
        "`doctor` says of each configured MCP server how many tools it has, or what is wrong.",
    ),
    R(
        "mcp:parameters",
        "faults B3 36",
        "The model is told of a sound schema that can be met, whatever the server says; the list shows the server's own.",
    ),
    R(
        "mcp:room",
        "issue 6, section 5",
        "Tools of servers take at most half of the model's context; the list of a server beyond that is an error.",
    ),
)
