import { setImmediate as turn } from "node:timers/promises";
import { expect, test } from "vitest";
import type { Duration } from "../../src/clock.ts";
import { TaskError } from "../../src/errors.ts";
import { manualClock } from "../../src/store/contract/manual-clock.ts";
import { sqlite } from "../../src/store/sqlite/index.ts";
import type { TaskStore } from "../../src/store/store.ts";
import { authenticate, eventually, nextTask, open, parameters, question, type Served } from "./harness.ts";
import { everyInput, oldClient } from "./old-client.ts";

/** How calls end when their server stops. The clock stands still: nothing else ends them. */

const asks = { inputs: [{ key: "sure", request: question("sure?") }], events: [], timers: [] };
const typed = { name: "typed", arguments: {} };
const take = (served: Served) => eventually(() => served.claim().catch(() => undefined));

/** A server, how many waits have begun to wait, and whether its store can't be read. */
async function opened(hold: Duration, options: Parameters<typeof open>[0] = {}) {
  const manual = manualClock();
  const seen = { waits: 0, refused: 0, away: false };
  const clock = { ...manual, after: (ms: number, fn: () => void) => ((seen.waits += 1), manual.after(ms, fn)) };
  const store = sqlite(":memory:", { clock });
  const get: TaskStore["get"] = (...args) => {
    if (!seen.away) return store.get(...args);
    seen.refused += 1;
    return Promise.reject(new TaskError("STORE_BUSY"));
  };
  return { ...(await open(options, { clock, store: { ...store, get } }, { hold })), seen };
}

const common = { accept: "application/json, text/event-stream", "content-type": "application/json" };

/** A call that is held, and what it is answered with when its time is up. */
const held = {
  "2026-07-28": {
    headers: { "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "each" },
    params: parameters({ name: "each", arguments: {} }, {}),
    answer: { resultType: "input_required", requestState: expect.any(String) },
  },
  "2025-11-25": {
    headers: { "mcp-protocol-version": "2025-11-25" },
    params: { name: "each", arguments: {} },
    answer: { structuredContent: { status: "working" } },
  },
};

test.for(["2026-07-28", "2025-11-25"] as const)("closing answers every call of %s that is held", async (protocol) => {
  await using served = await opened("20s");
  const { headers, params, answer } = held[protocol];
  const ids = Array.from({ length: 50 }, (_, id) => id);
  const calls = ids.map(async (id) => {
    const response = await fetch(served.listening.url, {
      method: "POST",
      headers: { ...common, ...headers },
      body: JSON.stringify({ jsonrpc: "2.0", id, method: "tools/call", params }),
    });
    return JSON.parse((await response.text()).replace(/^[^{]*/, ""));
  });
  await eventually(() => served.seen.waits === ids.length);
  await served.handler.close();
  expect(await Promise.all(calls)).toMatchObject(ids.map((id) => ({ id, result: answer })));
  expect(await served.tasks()).toMatchObject(ids.map(() => ({ status: "working", cancelRequested: false })));
  expect(served.errors).toEqual([]);
});

test("closing answers a call with what was seen last, though the store is away", async () => {
  await using served = await opened("20s");
  const client = await oldClient(served.listening.url);
  const call = client.call("tools/call", typed);
  await eventually(() => served.seen.waits === 1);
  const claim = await take(served);
  served.seen.away = true;
  await served.engine.attempts.setStatus(claim, "still at it", null);
  await eventually(() => served.seen.refused > 0 && served.seen.waits > 1);
  await served.handler.close();
  expect(await call).toMatchObject({ result: { structuredContent: { taskId: claim.taskId, status: "working" } } });
  expect(served.errors).toEqual([]);
});

test("closing waits for a call whose answer takes a moment", async () => {
  const { promise: reached, resolve: reach } = Promise.withResolvers<void>();
  const { promise: gate, resolve: lift } = Promise.withResolvers<void>();
  const store = sqlite(":memory:");
  const get: TaskStore["get"] = async (...args) => {
    reach();
    await gate;
    return store.get(...args);
  };
  await using served = await open({}, { store: { ...store, get } }, { hold: "20s" });
  const begun = nextTask();
  const { headers, params, answer } = held["2026-07-28"];
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params });
  const sent = new Request(served.listening.url, { method: "POST", headers: { ...common, ...headers }, body });
  const call = served.handler.fetch(sent);
  await begun;
  await served.engine.attempts.setStatus(await take(served), "still at it", null);
  await reached;
  let closed = false;
  const closing = served.handler.close().finally(() => (closed = true));
  // Of turns like these, closing takes a few where nothing is left to wait for.
  for (let n = 0; n < 100; n++) await turn();
  expect(closed).toBe(false);
  lift();
  await closing;
  expect(await (await call).json()).toMatchObject({ result: answer });
});

test("closing answers a call for which the task of another one stands", async () => {
  await using served = await opened("20s", { authenticate });
  const client = await oldClient(served.listening.url, everyInput, "alice");
  const calls = [client.call("tools/call", typed), client.call("tools/call", typed)];
  await eventually(() => served.seen.waits === calls.length);
  const [task, ...others] = await served.tasks();
  expect(others).toEqual([]);
  await served.handler.close();
  for (const call of calls) expect(await call).toMatchObject({ result: { structuredContent: { taskId: task!.id } } });
});

test("closing answers a call that is asked what such a task asks, though it would not be held", async () => {
  await using served = await opened(0, { authenticate });
  const client = await oldClient(served.listening.url, everyInput, "alice");
  await client.call("tools/call", typed);
  const claim = await take(served);
  await served.engine.attempts.park(claim, asks, false);
  const stream = await client.stream("tools/call", typed);
  expect(await stream.next()).toMatchObject({ method: "elicitation/create" });
  const closed = served.handler.close();
  expect([await stream.next(), await stream.next()]).toMatchObject([
    { method: "notifications/cancelled" },
    { result: { structuredContent: { taskId: claim.taskId } } },
  ]);
  await closed;
});

test("closing refuses a call whose client is asked before there is a task, and takes the questions back", async () => {
  await using served = await opened("20s");
  const client = await oldClient(served.listening.url);
  const stream = await client.stream("tools/call", { name: "asks_first", arguments: {}, task: {} });
  const asked = [await stream.next(), await stream.next()];
  const closed = served.handler.close();
  for (const { id } of asked)
    expect(await stream.next()).toMatchObject({ method: "notifications/cancelled", params: { requestId: id } });
  expect(await stream.next()).toMatchObject({ error: { code: -32603, message: expect.stringContaining("shut") } });
  await closed;
  expect(await served.tasks()).toEqual([]);
  expect(served.errors).toEqual([]);
});

test("closing refuses those that wait for a task's result, or for the end of its cancel", async () => {
  await using served = await opened("20s");
  const client = await oldClient(served.listening.url);
  const { taskId } = (await client.call("tools/call", { ...typed, task: {} })).result.task;
  // A worker that has it may take its time to end it.
  await take(served);
  const answers = [client.call("tasks/result", { taskId }), client.call("tasks/cancel", { taskId })];
  await eventually(() => served.seen.waits >= answers.length);
  await served.handler.close();
  for (const answer of answers) expect(await answer).toMatchObject({ error: { code: -32603 } });
  expect(await served.engine.read(taskId, "")).toMatchObject({ status: "working", cancelRequested: true });
  expect(served.errors).toEqual([]);
});
