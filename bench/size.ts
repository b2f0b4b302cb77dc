import { Client } from "pg";
import { claimOne, create } from "../src/store/contract/kit.ts";
import { postgres } from "../src/store/postgres/index.ts";
import { startServer } from "../test/postgres/server.ts";
import { below, round, type Benchmark } from "./benchmark.ts";

const count = 1_000;

/** What tasks are like: the lengths of their arguments, results and step values are bytes of JSON. */
const kinds = [
  { kind: "100 bytes in, 100 out, no steps", args: 100, result: 100, steps: 0, step: 0 },
  { kind: "1 KiB in, 1 KiB out, 5 steps of 200 bytes", args: 1_024, result: 1_024, steps: 5, step: 200 },
  { kind: "1 KiB in, 20 KiB out, 20 steps of 1 KiB", args: 1_024, result: 20_480, steps: 20, step: 1_024 },
] as const;

/** Text that doesn't shrink much when the database compresses it. */
const json = (bytes: number) =>
  JSON.stringify(
    Array.from(crypto.getRandomValues(new Uint8Array(Math.min(65_536, bytes))), (byte) => byte.toString(36))
      .join("")
      .slice(0, Math.max(0, bytes - 2)),
  );

/** What a finished task takes of a Postgres server until it is deleted: of the disk, and of what replicas are sent. */
export const size: Benchmark = async () => {
  await using server = await startServer();
  const client = new Client(server.url);
  await client.connect();
  const number = async (text: string, values: readonly unknown[] = []) =>
    Number(((await client.query(text, [...values])).rows[0] as { value: string }).value);
  const rows = [];
  for (const [n, { kind, args, result, steps, step }] of kinds.entries()) {
    const schema = `size_${n}`;
    await using store = postgres(server.url, { schema });
    await store.nextDue();
    // What the log holds of each page at its first change after a checkpoint is counted once, and not by chance.
    await client.query("CHECKPOINT");
    const before = await number("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn AS value");
    for (let i = 0; i < count; i++) {
      await create(store, { args: json(args) });
      const attempt = await claimOne(store);
      for (let s = 0; s < steps; s++)
        await store.recordStep(attempt, `step ${s}`, { state: "done", value: json(step) });
      await store.finish(attempt, { status: "completed", result: json(result) });
    }
    const log = (await number("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn AS value")) - before;
    const text = `SELECT sum(pg_total_relation_size(oid)) AS value FROM pg_class
      WHERE relnamespace = $1::regnamespace AND relkind = 'r'`;
    const disk = await number(text, [schema]);
    rows.push({
      kind,
      "disk KiB a task": round(disk / count / 1_024, 1),
      "log KiB a task": round(log / count / 1_024, 1),
    });
  }
  await client.end();
  return {
    rows,
    aims: [below("KiB of disk for a small finished task", 2, Number(rows[0]?.["disk KiB a task"]))],
  };
};
