import { z } from "zod";
import { taskTool } from "../src/tool.ts";
import { atMost, below, median, quantile, round, type Benchmark } from "./benchmark.ts";
import type { Stage } from "./embedded.ts";
import { onBoth, type Open } from "./stages.ts";

const rounds = 5;
const answersPerRound = 20;
const stepCounts = [0, 100, 1000];

/** From an answer to the code after the wait, with so many recorded steps to repeat: what a person feels. */
export const resume: Benchmark = async () => {
  const rows: { store: string; "recorded steps": number; "p50 ms": number; "p99 ms": number }[] = [];
  await onBoth(async (store, open) => {
    const times = new Map<number, number[]>(stepCounts.map((steps) => [steps, []]));
    for (let n = 0; n < rounds; n++)
      for (const steps of stepCounts) times.get(steps)?.push(...(await measure(open, steps)));
    for (const [steps, ms] of times)
      rows.push({ store, "recorded steps": steps, "p50 ms": round(median(ms)), "p99 ms": round(quantile(ms, 0.99)) });
  });
  const [none, hundred] = rows;
  return {
    rows,
    aims: [
      atMost("answer to running code without steps on SQLite, median ms", 5, none?.["p50 ms"] ?? null),
      below("answer to running code with 100 steps on SQLite, median ms", 10, hundred?.["p50 ms"] ?? null),
    ],
  };
};

async function measure(open: Open, steps: number): Promise<number[]> {
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
  await using stage = await open([tool]);
  const id = await stage.start(tool);
  for (let i = 0; i < answersPerRound; i++) {
    await until(stage, id, `q${i}`);
    const answer = stage.engine.answer(id, "", { [`q${i}`]: { action: "accept", content: { v: "x" } } });
    answered[i] = performance.now();
    await answer;
  }
  await stage.engine.settled(id, "", AbortSignal.timeout(60_000));
  return resumed.map((at, i) => at - (answered[i] ?? NaN));
}

async function until({ engine }: Stage, id: string, key: string) {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const look = () =>
    void engine.read(id, "").then(({ inputRequests }) => {
      if (key in inputRequests) resolve();
    }, reject);
  const stop = engine.watch(id, look);
  look();
  await promise.finally(stop);
}
