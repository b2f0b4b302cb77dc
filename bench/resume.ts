import { z } from "zod";
import type { Engine } from "../src/engine/engine.ts";
import { taskTool } from "../src/tool.ts";
import { atMost, below, median, quantile, round, type Benchmark } from "./benchmark.ts";
import { embedded } from "./embedded.ts";

const rounds = 5;
const answersPerRound = 20;
const stepCounts = [0, 100, 1000];

/** From an answer to the code after the wait, with so many recorded steps to repeat: what a person feels. */
export const resume: Benchmark = async () => {
  const times = new Map<number, number[]>(stepCounts.map((steps) => [steps, []]));
  for (let n = 0; n < rounds; n++) {
    for (const steps of stepCounts) times.get(steps)?.push(...(await measure(steps)));
  }
  const rows = [...times].map(([steps, ms]) => ({
    "recorded steps": steps,
    "p50 ms": round(median(ms)),
    "p99 ms": round(quantile(ms, 0.99)),
  }));
  const hundred = rows.find((row) => row["recorded steps"] === 100)?.["p50 ms"] ?? NaN;
  const none = rows.find((row) => row["recorded steps"] === 0)?.["p50 ms"] ?? NaN;
  return {
    rows,
    aims: [
      below("answer to running code with 100 steps, median ms", 10, hundred),
      atMost("answer to running code without steps, median ms", 5, none),
    ],
  };
};

async function measure(steps: number): Promise<number[]> {
  const answered: number[] = [];
  const resumed: number[] = [];
  const tool = taskTool({
    name: "ask",
    async run(_args, task) {
      for (let i = 0; i < steps; i++) await task.step(`step ${i}`, () => ({ i, text: "a value of some length" }));
      for (let i = 0; i < answersPerRound; i++) {
        await task.elicit(`q${i}`, { message: "?", schema: z.object({ v: z.string() }) });
        resumed[i] ??= performance.now();
      }
      return { content: [] };
    },
  });
  await using bench = await embedded([tool]);
  const id = await bench.start(tool);
  for (let i = 0; i < answersPerRound; i++) {
    await until(bench, id, `q${i}`);
    const answer = bench.engine.answer(id, "", { [`q${i}`]: { action: "accept", content: { v: "x" } } });
    answered[i] = performance.now();
    await answer;
  }
  await bench.engine.settled(id, "", AbortSignal.timeout(60_000));
  return resumed.map((at, i) => at - (answered[i] ?? NaN));
}

async function until(bench: { engine: Engine }, id: string, key: string) {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const look = () =>
    void bench.engine.read(id, "").then(({ inputRequests }) => {
      if (key in inputRequests) resolve();
    }, reject);
  const stop = bench.engine.watch(id, look);
  look();
  await promise.finally(stop);
}
