import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { DatabaseSync } from "node:sqlite";
import { getRequestListener } from "@hono/node-server";
import { createMcpHandler, McpServer } from "@modelcontextprotocol/server";
import { z } from "zod";
import { createTasks, taskTool } from "../src/index.ts";
import { sqlite } from "../src/store/sqlite/index.ts";

/** What this process has used so far: microseconds of CPU, and commits of its database. */
export interface Used {
  readonly micros: number;
  readonly commits: number;
}

/**
 * Two servers with one tool each: `tasks`, whose calls become tasks in a file, and `plain`, the SDK alone, whose tool
 * returns at once. No worker runs. Says where by IPC, and on any message what was used so far.
 */
const inputSchema = z.object({ text: z.string() });
let commits = 0;
const exec = Object.getOwnPropertyDescriptor(DatabaseSync.prototype, "exec")?.value as DatabaseSync["exec"];
DatabaseSync.prototype.exec = function counting(sql) {
  if (sql === "COMMIT") commits += 1;
  exec.call(this, sql);
};

const [file = ""] = process.argv.slice(2);
const work = taskTool({
  name: "work",
  inputSchema,
  run() {
    throw new Error("No worker runs here");
  },
});
const served = createTasks({ store: sqlite(file), tools: [work], liveTasksPerOwner: null, reply: { grace: 0 } });
const { url } = await served.serve(() => new McpServer({ name: "bench", version: "1.0.0" })).listen();

const handler = createMcpHandler(() => {
  const mcp = new McpServer({ name: "bench", version: "1.0.0" });
  mcp.registerTool("work", { inputSchema }, () => ({ content: [{ type: "text", text: "done" }] }));
  return mcp;
});
const listener = getRequestListener((request) => handler.fetch(request), { overrideGlobalObjects: false });
const plain = createServer((incoming, outgoing) => void listener(incoming, outgoing));
plain.listen(0, "127.0.0.1");
await once(plain, "listening");
const plainUrl = `http://127.0.0.1:${(plain.address() as AddressInfo).port}/mcp`;

process.on("message", () => {
  const { user, system } = process.cpuUsage();
  process.send?.({ micros: user + system, commits } satisfies Used);
});
process.on("disconnect", () => process.exit());
process.send?.({ url, plainUrl });
