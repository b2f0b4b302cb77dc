import { Pool } from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { postgres } from "mcp-tasks/postgres";
import { storeContract } from "mcp-tasks/testing";
import { claimOne, create, owner } from "../../src/store/contract/kit.ts";
import { dropSchemas, empty, freshSchema, openStore, query, url } from "./database.ts";
import { findPgBouncer, startPgBouncer } from "./pgbouncer.ts";

const found = findPgBouncer();

describe.skipIf(found === undefined)("behind PgBouncer in transaction mode", () => {
  const schema = freshSchema();
  let pooler: Awaited<ReturnType<typeof startPgBouncer>>;
  let pool: Pool;
  beforeAll(async () => {
    pooler = await startPgBouncer(found?.program ?? "", url);
    pool = new Pool({ connectionString: pooler.url, max: 8 });
  });
  afterAll(async () => {
    await pool.end();
    await pooler[Symbol.asyncDispose]();
    await dropSchemas();
  });

  test.each(storeContract)("%s", (_, run) =>
    run(async ({ clock }) => {
      await empty(pool, schema);
      return postgres(pool, { schema, clock, listen: url });
    }),
  );

  test("stores that start together make the schema once", async () => {
    const fresh = freshSchema();
    const stores = [1, 2, 3, 4].map(() => postgres(pooler.url, { schema: fresh, listen: false }));
    await Promise.all(stores.map((store) => create(store)));
    expect(await stores[0]!.list({ limit: 10 })).toHaveLength(4);
    for (const store of stores) await store[Symbol.asyncDispose]();
  });

  test("statements that were prepared on another one's connection run all the same, and once", async () => {
    const fresh = freshSchema();
    await using here = postgres(pooler.url, { schema: fresh, listen: false });
    await using there = postgres(pooler.url, { schema: fresh, listen: false });
    const both = [here, there];
    const tasks = await Promise.all(Array.from({ length: 60 }, (_, n) => create(both[n % 2]!)));
    await Promise.all(tasks.map(({ id }, n) => both[n % 2]!.get(id, owner)));
    expect(await here.list({ limit: 100 })).toHaveLength(60);
  });

  test("a direct connection to listen on hears of changes by name", async () => {
    await using here = openStore(schema);
    const settings = { schema, listen: url, pollMs: 60_000, recheckMs: 60_000 };
    await using there = postgres(pooler.url, settings);
    const heard = Promise.withResolvers<string>();
    let wanted = "";
    const listening = Promise.withResolvers<void>();
    const stop = there.watch((id) => {
      // The first word is that it listens.
      if (id === null) listening.resolve();
      else if (id === wanted) heard.resolve(id);
    });
    await listening.promise;
    const { id } = await create(here);
    wanted = id;
    await here.requestCancel(id, owner, 0);
    expect(await heard.promise).toBe(id);
    stop();
  });

  test("without one, changes are found by looking", async () => {
    await using here = openStore(schema);
    await using there = postgres(pooler.url, { schema, listen: false, pollMs: 20 });
    const looked = Promise.withResolvers<void>();
    const stop = there.watch((id) => id === null && looked.resolve());
    await create(here);
    await looked.promise;
    stop();
    expect(await claimOne(there)).toBeDefined();
  });

  test("a LISTEN through the pooler hears nothing, which is noticed, and changes are found by looking", async () => {
    await using here = openStore(schema);
    await using there = postgres(pooler.url, { schema, pollMs: 20, recheckMs: 60_000 });
    let looks = 0;
    const often = Promise.withResolvers<void>();
    const stop = there.watch((id) => id === null && ++looks === 10 && often.resolve());
    await create(here);
    await often.promise;
    stop();
  });

  test("no session keeps a lock", async () => {
    const text = `SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)
      WHERE locktype = 'advisory' AND granted AND state = 'idle'`;
    // The two views are read one after the other: a lock of a transaction that ends in between is gone at the next look.
    await expect.poll(() => query(text)).toEqual([]);
  });
});
