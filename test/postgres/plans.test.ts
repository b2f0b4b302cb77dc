import { Client } from "pg";
import { expect, test } from "vitest";
import { asks, claim, create, form, waits } from "../../src/store/contract/kit.ts";
import { postgres } from "../../src/store/postgres/index.ts";
import type { TaskStore } from "../../src/store/store.ts";
import { freshDatabase } from "./database.ts";

/** Whoever else is connected: what a session counted is known when it has gone. */
const others = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";

/** Every verb that a function carries out. */
async function work(store: TaskStore): Promise<void> {
  const { id } = await create(store, { keepMs: 0 });
  const [first] = await claim(store);
  await store.startStep(first!, "one");
  await store.recordStep(first!, "one", { state: "done", value: "1" });
  await store.setStatus(first!, "half", null);
  await store.renew("worker-1", [first!], 30_000);
  await store.park(first!, asks("q"), false);
  await store.answer(id, "alice", { q: { action: "accept", content: {} } }, null);
  const [second] = await claim(store);
  await store.release(second!, { delayMs: 0, spend: false });
  const [third] = await claim(store);
  await store.finish(third!, { status: "completed", result: "{}" });
  await create(store, { id: `${id}-2` });
  await store.requestCancel(`${id}-2`, "alice", 0);
  await store.nextDue();
  await store.sweep();
  await workLate(store);
}

/** Those that timeouts bring about. */
async function workLate(store: TaskStore): Promise<void> {
  const { id } = await create(store, { keepMs: 0 });
  const [first] = await claim(store);
  const inputs = [{ key: "a", request: form, timeoutMs: 1 }, ...asks("q").inputs];
  await store.park(first!, waits({ inputs, events: [{ key: "e", timeoutMs: 1 }] }), false);
  let [late] = await claim(store);
  while (late === undefined) [late] = await claim(store);
  await store.park(late, waits({ inputs: asks("q").inputs, events: [{ key: "f", timeoutMs: 1 }] }), false);
  while ((await store.nextDue()) !== 0);
  await store.send(id, "f", "1");
  await store.answer(id, "alice", { a: { action: "cancel" } }, null);
  const [last] = await claim(store);
  await store.finish(last!, { status: "completed", result: "{}" });
}

test("a plan that was made for small tables walks none of them, also when they have grown", async () => {
  const database = await freshDatabase();
  const admin = new Client({ connectionString: database.url });
  await admin.connect();
  try {
    await (await opened(database.url))[Symbol.asyncDispose]();
    // Now the planner knows that there is next to nothing, and that a walk is cheapest.
    await admin.query("SET search_path = mcp_tasks");
    await admin.query("VACUUM (ANALYZE) task, call, activation, lane, step, input, event, tombstone");
    const before = await walks(admin);
    const store = await opened(database.url);
    for (let n = 0; n < 10; n++) await work(store);
    await store[Symbol.asyncDispose]();
    expect(await walks(admin)).toEqual(before);
  } finally {
    await admin.end();
    await database.drop();
  }
});

test("what waits for long is not looked at each time that somebody looks whether a wait is over", async () => {
  const database = await freshDatabase();
  const admin = new Client({ connectionString: database.url });
  await admin.connect();
  try {
    const store = await opened(database.url);
    const inputs = [{ key: "a", request: form, timeoutMs: 1_000_000_000 }];
    for (let n = 0; n < 100; n++) {
      await create(store);
      const [claimed] = await claim(store);
      await store.park(claimed!, waits({ inputs }), false);
    }
    await store[Symbol.asyncDispose]();
    const before = await entriesRead(admin);
    const again = await opened(database.url);
    for (let n = 0; n < 20; n++) {
      await again.sweep();
      await claim(again);
      await again.nextDue();
    }
    await again[Symbol.asyncDispose]();
    // The first entry answers each question.
    expect((await entriesRead(admin)) - before).toBeLessThanOrEqual(20 * 3);
  } finally {
    await admin.end();
    await database.drop();
  }
});

/** How many entries of the index of timeouts were read in all. */
async function entriesRead(admin: Client): Promise<number> {
  while ((await admin.query(others)).rows.length > 0);
  const read = "SELECT idx_tup_read::integer AS n FROM pg_stat_user_indexes WHERE indexrelname = 'task_wait_until'";
  return ((await admin.query(read)).rows[0] as { n: number }).n;
}

async function opened(where: string): Promise<TaskStore> {
  const store = postgres(where, { connections: 1 });
  await store.nextDue();
  return store;
}

/** How often each table was walked. */
async function walks(admin: Client): Promise<unknown[]> {
  while ((await admin.query(others)).rows.length > 0);
  const walked = "SELECT relname, seq_scan::integer AS walks FROM pg_stat_user_tables ORDER BY relname";
  return (await admin.query(walked)).rows;
}
