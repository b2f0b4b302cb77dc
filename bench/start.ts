import { taskTool } from "../src/tool.ts";
import type { Benchmark } from "./benchmark.ts";
import { latencies, type Open } from "./stages.ts";

const warmUp = 50;
const count = 500;

/** From the call of `create` to the first line of the handler, one task at a time; the commit is part of it. */
export const start: Benchmark = () => latencies("create to handler", 2, measure);

async function measure(open: Open): Promise<number[]> {
  let entered = Promise.withResolvers<number>();
  const tool = taskTool({
    name: "empty",
    run() {
      entered.resolve(performance.now());
      return { content: [] };
    },
  });
  await using stage = await open([tool]);
  const times: number[] = [];
  for (let n = 0; n < warmUp + count; n++) {
    entered = Promise.withResolvers<number>();
    const began = performance.now();
    const id = await stage.start(tool);
    const at = await entered.promise;
    if (n >= warmUp) times.push(at - began);
    await stage.engine.settled(id, "", AbortSignal.timeout(10_000));
  }
  return times;
}
