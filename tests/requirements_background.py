"""The behaviours of what outlives its client or its server."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["BACKGROUND", "RESUME", "RUNTIME", "WEBHOOKS"]

R = Requirement

RESUME: tuple[Requirement, ...] = (
    R(
        "resume:restore",
        "architecture, half-made turn",
        "A log restored from its durable events goes on with the bytes that it would have had without the crash.",
    ),
    R(
        "resume:suppress",
        "architecture, fine print",
        "A turn run again from its start adds only what its log does not hold, however it is cut.",
    ),
    R(
        "resume:diverged",
        "architecture, fine print",
        "A turn that says something else when it is run again ends at the first difference.",
    ),
    R(
        "resume:scripted",
        "issue 3, Crash",
        "A scripted turn says what it has drawn, and goes on from there without drawing it again.",
    ),
    R(
        "resume:local",
        "issue 3, Crash",
        "A turn of the local engine goes on from its logged tokens, which count as output and never as input.",
    ),
    R(
        "resume:fingerprint",
        "architecture, fine print",
        "A model is known again by its file, its chat template and its tool-call dialect.",
    ),
    R(
        "resume:constrained",
        "architecture, fine print",
        "A turn under a format or a forced call starts anew, since a grammar begins with every call.",
    ),
    R("machine:queued", "issue 3, Background", "A queued response is created, queued and then in progress."),
    R(
        "machine:steer",
        "issue 3, WebSocket",
        "A steered response ends as incomplete with that reason, and closes what is open.",
    ),
    R("machine:seal", "issue 3, Compaction", "Thinking is sealed when it closes, where it is to be sealed."),
)

WEBHOOKS: tuple[Requirement, ...] = (
    R("webhooks:settings", "issue 3, Background", "A [[webhooks]] table that cannot be used is refused, and named."),
    R(
        "webhooks:events",
        "responses-api 1.4",
        "Each end of a background response is an event for the endpoints that want it.",
    ),
    R(
        "webhooks:signature",
        "faults B2 20",
        "The OpenAI SDK and Standard Webhooks verify what is sent, and refuse it when it is old or changed.",
    ),
    R(
        "webhooks:retries",
        "faults B1",
        "All but a 2xx is tried again, ever later, for three days under one id; a redirect too; 410 ends it.",
    ),
    R("webhooks:clock", "faults B2 10", "Retries keep their times when the wall clock is set back."),
    R("webhooks:restart", "faults B2 20", "Retries go on after a restart and after a crash, under the same id."),
    R("webhooks:replicas", "issue 3, PostgreSQL", "Several servers over one store send each event once."),
    R("webhooks:bounded", "issue 3", "Only so many are sent at a time, and a server that stops lets those end."),
    R("webhooks:guarded", "faults B2 17", "An endpoint that is not public is asked only where the settings name it."),
    R("webhooks:metrics", "operations C2", "Attempts are counted by how they ended, without URLs and secrets."),
    R("webhooks:guide", "issue 3, Background", "The table and the receiver of the guide work as they are written."),
)

BACKGROUND: tuple[Requirement, ...] = (
    R(
        "background:accepted",
        "issue 3, Background",
        "It is answered as `queued` at once, and polled to its end.",
    ),
    R(
        "background:events",
        "client-contract 3.2",
        "Its events begin created, queued, in_progress; they end with what GET returns.",
    ),
    R("background:poll", "issue 3, Background", "GET of a running one is the fold of its durable events."),
    R("background:poll-race", "issue 3, Background", "A poll that meets the end half way gives the ended response."),
    R("background:cancel", "issue 3, Cancel", "Cancel ends it with its partial output; again it gives the same."),
    R(
        "background:cancel-ended",
        "issue 3, Cancel",
        "Cancel of one that has ended gives it as it is.",
        divergence="OpenAI refuses to cancel a completed response; a race with its end would then look like a fault.",
    ),
    R("background:cancel-sync", "responses-api 6.3", "Cancel of a synchronous response is a 400."),
    R("background:cancel-queued", "issue 3, Cancel", "One that waits for a worker is cancelled at once."),
    R("background:queue", "issue 3, Background", "Workers and queue are bounded, and metrics show both."),
    R("background:delete", "responses-api 6.3", "One in flight cannot be deleted; a deleted one is a 404 everywhere."),
    R(
        "background:store-false",
        "issue 3, Background",
        "With `store: false` it is kept for polling after its end, and cannot be chained to.",
    ),
    R("background:chain", "responses-api 6.3", "A background response can be continued."),
    R(
        "background:restart",
        "issue 3, Crash",
        "A stop lets it wait, and the next start goes on with the next number and the same items.",
    ),
    R(
        "replay:numbers",
        "issue 3, Durable log",
        "A replay begins after the number that is asked for; -1 is all, the end is empty, a malformed one is a 400.",
        divergence="OpenAI replays only background responses that were created as streams; here any stored one can be.",
    ),
    R("replay:live", "issue 3, Durable log", "A replay of a running response goes on live to its end."),
    R("replay:readers", "faults B2 2", "Fifty readers of one stream get the same bytes."),
    R(
        "replay:cuts",
        "faults B2 2",
        "After any cut, what was read and what a resume gives are the stored log.",
    ),
    R("replay:expired", "issue 3, Durable log", "A log whose time is over is a 410; its response is still there."),
    R(
        "replay:lost",
        "issue 3, Durable log",
        "A number past the durable end of a stream that a restart ended is a 400.",
    ),
    R("delete:tombstone", "issue 3, Delete", "A deleted response cannot be chained to; descendants keep its words."),
    R("delete:running-descendant", "issue 3, Delete", "What a running descendant needs outlives its parent."),
    R("delete:chain", "hosted-search B22", "`?chain=true` deletes the whole chain with all its branches."),
    R("delete:chain-running", "hosted-search B22", "A chain with a running response is left whole."),
    R("delete:chain-setting", "hosted-search B22", "`--delete-chain` makes every DELETE one of the chain."),
    R("fault:kills", "issue 3, Must show 1", "After kills in mixed traffic every promise to a client is kept."),
    R(
        "fault:kills-replicas",
        "issue 3, Must show 1",
        "The same with two servers over one PostgreSQL database, of which the other takes over.",
    ),
    R(
        "fault:real-resume",
        "issue 3, Must show 3",
        "After a kill in mid-sentence the same response goes on as the engine would from the logged tokens.",
    ),
    R("fault:real-child-resume", "issue 3, Must show 3", "After a kill of the engine alone the response goes on."),
    R(
        "replicas:shared",
        "issue 3, PostgreSQL",
        "What one server runs, the other retrieves, streams, resumes and cancels.",
    ),
    R("replicas:takeover", "issue 3, PostgreSQL", "What a killed server ran goes on on another, in the same stream."),
    R("replicas:fence", "issue 3, Must show 6", "A paused owner cannot write when it wakes; its readers get the rest."),
    R(
        "replicas:conversation",
        "issue 3, Conversations",
        "A response that read a conversation which another server then extended is a 409, and can be tried again.",
    ),
    R("replicas:locks", "issue 3, PostgreSQL", "Conversation locks, idempotency keys and deletions hold everywhere."),
    R("clients:openai-node", "client-contract 3.3", "The OpenAI SDK for JavaScript does all flows."),
)

RUNTIME: tuple[Requirement, ...] = (
    R(
        "journal:end",
        "law 4",
        "What is logged after a write was due is left to the end, if the end comes first: no batch holds it.",
    ),
    R(
        "journal:unsure",
        "faults B2 11",
        "A write whose outcome is not known is looked up by its bytes before anything more is written.",
    ),
    R(
        "journal:turns",
        "architecture, Token log",
        "A turn that begins while a batch is written loses nothing drawn for it.",
    ),
    R("journal:lost", "issue 3, Must show 6", "An owner whose fence was raised is told once, and writes no more."),
    R("journal:owed", "faults B2 11", "An end that is owed is written after what a lost write has left."),
    R("lease:busy", "issue 3, Must show 6", "A server that takes over much shows that it is alive all the while."),
    R(
        "takeover:foreground",
        "architecture, durability",
        "A foreground client whose response another server ended is told a failure, as event or as error, never a 200.",
    ),
    R(
        "background:end-refused",
        "architecture, visibility",
        "An end that the store refuses is replaced by a failure, which is shown once that is durable.",
    ),
    R(
        "storm:whole",
        "architecture, laws 1, 2 and 4",
        "Over a store that fails at random, with takeovers, cancellations and stops, every response ends once and whole.",
    ),
    R("runs:freed", "issue 3, Must show 8", "What a request held is freed at its end, without the garbage collector."),
    R("strays:left", "issue 3, Crash", "A client that leaves while its response is begun leaves no row that runs."),
    R("strays:unsure", "faults B2 11", "A response that began although its client was told otherwise is ended."),
    R("strays:refused", "faults B2 9", "A response that did not begin leaves nothing behind."),
    R("strays:cancel", "faults B2 11", "A cancellation that got half-way, because the store failed, is made good."),
    R("strays:takeover", "faults B2 11", "An orphan that was taken over but could not be ended is ended later."),
    R(
        "strays:damaged",
        "issue 3, Crash",
        "A log that cannot be read keeps no server from starting; its response fails.",
    ),
    R("strays:stop", "faults B2 12", "A stop in the middle of a takeover leaves the response to the next owner."),
    R("strays:idempotent", "operations C1", "A request that is sent again after it began unknown to it is answered."),
    R("takeover:idempotent", "operations C1", "Who waits under a key hears the end from whoever took the response."),
    R("strays:broken", "issue 3, Crash", "A run that breaks is ended from what is durable of it."),
    R("takeover:store-away", "faults B2 11", "A store that is away for a moment does not end what could go on."),
    R("takeover:stop", "faults B2 12", "A stop while a response is taken up does not wait for its end."),
    R(
        "takeover:queued",
        "issue 3, Cancel",
        "Readers of a queued response hear at once that another server cancelled it.",
    ),
    R("takeover:cancelled", "issue 3, Crash", "What is cancelled or deleted while it waits to go on is left alone."),
    R("takeover:conversation", "issue 3, Conversations", "A conversation is kept for a response that goes on."),
    R("takeover:parent", "issue 3, Delete", "A queued child of a deleted parent has its history after a restart."),
    R(
        "background:accepted-at-stop",
        "faults B2 12",
        "One that is accepted while the server stops lets its reader go, and waits for the next start.",
    ),
    R("background:cancel-place", "issue 3, Background", "A queued one that is cancelled gives its place back at once."),
)
