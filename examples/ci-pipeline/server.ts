import { mkdirSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { McpServer } from "@modelcontextprotocol/server";
import { createTasks } from "mcp-tasks";
import { sqlite } from "mcp-tasks/sqlite";
import { pipelineTool } from "./pipeline.ts";

const project = fileURLToPath(new URL("../..", import.meta.url));
const { values } = parseArgs({
  options: {
    port: { type: "string", default: process.env.PORT ?? "3000" },
    repository: { type: "string", default: project },
    data: { type: "string", default: path.join(project, ".demo") },
    "publish-to": { type: "string", default: path.join(project, ".demo", "published") },
  },
});
const work = path.resolve(values.data, "work");
const publishTo = path.resolve(values["publish-to"]);
for (const folder of [work, publishTo]) mkdirSync(folder, { recursive: true });

const pipeline = pipelineTool({
  repository: path.resolve(values.repository),
  work,
  publishTo,
  started: (stage) => console.log(`running ${stage}`),
});

const store = sqlite(path.join(values.data, "tasks.db"));
const tasks = createTasks({ store, tools: [pipeline], onError: (error) => console.error(error) });
const handler = tasks.serve(() => new McpServer({ name: "ci", version: "1.0.0" }));
const { url } = await handler.listen({ port: Number(values.port) });
await tasks.work({ concurrency: 2 });

console.log(`Listening on ${url}`);
console.log(`Add it to a host:  claude mcp add --transport http ci ${url}`);

async function stop(): Promise<void> {
  await tasks.close();
  await store[Symbol.asyncDispose]();
  process.exit();
}
process.once("SIGINT", () => void stop());
process.once("SIGTERM", () => void stop());
