import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../src/clock.ts";
import { createEngine, type Engine } from "../src/engine/engine.ts";
import { readCapabilities } from "../src/protocol/capabilities.ts";
import { sqlite } from "../src/store/sqlite/index.ts";
import { newTaskOf, type TaskTool } from "../src/tool.ts";
import { startWorker } from "../src/worker/worker.ts";

const client = readCapabilities({ elicitation: {}, extensions: { "io.modelcontextprotocol/tasks": {} } });

/** An engine, and a worker of its tools somewhere. */
export interface Stage extends AsyncDisposable {
  readonly engine: Engine;
  /** Creates a task and gives its id. */
  start(tool: TaskTool, args?: unknown): Promise<string>;
}

/** Both in this process, on a file that is flushed at each commit, as users have it. */
export interface Embedded extends Stage {
  readonly file: string;
}

/** What a new task takes of its call. */
export const callOf = (args: unknown) => ({
  ...{ client, owner: "", args: JSON.stringify(args), answers: "{}", auth: "null" },
});

export async function embedded(tools: readonly TaskTool[]): Promise<Embedded> {
  const folder = await mkdtemp(join(tmpdir(), "mcp-tasks-bench-"));
  const file = join(folder, "tasks.db");
  const store = sqlite(file);
  const onError = (error: Error) => console.error(error.message, error.cause ?? "");
  const engine = createEngine({ store, onError, liveTasksPerOwner: null });
  const limits = { maxResultBytes: 4 << 20, maxStepBytes: 1 << 20, blobs: null };
  const worker = startWorker({
    ...{ engine, tools, onError, limits, clock: systemClock, concurrency: 10, queues: ["default"], ownerLimit: null },
    ...{ leaseMs: 15_000, drainMs: 1_000 },
  });
  return {
    engine,
    file,
    async start(tool, args = {}) {
      return (await engine.create({ ...newTaskOf(tool), ...callOf(args) })).id;
    },
    async [Symbol.asyncDispose]() {
      await worker.close();
      await engine[Symbol.asyncDispose]();
      await store[Symbol.asyncDispose]();
      await rm(folder, { recursive: true });
    },
  };
}

/** Milliseconds from opening a store to the end of a task that is started on it: what a restart takes to be of use. */
export async function reopened(file: string, tool: TaskTool): Promise<number> {
  const begin = performance.now();
  await using store = sqlite(file);
  await using engine = createEngine({ store, liveTasksPerOwner: null });
  const limits = { maxResultBytes: 4 << 20, maxStepBytes: 1 << 20, blobs: null };
  await using worker = startWorker({
    ...{ engine, tools: [tool], limits, clock: systemClock, concurrency: 10, queues: ["default"], ownerLimit: null },
    ...{ leaseMs: 15_000, drainMs: 1_000, onError: () => {} },
  });
  const { id } = await engine.create({ ...newTaskOf(tool), ...callOf({}) });
  await engine.settled(id, "", AbortSignal.timeout(60_000));
  void worker;
  return performance.now() - begin;
}
