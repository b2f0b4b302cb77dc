import { randomUUID } from "node:crypto";
import { Client, Pool, type PoolClient } from "pg";
import { PgBoss } from "pg-boss";
import { concurrency, width, type Contender } from "../contender.ts";

type Job = Awaited<ReturnType<PgBoss["fetch"]>>[number];

/** How jobs come and go, alone or with a row of state that changes in the same transactions. */
interface Parts {
  readonly boss: PgBoss;
  readonly pool: Pool;
}
interface Way {
  send(parts: Parts, begun: string): Promise<string>;
  begin(parts: Parts, jobs: readonly Job[]): Promise<unknown>;
  complete(parts: Parts, job: Job): Promise<unknown>;
  readonly hasEnded: ((parts: Parts, id: string) => Promise<boolean>) | null;
}

const queue = "empty";
const channel = "added";
/** A NOTIFY in the transaction would make commits wait for one another: one is sent after many. */
const coalesceMs = 5;

async function open(place: string): Promise<Parts & AsyncDisposable> {
  const pool = new Pool({ connectionString: place, max: width });
  pool.on("error", () => {});
  const db = { executeSql: async (text: string, values?: unknown[]) => await pool.query(text, values ?? []) };
  const boss = new PgBoss({ db, supervise: false, schedule: false });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  return {
    ...{ boss, pool },
    async [Symbol.asyncDispose]() {
      await boss.stop({ graceful: false });
      await pool.end();
    },
  };
}

function contender(way: Way): Contender {
  return {
    async setUp(place) {
      await using parts = await open(place);
      await parts.boss.createQueue(queue, { heartbeatSeconds: 10 });
      await parts.pool.query(
        "CREATE TABLE state (id uuid PRIMARY KEY, owner text, status text, epoch int, args text, result text)",
      );
    },
    async producer(place) {
      const parts = await open(place);
      let sending: NodeJS.Timeout | null = null;
      let last = 0;
      const notify = () => {
        const send = () => {
          sending = null;
          last = Date.now();
          void parts.pool.query("SELECT pg_notify($1, '')", [channel]).catch(() => {});
        };
        sending ??= setTimeout(send, Date.now() - last > coalesceMs ? 0 : coalesceMs);
      };
      const { hasEnded } = way;
      return {
        async create(begun) {
          const id = await way.send(parts, begun);
          notify();
          return id;
        },
        hasEnded: hasEnded === null ? null : (id) => hasEnded(parts, id),
        [Symbol.asyncDispose]: () => parts[Symbol.asyncDispose](),
      };
    },
    async worker(place, told) {
      const parts = await open(place);
      let running = 0;
      let pulling = false;
      let again = false;
      async function run(job: Job): Promise<void> {
        told.started((job.data as { begun: string }).begun);
        await way.complete(parts, job);
        told.ended();
      }
      // By fetch, as many as there is room for: work() sleeps between the jobs of a backlog.
      async function pull(): Promise<void> {
        again = true;
        if (pulling) return;
        pulling = true;
        while (again && running < concurrency) {
          again = false;
          const batchSize = concurrency - running;
          const jobs = await parts.boss.fetch(queue, { batchSize, includeMetadata: true });
          if (jobs.length === 0) continue;
          again = true;
          await way.begin(parts, jobs);
          running += jobs.length;
          for (const job of jobs)
            void run(job).finally(() => {
              running -= 1;
              void pull();
            });
        }
        pulling = false;
      }
      const listener = new Client({ connectionString: place });
      await listener.connect();
      listener.on("notification", () => void pull());
      await listener.query(`LISTEN ${channel}`);
      const poll = setInterval(() => void pull(), 500);
      void pull();
      return {
        async [Symbol.asyncDispose]() {
          clearInterval(poll);
          await listener.end();
          await parts[Symbol.asyncDispose]();
        },
      };
    },
  };
}

export const bare = contender({
  send: async ({ boss }, begun) => (await boss.send(queue, { begun })) ?? "",
  begin: async () => {},
  complete: ({ boss }, job) => boss.complete(queue, job),
  hasEnded: null,
});

async function transaction(pool: Pool, work: (client: PoolClient) => Promise<unknown>): Promise<void> {
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

export const stateful = contender({
  async send({ boss, pool }, begun) {
    const id = randomUUID();
    await transaction(pool, async (client) => {
      const text = "INSERT INTO state VALUES ($1, 'alice', 'working', 0, '{}')";
      await client.query({ name: "insert", text, values: [id] });
      await boss.send(queue, { begun }, { id, db: through(client) });
    });
    return id;
  },
  begin({ pool }, jobs) {
    const text = "UPDATE state SET epoch = epoch + 1 WHERE id = ANY ($1::uuid[])";
    return pool.query({ name: "claim", text, values: [jobs.map(({ id }) => id)] });
  },
  complete: ({ boss, pool }, job) =>
    transaction(pool, async (client) => {
      const text = "UPDATE state SET status = 'completed', result = '{}' WHERE id = $1 AND status = 'working'";
      await client.query({ name: "finish", text, values: [job.id] });
      await boss.complete(queue, job, null, { db: through(client) });
    }),
  async hasEnded({ pool }, id) {
    const { rows } = await pool.query({ name: "get", text: "SELECT * FROM state WHERE id = $1", values: [id] });
    return (rows as { status: string }[])[0]?.status === "completed";
  },
});
