import { randomUUID } from "node:crypto";
import { Pool, type PoolClient } from "pg";
import { PgBoss } from "pg-boss";
import { claim, create, owner } from "../src/store/contract/kit.ts";
import { postgres } from "../src/store/postgres/index.ts";
import { startServer } from "../test/postgres/server.ts";
import { atLeast, below, median, timed, type Result } from "./benchmark.ts";

/** What is measured side by side, on one server, in turns. Rates are per second. */
interface Contender {
  readonly name: string;
  add(n: number): Promise<unknown>;
  /** Takes up to ten, finishes them one by one and tells how many there were. */
  drain(): Promise<number>;
}

const count = 1_000;
const rounds = 4;

/** Runs `work` for 0 to n-1, sixteen at a time. */
async function each(n: number, work: (i: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  const run = async () => {
    while (next < n) await work(next++);
  };
  await Promise.all(Array.from({ length: 16 }, run));
}

/** Two workers until that many are done. */
async function drainAll({ drain }: Contender): Promise<void> {
  let done = 0;
  const worker = async () => {
    while (done < count) {
      const taken = await drain();
      done += taken;
      if (taken === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    }
  };
  await Promise.all([worker(), worker()]);
}

/**
 * Our store as a queue (create; claim ten, finish each) beside bare pg-boss jobs (send; fetch ten, complete each), and
 * beside pg-boss with a row of state that changes in the same transactions, as a store on top of it would have.
 */
export async function queue(): Promise<Result> {
  await using server = await startServer({ fsync: "on" });
  await using store = postgres(server.url, { connections: 10 });
  const boss = new PgBoss({ connectionString: server.url, max: 10, supervise: false, schedule: false });
  boss.on("error", () => {});
  await boss.start();
  for (const name of ["bare", "stateful"]) await boss.createQueue(name, { heartbeatSeconds: 10 });
  const pool = new Pool({ connectionString: server.url, max: 10 });
  pool.on("error", () => {});
  await pool.query(
    "CREATE TABLE state (id uuid PRIMARY KEY, owner text, status text, epoch int, args text, result text)",
  );
  const contenders = [ours(store), bare(boss), stateful(boss, pool)];
  const found = new Map(
    contenders.map(({ name }) => [name, { add: [] as number[], drain: [] as number[], both: [] as number[] }]),
  );
  for (let n = 0; n < rounds; n++) {
    for (const contender of n % 2 === 0 ? contenders : contenders.toReversed()) {
      const rate = async (work: () => Promise<unknown>) => (count * 1_000) / (await timed(work));
      const add = await rate(() => each(count, contender.add));
      const drain = await rate(() => drainAll(contender));
      const both = await rate(() => Promise.all([each(count, contender.add), drainAll(contender)]));
      // The first round warms up.
      if (n > 0)
        for (const [key, value] of Object.entries({ add, drain, both }))
          found.get(contender.name)![key as "add"].push(value);
    }
  }
  const latency = await startLatency(server.url);
  const reads = await readRate(server.url);
  await boss.stop({ graceful: false });
  await pool.end();

  const rows = [...found].map(([name, { add, drain, both }]) => {
    const rates = { "add/s": median(add), "take and finish/s": median(drain), "both at once/s": median(both) };
    return { name, ...Object.fromEntries(Object.entries(rates).map(([key, value]) => [key, Math.round(value)])) };
  });
  const [first, second] = [...found.values()];
  const ratio = median(first!.both.map((value, n) => value / second!.both[n]!));
  return {
    rows: [...rows, { name: "reads of one mcp-tasks process", "get/s": Math.round(reads) }],
    aims: [
      atLeast("both at once, the state kept, against bare pg-boss, ratio", 0.8, ratio),
      below("from create to a claim at another store, median ms", 8, latency),
    ],
  };
}

function ours(store: ReturnType<typeof postgres>): Contender {
  return {
    name: "mcp-tasks",
    add: (n) => create(store, { owner: `owner ${n % 5}` }),
    async drain() {
      const claims = await claim(store, { count: 10 });
      await Promise.all(claims.map((claimed) => store.finish(claimed, { status: "completed", result: "{}" })));
      return claims.length;
    },
  };
}

function bare(boss: PgBoss): Contender {
  return {
    name: "pg-boss",
    add: (n) => boss.send("bare", { n }),
    async drain() {
      const jobs = await boss.fetch("bare", { batchSize: 10, includeMetadata: true });
      await Promise.all(jobs.map((job) => boss.complete("bare", job)));
      return jobs.length;
    },
  };
}

function stateful(boss: PgBoss, pool: Pool): Contender {
  async function transaction(work: (client: PoolClient) => Promise<unknown>): Promise<void> {
    const client = await pool.connect();
    try {
      await client.query("BEGIN");
      await work(client);
      await client.query("COMMIT");
    } finally {
      client.release();
    }
  }
  const through = (client: PoolClient) => ({
    executeSql: async (text: string, values?: unknown[]) => await client.query(text, values ?? []),
  });
  return {
    name: "pg-boss and a row of state",
    add: (n) =>
      transaction(async (client) => {
        const id = randomUUID();
        const text = "INSERT INTO state VALUES ($1, $2, 'working', 0, '{}')";
        await client.query({ name: "insert", text, values: [id, `owner ${n % 5}`] });
        await boss.send("stateful", { id }, { id, db: through(client) });
      }),
    async drain() {
      const jobs = await boss.fetch("stateful", { batchSize: 10, includeMetadata: true });
      if (jobs.length === 0) return 0;
      const text = "UPDATE state SET epoch = epoch + 1 WHERE id = ANY ($1::uuid[])";
      await pool.query({ name: "claim", text, values: [jobs.map(({ id }) => id)] });
      const end = "UPDATE state SET status = 'completed', result = '{}' WHERE id = $1 AND status = 'working'";
      const finish = (job: (typeof jobs)[number]) =>
        transaction(async (client) => {
          await client.query({ name: "finish", text: end, values: [job.id] });
          await boss.complete("stateful", job, null, { db: through(client) });
        });
      await Promise.all(jobs.map(finish));
      return jobs.length;
    },
  };
}

/** Milliseconds from the call of create to the claim of a worker elsewhere that is woken by the hint. */
async function startLatency(url: string): Promise<number> {
  await using front = postgres(url, { schema: "latency" });
  await using back = postgres(url, { schema: "latency" });
  await back.nextDue();
  const delays: number[] = [];
  let claimed = Promise.withResolvers<void>();
  const stop = back.watch(() => {
    void claim(back, { worker: "back" }).then((claims) => claims.length > 0 && claimed.resolve());
  });
  for (let n = 0; n < 120; n++) {
    claimed = Promise.withResolvers();
    // Tasks don't come in step with what went before.
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 20));
    const delay = await timed(async () => await Promise.all([create(front), claimed.promise]));
    // The first ones also open connections.
    if (n >= 20) delays.push(delay);
  }
  stop();
  return median(delays);
}

async function readRate(url: string): Promise<number> {
  await using store = postgres(url, { schema: "reads", connections: 16 });
  const ids = await Promise.all(Array.from({ length: 100 }, async () => (await create(store)).id));
  await each(1_000, (n) => store.get(ids[n % 100]!, owner));
  return 5_000_000 / (await timed(() => each(5_000, (n) => store.get(ids[n % 100]!, owner))));
}
