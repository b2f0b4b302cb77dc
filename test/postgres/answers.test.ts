import { Pool } from "pg";
import { z } from "zod";
import { afterAll, describe, expect, test } from "vitest";
import {
  asks,
  begin,
  beginAsking,
  claim,
  claimOne,
  create,
  leaseMs,
  newTask,
  owner,
  read,
} from "../../src/store/contract/kit.ts";
import { postgres, type PostgresOptions } from "../../src/store/postgres/index.ts";
import type { TaskStore } from "../../src/store/store.ts";
import { taskTool } from "../../src/tool.ts";
import type { TaskError } from "../../src/errors.ts";
import { open as serve } from "../server/harness.ts";
import { text, workbench } from "../worker/workbench.ts";
import { dropSchemas, freshSchema, openStore, url } from "./database.ts";
import { startProxy, type Proxy } from "./proxy.ts";

afterAll(dropSchemas);

const lost = { name: "TaskError", code: "STORE_ANSWER_LOST", rpc: -32603 };

/** A store behind a proxy, and one that sees the database as it is. */
async function open(options: PostgresOptions = {}) {
  const schema = freshSchema();
  const proxy = await startProxy(url);
  const store = postgres(proxy.url, { schema, prepare: false, ...options });
  const direct = openStore(schema);
  await direct.nextDue();
  await store.nextDue();
  return {
    schema,
    proxy,
    store,
    direct,
    async [Symbol.asyncDispose]() {
      await proxy[Symbol.asyncDispose]();
      await store[Symbol.asyncDispose]();
      await direct[Symbol.asyncDispose]();
    },
  };
}

/** Runs a verb whose answer gets lost after the commit. */
async function cut<T>(proxy: Proxy, text: string, verb: () => Promise<T>, gone = false): Promise<T> {
  const sprung = proxy.loseAnswer(`.${text}(`, { gone });
  const result = verb();
  result.catch(() => {});
  await sprung;
  return await result;
}

describe("an answer that is lost after the commit", () => {
  test.each([null, 1])("to a create doesn't make two tasks, with a limit of %s", async (limit) => {
    await using at = await open();
    const made = newTask();
    const task = await cut(at.proxy, "create_task", () => at.store.create(made, limit));
    expect(await at.direct.list({ limit: 10 })).toEqual([task]);
    expect(await claim(at.direct, { count: 5 })).toHaveLength(1);
  });

  test("is asked for again where that comes to the same", async () => {
    await using at = await open();
    const claimed = await beginAsking(at.store, ["a"]);
    const { taskId } = claimed;
    const answers = { a: { action: "accept" } } as const;
    const answered = await cut(at.proxy, "answer", () => at.store.answer(taskId, owner, answers, null));
    expect(answered).toMatchObject({ status: "working" });
    const again = await claimOne(at.store);
    expect(await cut(at.proxy, "start_step", () => at.store.startStep(again, "s"))).toBe(true);
    const done = { state: "done", value: "1" } as const;
    expect(await cut(at.proxy, "record_step", () => at.store.recordStep(again, "s", done))).toBe(true);
    expect(await cut(at.proxy, "set_status", () => at.store.setStatus(again, "half", null))).toBe(true);
    const held = await cut(at.proxy, "renew", () => at.store.renew("worker-1", [again], leaseMs));
    expect(held).toEqual({ lost: [], cancelled: [] });
    expect(await cut(at.proxy, "send", () => at.store.send(taskId, "e", '"first"'))).toBe(true);
    const task = await cut(at.proxy, "request_cancel", () => at.store.requestCancel(taskId, owner, 1_000));
    expect(task).toMatchObject({ statusMessage: "half", cancelRequested: true });
    expect(await at.direct.journal(again)).toMatchObject({ steps: { s: done }, events: { e: '"first"' } });
    expect(await cut(at.proxy, "next_due", () => at.store.nextDue())).toBeGreaterThan(0);
  });

  test("to an end of an attempt is told as lost, and took effect once", async () => {
    await using at = await open();
    const ends: [string, (attempt: Awaited<ReturnType<typeof begin>>) => Promise<boolean>, object][] = [
      ["finish", (one) => at.store.finish(one, { status: "completed", result: "1" }), { status: "completed" }],
      ["park", (one) => at.store.park(one, asks("a"), false), { status: "input_required" }],
      ["release", (one) => at.store.release(one, { delayMs: 60_000, spend: true }), { activation: "queued" }],
    ];
    for (const [text, end, left] of ends) {
      const claimed = await begin(at.store);
      await expect(cut(at.proxy, text, () => end(claimed))).rejects.toMatchObject(lost);
      const after = await read(at.direct, claimed);
      expect(after).toMatchObject(left);
      expect(await end(claimed)).toBe(false);
      expect(await read(at.direct, claimed)).toEqual(after);
    }
  });

  test("to a claim costs no attempt: the next one finds what it took", async () => {
    await using at = await open();
    const ids = new Set([(await create(at.store, { attempts: 1, recovery: "fail" })).id, (await create(at.store)).id]);
    await expect(cut(at.proxy, "claim", () => claim(at.store, { count: 2 }))).rejects.toMatchObject(lost);
    expect(await claim(at.direct, { worker: "worker-2", count: 2 })).toEqual([]);
    const claims = await claim(at.store, { count: 2 });
    expect(new Set(claims.map(({ taskId }) => taskId))).toEqual(ids);
    expect(await at.store.renew("worker-1", claims, leaseMs)).toEqual({ lost: [], cancelled: [] });
    for (const claimed of claims) {
      expect(claimed).toMatchObject({ epoch: 1, attempt: 1 });
      expect(await at.store.finish(claimed, { status: "completed", result: "1" })).toBe(true);
    }
    expect(await claim(at.store)).toEqual([]);
  });

  test("is told as lost when the database doesn't come back to be asked again, and nothing is told wrongly", async () => {
    await using at = await open();
    const made = newTask();
    await expect(cut(at.proxy, "create_task", () => at.store.create(made, null), true)).rejects.toMatchObject(lost);
    // Never sent: these say rightly that nothing was changed.
    await expect(create(at.store)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(await at.direct.list({ limit: 10 })).toMatchObject([{ id: made.id }]);
    await at.proxy.comeBack();
    expect(await at.store.create(made, null)).toMatchObject({ id: made.id });
    expect(await at.direct.list({ limit: 10 })).toHaveLength(1);
  });

  test("takes no other verb along that waits for a connection", async () => {
    await using at = await open({ connections: 1 });
    const sprung = at.proxy.loseAnswer(".create_task(");
    const all = Array.from({ length: 20 }, () => create(at.store));
    await sprung;
    await Promise.all(all);
    expect(await at.direct.list({ limit: 100 })).toHaveLength(20);
  });
});

test("workers whose answers get lost all the time do everything once", { timeout: 120_000 }, async () => {
  await using at = await open();
  const ran = new Map<string, number>();
  const count = (id: string, step: string) => void ran.set(`${id} ${step}`, (ran.get(`${id} ${step}`) ?? 0) + 1);
  const tool = (name: string, recovery: "retry" | "fail") =>
    taskTool({
      name,
      task: { recovery, attempts: 1 },
      inputSchema: z.object({ tag: z.string() }),
      async run({ tag }, task) {
        await task.step("first", () => count(tag, "first"));
        await task.sleep("pause", "1ms");
        await task.step("second", () => count(tag, "second"), { once: true });
        return text("done");
      },
    });
  const tools = [tool("again", "retry"), tool("never", "fail")];
  await using bench = workbench(tools, { store: at.store });
  at.proxy.loseSome(0.07);
  bench.worker();
  bench.worker();
  const made: string[] = [];
  const refused: string[] = [];
  for (let n = 0; n < 24; n++) {
    const tag = `${n}`;
    try {
      made.push(await bench.start(tools[n % 2]!, { tag }));
    } catch (thrown) {
      // Lost twice: it may be there or not. Lost before it was sent: it is not.
      if ((thrown as TaskError).code !== "STORE_ANSWER_LOST") refused.push(tag);
    }
  }
  const unfinished = () => at.direct.list({ limit: 1, status: "working" });
  await expect.poll(unfinished, { timeout: 90_000 }).toEqual([]);
  const all = await at.direct.list({ limit: 100 });
  expect(all.filter(({ status }) => status !== "completed")).toEqual([]);
  expect(all.map(({ id }) => id)).toEqual(expect.arrayContaining(made));
  expect([...ran].filter(([, times]) => times !== 1)).toEqual([]);
  expect(ran.size).toBe(2 * all.length);
  for (const tag of refused) expect(ran.has(`${tag} first`)).toBe(false);
  // Or this would show nothing.
  expect(bench.errors.some(({ code }) => code === "STORE_ANSWER_LOST")).toBe(true);
  at.proxy.loseSome(0);
});

describe("packets that vanish", () => {
  /** All verbs that are under way and that follow end within twice their time, and none of them says more than is known. */
  async function endInTime(store: TaskStore, proxy: Proxy): Promise<void> {
    const claimed = await begin(store);
    proxy.freeze(true);
    const began = performance.now();
    const writes = [create(store), store.finish(claimed, { status: "completed", result: "1" })];
    const reads = Array.from({ length: 50 }, () => store.get(claimed.taskId, owner));
    const results = await Promise.allSettled<unknown>([...writes, ...reads]);
    const codes = results.map((result) => result.status === "rejected" && (result.reason as { code: string }).code);
    expect(codes.slice(0, 2)).toEqual(["STORE_ANSWER_LOST", "STORE_ANSWER_LOST"]);
    expect(new Set(codes.slice(2))).toEqual(new Set(["STORE_UNAVAILABLE"]));
    await expect(create(store)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    // A second for the answer and one for a connection, on a loaded machine. Without a limit it would be for ever.
    expect(performance.now() - began).toBeLessThan(10_000);
    proxy.freeze(false);
    const found = () => store.get(claimed.taskId, owner).catch(() => null);
    await expect.poll(found, { timeout: 15_000 }).toMatchObject({ id: claimed.taskId });
    // Perhaps what was sent before gets there now.
    await store.finish(claimed, { status: "completed", result: "1" });
    expect(await read(store, claimed)).toMatchObject({ status: "completed", result: "1" });
  }

  test("hold up no verb for longer than it is given", async () => {
    await using at = await open({ timeoutMs: 1_000, connections: 3 });
    await endInTime(at.store, at.proxy);
  });

  test("hold up no verb on a pool that has no limits of its own", async () => {
    await using at = await open();
    const pool = new Pool({ connectionString: at.proxy.url, max: 3 });
    pool.on("error", () => {});
    const store = postgres(pool, { schema: at.schema, timeoutMs: 1_000 });
    await endInTime(store, at.proxy);
    await store[Symbol.asyncDispose]();
    await pool.end();
  });

  test("leave no request without an answer", async () => {
    await using at = await open({ timeoutMs: 1_000 });
    await using served = await serve({}, { store: at.store });
    const taskId = await served.create();
    at.proxy.freeze(true);
    const began = performance.now();
    const answers = await Promise.all([
      served.call("tools/call", { name: "optional", arguments: { text: "x" } }),
      served.call("tasks/get", { taskId }),
      served.call("tasks/update", { taskId, inputResponses: { a: { action: "accept" } } }),
      served.call("tasks/cancel", { taskId }),
    ]);
    for (const { body } of answers) expect(body.error).toMatchObject({ code: -32603 });
    expect(performance.now() - began).toBeLessThan(10_000);
    at.proxy.freeze(false);
    const get = async () => (await served.call("tasks/get", { taskId })).body.result;
    await expect.poll(get, { timeout: 15_000 }).toMatchObject({ taskId });
  });
});
