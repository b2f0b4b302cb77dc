import assert from "node:assert/strict";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { McpServer } from "@modelcontextprotocol/server";
import { createTasks, taskTool } from "mcp-tasks";
import { TaskClient } from "mcp-tasks/client";
import { sqlite } from "mcp-tasks/sqlite";
import { z } from "zod";

// Opening runs the migrations, which the package must have brought along.
await using store = sqlite(":memory:");
assert.deepEqual(await store.list({ limit: 10 }), []);

const greet = taskTool({
  name: "greet",
  inputSchema: z.object({ name: z.string() }),
  task: { support: "required" },
  async run({ name }, task) {
    const text = await task.step("greet", () => `Hello, ${name}!`);
    await task.approve("sure", "Say it?");
    return { content: [{ type: "text", text }] };
  },
});
await using tasks = createTasks({ store, tools: [greet], pollInterval: 10 });
const handler = tasks.serve(() => new McpServer({ name: "consumer", version: "1.0.0" }));
await tasks.work();

const url = new URL("http://127.0.0.1/mcp");
const transport = new StreamableHTTPClientTransport(url, { fetch: (to, how) => handler.fetch(new Request(to, how)) });
const client = new TaskClient(new Client({ name: "consumer", version: "1.0.0" }), {
  input: { elicit: async () => ({ action: "accept", content: {} }) },
});
await client.connect(transport);
const result = await client.callTool({ name: "greet", arguments: { name: "Ada" } });
assert.deepEqual(result.content, [{ type: "text", text: "Hello, Ada!" }]);
assert.equal((await store.list({ limit: 10 }))[0]?.status, "completed");
await client.close();
