import { randomUUID } from "node:crypto";
import { systemClock } from "../src/clock.ts";
import { createEngine } from "../src/engine/engine.ts";
import { postgres } from "../src/store/postgres/index.ts";
import { newTaskOf, type TaskTool } from "../src/tool.ts";
import { startWorker } from "../src/worker/worker.ts";
import { callOf, type Stage } from "./embedded.ts";

/** A front end and a worker that share nothing but a database, as on two machines. */
export async function clustered(url: string, tools: readonly TaskTool[]): Promise<Stage> {
  const schema = `bench_${randomUUID().replaceAll("-", "")}`;
  const front = postgres(url, { schema });
  const back = postgres(url, { schema });
  const onError = (error: Error) => console.error(error.message, error.cause ?? "");
  const engine = createEngine({ store: front, onError, liveTasksPerOwner: null });
  const hands = createEngine({ store: back, onError, liveTasksPerOwner: null });
  const limits = { maxResultBytes: 4 << 20, maxStepBytes: 1 << 20, blobs: null };
  const worker = startWorker({
    ...{ engine: hands, tools, onError, limits, clock: systemClock, concurrency: 10, queues: ["default"] },
    ...{ ownerLimit: null, leaseMs: 15_000, drainMs: 1_000 },
  });
  return {
    engine,
    start: async (tool, args = {}) => (await engine.create({ ...newTaskOf(tool), ...callOf(args) })).id,
    async [Symbol.asyncDispose]() {
      await worker.close();
      for (const part of [engine, hands, front, back]) await part[Symbol.asyncDispose]();
    },
  };
}
