import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { McpServer, SERVER_INFO_META_KEY } from "@modelcontextprotocol/server";
import { z } from "zod";
import { createEngine } from "../src/engine/engine.ts";
import { readCapabilities } from "../src/protocol/capabilities.ts";
import { createTasks } from "../src/index.ts";
import { sqlite } from "../src/store/sqlite/index.ts";
import { newTaskOf, taskTool } from "../src/tool.ts";

/**
 * Serves tasks in each state, from a file, and beside it the bytes that it is told to, from bare `node:http`. Says where
 * by IPC, and on any message how much processor time this process has used so far, in microseconds.
 */

/** What the load asks for. */
export interface PollServer {
  readonly url: string;
  readonly bareUrl: string;
  readonly leastUrl: string;
  readonly tasks: Readonly<Record<"working" | "input required" | "completed, 1 KB" | "completed, 100 KB", string>>;
}

const [file = ""] = process.argv.slice(2);
const store = sqlite(file);
const engine = createEngine({ store, liveTasksPerOwner: null, pollMs: 1_000 });
const never = () => {
  throw new Error("No worker runs here");
};
const tool = taskTool({ name: "work", inputSchema: z.object({ text: z.string() }), run: never });
const client = readCapabilities({ elicitation: {}, extensions: { "io.modelcontextprotocol/tasks": {} } });

async function claimed() {
  const call = { client, owner: "", args: "{}", answers: "{}", auth: "null" };
  await engine.create({ ...newTaskOf(tool), ...call });
  const wanted = { tools: [{ name: tool.name, version: tool.version, limit: null }], queues: ["default"] };
  const [claim] = await store.claim({ ...wanted, worker: "bench", ownerLimit: null, count: 1, leaseMs: 3_600_000 });
  if (claim === undefined) throw new Error("no claim");
  return claim;
}

async function completed(bytes: number): Promise<string> {
  const claim = await claimed();
  const text = "All work and no play makes a task a dull task. ".repeat(bytes).slice(0, bytes);
  const result = JSON.stringify({ resultType: "complete", content: [{ type: "text", text }] });
  await store.finish(claim, { status: "completed", result });
  return claim.taskId;
}

async function asking(): Promise<string> {
  const claim = await claimed();
  const requestedSchema = { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"] };
  const params = { mode: "form", message: "Shall we?", requestedSchema };
  const inputs = [{ key: "q", request: { method: "elicitation/create" as const, params } }];
  await store.park(claim, { inputs, events: [], timers: [] }, false);
  return claim.taskId;
}

const tasks: PollServer["tasks"] = {
  working: (await claimed()).taskId,
  "input required": await asking(),
  "completed, 1 KB": await completed(1_000),
  "completed, 100 KB": await completed(100_000),
};

// The limit counts, but stops nobody.
const pollLimit = { burst: 1_000_000_000, perInterval: 1_000_000_000 };
const served = createTasks({ store, tools: [tool], pollInterval: 1_000 });
const handler = served.serve(() => new McpServer({ name: "bench", version: "1.0.0" }), { pollLimit });
const { url } = await handler.listen();

/** The least that a server with a store must do: it reads the question, the task, and writes it. It checks nothing. */
const least = createServer((incoming, outgoing) => {
  const chunks: Buffer[] = [];
  incoming.on("data", (chunk: Buffer) => chunks.push(chunk));
  incoming.on("end", () => {
    const { id, params } = JSON.parse(Buffer.concat(chunks).toString()) as { id: number; params: { taskId: string } };
    void engine.read(params.taskId, "").then((task) => {
      const body = `{"jsonrpc":"2.0","id":${id},"result":${engine.describeText(task, client, stamp)}}`;
      outgoing.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(body) });
      outgoing.end(body);
    });
  });
});
const stamp = {
  resultType: "complete",
  _meta: { [SERVER_INFO_META_KEY]: { name: "bench", version: "1.0.0" } },
} as const;

/** What bare `node:http` answers, by path, whatever is asked. */
const answers = new Map<string, Buffer>();
const bare = createServer((incoming, outgoing) => {
  const body = answers.get(incoming.url ?? "");
  outgoing.writeHead(200, { "content-type": "application/json", "content-length": body?.byteLength ?? 0 });
  outgoing.end(body);
});
async function urlOf(server: Server): Promise<string> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
const [bareUrl, leastUrl] = [await urlOf(bare), await urlOf(least)];

process.on("message", (message: { readonly path?: string; readonly body?: string }) => {
  if (message.path !== undefined) answers.set(message.path, Buffer.from(message.body ?? ""));
  const { user, system } = process.cpuUsage();
  process.send?.(user + system);
});
process.on("disconnect", () => process.exit());
process.send?.({ url, bareUrl, leastUrl, tasks } satisfies PollServer);
