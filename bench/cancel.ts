import { once } from "node:events";
import { taskTool } from "../src/tool.ts";
import type { Benchmark } from "./benchmark.ts";
import { latencies, type Open } from "./stages.ts";

const warmUp = 20;
const count = 200;

/** From the call of `cancel` to the abort of the signal of the handler that runs. */
export const cancel: Benchmark = () => latencies("cancel to aborted signal", 5, measure);

async function measure(open: Open): Promise<number[]> {
  let entered = Promise.withResolvers<void>();
  let aborted = Promise.withResolvers<number>();
  const tool = taskTool({
    name: "endless",
    async run(_args, task) {
      const abort = once(task.signal, "abort");
      entered.resolve();
      await abort;
      aborted.resolve(performance.now());
      throw task.signal.reason;
    },
  });
  await using stage = await open([tool]);
  const times: number[] = [];
  for (let n = 0; n < warmUp + count; n++) {
    entered = Promise.withResolvers<void>();
    aborted = Promise.withResolvers<number>();
    const id = await stage.start(tool);
    await entered.promise;
    const began = performance.now();
    await stage.engine.cancel(id, "");
    const at = await aborted.promise;
    if (n >= warmUp) times.push(at - began);
    await stage.engine.settled(id, "", AbortSignal.timeout(10_000));
  }
  return times;
}
