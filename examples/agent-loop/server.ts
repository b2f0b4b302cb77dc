import { mkdirSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { McpServer } from "@modelcontextprotocol/server";
import { createTasks } from "mcp-tasks";
import { sqlite } from "mcp-tasks/sqlite";
import { bookingTools } from "./tools.ts";

const { values } = parseArgs({
  options: { port: { type: "string", default: "3100" }, data: { type: "string", default: ".agent-loop" } },
});
mkdirSync(values.data, { recursive: true });

const store = sqlite(path.join(values.data, "tasks.db"));
const tools = bookingTools(path.join(values.data, "bookings"));
const tasks = createTasks({ store, tools, onError: (error) => console.error(error) });
const { url } = await tasks
  .serve(() => new McpServer({ name: "travel", version: "1.0.0" }))
  .listen({
    port: Number(values.port),
  });
await tasks.work();
console.log(`Listening on ${url}`);

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, async () => {
    await tasks.close();
    await store[Symbol.asyncDispose]();
    process.exit();
  });
}
