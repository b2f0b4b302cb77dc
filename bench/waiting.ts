import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { below, median, quantile, round, type Benchmark } from "./benchmark.ts";

import { besideFinished, type Beside } from "./finished.ts";

/** What `waiting-process.ts` prints. */
interface Sample {
  readonly parked: number;
  /** By how much the resident memory grew while so many came to wait. */
  readonly grownBytes: number;
  readonly getMs: readonly number[];
  readonly restartMs: number;
}

const counts = [0, 10_000, 50_000, 100_000];
const finishedCounts = [1_000, 1_000_000];
const rounds = 3;

/**
 * Tasks that wait for input: what they cost in memory, what they do to `tasks/get`, how soon a restart is ready. And
 * tasks that are over: what they do to those that are not.
 */
export const waiting: Benchmark = async () => {
  const samples = new Map<number, Sample[]>(counts.map((count) => [count, []]));
  for (let n = 0; n < rounds; n++) for (const count of counts) samples.get(count)?.push(await sample(count));
  const rows = counts.map((parked) => {
    const of = samples.get(parked) ?? [];
    const middle = (value: (one: Sample) => number) => quantile(of.map(value), 0.5);
    return {
      parked,
      "resident growth MiB": round(middle(({ grownBytes }) => grownBytes) / 2 ** 20, 1),
      "get p50 µs": round(middle(({ getMs }) => quantile(getMs, 0.5)) * 1000, 1),
      "get p99 µs": round(middle(({ getMs }) => quantile(getMs, 0.99)) * 1000, 1),
      "restart ms": round(
        middle(({ restartMs }) => restartMs),
        0,
      ),
    };
  });
  const finished = new Map<number, Beside[]>(finishedCounts.map((count) => [count, []]));
  for (let n = 0; n < rounds - 1; n++)
    for (const count of finishedCounts) finished.get(count)?.push(await besideFinished(count));
  const over = [...finished].map(([count, of]) => ({
    finished: count,
    "get p50 µs": round(median(of.map(({ getMs }) => median(getMs))) * 1000, 1),
    "get p99 µs": round(median(of.map(({ getMs }) => quantile(getMs, 0.99))) * 1000, 1),
    "empty task p50 ms": round(median(of.map(({ runMs }) => median(runMs)))),
  }));
  const [few, many] = over;
  const [none, , fifty] = rows;
  if (none === undefined || fifty === undefined) throw new Error("no rows");
  const bytes = (fifty["resident growth MiB"] * 2 ** 20) / fifty.parked;
  const slower = fifty["get p50 µs"] / none["get p50 µs"];
  return {
    rows: [...rows, ...over],
    aims: [
      below("memory of 50,000 waiting tasks, bytes each", 1024, bytes),
      below("tasks/get with 50,000 waiting, against none, ratio", 1.25, slower),
      below("restart with 50,000 waiting, ms", 2000, fifty["restart ms"]),
      below(
        "an empty task beside 1,000,000 finished ones, against 1,000, ratio",
        1.25,
        (many?.["empty task p50 ms"] ?? NaN) / (few?.["empty task p50 ms"] ?? NaN),
      ),
    ],
  };
};

/** Memory is only comparable between processes that did nothing else. */
async function sample(parked: number): Promise<Sample> {
  const program = new URL("./waiting-process.ts", import.meta.url).pathname;
  const run = promisify(execFile)(process.execPath, ["--expose-gc", ...process.execArgv, program, String(parked)]);
  return JSON.parse((await run).stdout) as Sample;
}
