import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { McpServer } from "@modelcontextprotocol/server";
import { describe, expect, test } from "vitest";
import { blobFolder } from "../src/blobs.ts";
import { milliseconds } from "../src/clock.ts";
import { createTasks, TaskError, taskTool } from "../src/index.ts";
import { manualClock } from "../src/store/contract/manual-clock.ts";
import { sqlite } from "../src/store/sqlite/index.ts";
import type { TaskStore } from "../src/store/store.ts";
import { wire, withoutTasks } from "./wire/client.ts";

const done = { content: [{ type: "text" as const, text: "done" }] };

test("a worker that comes too late is not started", async () => {
  const store = sqlite(":memory:");
  let claims = 0;
  const claim: TaskStore["claim"] = (request) => {
    claims += 1;
    return store.claim(request);
  };
  const tasks = createTasks({ store: { ...store, claim }, tools: [taskTool({ name: "tool", run: () => done })] });
  await tasks.close();
  await expect(tasks.work()).rejects.toMatchObject({ code: "SHUTTING_DOWN" });
  expect(() => tasks.serveStdio(() => new McpServer({ name: "s", version: "1" }))).toThrow("shutting down");
  await new Promise(setImmediate);
  expect(claims).toBe(0);
  await store[Symbol.asyncDispose]();
});

describe("settings that make no sense are refused at once", () => {
  test.each([
    { retry: { attempts: Number.NaN } },
    { retry: { attempts: 0 } },
    { attempts: 1e300 },
    { concurrency: 0 },
    { concurrency: Number.NaN },
    { priority: 0.5 },
    { keep: 0 },
  ])("of a tool: %o", (task) => {
    expect(() => taskTool({ name: "tool", task, run: () => done })).toThrow(/whole number/);
  });

  test.each([
    { concurrency: Number.NaN },
    { concurrency: 0 },
    { ownerConcurrency: -1 },
    { lease: 0 },
    { maxResultBytes: Number.NaN },
    { maxStepBytes: -1 },
  ])("of a worker: %o", async (how) => {
    await using store = sqlite(":memory:");
    await using tasks = createTasks({ store, tools: [] });
    await expect(tasks.work(how)).rejects.toMatchObject({ code: "MISUSE" });
  });

  test("of tasks", async () => {
    await using store = sqlite(":memory:");
    expect(() => createTasks({ store, tools: [], liveTasksPerOwner: Number.NaN })).toThrow(/whole number/);
    expect(() => createTasks({ store, tools: [], stateKey: new Uint8Array(31) })).toThrow(/from 32/);
  });
});

test("an outage of the store is told of every ten seconds, however many calls wait for it", async () => {
  const clock = manualClock();
  await using inner = sqlite(":memory:", { clock });
  const refused = { reads: 0, sweeps: 0 };
  let away = false;
  const unless = <T>(verb: keyof typeof refused, action: () => Promise<T>) => {
    if (!away) return action();
    refused[verb] += 1;
    return Promise.reject<T>(new TaskError("STORE_UNAVAILABLE"));
  };
  const store: TaskStore = {
    ...inner,
    get: (...of) => unless("reads", () => inner.get(...of)),
    sweep: () => unless("sweeps", () => inner.sweep()),
  };
  const told: string[] = [];
  const onError = ({ code }: TaskError) => void told.push(code);
  await using tasks = createTasks({ store, tools: [taskTool({ name: "tool", run: () => done })], clock, onError });
  const { url } = await tasks.serve(() => new McpServer({ name: "s", version: "1" })).listen();
  const client = wire(url, { capabilities: withoutTasks });
  const calls = Array.from({ length: 100 }, () => client.call("tool"));
  await expect.poll(() => inner.list({ limit: 200 })).toHaveLength(100);

  away = true;
  for (const seconds of [5, 10, 15, 20]) {
    clock.advance(5_000);
    await expect.poll(() => refused.reads).toBe(20 * seconds);
  }
  expect(refused.sweeps).toBeGreaterThanOrEqual(4);
  expect(told).toEqual(["STORE_UNAVAILABLE", "STORE_UNAVAILABLE"]);

  away = false;
  await tasks.work();
  for (const { body } of await Promise.all(calls)) expect(body.result).toMatchObject(done);
});

test("a length of time beyond all bounds is as long as numbers go, and the task can be read", async () => {
  expect(milliseconds(1e300)).toBe(Number.MAX_SAFE_INTEGER);
  const tool = taskTool({ name: "tool", task: { keep: 1e300, timeout: 1e300 }, run: () => done });
  await using store = sqlite(":memory:");
  await using tasks = createTasks({ store, tools: [tool], reply: { grace: 0 } });
  const { url } = await tasks.serve(() => new McpServer({ name: "s", version: "1" })).listen();
  await tasks.work();
  const client = wire(url);
  const task = await client.until(await client.start("tool"), "completed");
  expect(Number.isSafeInteger(task.ttlMs)).toBe(true);
});

test("a result that was never kept apart is an unknown resource, and no fault of the server", async () => {
  const folder = await mkdtemp(join(tmpdir(), "review-"));
  const errors: TaskError[] = [];
  await using store = sqlite(":memory:");
  const tools = [taskTool({ name: "tool", run: () => done })];
  const onError = (error: TaskError) => void errors.push(error);
  const tasks = createTasks({ store, tools, blobs: folder, reply: { grace: 0 }, onError });
  try {
    const { url } = await tasks.serve(() => new McpServer({ name: "s", version: "1" })).listen();
    await tasks.work();
    const client = wire(url);
    const taskId = await client.start("tool");
    await client.until(taskId, "completed");
    const uri = `task-result://${taskId}`;
    const { body } = await client.request("resources/read", { uri });
    expect(body.error).toMatchObject({ code: -32602, data: { uri } });
    expect(errors).toEqual([]);
  } finally {
    await tasks.close();
    await rm(folder, { recursive: true });
  }
});

test("an attempt that has lost its lease does not write over what another one kept apart", async () => {
  const folder = await mkdtemp(join(tmpdir(), "review-"));
  await using store = sqlite(":memory:");
  const slow = Promise.withResolvers<void>();
  const finished = Promise.withResolvers<void>();
  let attempts = 0;
  const tool = taskTool({
    name: "bulky",
    async run(_args, task) {
      const mine = (attempts += 1);
      const made = await task.step("make", async () => {
        if (mine === 1) await slow.promise;
        return String(mine).repeat(2_000);
      });
      return { content: [{ type: "text", text: made }] };
    },
  });
  // Its writes come late, as those of a process that was frozen do.
  const tasks = createTasks({ store, tools: [tool], blobs: folder });
  const zombie: TaskStore = { ...store, watch: () => () => {}, renew: async () => ({ lost: [], cancelled: [] }) };
  const frozen = createTasks({ store: zombie, tools: [tool], blobs: folder });
  try {
    const { url } = await tasks.serve(() => new McpServer({ name: "s", version: "1" })).listen();
    const client = wire(url);
    const taskId = await client.start("bulky");
    await frozen.work({ lease: 50, maxResultBytes: 1_000, maxStepBytes: 1_000 });
    await expect.poll(() => attempts).toBe(1);
    await tasks.work({ maxResultBytes: 1_000, maxStepBytes: 1_000 });
    await client.until(taskId, "completed");
    const uri = `task-result://${taskId}`;
    const read = async () => JSON.stringify((await client.request("resources/read", { uri })).body.result);
    const before = await read();
    expect(before).toContain("2222");
    const files = await readdir(folder);
    const contents = () => Promise.all(files.map((name) => blobFolder(folder).read(name)));
    const kept = await contents();
    slow.resolve();
    await frozen.close();
    expect(await contents()).toEqual(kept);
    expect(await read()).toBe(before);
  } finally {
    finished.resolve();
    await tasks.close();
    await rm(folder, { recursive: true });
  }
});
