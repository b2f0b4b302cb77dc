import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { Client, Pool } from "pg";
import { afterAll, describe, expect, test } from "vitest";
import { TaskError } from "../../src/errors.ts";
import { claim, claimOne, create, owner, read } from "../../src/store/contract/kit.ts";
import { postgres } from "../../src/store/postgres/index.ts";
import type { TaskStore } from "../../src/store/store.ts";
import { dropSchemas, freshSchema, onGivenServer, openStore, query, url } from "./database.ts";
import { startServer } from "./server.ts";

afterAll(dropSchemas);

const passing: readonly string[] = ["STORE_UNAVAILABLE", "STORE_ANSWER_LOST"];
const unavailable = { name: "TaskError", code: "STORE_UNAVAILABLE" };

/** Tries again for as long as the database is away, as workers do. */
async function steadily<T>(verb: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await verb();
    } catch (thrown) {
      if (!(thrown instanceof TaskError) || !passing.includes(thrown.code)) throw thrown;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}

describe("a database that goes away", () => {
  test.skipIf(onGivenServer)(
    "and comes back in the middle of everything loses nothing, and every task is done once",
    async () => {
      await using server = await startServer();
      const stores = [1, 2, 3].map(() => postgres(server.url, { connections: 4 }));
      const created: string[] = [];
      const finished = new Map<string, number>();
      let producing = true;
      async function produce(store: TaskStore): Promise<void> {
        while (producing) {
          created.push((await steadily(() => create(store))).id);
        }
      }
      async function work(store: TaskStore, worker: string): Promise<void> {
        // Leases end soon: a claim whose answer got lost is taken over.
        while (producing || (await steadily(() => store.list({ limit: 1, status: "working" }))).length > 0) {
          const claims = await steadily(() => claim(store, { worker, count: 5, leaseMs: 500 }));
          for (const claimed of claims) {
            const done = await steadily(() => store.finish(claimed, { status: "completed", result: '"done"' }));
            if (done) finished.set(claimed.taskId, (finished.get(claimed.taskId) ?? 0) + 1);
          }
          if (claims.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
        }
      }
      const running = Promise.all([produce(stores[0]!), ...stores.map((store, n) => work(store, `worker-${n}`))]);
      for (let round = 0; round < 3; round++) {
        const before = created.length;
        while (created.length < before + 30) await new Promise((resolve) => setTimeout(resolve, 5));
        await server.crash();
      }
      producing = false;
      await running;
      for (const taskId of created) expect((await read(stores[0]!, { taskId })).status).toBe("completed");
      expect([...finished.values()].every((times) => times === 1)).toBe(true);
      for (const store of stores) await store[Symbol.asyncDispose]();
    },
  );

  test.skipIf(onGivenServer)(
    "makes verbs fail at once, those that wait for a connection too, and is found again",
    async () => {
      await using server = await startServer();
      await using store = postgres(server.url, { connections: 2 });
      const { id } = await create(store);
      await server.kill();
      const began = performance.now();
      const results = await Promise.allSettled(Array.from({ length: 200 }, () => store.get(id, owner)));
      expect(performance.now() - began).toBeLessThan(2_000);
      for (const result of results) expect(result).toMatchObject({ status: "rejected", reason: unavailable });
      await server.start();
      expect(await steadily(() => store.get(id, owner))).toMatchObject({ id });
    },
  );

  test("without saying so lets verbs fail after the time they are given", async () => {
    const sockets = new Set<Socket>();
    const silent = createServer((socket) => sockets.add(socket)).listen(0, "127.0.0.1");
    await once(silent, "listening");
    const { port } = silent.address() as { port: number };
    await using store = postgres(`postgres://nobody@127.0.0.1:${port}/nothing`, { timeoutMs: 200 });
    const began = performance.now();
    await expect(create(store)).rejects.toMatchObject(unavailable);
    expect(performance.now() - began).toBeLessThan(2_000);
    for (const socket of sockets) socket.destroy();
    silent.close();
  });

  test("that can't be entered is unavailable, and can be entered later", async () => {
    const schema = freshSchema();
    const wrong = new URL(url);
    wrong.pathname = "/no_such_database";
    await using store = postgres(wrong.href, { schema });
    await expect(create(store)).rejects.toMatchObject(unavailable);
  });

  test("for one connection costs at most the verb that used it", async () => {
    const schema = freshSchema();
    await using store = openStore(schema, { connections: 1, pg: { application_name: schema } });
    const { id } = await create(store);
    await query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", [schema]);
    expect(await steadily(() => store.get(id, owner))).toMatchObject({ id });
  });
});

describe("the schema", () => {
  test("may have any name, and others in the same database are others", async () => {
    const name = `${freshSchema()} "Odd" é`;
    await using odd = openStore(name);
    await using other = openStore(freshSchema());
    const { id } = await create(odd);
    expect(await other.get(id, owner)).toBeUndefined();
    const ids: (string | null)[] = [];
    const stop = odd.watch((changed) => ids.push(changed));
    await claimOne(odd);
    stop();
    await query(`DROP SCHEMA "${name.replaceAll('"', '""')}" CASCADE`);
  });

  test("must have a name that can be one", () => {
    for (const schema of ["", "a\0b", "x".repeat(64), "pg_tasks"])
      expect(() => postgres(url, { schema })).toThrow(expect.objectContaining({ code: "MISUSE" }));
  });

  test("is not made where that isn't wanted", async () => {
    await using store = openStore(freshSchema(), { migrate: false });
    await expect(create(store)).rejects.toMatchObject({ code: "STORE_UNREADABLE" });
  });

  test("refuses to change a finished task even for whoever writes SQL", async () => {
    const schema = freshSchema();
    await using store = openStore(schema);
    await create(store);
    await store.finish(await claimOne(store), { status: "completed", result: "1" });
    await expect(query(`UPDATE ${schema}.task SET result = '2'`)).rejects.toThrow("a finished task never changes");
  });

  test("takes its time from the database", async () => {
    const schema = freshSchema();
    await using store = openStore(schema);
    const { createdAt } = await create(store);
    const [row] = await query<{ now: string }>("SELECT floor(extract(epoch FROM now()) * 1000)::text AS now");
    expect(Math.abs(Number(row!.now) - createdAt)).toBeLessThan(5_000);
  });
});

test("a pool that is given is used, and stays open", async () => {
  const pool = new Pool({ connectionString: url, max: 2, application_name: "given" });
  const store = postgres(pool, { schema: freshSchema() });
  const { id } = await create(store);
  const stop = store.watch(() => {});
  stop();
  expect(await store.get(id, owner)).toMatchObject({ id });
  await store[Symbol.asyncDispose]();
  expect((await pool.query("SELECT 1 AS one")).rows).toEqual([{ one: 1 }]);
  await pool.end();
});

test("a password that pg keeps out of sight is found for connections beside a given pool", async () => {
  const { hostname: host, port, username: user, password, pathname } = new URL(url);
  const pool = new Pool({ host, port: Number(port), user, password, database: pathname.slice(1), max: 1 });
  const store = postgres(pool, { schema: freshSchema() });
  await create(store);
  await store[Symbol.asyncDispose]();
  await pool.end();
});

test("statements need not be prepared", async () => {
  const schema = freshSchema();
  await using store = openStore(schema, { prepare: false, connections: 1 });
  await create(store);
  await store.finish(await claimOne(store), { status: "completed", result: "1" });
  await using pool = Object.assign(new Pool({ connectionString: url, max: 1 }), {
    async [Symbol.asyncDispose]() {
      await pool.end();
    },
  });
  await postgres(pool, { schema, prepare: false }).nextDue();
  expect((await pool.query("SELECT name FROM pg_prepared_statements")).rows).toEqual([]);
});

test("a verb waits for its task only: a row that somebody else has locked holds up no other task", async () => {
  const schema = freshSchema();
  await using store = openStore(schema);
  const [locked, free] = [await create(store), await create(store)];
  const other = new Client(url);
  await other.connect();
  await other.query(`BEGIN; SELECT FROM ${schema}.task WHERE id = '${locked.id}' FOR UPDATE`);
  let done = false;
  const waiting = store.requestCancel(locked.id, owner, 0).then(() => (done = true));
  await store.requestCancel(free.id, owner, 0);
  expect(await store.get(locked.id, owner)).toMatchObject({ status: "working" });
  expect(done).toBe(false);
  await other.query("COMMIT");
  await waiting;
  await other.end();
});
