import { systemClock, type Clock } from "../../src/clock.ts";
import { createEngine, type Engine } from "../../src/engine/engine.ts";
import type { TaskError } from "../../src/errors.ts";
import { readCapabilities } from "../../src/protocol/capabilities.ts";
import type { DetailedTask } from "../../src/protocol/wire.ts";
import { sqlite } from "../../src/store/sqlite/index.ts";
import type { Task, TaskStore } from "../../src/store/store.ts";
import { newTaskOf, type TaskTool } from "../../src/tool.ts";
import { startWorker, type Worker, type WorkerParts } from "../../src/worker/worker.ts";

/** What a client can do that declared everything. */
export const everything = readCapabilities({
  elicitation: { form: {}, url: {} },
  sampling: { tools: {} },
  roots: {},
  extensions: { "io.modelcontextprotocol/tasks": {} },
});

/** An engine and a worker on a real store, in memory unless another one is given, driven without a server. */
export interface Workbench extends AsyncDisposable {
  readonly engine: Engine;
  readonly store: TaskStore;
  readonly errors: TaskError[];
  start(tool: TaskTool, args?: unknown, client?: typeof everything): Promise<string>;
  /** Resolves with the task as soon as it is as wanted. */
  until(id: string, wanted: (task: Task) => boolean): Promise<DetailedTask>;
  /** The task when it is final or asks for input. */
  settled(id: string): Promise<DetailedTask>;
  worker(parts?: Partial<WorkerParts>): Worker;
}

export function workbench(
  tools: readonly TaskTool[],
  options: { clock?: Clock; file?: string; store?: TaskStore } = {},
): Workbench {
  const { clock = systemClock, file = ":memory:", store = sqlite(file, { clock }) } = options;
  const errors: TaskError[] = [];
  const onError = (error: TaskError) => void errors.push(error);
  const engine = createEngine({ store, clock, onError });
  const workers: Worker[] = [];

  async function until(id: string, wanted: (task: Task) => boolean): Promise<DetailedTask> {
    const { promise, resolve, reject } = Promise.withResolvers<DetailedTask>();
    const look = () =>
      void engine.read(id, "").then((task) => {
        if (wanted(task)) resolve(engine.describe(task));
      }, reject);
    const stop = engine.watch(id, look);
    look();
    return promise.finally(stop);
  }

  return {
    engine,
    store,
    errors,
    async start(tool, args = {}, client = everything) {
      const task = await engine.create({
        ...newTaskOf(tool),
        ...{ client, owner: "", args: JSON.stringify(args), answers: "{}", auth: "null" },
      });
      return task.id;
    },
    until,
    settled: (id) => until(id, (task) => task.status !== "working"),
    worker(parts = {}) {
      const worker = startWorker({
        ...{ engine, tools, clock, onError, concurrency: 10, queues: ["default"], ownerLimit: null },
        ...{ leaseMs: 15_000, drainMs: 0, limits: { maxResultBytes: 4 << 20, maxStepBytes: 1 << 20, blobs: null } },
        ...parts,
      });
      workers.push(worker);
      return worker;
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(workers.map((worker) => worker.close()));
      await engine[Symbol.asyncDispose]();
      await store[Symbol.asyncDispose]();
    },
  };
}

/** A tool result of one text. */
export const text = (value: unknown) => ({ content: [{ type: "text" as const, text: String(value) }] });

/** Lets a handler say that it has come to a point, each time it does. */
export function signals(): { next(): void; reached(): Promise<void> } {
  let current = Promise.withResolvers<void>();
  return {
    next: () => current.resolve(),
    async reached() {
      await current.promise;
      current = Promise.withResolvers<void>();
    },
  };
}
