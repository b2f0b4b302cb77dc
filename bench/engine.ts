import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "pg";
import { startServer } from "../test/postgres/server.ts";
import { atLeast, median, timed, type Benchmark } from "./benchmark.ts";
import { installPeers, peerVersions } from "./install.ts";
import { startRedis } from "./redis.ts";
import { reason, startSide, type Entry } from "./sides.ts";

/** One engine with producer and worker in one process, and what its word is worth. */
interface Embedded extends Entry {
  readonly on: "a file" | "Postgres" | "Redis";
  readonly durable: string;
}

const peers = "./peers/";
const flushed = "each commit is flushed to the disk";
const lineUp: readonly Embedded[] = [
  { name: "mcp-tasks", file: "./ours.ts", export: "onSqlite", on: "a file", durable: flushed },
  { name: "mcp-tasks", file: "./ours.ts", export: "onPostgres", on: "Postgres", durable: flushed },
  { name: "DBOS", file: `${peers}dbos.ts`, export: "direct", on: "Postgres", durable: flushed },
  { name: "OpenWorkflow", file: `${peers}openworkflow.ts`, export: "onSqlite", on: "a file", durable: flushed },
  { name: "OpenWorkflow", file: `${peers}openworkflow.ts`, export: "onPostgres", on: "Postgres", durable: flushed },
  {
    name: "BullMQ",
    file: `${peers}bullmq.ts`,
    export: "bullmq",
    on: "Redis",
    durable: "each write is flushed to the disk",
  },
  { name: "pg-boss", file: `${peers}pg-boss.ts`, export: "bare", on: "Postgres", durable: flushed },
];

const rounds = 3;
const warmUps = 300;
const count = 1_000;

/** Empty tasks from end to end a second, each engine in one process: made, run, ended, read where something is kept. */
export const engine: Benchmark = async () => {
  const missing = await installPeers();
  await using resources = new AsyncDisposableStack();
  const server = resources.use(await startServer({ fsync: "on" }));
  const admin = new Client({ connectionString: server.url });
  await admin.connect();
  resources.defer(() => admin.end());
  const redis = await startRedis().catch((thrown: Error) => thrown.message);
  if (typeof redis !== "string") resources.use(redis);

  async function placeOf({ name, on }: Embedded): Promise<string> {
    if (on === "Redis") {
      if (typeof redis === "string") throw new Error(redis);
      return redis.url;
    }
    if (on === "a file") {
      const folder = await mkdtemp(join(tmpdir(), "mcp-tasks-bench-"));
      resources.defer(() => rm(folder, { recursive: true, force: true }));
      return folder;
    }
    const database = name.replaceAll(/\W/g, "_").toLowerCase();
    await admin.query(`CREATE DATABASE ${database}`);
    return server.url.replace(/[^/]*$/, database);
  }

  const found = lineUp.map((entry) => ({ entry, rates: [] as number[], place: "", failed: null as string | null }));
  for (const one of found) {
    try {
      if (missing !== null && one.entry.file.startsWith(peers)) throw new Error(missing);
      one.place = await placeOf(one.entry);
      await using side = await startSide(one.entry, one.place);
      await side.ask("setUp");
    } catch (thrown) {
      one.failed = reason(thrown);
    }
  }
  for (let n = 0; n < rounds; n++) {
    for (const one of n % 2 === 0 ? found : found.toReversed()) {
      if (one.failed !== null) continue;
      await measure(one.entry, one.place).then(
        (rate) => one.rates.push(rate),
        (thrown) => (one.failed = reason(thrown)),
      );
    }
  }
  const [ours, ...others] = found.map(({ entry, rates, failed }) => ({ entry, failed, rate: median(rates) }));
  const theirs = others.filter(({ entry, failed }) => entry.name !== ours?.entry.name && failed === null);
  const best = theirs.length === 0 || ours?.failed !== null ? null : Math.max(...theirs.map(({ rate }) => rate));
  const { rows } = await admin.query("SHOW server_version");
  return {
    versions: {
      postgres: String((rows as { server_version: string }[])[0]?.server_version),
      ...(typeof redis === "string" ? {} : { redis: redis.version }),
      ...(await peerVersions("@dbos-inc/dbos-sdk", "openworkflow", "bullmq", "pg-boss")),
    },
    rows: found.map(({ entry: { name, on, durable }, rates, failed }) => ({
      ...{ name, on },
      ...(failed === null ? { "tasks/s": Math.round(median(rates)), durable } : { durable: `not run: ${failed}` }),
    })),
    aims: [
      atLeast(
        "tasks/s on a file, against the fastest of the others, ratio",
        1,
        best === null ? null : ours!.rate / best,
      ),
    ],
  };
};

/** Tasks a second, in a fresh process: the others rest meanwhile. */
async function measure(entry: Embedded, place: string): Promise<number> {
  await using side = await startSide(entry, place, "producer", "worker");
  await side.ask("open");
  await side.ask("endToEnd", warmUps);
  return (count * 1000) / (await timed(() => side.ask("endToEnd", count)));
}
