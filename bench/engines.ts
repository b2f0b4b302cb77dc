import { Client } from "pg";
import { startServer } from "../test/postgres/server.ts";
import { measureAge } from "./age.ts";
import { atLeast, below, median, quantile, round, timed, type Benchmark } from "./benchmark.ts";
import { installPeers, peerVersions } from "./install.ts";
import { measureReads } from "./reads.ts";
import { startRedis, type RedisServer } from "./redis.ts";
import { reason, startSide, type Entry, type Side } from "./sides.ts";

const ours: Entry = { name: "mcp-tasks", file: "./ours.ts", export: "onPostgres" };
const peers: readonly Entry[] = [
  { name: "pg-boss", file: "./peers/pg-boss.ts", export: "bare" },
  { name: "pg-boss and a row of state", file: "./peers/pg-boss.ts", export: "stateful" },
  { name: "graphile-worker", file: "./peers/graphile-worker.ts", export: "graphileWorker" },
  { name: "DBOS", file: "./peers/dbos.ts", export: "queued" },
  { name: "BullMQ", file: "./peers/bullmq.ts", export: "bullmq" },
];

const rounds = 3;
const warmUps = 300;
const count = 1_000;
const starts = 80;

/** What is known of one that runs, or why it doesn't. */
interface Found {
  readonly entry: Entry;
  readonly place: string;
  readonly size: () => Promise<number>;
  readonly rates: number[];
  readonly startMs: number[];
  bytes: number;
  tasks: number;
  failed: string | null;
}

/**
 * Tasks from end to end, in turns on one server that flushes each commit: a producer's process makes them, sixteen at
 * once, a worker's runs an empty handler for each, ten at once, and the producer reads how each one ended. Of bare pg-boss
 * jobs and of graphile-worker's it reads nothing: no state is kept for it.
 */
export const engines: Benchmark = async () => {
  const missing = await installPeers();
  await using server = await startServer({ fsync: "on" });
  await using resources = new AsyncDisposableStack();
  const admin = new Client({ connectionString: server.url });
  await admin.connect();
  resources.defer(() => admin.end());
  const redis = missing === null ? await startRedis().catch((thrown: Error) => thrown.message) : missing;
  if (typeof redis !== "string") resources.use(redis);

  const lineUp: Found[] = [];
  for (const entry of [ours, ...peers]) lineUp.push(await prepare(entry, admin, server.url, redis, missing));
  for (let n = 0; n < rounds; n++) {
    for (const found of n % 2 === 0 ? lineUp : lineUp.toReversed()) {
      if (found.failed === null) await measure(found).catch((thrown) => (found.failed = reason(thrown)));
    }
  }
  const reads = await measureReads(server.url);
  const age = await measureAge(server.url);

  const [first, second] = lineUp;
  const { rows: shown } = await admin.query("SHOW server_version");
  return {
    versions: {
      postgres: String((shown as { server_version: string }[])[0]?.server_version),
      ...(typeof redis === "string" ? {} : { redis: redis.version }),
      ...(await peerVersions("pg-boss", "graphile-worker", "@dbos-inc/dbos-sdk", "bullmq")),
    },
    rows: [...lineUp.map(row), ...reads.rows, ...age.rows],
    aims: [
      atLeast("end to end against bare pg-boss, ratio", 0.8, ratio(first, second)),
      below("from create to the handler, median ms", 8, first?.startMs.length ? median(first.startMs) : null),
      atLeast("tasks/get a second and core, at the store", 15_000, reads.perCore),
      below("a claim with 1,000,000 finished tasks, against none, ratio", 1.2, age.claim),
      below("tasks/get with 1,000,000 finished tasks, against none, ratio", 1.2, age.get),
    ],
  };
};

async function prepare(
  entry: Entry,
  admin: Client,
  url: string,
  redis: RedisServer | string,
  missing: string | null,
): Promise<Found> {
  const found = { entry, rates: [], startMs: [], bytes: 0, tasks: 0, failed: null };
  if (entry.name === "BullMQ") {
    if (typeof redis === "string") return { ...found, place: "", size: async () => 0, failed: redis };
    return { ...found, place: redis.url, size: () => redis.usedBytes() };
  }
  const name = entry.name.replaceAll(/\W+/g, "_").toLowerCase();
  const place = url.replace(/[^/]*$/, name);
  const size = async () => {
    const { rows } = await admin.query("SELECT pg_database_size($1)::float8 AS size", [name]);
    return (rows as { size: number }[])[0]?.size ?? NaN;
  };
  if (missing !== null && entry !== ours) return { ...found, place, size, failed: missing };
  await admin.query(`CREATE DATABASE ${name}`);
  try {
    await using side = await startSide(entry, place);
    await side.ask("setUp");
    return { ...found, place, size };
  } catch (thrown) {
    return { ...found, place, size, failed: reason(thrown) };
  }
}

/** One round of a contender, in fresh processes: the others rest meanwhile. */
async function measure(found: Found): Promise<void> {
  const { entry, place } = found;
  await using worker = await startSide(entry, place, "worker");
  await using producer = await startSide(entry, place, "producer");
  await worker.ask("open");
  await producer.ask("open");
  const before = await found.size();
  await endToEnd(producer, worker, warmUps);
  found.rates.push((count * 1000) / (await timed(() => endToEnd(producer, worker, count))));
  await worker.ask("startMs");
  for (let n = 0; n < starts; n++) {
    // Tasks don't come in step with what went before.
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 20));
    const started = worker.ask("startMs");
    await producer.ask("createOne");
    found.startMs.push(await started);
  }
  await worker.ask("endedAll", starts);
  found.bytes += (await found.size()) - before;
  found.tasks += warmUps + count + starts;
}

async function endToEnd(producer: Side, worker: Side, tasks: number): Promise<void> {
  const ended = worker.ask("endedAll", tasks);
  await producer.ask("create", tasks);
  await ended;
  await producer.ask("endedAll");
}

function ratio(first: Found | undefined, second: Found | undefined): number | null {
  const ratios = first?.rates.map((rate, n) => rate / (second?.rates[n] ?? NaN)) ?? [];
  return first?.failed !== null || second?.failed !== null ? null : median(ratios);
}

function row({ entry, rates, startMs, bytes, tasks, failed }: Found) {
  if (failed !== null) return { name: entry.name, note: `not run: ${failed}` };
  return {
    name: entry.name,
    "tasks/s": Math.round(median(rates)),
    "start p50 ms": round(median(startMs)),
    "start p99 ms": round(quantile(startMs, 0.99)),
    "bytes/task": Math.round(bytes / tasks),
    ...(entry.name === "BullMQ" ? { note: "bytes of memory" } : {}),
  };
}
