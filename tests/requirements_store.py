"""The behaviours of the stores."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["POSTGRESQL", "SCALE", "SHARED_STORES", "SQLITE", "STORE"]

R = Requirement

STORE: tuple[Requirement, ...] = (
    R(
        "store:choice",
        "issue 2, section 5",
        "SQLite in the data directory is the default store; `memory` and a path to a file are the other choices.",
    ),
    R(
        "store:limits",
        "M41",
        "The limits of entries, bytes and age are the same settings for every store; each has its own defaults.",
    ),
    R("store:entries:zero", "M41", "A limit of 0 entries turns persistence off."),
    R(
        "store:response:lifecycle",
        "M33",
        "A response is found by its id from its beginning on, and after its end as its final object.",
    ),
    R(
        "store:response:finished",
        "issue 2, section 5",
        "A response that begins and ends at once is stored whole in one transaction.",
    ),
    R(
        "store:response:first-end-stays",
        "architecture, fine print",
        "Of several ends of one response the first one stays.",
    ),
    R(
        "store:response:end-again",
        "architecture, fine print",
        "A response whose end could not be stored can be ended later, and nothing of the first attempt is left.",
    ),
    R(
        "store:response:id-taken",
        "issue 2, section 5",
        "A response under an id that is taken is refused and changes nothing.",
    ),
    R(
        "store:events:append",
        "architecture, law 2",
        "Events come back as the exact bytes that were appended, after any number.",
    ),
    R("store:events:ended", "architecture, fine print", "A response that has ended or is gone takes no more events."),
    R(
        "store:chain:walk",
        "architecture, decisions",
        "History is a walk from a response to its oldest ancestor, over any number of turns, without sibling branches.",
    ),
    R(
        "store:chain:item-ids",
        "architecture, decisions",
        "The ids of what a response was made from can be read without the bodies, in order and each once.",
    ),
    R("store:chain:growth", "issue 2, must show 5", "The storage of a turn does not grow with the depth of its chain."),
    R(
        "store:items:shared",
        "architecture, data model",
        "An item is immutable, is kept once within its tenant, and goes with the last response that names it.",
    ),
    R("store:delete", "M34", "A deleted response is gone at once, and so is all that nothing else needs."),
    R("store:delete:running", "issue 3, section 4", "A response that is queued or in progress is not deleted."),
    R(
        "store:tombstone:chain",
        "issue 2, Store",
        "Deletion, eviction and expiry never break a younger response of the chain.",
    ),
    R(
        "store:tombstone:removal",
        "architecture, fine print",
        "What is gone is removed with the last descendant that needs it.",
    ),
    R("store:tombstone:retained", "issue 2, Store", "History stays whole while a turn on top of it is being made."),
    R("store:lru", "M41", "Above the limit of entries the least recently used response goes first."),
    R("store:lru:chained", "M41", "Being retrieved and being chained to are uses of a response."),
    R("store:lru:running", "M41", "A running response is never evicted."),
    R("store:bytes", "M41", "Above the limit of bytes the least recently used responses go until the rest fits."),
    R("store:bytes:chain", "M41", "Ancestors that are gone count as bytes, so that a long chain is bounded too."),
    R("store:bytes:zero", "M41", "With a limit of 0 bytes a response runs to its end and is evicted then."),
    R("store:ttl", "M41", "A response expires by the time since its creation, however often it is used."),
    R("store:ttl:chain", "M41", "An expired ancestor stays in the chain of a younger response until that has gone."),
    R("store:ttl:running", "M41", "A running response does not expire before its end."),
    R("store:ttl:zero", "M41", "A TTL of 0 keeps responses for ever."),
    R("store:sweep", "M41", "A sweep removes all that has expired and nothing else."),
    R("store:tenant", "architecture, decisions", "A row of another tenant is the same as no row, in every method."),
    R("store:model", "M41", "Every store does the same as a simple model, for any sequence of calls."),
    R("store:memory:forgets", "M41", "The memory store holds nothing of a response that was removed."),
    R("store:memory:clock", "M41", "The memory store counts age by a clock that never goes back."),
    R("store:memory:volatile", "issue 2, section 5", "The memory store says that it is not durable."),
    R("store:memory:constant", "M41", "A call of the memory store costs the same however many responses it holds."),
    R(
        "store:sqlite:group-commit",
        "architecture, decisions",
        "Writes that wait at the same time share a commit, and one that fails does not harm the others.",
    ),
    R(
        "store:sqlite:durable",
        "architecture, law 4",
        "A write is on disk before it is acknowledged, and is there after reopening.",
    ),
    R(
        "store:sqlite:unflushed",
        "ADR 13",
        "The beginning of a foreground stream, and its batches, wait for no disk: they outlive a kill, and are flushed "
        "with the next write.",
    ),
    R("store:sqlite:kill", "architecture, law 4", "A killed process loses no write that was acknowledged."),
    R(
        "store:sqlite:interrupted",
        "architecture, law 4",
        "A store that is opened again knows the responses that were running when its process ended.",
    ),
    R(
        "store:sqlite:lock",
        "architecture, fine print",
        "A second server on one file is refused, with the file and what to do.",
    ),
    R(
        "store:sqlite:links",
        "architecture, fine print",
        "A store is one file by whatever link it is named; a file of several names, or a foreign lock, is refused.",
    ),
    R("store:sqlite:no-locks", "issue 2, section 5", "Without file locks only a store in a file is refused."),
    R("store:sqlite:private", "issue 2, section 5", "The file and its folder are made for their owner alone."),
    R(
        "store:sqlite:open-errors",
        "issue 2, bad input",
        "A file that cannot be used is refused at start, with the reason and what to do.",
    ),
    R(
        "store:sqlite:migration",
        "engineering, A2",
        "The schema has numbered steps, each in a transaction; a file of a newer version is refused.",
    ),
    R(
        "store:sqlite:disk-full",
        "issue 2, bad input",
        "A full disk is a 503 that names no path, and passes when there is room again.",
    ),
    R(
        "store:sqlite:locked",
        "architecture, fine print",
        "A lock of another program is waited for while reads go on, and is a 503 where it stays.",
    ),
    R("store:sqlite:large", "issue 2, section 5", "Large bodies are stored and read whole."),
    R("store:sqlite:heavy", "issue 2, section 5", "A write of large bodies of any kind does not run on the loop."),
    R("store:sqlite:closed", "issue 2, section 5", "Closing finishes what waits; a closed store says so."),
    R(
        "store:sqlite:queries",
        "engineering, A2",
        "Every SQL statement is named, described, used, and finds its rows by an index.",
    ),
)

SHARED_STORES: tuple[Requirement, ...] = (
    R("store:events:contiguous", "architecture, law 2", "Events follow each other without a gap and are stored once."),
    R("store:events:begin", "issue 3, section 1", "The first events are durable with the response itself."),
    R(
        "store:events:last",
        "issue 3, section 1",
        "The number of the last stored event is known without reading events.",
    ),
    R("store:events:sampled", "architecture, fine print", "What was sampled is kept with its events until the end."),
    R(
        "store:events:status",
        "issue 3, section 2",
        "A batch of events may bring the status that the response then has.",
    ),
    R(
        "store:events:ttl",
        "issue 3, section 1",
        "A log of events is removed its time after the end of its response, never before; the response stays.",
    ),
    R(
        "store:lease:fence",
        "architecture, fine print",
        "Every write with another fence than the row's is refused and changes nothing.",
    ),
    R(
        "store:lease:claim",
        "architecture, decisions",
        "Of many that claim a running response one gets it, with its plan and a fence that is one higher.",
    ),
    R("store:lease:plan", "issue 3, section 3", "The plan of a response is kept until its end and no longer."),
    R(
        "store:lease:orphans",
        "issue 3, section 3",
        "The running responses of all tenants that none of the known owners runs are listed, oldest first.",
    ),
    R("store:lease:owners", "architecture, fine print", "Owners join, count up while they live, and leave."),
    R("store:lease:limits", "M41", "What waits for a new owner is neither evicted nor expired."),
    R(
        "store:lease:conversation",
        "issue 3, section 5",
        "One response at a time runs in a conversation; a second is a 409.",
    ),
    R(
        "store:temporary",
        "issue 3, section 2",
        "A temporary response is kept for its own time after its end, whatever the limit of age says.",
    ),
    R(
        "store:delete:chain",
        "issue 3, section 4",
        "A chain is deleted whole, branches included, unless one of it is queued or in progress.",
    ),
    R(
        "store:idempotency",
        "operations, C1",
        "An idempotency key stands for one response of its tenant; of several at once one begins.",
    ),
    R("store:idempotency:expired", "operations, C1", "A record of an idempotency key that has expired is replaced."),
    R(
        "store:conversation:lifecycle",
        "responses-api 1.2",
        "A conversation is made, read, changed and removed under its id.",
    ),
    R("store:conversation:items", "responses-api 1.2", "A conversation keeps its items in order, each of them once."),
    R(
        "store:conversation:shared",
        "architecture, data model",
        "An item stays as long as a conversation or a kept response has it.",
    ),
    R(
        "store:conversation:append",
        "architecture, fine print",
        "The end of a response appends its input and output to its conversation, in the same transaction.",
    ),
    R(
        "store:conversation:limits",
        "M41",
        "Above the limits of conversations or of their bytes the least recently used ones go at once.",
    ),
    R("store:conversation:ttl", "M41", "A conversation expires by the time since its last addition."),
    R("store:conversation:apart", "M41", "Conversations and responses do not take each other's room."),
    R("store:keys", "issue 3, section 10", "API keys are found by digest, listed with revoked ones, and revoked once."),
    R("store:codec-keys", "issue 3, section 6", "The keys of blobs are all kept, and listed oldest first."),
    R("store:tenant-keys", "issue 3, section 9", "A tenant has one wrapped key; the first one stays."),
    R(
        "store:deliveries",
        "issue 3, section 2",
        "A webhook is due from the end of its response on, has one sender at a time, and is kept until it is settled.",
    ),
    R("store:tenant:delete", "issue 3, section 9", "A tenant is deleted with its key and all its rows."),
)

SQLITE: tuple[Requirement, ...] = (
    R(
        "store:sqlite:upgrade",
        "operations, C2 8",
        "A file of the version before is migrated with all its rows, and what ran in it can be gone on with.",
    ),
    R("store:sqlite:cost", "issue 3", "A write of SQLite costs no statement that it does not need."),
    R("store:sqlite:tail", "issue 3, section 1", "Reading the end of a log of SQLite does not walk over the log."),
    R(
        "store:sqlite:refused",
        "architecture, decisions",
        "A caller who is refused does not undo the transaction that others share with it.",
    ),
    R("store:sqlite:dropped", "issue 3, section 3", "Plans and samples are not in the file after the end."),
    R("store:sqlite:format", "architecture, fine print", "Rows of a newer form are left to a newer version."),
    R("store:sqlite:steps", "issue 3, section 1", "A sweep of SQLite removes many rows in steps."),
    R(
        "store:sqlite:beside",
        "architecture, fine print",
        "Keys are made and revoked in a file that a server has, each waiting for the other's lock.",
    ),
    R("store:sqlite:sealed", "issue 3, section 9", "A file that was written sealed is not opened without its key."),
    R("store:tenant:shredded", "issue 3, section 9", "A deleted tenant's key is in no file of SQLite any more."),
    R("store:clock", "faults B2 10", "A clock that jumps by a day removes nothing that has longer, and no order."),
    R("store:db:status", "issue 3, section 8", "A store's schema, sizes and servers are told while a server has it."),
    R(
        "store:db:backup",
        "issue 3, section 8",
        "A whole copy of a store is made while its server writes; it takes the place of no file.",
    ),
    R("store:db:vacuum", "issue 3, section 8", "Space is given back while no server has the file."),
    R("store:db:migrate", "issue 3, section 8", "A schema is brought up to date while no server has the file."),
)

SCALE: tuple[Requirement, ...] = (
    R(
        "fault:disk-full:refused",
        "faults B2 9",
        "With a full disk nothing is acknowledged that cannot be stored: 503 with Retry-After; store: false goes on.",
    ),
    R(
        "fault:disk-full:foreground",
        "faults B2 9",
        "A foreground stream that meets a full disk ends as failed, and that end is stored when there is space.",
    ),
    R(
        "fault:disk-full:background",
        "faults B2 9",
        "A background response shows what is durable, waits for space, and goes on without a gap or a duplicate.",
    ),
    R(
        "fault:disk-full:cancel",
        "faults B2 9",
        "A cancellation on a full disk is a 503, and works when there is space.",
    ),
    R(
        "fault:disk-full:stop",
        "faults B2 9",
        "A server with a full disk stops in time, and the next one goes on with what was durable.",
    ),
    R(
        "fault:disk-full:start",
        "faults B2 9",
        "A server starts over a full disk, and takes up what an earlier one left once there is space.",
    ),
    R(
        "lease:together",
        "issue 3, Crash",
        "What was left running is taken over some at a time, so that a start is quick.",
    ),
    R(
        "lease:start",
        "faults B2 9",
        "A store that cannot be written at a start is tried again until all is taken over.",
    ),
    R(
        "fault:busy",
        "faults B2 11",
        "While another program locks the file, requests wait for five seconds at most, and then are 503.",
    ),
    R(
        "scale:sqlite",
        "faults B2 8",
        "Memory, look-ups, start and sweep keep their bounds over a large file; `make scale` fills 100,000.",
    ),
    R("scale:memory", "faults B2 8", "The memory store does not grow with what went through it, and stays as quick."),
    R(
        "fault:clock:running",
        "faults B2 10",
        "When the wall clock jumps by a day, what runs and what waits goes on, and ids stay unique.",
    ),
    R("fault:clock:limits", "faults B2 10", "The limits of a key go by the monotonic clock."),
    R(
        "fault:clock:kept",
        "faults B2 10",
        "How long a response is kept goes by the wall clock; one that runs does not expire.",
    ),
    R("fault:clock:leases", "faults B2 10", "A server whose clock jumps keeps what it runs, and takes nothing over."),
    R(
        "http:stop:background",
        "faults B2 12",
        "Background responses that do not end while a server stops go on at the next start, byte for byte.",
    ),
    R(
        "fault:leaks",
        "faults B3 21",
        "Thousands of streams that were left, cancelled or read for a moment leave no file, task, run or reader.",
    ),
    R(
        "replay:left",
        "faults B3 21",
        "A reader that leaves ends its replay at once, also where the response says nothing for long.",
    ),
)

POSTGRESQL: tuple[Requirement, ...] = (
    R(
        "store:postgresql:open",
        "issue 3, section 8",
        "What stands in the way of a PostgreSQL store is said with what to do, and never with a password.",
    ),
    R(
        "store:postgresql:migration",
        "issue 3, section 8",
        "Servers that start at once make the schema once, in one transaction; one of a newer version is left alone.",
    ),
    R(
        "store:postgresql:queries",
        "architecture, fine print",
        "Every statement is a named one, valid, in use, and finds its rows by an index.",
    ),
    R(
        "store:postgresql:shared",
        "issue 3, Must show 6",
        "What one server acknowledged, every other one over the same database sees.",
    ),
    R(
        "store:postgresql:bytes",
        "architecture, fine print",
        "Bodies hold any bytes, U+0000 included, and names any text but that; no row has a name with it.",
    ),
    R(
        "store:postgresql:format",
        "architecture, fine print",
        "A server takes over only rows of a form that it knows.",
    ),
    R(
        "store:postgresql:retained",
        "issue 3, section 4",
        "History that a turn is made on top of stays whole although another server deletes it meanwhile; else it goes.",
    ),
    R(
        "store:postgresql:limits",
        "M41",
        "Limits are enforced by each server for each hundredth that it adds, and at each sweep.",
        divergence="To count exactly, every request would read whole tables or wait for one row.",
    ),
    R(
        "store:postgresql:group-commit",
        "architecture, flush",
        "What many streams append at once shares a statement; one at fault harms only itself.",
    ),
    R(
        "store:postgresql:doorbell",
        "architecture, PostgreSQL",
        "Other servers are rung for events, ends and new owners, after the commit; a missed ring is only counted.",
    ),
    R(
        "store:postgresql:owners",
        "issue 3, section 8",
        "A killed server is known to be gone at once; one that lost its connection, or that just came, is not.",
    ),
    R(
        "store:postgresql:restart",
        "faults B2 11",
        "A restart of the database loses nothing that was acknowledged, and writes nothing twice.",
    ),
    R(
        "store:postgresql:away",
        "faults B2 11",
        "While the database is away, requests wait at most five seconds and are then a 503; it is missed in a second.",
    ),
    R(
        "store:postgresql:unknown-outcome",
        "faults B2 11",
        "A write whose connection was lost after its commit is found again instead of being made twice.",
    ),
    R(
        "store:postgresql:errors",
        "issue 3, section 8",
        "Faults of the database are told without address, statement or value of a row.",
    ),
    R(
        "store:postgresql:pool",
        "architecture, PostgreSQL",
        "A server has a bounded number of connections; callers wait for one, and may give up.",
    ),
    R(
        "store:postgresql:durable",
        "architecture, PostgreSQL",
        "What is acknowledged is on the disk, also where the database is set to acknowledge before that.",
    ),
    R(
        "store:postgresql:races",
        "architecture, fine print",
        "Servers that create, chain, delete, evict and sweep at once leave no row too many and none too few.",
    ),
    R("store:closed", "operations", "A store that is not open yet, or not any more, is a 503 that says to try again."),
    R(
        "store:postgresql:care",
        "issue 3, section 8",
        "`antiphon db` migrates, looks at, copies and vacuums a PostgreSQL store beside its servers.",
    ),
    R(
        "fault:database:away",
        "faults B2 11",
        "Without its database a server is not ready within a second, answers 503, and needs no restart afterwards.",
    ),
    R(
        "fault:database:restart",
        "faults B2 11",
        "A background stream goes on over a restart of the database, without a gap or a duplicate.",
    ),
)
