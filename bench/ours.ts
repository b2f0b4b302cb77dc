import { join } from "node:path";
import { systemClock } from "../src/clock.ts";
import { createEngine, type Engine } from "../src/engine/engine.ts";
import { noCapabilities } from "../src/protocol/capabilities.ts";
import { postgres } from "../src/store/postgres/index.ts";
import { sqlite } from "../src/store/sqlite/index.ts";
import type { TaskStore } from "../src/store/store.ts";
import { newTaskOf, taskTool } from "../src/tool.ts";
import { startWorker } from "../src/worker/worker.ts";
import { concurrency, width, type Contender, type Told } from "./contender.ts";

const name = "empty";
const owner = "alice";
const call = { client: noCapabilities, owner, answers: "{}", auth: "null" };
const onError = (error: Error) => console.error(error.message, error.cause ?? "");

/** The engine over a store, as `createTasks` puts it together. */
function contender(open: (place: string) => TaskStore): Contender {
  let shared: { readonly store: TaskStore; readonly engine: Engine } | null = null;
  let uses = 0;

  /** One for both sides, where they are in one process. */
  function engineOf(place: string) {
    uses += 1;
    if (shared === null) {
      const store = open(place);
      shared = { store, engine: createEngine({ store, onError }) };
    }
    const { engine, store } = shared;
    const close = async () => {
      uses -= 1;
      if (uses > 0) return;
      await engine[Symbol.asyncDispose]();
      await store[Symbol.asyncDispose]();
    };
    return { engine, close };
  }
  return {
    async setUp(place) {
      await using store = open(place);
      await store.nextDue();
    },
    async producer(place) {
      const { engine, close } = engineOf(place);
      const tool = taskTool({ name, run: () => ({ content: [] }) });
      return {
        async create(begun) {
          const task = { ...newTaskOf(tool), ...call, args: JSON.stringify({ begun }) };
          return (await engine.create(task)).id;
        },
        hasEnded: async (id) => (await engine.read(id, owner)).status === "completed",
        [Symbol.asyncDispose]: close,
      };
    },
    async worker(place, told) {
      const { engine, close } = engineOf(place);
      engine.expire();
      const tool = taskTool({
        name,
        run(args) {
          told.started((args as { begun: string }).begun);
          return { content: [] };
        },
      });
      const limits = { maxResultBytes: 4 << 20, maxStepBytes: 1 << 20, blobs: null };
      const worker = startWorker({
        ...{ engine: counted(engine, told), tools: [tool], onError, limits, clock: systemClock, concurrency },
        ...{ queues: ["default"], ownerLimit: null, leaseMs: 15_000, drainMs: 5_000 },
      });
      return {
        async [Symbol.asyncDispose]() {
          await worker.close();
          await close();
        },
      };
    },
  };
}

/** The engine, which also tells when the end of a task is stored. */
function counted(engine: Engine, told: Told): Engine {
  const { attempts } = engine;
  return {
    ...engine,
    attempts: {
      ...attempts,
      async finish(...given) {
        const done = await attempts.finish(...given);
        told.ended();
        return done;
      },
    },
  };
}

export const onPostgres = contender((place) => postgres(place, { connections: width }));
export const onSqlite = contender((place) => sqlite(join(place, "tasks.db")));
