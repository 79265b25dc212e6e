// JavaScript clients with the tools that a server runs: `node clients.mjs URL STORE MCP CASES`; one line for each.
// CASES is what `cases.py` says of the tools, as JSON. A line has what a client made of an answer; whether that is right
// is held against the case elsewhere.
import { readFileSync } from "node:fs";
import { createOpenAI } from "@ai-sdk/openai";
import {
  Agent,
  codeInterpreterTool,
  fileSearchTool,
  hostedMcpTool,
  OpenAIResponsesModel,
  run,
  setTracingDisabled,
  user,
} from "@openai/agents";
import { generateText, streamText } from "ai";
import OpenAI from "openai";

const [url, store, mcp, given] = process.argv.slice(2);
const model = "scripted";
const seconds = 60;
const client = new OpenAI({ baseURL: url, apiKey: "none", maxRetries: 0 });
setTracingDisabled(true);

const taken = (response) => {
  const parts = response.output.filter((item) => item.type === "message").flatMap((item) => item.content);
  return {
    text: parts.map((part) => part.text).join(""),
    items: response.output.map((item) => item.type),
    beside: (response.hosted_tool_calls ?? []).map((call) => call.type),
    citations: parts.flatMap((part) => part.annotations.map((annotation) => annotation.filename)),
  };
};

const clients = {
  "openai for Node.js": {
    package: "openai",
    async ask(tool, stream) {
      const asked = { model, input: tool.asked, tools: [tool.tool], include: tool.include };
      if (!stream) return taken(await client.responses.create(asked));
      const events = client.responses.stream(asked);
      for await (const _ of events);
      return taken(await events.finalResponse());
    },
  },
  "OpenAI Agents SDK for JavaScript": {
    package: "@openai/agents",
    async ask(tool, stream) {
      const native = {
        file_search: () => fileSearchTool([store], { includeSearchResults: true }),
        mcp: () => hostedMcpTool({ serverLabel: "stub", serverUrl: mcp, requireApproval: "never" }),
        code_interpreter: () => codeInterpreterTool({ container: { type: "auto" } }),
      }[tool.name];
      const agent = new Agent({
        name: "a",
        model: new OpenAIResponsesModel(client, model),
        tools: native ? [native()] : [],
        modelSettings: native ? {} : { providerData: { tools: [tool.tool] } },
      });
      const result = await run(agent, tool.asked, { stream });
      if (stream) {
        for await (const _ of result);
        await result.completed;
      }
      const again = await run(agent, [...result.history, user("!TEXT again")]);
      if (again.finalOutput !== "again") throw new Error(`the second turn is ${again.finalOutput}`);
      const calls = result.newItems.filter((item) => item.rawItem.type === "hosted_tool_call");
      const parts = result.newItems
        .filter((item) => item.type === "message_output_item")
        .flatMap((item) => item.rawItem.content);
      return {
        text: result.finalOutput,
        items: calls.map((item) => item.rawItem.providerData?.type ?? item.rawItem.name),
        citations: parts.flatMap((part) => (part.providerData?.annotations ?? []).map((note) => note.filename)),
        notes: ["history"],
      };
    },
  },
  "AI SDK": {
    package: "@ai-sdk/openai",
    async ask(tool, stream) {
      // It has no way to say a tool of a type that it does not know, but for the request itself.
      const added = (address, init) => {
        const body = JSON.parse(init.body);
        return fetch(address, { ...init, body: JSON.stringify({ ...body, tools: [tool.tool] }) });
      };
      const provider = createOpenAI({ baseURL: url, apiKey: "none", ...(tool.beside ? { fetch: added } : {}) });
      const native = {
        file_search: () => ({ file_search: provider.tools.fileSearch({ vectorStoreIds: [store] }) }),
        mcp: () => ({ mcp: provider.tools.mcp({ serverLabel: "stub", serverUrl: mcp, requireApproval: "never" }) }),
        code_interpreter: () => ({ code_interpreter: provider.tools.codeInterpreter({}) }),
      }[tool.name];
      const asked = {
        model: provider.responses(model),
        tools: native ? native() : undefined,
        maxRetries: 0,
        providerOptions: { openai: { include: tool.name === "file_search" ? tool.include : undefined } },
      };
      const first = [{ role: "user", content: tool.asked }];
      const result = stream
        ? streamText({ ...asked, messages: first, onError: () => {} })
        : await generateText({ ...asked, messages: first });
      if (stream) for await (const part of result.fullStream) if (part.type === "error") throw part.error;
      const { messages } = await result.response;
      const second = [...first, ...messages, { role: "user", content: "!TEXT again" }];
      const again = await generateText({ ...asked, messages: second });
      if (again.text !== "again") throw new Error(`the second turn is ${again.text}`);
      const kinds = (await result.toolCalls).map((call) => `${call.toolName.split(".")[0]}_call`);
      return {
        text: await result.text,
        items: tool.beside ? null : kinds,
        citations: (await result.sources).map((source) => source.filename),
        notes: ["history"],
      };
    },
  },
};

const late = () => new Promise((_, fail) => setTimeout(() => fail(new Error("it took too long")), seconds * 1000).unref());
for (const [name, { package: packed, ask }] of Object.entries(clients)) {
  const version = `${packed} ${JSON.parse(readFileSync(`node_modules/${packed}/package.json`, "utf8")).version}`;
  for (const tool of JSON.parse(given)) {
    for (const stream of [false, true]) {
      const line = { client: name, version, case: tool.name, stream };
      try {
        line.taken = await Promise.race([ask(tool, stream), late()]);
      } catch (error) {
        line.wrong = `${error.name}: ${error.message}`.slice(0, 600);
      }
      console.log(`RESULT ${JSON.stringify(line)}`);
    }
  }
}
