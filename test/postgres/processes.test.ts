import { Pool } from "pg";
import { afterAll, afterEach, expect, test } from "vitest";
import { claim, create, read, tool } from "../../src/store/contract/kit.ts";
import type { TaskStore } from "../../src/store/store.ts";
import { dropSchemas, freshSchema, openStore, query, url } from "./database.ts";
import { killProcesses, startProcess } from "./processes.ts";

afterEach(killProcesses);
afterAll(dropSchemas);

/** Each unfinished task is where something will find it. */
async function assertSound(schema: string): Promise<void> {
  const stranded = `
    SELECT id FROM ${schema}.task WHERE CASE status
      WHEN 'working' THEN NOT EXISTS (SELECT FROM ${schema}.activation WHERE task = seq)
        AND NOT EXISTS (SELECT FROM ${schema}.event WHERE task = seq AND awaited AND value IS NULL)
      WHEN 'input_required' THEN NOT EXISTS (SELECT FROM ${schema}.input WHERE task = seq AND open)
        OR EXISTS (SELECT FROM ${schema}.activation WHERE task = seq AND state <> 'leased')
      ELSE EXISTS (SELECT FROM ${schema}.activation WHERE task = seq) END
    UNION ALL
    SELECT 'without a lane' FROM ${schema}.activation AS one WHERE state = 'ready' AND NOT EXISTS (
      SELECT FROM ${schema}.lane WHERE lane.owner = one.owner AND lane.queue = one.queue AND lane.tool = one.tool
        AND lane.version = one.version AND lane.priority = one.priority)`;
  expect(await query(stranded)).toEqual([]);
}

async function eventually(look: () => Promise<boolean>): Promise<void> {
  while (!(await look())) await new Promise((resolve) => setTimeout(resolve, 10));
}

const noneWorks = async (store: TaskStore) => (await store.list({ limit: 1, status: "working" })).length === 0;

test("four workers run each of 400 tasks exactly once", async () => {
  const schema = freshSchema();
  await using store = openStore(schema);
  const workers = [1, 2, 3, 4].map(() => startProcess("work", schema));
  await Promise.all(workers.map(({ lines, until }) => until(() => lines.length === 1)));
  for (let n = 0; n < 20; n++) await Promise.all(Array.from({ length: 20 }, () => create(store)));
  await eventually(() => noneWorks(store));
  for (const { child } of workers) child.stdin.end();
  const ends = await Promise.all(workers.map(({ closed }) => closed));
  expect(ends.map(({ code, complaints }) => [code, complaints])).toEqual(ends.map(() => [0, ""]));
  const runs = ends.flatMap(({ lines }) => lines.slice(1));
  expect(runs).toHaveLength(400);
  expect(new Set(runs).size).toBe(400);
  await assertSound(schema);
});

test("five processes can make the schema at the same moment", async () => {
  const schema = freshSchema();
  const openers = Array.from({ length: 5 }, () => startProcess("open", schema));
  await Promise.all(openers.map(({ lines, until }) => until(() => lines.length === 1)));
  for (const { child } of openers) child.stdin.write("go\n");
  const ends = await Promise.all(openers.map(({ closed }) => closed));
  expect(ends.map(({ code, complaints }) => [code, complaints])).toEqual(ends.map(() => [0, ""]));
  await using store = openStore(schema);
  expect(await store.list({ limit: 10 })).toHaveLength(5);
});

test("what was acknowledged is there after a kill, and every task is where it will be found", async () => {
  const schema = freshSchema();
  await using store = openStore(schema);
  for (let round = 0; round < 3; round++) {
    const writer = startProcess("write", schema);
    await writer.until(() => writer.lines.length >= 30 + round * 7);
    writer.child.kill("SIGKILL");
    const { lines } = await writer.closed;
    for (const [status, taskId] of lines.map((line) => line.split(" "))) {
      const task = await read(store, { taskId: taskId! });
      if (status === "completed") expect(task.status).toBe("completed");
    }
    await assertSound(schema);
  }
});

test("an open store that watches keeps no process alive", async () => {
  const schema = freshSchema();
  const { code, complaints } = await startProcess("leave", schema).closed;
  expect([code, complaints]).toEqual([0, ""]);
});

test("limits hold and nothing is stranded while stores create, claim, finish and sweep side by side", async () => {
  const schema = freshSchema();
  const pool = new Pool({ connectionString: url, max: 6 });
  const stores = [1, 2, 3].map(() => openStore(schema, { connections: 6 }));
  const owners = ["a", "b", "c"];
  const names = ["build", "test"];
  const tools = names.map((name) => ({ ...tool, name, limit: 4 }));
  let most = 0;
  let left = 300;
  async function work(store: TaskStore, worker: string): Promise<void> {
    while (left > 0) {
      const claims = await claim(store, { worker, tools, ownerLimit: 3, count: 3 });
      const { rows: running } = await pool.query<{ owner: string; tool: string }>(
        `SELECT owner, tool FROM ${schema}.activation WHERE state = 'leased'`,
      );
      for (const name of names) most = Math.max(most, running.filter((row) => row.tool === name).length);
      for (const who of owners) expect(running.filter(({ owner }) => owner === who).length).toBeLessThanOrEqual(3);
      await store.sweep();
      for (const claimed of claims) {
        if (await store.finish(claimed, { status: "completed", result: "1" })) left -= 1;
      }
    }
  }
  const creates = Array.from({ length: 300 }, (_, n) => n).map(async (n) => {
    await create(stores[n % 3]!, { owner: owners[n % 3]!, tool: names[n % 2]!, priority: n % 4 === 0 ? 1 : 0 });
  });
  await Promise.all([...creates, ...stores.flatMap((store, n) => [work(store, `${n}a`), work(store, `${n}b`)])]);
  expect(most).toBeLessThanOrEqual(4);
  await assertSound(schema);
  for (const store of stores) await store[Symbol.asyncDispose]();
  await pool.end();
});

test("hundreds of owners come and go: their lanes with them, and no task is missed", async () => {
  const schema = freshSchema();
  const stores = [1, 2].map(() => openStore(schema, { connections: 8 }));
  let left = 400;
  const creates = Array.from({ length: left }, (_, n) => create(stores[n % 2]!, { owner: `owner ${n % 300}` }));
  async function work(store: TaskStore, worker: string): Promise<void> {
    while (left > 0) {
      for (const claimed of await claim(store, { worker, count: 7 }))
        if (await store.finish(claimed, { status: "completed", result: "1" })) left -= 1;
    }
  }
  await Promise.all([...creates, ...stores.flatMap((store, n) => [work(store, `${n}a`), work(store, `${n}b`)])]);
  const lanes = async () => (await query(`SELECT FROM ${schema}.lane`)).length;
  expect(await lanes()).toBeLessThan(150);
  const queued = Array.from({ length: 150 }, (_, n) => create(stores[0]!, { owner: `other ${n}` }));
  for (const { id, owner } of await Promise.all(queued)) await stores[1]!.requestCancel(id, owner, 0);
  expect(await lanes()).toBeGreaterThanOrEqual(150);
  await stores[0]!.sweep();
  expect(await lanes()).toBeLessThan(50);
  await assertSound(schema);
  for (const store of stores) await store[Symbol.asyncDispose]();
});
