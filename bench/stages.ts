import type { TaskTool } from "../src/tool.ts";
import { startServer } from "../test/postgres/server.ts";
import { atMost, median, quantile, round, type Result } from "./benchmark.ts";
import { clustered } from "./clustered.ts";
import { embedded, type Stage } from "./embedded.ts";

/** Opens a fresh stage for these tools. */
export type Open = (tools: readonly TaskTool[]) => Promise<Stage>;

/** Measures on a file within one process, and across processes' stores on a Postgres that waits for its disk. */
export async function onBoth(measure: (name: string, open: Open) => Promise<void>): Promise<void> {
  await measure("SQLite, one process", embedded);
  await using server = await startServer({ fsync: "on" });
  await measure("Postgres, two stores", (tools) => clustered(server.url, tools));
}

/** One row a stage of how long something takes, and the aim for its median on SQLite, in milliseconds. */
export async function latencies(
  what: string,
  bound: number,
  measure: (open: Open) => Promise<number[]>,
): Promise<Result> {
  const rows: { store: string; "p50 ms": number; "p99 ms": number }[] = [];
  await onBoth(async (store, open) => {
    const times = await measure(open);
    rows.push({ store, "p50 ms": round(median(times)), "p99 ms": round(quantile(times, 0.99)) });
  });
  return { rows, aims: [atMost(`${what} on SQLite, median ms`, bound, rows[0]?.["p50 ms"] ?? null)] };
}
