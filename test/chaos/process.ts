import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { flushCompileCache } from "node:module";
import { text } from "node:stream/consumers";
import { McpServer } from "@modelcontextprotocol/server";
import { createTasks, type Tasks } from "mcp-tasks";
import { postgres } from "mcp-tasks/postgres";
import { sqlite } from "mcp-tasks/sqlite";
import { openLog } from "./log.ts";
import { scriptTools } from "./tools.ts";
import { witness } from "./witness.ts";

/** One process of a round: a worker, or a front end. Its one argument is this, as JSON. */
export interface ProcessSettings {
  readonly role: "worker" | "front";
  /** A file or a URL. */
  readonly database: string;
  readonly log: string;
  readonly folder: string;
  readonly leaseMs: number;
  readonly graceMs: number;
  readonly concurrency: number;
}

const settings = JSON.parse(process.argv[2] ?? "") as ProcessSettings;
// Most of a start is compiling; a killed process would never write down what it compiled.
flushCompileCache();

// Whoever started us is gone.
process.stdin.resume().on("close", () => process.exit(0));

const append = openLog(settings.log);
const { database } = settings;
// Shorter than the longest stall: what a verb gave up and tried again then arrives after all.
const timeoutMs = 1_500;
const open = () => (database.startsWith("postgres:") ? postgres(database, { timeoutMs }) : sqlite(database));
const store = witness(open(), append);
const tasks = createTasks({
  store,
  tools: scriptTools(append, settings.folder),
  cancelGrace: settings.graceMs,
  // The verdict goes by ids: a result that comes in place of a handle has none.
  reply: { grace: 0 },
  liveTasksPerOwner: null,
  onError(error) {
    append(["error", error.code, `${error.message} ${(error.cause as Error | undefined)?.stack ?? ""}`]);
  },
});

process.on("SIGTERM", () => {
  void tasks
    .close()
    .then(() => store[Symbol.asyncDispose]())
    .then(() => process.exit(0));
});

let url: string | null = null;
if (settings.role === "worker") {
  await tasks.work({ lease: settings.leaseMs, concurrency: settings.concurrency, drain: 300 });
} else {
  url = await serve(tasks);
}
process.stdout.write(`${JSON.stringify({ url })}\n`);

/** MCP at `/mcp`, and at `/event` what an author's own webhook would do. */
async function serve({ serve, send }: Tasks): Promise<string> {
  // The driver reads more often than any client should.
  const handler = serve(() => new McpServer({ name: "chaos", version: "1.0.0" }), { pollLimit: null });
  async function sendEvent(request: IncomingMessage): Promise<boolean> {
    const { taskId, key, value } = JSON.parse(await text(request)) as Record<string, string>;
    return send(taskId ?? "", key ?? "", value);
  }
  const server = createServer((request, response) => {
    if (request.url !== "/event") return handler.node(request, response);
    sendEvent(request).then(
      (kept) => response.end(JSON.stringify({ kept })),
      () => response.writeHead(503).end(),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
