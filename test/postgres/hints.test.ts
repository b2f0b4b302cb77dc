import { afterAll, expect, test } from "vitest";
import { asks, claimOne, create, owner } from "../../src/store/contract/kit.ts";
import type { TaskStore } from "../../src/store/store.ts";
import { dropSchemas, freshSchema, openStore, query } from "./database.ts";

afterAll(dropSchemas);

/** What a store hears; null stands for any task. */
function listenTo(store: TaskStore) {
  let heard: (string | null)[] = [];
  let wake = () => {};
  const stop = store.watch((id) => {
    heard.push(id);
    wake();
  });
  return {
    stop,
    /** Waits until the task is named, or any is where that is enough. */
    async hears(id: string, orAny = true): Promise<void> {
      while (!heard.includes(id) && !(orAny && heard.includes(null)))
        await new Promise<void>((resolve) => (wake = resolve));
      heard = [];
    },
  };
}

const listeners = (schema: string) =>
  query<{ pid: number }>(
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'mcp-tasks listen' AND query LIKE $1",
    [`%${schema}%`],
  );

async function untilListening(schema: string, count: number): Promise<void> {
  while ((await listeners(schema)).length !== count) await new Promise((resolve) => setTimeout(resolve, 5));
}

test("changes at one store are heard at the others by name, long before their next look", async () => {
  const schema = freshSchema();
  await using here = openStore(schema);
  await using there = openStore(schema, { recheckMs: 60_000 });
  await create(here);
  const ear = listenTo(there);
  await untilListening(schema, 1);
  const delays: number[] = [];
  for (let n = 0; n < 15; n++) {
    const { id } = await create(here);
    const began = performance.now();
    await ear.hears(id, false);
    delays.push(performance.now() - began);
  }
  expect(delays.toSorted((a, b) => a - b)[7]).toBeLessThan(5_000);
  ear.stop();
});

test("whatever a verb changes is heard elsewhere", async () => {
  const schema = freshSchema();
  await using here = openStore(schema);
  await using there = openStore(schema, { recheckMs: 60_000 });
  const { id } = await create(here);
  const ear = listenTo(there);
  await untilListening(schema, 1);
  const claimed = await claimOne(here);
  await here.setStatus(claimed, "building", null);
  await ear.hears(id, false);
  await here.park(claimed, asks("a"), false);
  await ear.hears(id, false);
  await here.answer(id, owner, { a: { action: "accept" } }, null);
  await ear.hears(id, false);
  await here.requestCancel(id, owner, 0);
  await ear.hears(id, false);
  const short = await create(here, { timeoutMs: 1 });
  await ear.hears(short.id, false);
  while ((await here.sweep()).timedOut === 0);
  await ear.hears(short.id, false);
  ear.stop();
});

test("many changes at once are heard as one hint of any", async () => {
  const schema = freshSchema();
  await using here = openStore(schema);
  await using there = openStore(schema, { recheckMs: 60_000 });
  await Promise.all(Array.from({ length: 600 }, () => create(here, { timeoutMs: 1 })));
  const ear = listenTo(there);
  await untilListening(schema, 1);
  await ear.hears("");
  await here.sweep();
  await ear.hears("");
  ear.stop();
});

test("without a connection that listens, changes are found by looking", async () => {
  const schema = freshSchema();
  await using here = openStore(schema);
  await using there = openStore(schema, { listen: false, pollMs: 20 });
  const ear = listenTo(there);
  const { id } = await create(here);
  await ear.hears(id);
  expect(await listeners(schema)).toEqual([]);
  ear.stop();
});

test("a notification that gets lost is made up for", async () => {
  const schema = freshSchema();
  await using there = openStore(schema, { pollMs: 60_000, recheckMs: 50 });
  await create(there);
  const ear = listenTo(there);
  // It is told of any change once it listens.
  await ear.hears("");
  // As if the process that did it had died before it could say so.
  await query(`UPDATE ${schema}.task SET status_message = 'changed', rev = rev + 1`);
  await ear.hears("");
  ear.stop();
});

test("connections that listen and are cut off come back, and nothing is missed", async () => {
  const schema = freshSchema();
  await using here = openStore(schema);
  await using there = openStore(schema, { pollMs: 60_000, recheckMs: 60_000 });
  await create(here);
  const ear = listenTo(there);
  const own = listenTo(here);
  for (let round = 0; round < 3; round++) {
    await untilListening(schema, 2);
    const before = (await listeners(schema)).map(({ pid }) => pid);
    await query("SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) AS pid", [before]);
    const { id } = await create(here);
    await ear.hears(id);
    await untilListening(schema, 2);
    expect((await listeners(schema)).some(({ pid }) => before.includes(pid))).toBe(false);
    const later = await create(here);
    await ear.hears(later.id);
  }
  ear.stop();
  own.stop();
  await Promise.all([here[Symbol.asyncDispose](), there[Symbol.asyncDispose]()]);
  await untilListening(schema, 0);
});

test("whoever watches again soon is heard for without a new connection", async () => {
  const schema = freshSchema();
  await using here = openStore(schema);
  await using there = openStore(schema, { recheckMs: 60_000 });
  await create(here);
  listenTo(there).stop();
  await untilListening(schema, 1);
  const before = await listeners(schema);
  const ear = listenTo(there);
  const { id } = await create(here);
  await ear.hears(id, false);
  expect(await listeners(schema)).toEqual(before);
  ear.stop();
});
