import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { atMost, below, median, round, type Benchmark } from "./benchmark.ts";
import type { Used } from "./create-server.ts";
import { load, type Target } from "./load.ts";
import { inText, sized } from "./request.ts";

const rounds = 10;
const roundMs = 400;
const connectionCounts = [1, 64];

/** One way to answer, at so many calls at once: for each round, what a call took. */
interface Samples {
  readonly answer: "durable task" | "plain result";
  readonly connections: number;
  readonly micros: number[];
  readonly rates: number[];
  readonly commits: number[];
}

/** `tools/call` to the handle of a durable task, beside a call of the SDK alone that returns at once. */
export const create: Benchmark = async () => {
  const folder = await mkdtemp(join(tmpdir(), "mcp-tasks-bench-"));
  const child = fork(new URL("./create-server.ts", import.meta.url).pathname, [join(folder, "tasks.db")]);
  try {
    const [{ url, plainUrl }] = (await once(child, "message")) as [{ url: string; plainUrl: string }];
    const call = { method: "tools/call", name: "work", params: { name: "work", arguments: { text: "x".repeat(100) } } };
    const tasks = await sized(inText({ ...call, url }));
    const plain = await sized(inText({ ...call, url: plainUrl }));
    const samples: Samples[] = [];
    for (const connections of connectionCounts) samples.push(...(await measure(child, { tasks, plain }, connections)));
    return { rows: samples.map(rowOf), aims: aimsOf(samples) };
  } finally {
    child.disconnect();
    await once(child, "exit");
    await rm(folder, { recursive: true });
  }
};

async function measure(
  child: ChildProcess,
  { tasks, plain }: { readonly tasks: Target; readonly plain: Target },
  connections: number,
): Promise<Samples[]> {
  const none = () => ({ micros: [], rates: [], commits: [] });
  const ours: Samples = { answer: "durable task", connections, ...none() };
  const stock: Samples = { answer: "plain result", connections, ...none() };
  for (let n = 0; n <= rounds; n++) {
    for (const [of, target] of [[ours, tasks] as const, [stock, plain] as const]) {
      const before = await used(child);
      const { answers, ms } = await load(target, connections, roundMs);
      const after = await used(child);
      // The first round warms up.
      if (n === 0) continue;
      of.micros.push((after.micros - before.micros) / answers);
      of.rates.push((answers * 1_000) / ms);
      of.commits.push((after.commits - before.commits) / answers);
    }
  }
  return [ours, stock];
}

async function used(child: ChildProcess): Promise<Used> {
  const told = once(child, "message") as Promise<[Used]>;
  child.send("");
  return (await told)[0];
}

function rowOf({ answer, connections, micros, rates, commits }: Samples) {
  return {
    ...{ answer, "calls at once": connections },
    "µs of CPU": round(median(micros), 1),
    "calls/s": Math.round(median(rates)),
    "commits a call": round(median(commits)),
  };
}

function aimsOf(samples: readonly Samples[]) {
  const aims = connectionCounts.map((connections) => {
    const of = (answer: Samples["answer"]) =>
      samples.find((one) => one.answer === answer && one.connections === connections)?.micros ?? [];
    // Ratios of neighbours in time: the machine is not the same for long.
    const ratios = of("durable task").map((value, n) => value / (of("plain result")[n] ?? Number.NaN));
    return atMost(
      `CPU of a call that becomes a task, ${connections} at once, against a plain one`,
      1.3,
      median(ratios),
    );
  });
  const shared = samples.find(({ answer, connections }) => answer === "durable task" && connections === 64);
  return [...aims, below("commits a call with 64 at once", 0.5, median(shared?.commits ?? []))];
}
