import { McpServer } from "@modelcontextprotocol/server";
import { createTasks, taskTool } from "../src/index.ts";
import { newTask } from "../src/store/contract/kit.ts";
import { sqlite } from "../src/store/sqlite/index.ts";
import type { Attempt } from "../src/store/store.ts";

/** What an {@link Order} is answered with. */
export interface Memory {
  readonly rss: number;
  readonly heap: number;
}
export type Order =
  | { readonly do: "measure" }
  /** Changes tasks in turn, so many a second, for so long. Each change's message is the instant of its writing. */
  | { readonly do: "change"; readonly perSecond: number; readonly ms: number }
  /** Changes this one task so often, as fast as it goes, with a message of that many characters. */
  | { readonly do: "flood"; readonly task: number; readonly times: number; readonly length: number };

/** Serves so many running tasks, and changes them when told to by IPC. */
const [file = "", count = "0"] = process.argv.slice(2);
const store = sqlite(file);
const never = () => {
  throw new Error("No worker runs here");
};
const tool = taskTool({ name: "work", run: never });
const wanted = {
  ...{ worker: "bench", tools: [{ name: tool.name, version: tool.version, limit: null }], queues: ["default"] },
  ...{ ownerLimit: null, leaseMs: 3_600_000 },
};
const claims: Attempt[] = [];
while (claims.length < Number(count)) {
  await Promise.all(Array.from({ length: 500 }, () => store.create(newTask({ tool: tool.name, owner: "" }), null)));
  for (let taken = 1; taken > 0;) {
    const claimed = await store.claim({ ...wanted, count: 500 });
    taken = claimed.length;
    claims.push(...claimed.map(({ taskId, epoch }) => ({ taskId, epoch })));
  }
}

const onError = (error: Error) => console.error(error.message, error.cause ?? "");
const served = createTasks({ store, tools: [tool], onError });
const { url } = await served
  .serve(() => new McpServer({ name: "bench", version: "1.0.0" }), { maxStreams: 100_000 })
  .listen();
process.on("message", (order: Order) => void carryOut(order));
process.on("disconnect", () => process.exit());
process.send?.({ url, tasks: claims.map(({ taskId }) => taskId) });

async function carryOut(order: Order): Promise<void> {
  if (order.do === "change") await change(order.perSecond, order.ms);
  if (order.do === "flood") await flood(order.task, order.times, order.length);
  globalThis.gc?.();
  const { rss, heapUsed: heap } = process.memoryUsage();
  process.send?.({ rss, heap } satisfies Memory);
}

async function change(perSecond: number, ms: number): Promise<void> {
  const tick = 10;
  const began = performance.now();
  let done = 0;
  let next = 0;
  while (performance.now() - began < ms) {
    const due = Math.floor(((performance.now() - began) * perSecond) / 1_000) - done;
    done += due;
    // Written together, they share a commit, as changes of many workers do.
    const batch = Array.from({ length: due }, () => claims[next++ % claims.length] as Attempt);
    await Promise.all(
      batch.map((claim) => store.setStatus(claim, String(performance.timeOrigin + performance.now()), null)),
    );
    await new Promise((resolve) => setTimeout(resolve, tick));
  }
}

/** One change a commit: each is told by itself. */
async function flood(task: number, times: number, length: number): Promise<void> {
  const claim = claims[task];
  if (claim === undefined) throw new Error("no such task");
  for (let n = 0; n < times; n++) await store.setStatus(claim, `${n} ${"x".repeat(length)}`, null);
}
