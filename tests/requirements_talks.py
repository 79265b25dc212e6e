"""The behaviours of what goes on over several requests."""

from __future__ import annotations

from support.requirement import Requirement

__all__ = ["COMPACTION", "CONVERSATIONS", "WEBSOCKET"]

R = Requirement

WEBSOCKET: tuple[Requirement, ...] = (
    R("websocket:message:create", "responses-api 7", "`response.create` takes the fields of `POST /v1/responses`."),
    R(
        "websocket:stream-id:form",
        "responses-api 7",
        "A stream id is 1 to 256 of `A-Z a-z 0-9 _ . -`; another is refused.",
    ),
    R(
        "websocket:stream-id:echo",
        "responses-api 7",
        "Events and errors of a named lane carry its `stream_id`, no other does.",
    ),
    R(
        "websocket:event:bytes",
        "architecture, law 2",
        "An event is the JSON of its SSE frame in a text frame; there is no `[DONE]`.",
    ),
    R(
        "websocket:error:frame",
        "responses-api 7",
        "An error frame has the type, a status, an error with a code, and its lane.",
    ),
    R(
        "websocket:sdk",
        "client-contract 3.2, 3.4",
        "The OpenAI SDK's and the Agents SDK's WebSockets work, and every frame validates strictly with its type.",
    ),
    R("websocket:error:invalid-json", "responses-api 7", "A message that is not JSON is answered `invalid_json`."),
    R(
        "websocket:error:unsupported-event-type",
        "responses-api 7",
        "A message of an unknown type is answered `unsupported_event_type`, with the param `type`.",
    ),
    R("websocket:lanes:fifo", "responses-api 7", "The requests of one lane run one after the other, in their order."),
    R("websocket:lanes:parallel", "responses-api 7", "Different lanes run side by side."),
    R(
        "websocket:lanes:active",
        "responses-api 7",
        "At most 16 responses run on one connection; more wait, oldest first.",
    ),
    R(
        "websocket:lanes:names",
        "responses-api 7",
        "A 33rd stream id on one connection is answered `websocket_stream_limit_reached`.",
    ),
    R("websocket:lanes:queue", "issue 3, WebSocket", "At most 16 requests wait in one lane; more are answered 429."),
    R("websocket:cache:latest", "responses-api 7", "A lane goes on from its latest response although no store has it."),
    R(
        "websocket:cache:uncached",
        "responses-api 7",
        "A response that neither a lane nor the store has is answered `previous_response_not_found`, 400.",
    ),
    R("websocket:cache:hydrate", "responses-api 7", "A stored response of any connection can be gone on from."),
    R(
        "websocket:cache:evict",
        "responses-api 7",
        "A continuation that fails in its own lane evicts the response that it named; in another lane it does not.",
    ),
    R(
        "websocket:cache:fork",
        "responses-api 7",
        "Another lane may go on from a response, also from one that still runs, for whose end it waits.",
    ),
    R(
        "websocket:cache:stored-child",
        "issue 3, WebSocket",
        "A stored response after ones that are not stored is stored with their items.",
    ),
    R(
        "websocket:cache:bound",
        "issue 3, WebSocket",
        "Histories of all connections are bounded by their text; the one used longest ago goes first.",
    ),
    R(
        "websocket:warmup",
        "responses-api 7",
        "`generate: false` is created and completed with an empty output, and can be gone on from.",
    ),
    R("websocket:background", "responses-api 7", "`background: true` is refused; `stream` is not heeded."),
    R(
        "websocket:lifetime",
        "responses-api 7",
        "At the end of its time a connection is told `websocket_connection_limit_reached` and closed, once what runs has ended or had its time.",
    ),
    R(
        "websocket:stop",
        "issue 3, WebSocket",
        "At a signal to stop, what runs may end; then the connection is closed with 1012.",
    ),
    R(
        "websocket:leave",
        "issue 3, WebSocket",
        "What runs on a connection that ends is left, as that of an HTTP client that leaves.",
    ),
    R(
        "websocket:access",
        "issue 3, WebSocket",
        "Key, Host and Origin are checked as for HTTP, with its answers, before the connection is taken, and the key again with every request.",
    ),
    R(
        "websocket:handshake",
        "RFC 6455 4.2",
        "A proper request for a WebSocket on `/v1/responses` or `/responses` is taken; any other upgrade is answered as if it had not asked.",
    ),
    R(
        "websocket:bounds:message",
        "issue 3, WebSocket",
        "A message that is too large is answered with close code 1009, one that does not come in time with 1008, one without room with 1013.",
    ),
    R(
        "websocket:bounds:reader",
        "issue 3, WebSocket",
        "A client that takes in nothing is cut off after the write timeout.",
    ),
    R(
        "websocket:bounds:frames",
        "RFC 6455 5",
        "Frames that break the rules end the connection with the code of the rule.",
    ),
    R(
        "websocket:ping",
        "issue 3, WebSocket",
        "A silent client is pinged, and cut off where it does not answer; its own pings are answered.",
    ),
    R(
        "websocket:steer:input",
        "responses-api 7",
        "Only messages of the user steer a response; anything else is `invalid_input`.",
    ),
    R(
        "websocket:steer:frames",
        "responses-api 7",
        "`response.steer.accepted`, `.pending` and `.failed` have the fields of the SDK.",
    ),
    R(
        "websocket:steer:successor",
        "responses-api 7",
        "A steered response ends as `steered`, or as it would have, and one with the input follows it, before what waits in the lane.",
    ),
    R(
        "websocket:steer:pending",
        "responses-api 7",
        "Steers of a response with open calls wait for the request that brings their outputs, and go before its input.",
    ),
    R(
        "websocket:steer:failed",
        "responses-api 7",
        "A steer that cannot be taken or committed comes back with the code of the reason.",
    ),
)

COMPACTION: tuple[Requirement, ...] = (
    R(
        "compaction:codec",
        "architecture, Secrets",
        "A blob opens in its tenant and as its kind, and is foreign where it was changed or comes from elsewhere.",
    ),
    R("compaction:codec:bounds", "responses-api 8.4", "Blobs are compressed and bounded, and so is what they open to."),
    R(
        "compaction:codec:keys",
        "architecture, Secrets",
        "The keys of blobs lie in the store; those of other replicas are looked up at most once a second.",
    ),
    R(
        "compaction:keep",
        "issue 3, Compaction",
        "What is not answered, open calls with their thinking, and the newest messages of the user are kept.",
    ),
    R("compaction:keep:media", "issue 3, Compaction", "Media of what is not answered are kept within a bound."),
    R("compaction:payload", "issue 3, Compaction", "A compaction item holds a version, the summary and what is kept."),
    R(
        "compaction:summary:prompt",
        "issue 3, Compaction",
        "The summary is made from a bounded record of who said what, without thinking, and from the notes before it.",
    ),
    R(
        "compaction:summary:parts",
        "issue 3, Compaction",
        "A conversation that is longer than the context is summarised in parts, the oldest first.",
    ),
    R(
        "compaction:summary:none",
        "issue 3, Compaction",
        "Where the model writes no summary, the ends of the record stand for it.",
    ),
    R("compaction:summary:real", "issue 3, Compaction", "The default model summarises, and the chain goes on."),
    R(
        "compaction:reset",
        "issue 3, Compaction",
        "An opened compaction item replaces what is before it in a request or a history, but for system text.",
    ),
    R(
        "compaction:trigger",
        "client-contract 3.1",
        "A compaction_trigger gives exactly one compaction item; it is last or a 400, and is not stored.",
    ),
    R(
        "compaction:open-calls",
        "issue 3, Compaction",
        "Calls that are open at a compaction stay open after it, over many rounds, and want their outputs.",
    ),
    R(
        "compaction:replay",
        "responses-api 6.4",
        "A compaction item works when it is sent back, referred to, chained to, and after a restart.",
    ),
    R(
        "compaction:foreign",
        "issue 3, Compaction",
        "A compaction item of another server or tenant is dropped, and what is before it stays.",
    ),
    R(
        "compaction:threshold",
        "responses-api 6.4",
        "A prompt over compact_threshold, or over the context, is compacted in the same response, which then goes on.",
    ),
    R(
        "compaction:threshold:checks",
        "responses-api 2",
        "context_management has entries of type compaction with 1,000 tokens or more; another vendor's is ignored.",
    ),
    R("compaction:resume", "issue 3, Crash", "A response that goes on after its compaction item uses it again."),
    R(
        "compaction:endpoint",
        "responses-api 2.4",
        "`/v1/responses/compact` gives the user's messages and one compaction item, and stores nothing.",
    ),
    R("compaction:endpoint:errors", "responses-api 2.4", "What cannot be compacted is refused, with its param."),
    R("compaction:endpoint:leave", "issue 3", "A client that leaves a compaction stops its engine."),
    R("compaction:faults", "issue 3, Compaction", "An engine that fails or is left over a summary ends the response."),
    R(
        "client:openai:compact",
        "client-contract 3.2",
        "The openai package compacts, by endpoint, trigger and threshold.",
    ),
    R("client:openai:input-tokens", "client-contract 3.2", "The openai package counts the tokens of a request."),
    R(
        "client:openai:encrypted-reasoning",
        "client-contract 3.2",
        "The openai package brings sealed thinking back in a stateless tool loop.",
    ),
    R(
        "client:agents:compaction",
        "client-contract 3.4",
        "The compaction session of the Agents SDK compacts a history that it only names, under a foreign model name.",
    ),
    R(
        "client:agents:encrypted-reasoning",
        "client-contract 3.4",
        "An agent without a store keeps its sealed thinking.",
    ),
    R("count:usage", "responses-api 2.3", "input_tokens equals usage.input_tokens of the same request."),
    R("count:overflow", "responses-api 2.3", "input_tokens counts what is more than the context takes."),
    R("count:errors", "responses-api 2.3", "input_tokens refuses what create refuses, and needs no model."),
    R(
        "reasoning:encrypted",
        "responses-api 2.1",
        "Reasoning items carry encrypted_content where it is included, and only there.",
    ),
    R(
        "reasoning:encrypted:replay",
        "client-contract 3.2",
        "encrypted_content that comes back is opened for the prompt; the stored item stays as it came.",
    ),
    R(
        "reasoning:encrypted:foreign",
        "issue 3, Compaction",
        "encrypted_content of another server or tenant is ignored, never a 400.",
    ),
    R(
        "reasoning:encrypted:restart",
        "architecture, Secrets",
        "encrypted_content opens after a restart, and within a process without a store.",
    ),
)

CONVERSATIONS: tuple[Requirement, ...] = (
    R("conversations:object", "responses-api 1.2", "A conversation is created, read, changed and deleted."),
    R("conversations:routes", "responses-api 1.2", "The routes stand with and without /v1; there is no list of all."),
    R(
        "conversations:bounds",
        "responses-api 1.2",
        "At most 20 items a request, metadata as for responses; what is wrong is named by its path.",
    ),
    R("conversations:unknown", "responses-api 1.2", "Missing and malformed ids are one 404, on every route."),
    R("conversations:tenants", "faults B2 18", "Another tenant's conversation is the same as none."),
    R(
        "conversations:items",
        "client-contract 3.4",
        "Items of any kind survive; without an id of ours they get one; an item stands once.",
    ),
    R("conversations:paging", "responses-api 1.2", "Items are listed in both orders, in pages by last_id."),
    R(
        "conversations:request",
        "responses-api 6.3",
        "A request has the conversation's items in front of its input, and its response names the conversation.",
    ),
    R("law:3:conversation", "architecture law 3", "The prompt of a conversation is the prompt of its items inline."),
    R(
        "conversations:append",
        "issue 3, Conversations",
        "Input and output are appended when a response ends, not where it failed, was cancelled or is not stored.",
    ),
    R("conversations:locked", "issue 3, Conversations", "A second response at the same time is a 409."),
    R(
        "conversations:background",
        "issue 3, Conversations",
        "A response in the background extends its conversation when it ends.",
    ),
    R(
        "conversations:autocreate",
        "M19",
        "With --conversation-autocreate an unknown id begins an empty conversation by that id.",
    ),
    R(
        "conversations:deletion",
        "responses-api 1.2",
        "A deleted response leaves its items to its conversation, a deleted conversation its items to the responses.",
    ),
    R("conversations:off", "M19", "Where conversations are turned off, a request with one is a 400 that says so."),
    R(
        "conversations:title",
        "hosted-search B23",
        "A stored response has the first words of its conversation as its title.",
    ),
    R("conversations:sdk", "client-contract 3.2", "The OpenAI SDK does all with conversations, strictly validated."),
    R("conversations:agents", "client-contract 3.4", "The Agents SDK keeps its sessions in conversations."),
)
