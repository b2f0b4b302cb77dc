import { subscribe } from "node:diagnostics_channel";
import { McpServer } from "@modelcontextprotocol/server";
import { createTasks, taskTool } from "mcp-tasks";
import { sqlite } from "mcp-tasks/sqlite";

/**
 * Serves a tool whose tasks wait for what never comes, so that calls of it are held for as long as a hold lasts. Says
 * where by IPC, and on any message what it is like. Run as plain JavaScript, with the built package: to read types takes
 * a process some 30 MB.
 */
const [file = ""] = process.argv.slice(1);
const store = sqlite(file);
const work = taskTool({
  name: "work",
  async run(_args, task) {
    await task.event("never");
    return { content: [] };
  },
});
const onError = (error: Error) => console.error("SERVER", error.message, error.cause ?? "");
const tasks = createTasks({
  ...{ store, onError, tools: [work], pollInterval: 1_000 },
  // A client that declared the extension has its task at once; all others wait longer than the benchmark does.
  reply: { grace: 0, hold: "1h" },
});
await tasks.work();
// The limit counts, but stops nobody.
const pollLimit = { burst: 1_000_000_000, perInterval: 1_000_000_000 };
const { url } = await tasks.serve(() => new McpServer({ name: "bench", version: "1.0.0" }), { pollLimit }).listen();

let created = 0;
subscribe("mcp-tasks:task:created", () => (created += 1));
process.on("message", () => {
  process.send?.({ rss: process.memoryUsage.rss(), tasks: created } satisfies HeldState);
});
process.on("disconnect", () => process.exit());
process.send?.({ url });

/** What any message is answered with. */
export interface HeldState {
  /** Resident memory, in bytes. */
  readonly rss: number;
  /** How many it has made. */
  readonly tasks: number;
}
