// Flows of the openai package for Node.js against the server at BASE; one line a flow, and 1 as exit code if any fails.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";
import { ResponsesWS } from "openai/resources/responses/ws";
import { z } from "zod";

const model = process.env.MODEL ?? "scripted";
const client = new OpenAI({ baseURL: process.env.BASE, apiKey: "none", maxRetries: 0 });
const weather = zodResponsesFunction({ name: "weather", parameters: z.object({ city: z.string() }) });
const asked = '!CALL weather {"city": "Oslo"}';
const collect = async (stream) => {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
};

const flows = {
  async create() {
    const response = await client.responses.create({ model, input: "!TEXT good day" });
    assert.equal(response.output_text, "good day");
    assert.equal(response.usage.output_tokens, 2);
  },
  async stream() {
    const events = await collect(await client.responses.create({ model, input: "!COUNT 5", stream: true }));
    assert.equal(events[0].type, "response.created");
    assert.equal(events.at(-1).type, "response.completed");
    assert.deepEqual(events.map((event) => event.sequence_number), events.map((_, index) => index));
  },
  async streamHelper() {
    const stream = client.responses.stream({ model, input: asked, tools: [weather] });
    await collect(stream);
    assert.deepEqual((await stream.finalResponse()).output[0].parsed_arguments, { city: "Oslo" });
  },
  async reasoningStream() {
    const stream = client.responses.stream({ model, input: "!REASON Let me see.\n!TEXT done" });
    await collect(stream);
    const final = await stream.finalResponse();
    assert.deepEqual(final.output.map((item) => item.type), ["reasoning", "message"]);
  },
  async parse() {
    const format = zodTextFormat(z.object({ title: z.string(), day: z.number() }), "event");
    const response = await client.responses.parse({ model, input: "an event", text: { format } });
    assert.equal(typeof response.output_parsed.title, "string");
  },
  async patchStream() {
    const input = '!CALL apply_patch {"type": "create_file", "path": "a.txt", "diff": "+one"}';
    const stream = client.responses.stream({ model, input, tools: [{ type: "apply_patch" }] });
    await collect(stream);
    const [patch] = (await stream.finalResponse()).output;
    assert.deepEqual(patch.operation, { type: "create_file", path: "a.txt", diff: "+one" });
  },
  async hostedStream() {
    const tools = [
      { type: "search_corpus", store_identifiers: ["none"] },
      { type: "file_search", vector_store_ids: ["none"] },
      { type: "prune_nothing" },
    ];
    const calls = ["search_corpus", "file_search"].map((name) => `!CALL ${name} {"queries": ["q"]}`);
    const input = ["!REASON Let me see.", ...calls, "!THEN", "!TEXT done"].join("\n");
    const stream = client.responses.stream({ model, input, tools });
    await collect(stream);
    const final = await stream.finalResponse();
    assert.deepEqual(final.output.map((item) => item.type), ["reasoning", "file_search_call", "message"]);
    assert.deepEqual(final.hosted_tool_calls.map((call) => call.type), ["search_corpus_call"]);
    assert.equal(final.output_text, "done");
  },
  async toolLoop() {
    const first = await client.responses.create({ model, input: asked, tools: [weather] });
    const second = await client.responses.create({
      model,
      tools: [weather],
      previous_response_id: first.id,
      input: [{ type: "function_call_output", call_id: first.output[0].call_id, output: "12 degrees" }],
    });
    assert.equal(second.output_text, "FINAL: 12 degrees");
  },
  async lifeCycle() {
    const response = await client.responses.create({ model, input: "keep this" });
    assert.deepEqual(await client.responses.retrieve(response.id), response);
    const items = await collect(client.responses.inputItems.list(response.id, { limit: 1 }));
    assert.equal(items[0].content[0].text, "keep this");
    await client.responses.delete(response.id);
    await assert.rejects(client.responses.retrieve(response.id), OpenAI.NotFoundError);
  },
  async background() {
    let response = await client.responses.create({ model, input: "!SLOW 2\n!COUNT 30", background: true });
    assert.equal(response.status, "queued");
    while (["queued", "in_progress"].includes(response.status)) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      response = await client.responses.retrieve(response.id);
    }
    assert.equal(response.status, "completed");
    const same = await client.responses.cancel(response.id);
    assert.equal(same.status, "completed");
  },
  async cancelled() {
    const response = await client.responses.create({ model, input: "!SLOW 20\n!COUNT 2000", background: true });
    assert.equal((await client.responses.cancel(response.id)).status, "cancelled");
    assert.equal((await client.responses.cancel(response.id)).status, "cancelled");
  },
  async resume() {
    const stream = await client.responses.create({ model, input: "!COUNT 40", background: true, stream: true });
    const seen = [];
    for await (const event of stream) {
      seen.push(event);
      if (event.sequence_number === 9) break;
    }
    const id = seen[0].response.id;
    const rest = await collect(await client.responses.retrieve(id, { stream: true, starting_after: 9 }));
    assert.deepEqual([...seen, ...rest].map((event) => event.sequence_number), [...seen, ...rest].map((_, n) => n));
    const again = client.responses.stream({ response_id: id, starting_after: 9 });
    await collect(again);
    assert.equal((await again.finalResponse()).status, "completed");
  },
  async conversations() {
    const conversation = await client.conversations.create({ items: [{ role: "user", content: "first" }] });
    const response = await client.responses.create({ model, input: "second", conversation: conversation.id });
    assert.equal(response.conversation.id, conversation.id);
    const items = await collect(client.conversations.items.list(conversation.id, { order: "asc", limit: 2 }));
    assert.deepEqual(items.map((item) => item.role), ["user", "user", "assistant"]);
    assert.equal((await client.conversations.delete(conversation.id)).deleted, true);
  },
  async compact() {
    const compacted = await client.responses.compact({ model, input: [{ role: "user", content: "remember me" }] });
    const input = [...compacted.output, { role: "user", content: "go on" }];
    assert.equal(compacted.output.at(-1).type, "compaction");
    assert.equal((await client.responses.create({ model, input })).status, "completed");
  },
  async inputTokens() {
    const counted = await client.responses.inputTokens.count({ model, input: "how many are these?" });
    const response = await client.responses.create({ model, input: "how many are these?" });
    // Of a model that runs elsewhere the server only estimates what its prompt has of tokens.
    if (process.env.ESTIMATES) assert.ok(counted.input_tokens > 0);
    else assert.equal(counted.input_tokens, response.usage.input_tokens);
  },
  async errors() {
    const kinds = { 400: OpenAI.BadRequestError, 401: OpenAI.AuthenticationError, 429: OpenAI.RateLimitError };
    for (const [status, kind] of Object.entries({ ...kinds, 500: OpenAI.InternalServerError })) {
      await assert.rejects(client.responses.create({ model, input: `!ERR${status}` }), kind);
    }
    await assert.rejects(async () => {
      await collect(await client.responses.create({ model, input: "!STREAMERR", stream: true }));
    }, OpenAI.APIError);
  },
  async webSocket() {
    const socket = new ResponsesWS(client);
    const types = await new Promise((resolve, reject) => {
      const seen = [];
      socket.on("event", (event) => {
        seen.push(event.type);
        if (event.type === "response.completed") resolve(seen);
      });
      socket.on("error", reject);
      socket.send({ type: "response.create", model, input: "over a socket" });
    });
    socket.close();
    assert.equal(types[0], "response.created");
  },
};

let failed = 0;
for (const [name, flow] of Object.entries(flows)) {
  try {
    await flow();
    console.log("ok", name);
  } catch (error) {
    failed += 1;
    console.log("FAILED", name, error.stack);
  }
}
process.exit(failed ? 1 : 0);
