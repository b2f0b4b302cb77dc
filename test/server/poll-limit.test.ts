import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { Client } from "@modelcontextprotocol/client";
import { expect, test } from "vitest";
import type { MethodAnswered } from "../../src/channels.ts";
import { TaskClient } from "../../src/client/index.ts";
import { newTaskId } from "../../src/protocol/ids.ts";
import { pollLimiter } from "../../src/server/poll-limit.ts";
import { ManualClock } from "../client/clock.ts";
import { authenticate, completed, declared, open, parameters } from "./harness.ts";
import { send, type Sent } from "./paths.ts";

const get = (taskId: string, method = "tasks/get"): Sent => ({
  headers: [
    ["accept", "application/json, text/event-stream"],
    ["content-type", "application/json"],
    ["mcp-protocol-version", "2026-07-28"],
    ["mcp-method", method],
    ["mcp-name", taskId],
  ],
  body: JSON.stringify({ jsonrpc: "2.0", id: "q", method, params: parameters({ taskId }, declared) }),
});

const [a, b, c] = [newTaskId(), newTaskId(), newTaskId()];

test("after a burst, polls come as fast as tokens come back, for each owner and task", () => {
  const clock = new ManualClock();
  const polls = pollLimiter({ burst: 3, perInterval: 2 }, 1_000, () => clock.now());
  const waits = (count: number, owner = "ada", id = a) => Array.from({ length: count }, () => polls.wait(owner, id));
  expect(waits(5)).toEqual([0, 0, 0, 500, 500]);
  clock.advance(200);
  expect(waits(1)).toEqual([300]);
  clock.advance(300);
  expect(waits(2)).toEqual([0, 500]);
  expect(waits(1, "bob")).toEqual([0]);
  expect(waits(1, "ada", b)).toEqual([0]);
  clock.advance(1_000_000);
  expect(waits(4)).toEqual([0, 0, 0, 500]);
});

test("a client that polls as it is told is never refused, nor are five of one owner", () => {
  const clock = new ManualClock();
  const polls = pollLimiter({}, 1_000, () => clock.now());
  for (let n = 0; n < 1_000; n++) {
    for (let tab = 0; tab < 5; tab++) expect(polls.wait("ada", a)).toBe(0);
    clock.advance(1_000);
  }
});

test("a clock that is set back stops nobody for longer than an empty bucket", () => {
  const clock = new ManualClock();
  const polls = pollLimiter({ burst: 3, perInterval: 1 }, 1_000, () => clock.now());
  clock.advance(3_600_000);
  expect([1, 2, 3].map(() => polls.wait("ada", a))).toEqual([0, 0, 0]);
  clock.advance(-3_600_000);
  expect(polls.wait("ada", a)).toBe(1_000);
  clock.advance(1_000);
  expect(polls.wait("ada", a)).toBe(0);
});

test("it keeps count of so many tasks, and of nothing that can't be one", () => {
  const polls = pollLimiter({ burst: 1, tracked: 2 }, 1_000, () => 0);
  expect([a, b, a, b].map((id) => polls.wait("", id) > 0)).toEqual([false, false, true, true]);
  expect(["x".repeat(1_000), 7, undefined].map((id) => polls.wait("", id))).toEqual([0, 0, 0]);
  expect(polls.wait("", a) > 0).toBe(true);
  // The third task takes the place of the one that was polled longest ago.
  expect(polls.wait("", c)).toBe(0);
  expect([a, b].map((id) => polls.wait("", id) > 0)).toEqual([true, false]);
});

test("a poll too many is 429 with Retry-After, whichever way it takes, and tells nothing of the id", async () => {
  const clock = new ManualClock();
  await using served = await open({ pollLimit: { burst: 2, perInterval: 1 } }, { pollMs: 90_000, clock });
  const { port } = served.listening;
  const mine = await served.create();
  await send(port, get(mine), true);
  for (const taskId of [mine, newTaskId()]) {
    for (let n = 0; n < 2; n++) await send(port, get(taskId), true);
    const refused = await send(port, get(taskId), true);
    expect(refused).toEqual(await send(port, get(taskId), false));
    expect(refused.status).toBe(429);
    expect(refused.headers).toMatchObject({ "retry-after": "90", "content-type": "application/json" });
    expect(refused.body).toEqual({
      jsonrpc: "2.0",
      id: "q",
      error: {
        code: -32603,
        message: expect.stringContaining("pollIntervalMs") as unknown,
        data: { retryAfterMs: 90_000 },
      },
    });
  }
  expect(served.errors).toEqual([]);
  const response = await served.handler.fetch(
    new Request("http://localhost/", {
      method: "POST",
      headers: get(mine).headers as [string, string][],
      body: get(mine).body,
    }),
  );
  expect([response.status, response.headers.get("retry-after")]).toEqual([429, "90"]);
  // What changes a task is nobody's poll.
  expect((await send(port, get(mine, "tasks/cancel"), true)).status).toBe(200);
  clock.advance(90_000);
  expect((await send(port, get(mine), true)).body).toMatchObject({ result: { status: "cancelled" } });
});

test("one owner's polls are none of another's, and without a limit there is none", async () => {
  await using served = await open({ authenticate, pollLimit: { burst: 1, perInterval: 1 } }, { pollMs: 90_000 });
  const taskId = newTaskId();
  const ask = async (token: string) => (await served.send("tasks/get", { taskId }, { token })).status;
  expect([await ask("ada"), await ask("ada"), await ask("bob")]).toEqual([200, 429, 200]);
  await using free = await open({ pollLimit: null }, { pollMs: 90_000 });
  for (let n = 0; n < 100; n++) expect((await free.send("tasks/get", { taskId })).status).toBe(200);
});

test.each([{ burst: 0 }, { perInterval: 0 }, { tracked: 0.5 }])("%j is no limit", async (pollLimit) => {
  await expect(open({ pollLimit })).rejects.toMatchObject({ code: "MISUSE" });
});

test("our own client waits as it is told, and gets its result", async () => {
  await using served = await open({ pollLimit: { burst: 1, perInterval: 1 } }, { pollMs: 250 });
  const refused: unknown[] = [];
  const third = Promise.withResolvers<void>();
  const note = (message: unknown) => {
    if ((message as MethodAnswered).error === "RATE_LIMITED" && refused.push(message) === 3) third.resolve();
  };
  subscribe("mcp-tasks:method:answered", note);
  const clients = await Promise.all(
    [1, 2, 3].map(() =>
      new TaskClient(new Client({ name: "test", version: "1" }), { listen: false }).connect(served.listening.url),
    ),
  );
  const taskId = await served.create("required");
  const results = clients.map((client) => client.resume(taskId).result());
  await third.promise;
  await served.finish(await served.claim(), completed("at last"));
  for (const result of results) expect(await result).toMatchObject({ content: [{ text: "at last" }] });
  unsubscribe("mcp-tasks:method:answered", note);
  for (const client of clients) await client.close();
});
