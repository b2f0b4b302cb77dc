import { setTimeout as pause } from "node:timers/promises";
import type { AuthInfo } from "@modelcontextprotocol/server";
import { Pool } from "pg";
import { taskTool, type TaskContext } from "mcp-tasks";
import { z } from "zod";

/**
 * Tools for `mcp-tasks worker --tools`, which bear witness in a table of the tests' own (see cluster.ts) when they begin
 * and when they end, by the one clock that all processes share: the database's. `TOOL_VERSION` is the version of those
 * that a deploy replaces.
 */

/** Connects when a handler runs: a front end never does. */
const pool = new Pool({ connectionString: process.env.WITNESS_URL, max: 10, allowExitOnIdle: true });
/** However fast they are: a task, and not its result in the answer to the call. */
const support = "required";
const done = { content: [{ type: "text" as const, text: "done" }] };

/** Takes a while; longer than any two processes need to get in each other's way. */
const briefMs = 40;

/** Says that the body runs, for as long as it does. */
async function witnessed(
  tool: string,
  version: string,
  { id, owner, attempt }: TaskContext,
  body: () => Promise<void>,
) {
  const values = [id, tool, version, owner, attempt, process.pid];
  const text = `INSERT INTO run (task, tool, version, owner, attempt, process, started)
    VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp()) RETURNING id`;
  const { rows } = await pool.query<{ id: string }>(text, values);
  try {
    await body();
  } finally {
    await pool.query("UPDATE run SET ended = clock_timestamp() WHERE id = $1", [rows[0]?.id]);
  }
  return done;
}

const brief = (name: string, task: Parameters<typeof taskTool>[0]["task"] = {}) =>
  taskTool({
    name,
    task: { ...task, support },
    run: (_args, context) => witnessed(name, "", context, () => pause(briefMs)),
  });

/** Waits until the test opens its gate. */
async function throughGate(gate: string, signal?: AbortSignal): Promise<void> {
  while ((await pool.query("SELECT FROM gate WHERE name = $1", [gate])).rowCount === 0)
    await pause(10, undefined, signal === undefined ? {} : { signal });
}

const gated = (version: string) =>
  taskTool({
    name: "gated",
    version,
    inputSchema: z.object({ gate: z.string() }),
    // One strike and it is out: whatever hands it back must not count.
    task: { attempts: 1, support },
    run: ({ gate }, context) => witnessed("gated", version, context, () => throughGate(gate, context.signal)),
  });

const heedless = (version: string) =>
  taskTool({
    name: "heedless",
    version,
    description: "Ignores its signal",
    inputSchema: z.object({ gate: z.string() }),
    task: { attempts: 1, support },
    run: ({ gate }, context) => witnessed("heedless", version, context, () => throughGate(gate)),
  });

const asks = taskTool({
  name: "asks",
  task: { support },
  async run(_args, task) {
    const { size } = await task.elicit("size", { message: "How large?", schema: z.object({ size: z.int() }) });
    return witnessed(`asks ${size}`, "", task, async () => {});
  },
});

/** All tools, as a version of the program has them. */
export const toolsOf = (version: string) => [
  brief("free"),
  brief("limited", { concurrency: 2 }),
  brief("urgent", { priority: 5 }),
  brief("on-gpu", { queue: "gpu" }),
  asks,
  gated(version),
  heedless(version),
];

export const tools = toolsOf(process.env.TOOL_VERSION ?? "");

/** Whoever has a token is who they say. */
export const believe = (request: Request): AuthInfo | undefined => {
  const token = request.headers.get("authorization")?.replace("Bearer ", "");
  return token === undefined ? undefined : { token, clientId: token, scopes: [] };
};
