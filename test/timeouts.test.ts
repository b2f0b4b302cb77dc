import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { McpServer } from "@modelcontextprotocol/server";
import { afterAll, expect, test } from "vitest";
import { z } from "zod";
import { createTasks, TaskError, taskTool } from "../src/index.ts";
import { manualClock, type ManualClock } from "../src/testing.ts";
import { sqlite } from "../src/store/sqlite/index.ts";
import { oldClient } from "./server/old-client.ts";
import { wire, withoutTasks } from "./wire/client.ts";

const half = 43_200_000;
const folder = mkdtempSync(join(tmpdir(), "mcp-tasks-timeouts-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** Asks two people; who doesn't answer within half a day isn't waited for. */
const release = taskTool({
  name: "release",
  async run(_args, task) {
    const ask = async (key: string) => {
      try {
        await task.approve(key, `${key}, may it be released?`, { timeout: "12h" });
        return `${key}: yes`;
      } catch (error) {
        if (!(error instanceof TaskError) || error.code !== "WAIT_TIMED_OUT") throw error;
        return `${key}: no answer`;
      }
    };
    const said = await Promise.all([ask("ann"), ask("bob")]);
    const { note } = await task.elicit("note", { message: "A note?", schema: z.object({ note: z.string() }) });
    return { content: [{ type: "text", text: [...said, note].join(", ") }] };
  },
});

/** A replica over HTTP, and a client of it. */
async function replica(file: string, clock: ManualClock) {
  const store = sqlite(file, { clock });
  const tasks = createTasks({ store, tools: [release], clock, reply: { grace: 0 } });
  // The clock stands still, and so would the limit's.
  const { url } = await tasks.serve(() => new McpServer({ name: "s", version: "1" }), { pollLimit: null }).listen();
  return {
    url,
    client: wire(url),
    work: () => tasks.work(),
    async [Symbol.asyncDispose]() {
      await tasks.close();
      await store[Symbol.asyncDispose]();
    },
  };
}

const accept = (content: object = {}) => ({ action: "accept", content });

test("a client sees a question go when its time is over, over a restart, and the task come to its end", async () => {
  const clock = manualClock();
  const file = join(folder, "restart.db");
  let taskId = "";
  {
    await using before = await replica(file, clock);
    await before.work();
    taskId = await before.client.start("release");
    const asked = await before.client.until(taskId, "input_required");
    expect(Object.keys(asked.inputRequests ?? {})).toEqual(["ann", "bob"]);
    expect((await before.client.update(taskId, { ann: accept() })).body.error).toBeUndefined();
  }
  clock.advance(half - 1);
  await using after = await replica(file, clock);
  expect((await after.client.get(taskId)).body.result).toMatchObject({
    status: "input_required",
    inputRequests: { bob: {} },
  });
  clock.advance(1);
  // No worker runs yet: the question goes all the same.
  const gone = await after.client.until(taskId, "working");
  expect(gone.inputRequests).toBeUndefined();
  await after.work();
  const noted = await after.client.until(taskId, "input_required");
  expect(Object.keys(noted.inputRequests ?? {})).toEqual(["note"]);
  const late = await after.client.update(taskId, { bob: accept(), note: accept({ note: "shipped" }) });
  expect(late.body.error).toBeUndefined();
  const done = await after.client.until(taskId, "completed");
  expect(done.result?.content).toEqual([{ type: "text", text: "ann: yes, bob: no answer, shipped" }]);
});

test("a subscription tells that a question has gone, and what is asked next", async () => {
  const clock = manualClock();
  await using server = await replica(join(folder, "listen.db"), clock);
  await server.work();
  const taskId = await server.client.start("release");
  await server.client.until(taskId, "input_required");
  const stream = await server.client.listen([taskId]);
  const asks = (...keys: string[]) =>
    stream.find(({ params }) => JSON.stringify(Object.keys(params?.inputRequests ?? {})) === JSON.stringify(keys));
  await asks("ann", "bob");
  await server.client.update(taskId, { bob: accept() });
  await asks("ann");
  clock.advance(half);
  await asks("note");
  await stream.close();
});

test("a call that comes back with an answer too late goes on without it", async () => {
  const clock = manualClock();
  await using server = await replica(join(folder, "rounds.db"), clock);
  await server.work();
  const params = { name: "release", arguments: {} };
  const call = (more: object = {}) =>
    server.client.request("tools/call", { ...params, ...more }, { capabilities: withoutTasks });
  const first = (await call()).body.result;
  expect(Object.keys(first?.inputRequests ?? {})).toEqual(["ann", "bob"]);
  const back = (inputResponses: object, { requestState }: { requestState?: string } = {}) =>
    call({ inputResponses, requestState });
  clock.advance(half);
  const second = (await back({ ann: accept(), bob: accept() }, first)).body;
  expect(second).toMatchObject({ result: { inputRequests: { note: {} } } });
  // The same round again, as after a lost answer, says the same.
  expect((await back({ ann: accept(), bob: accept() }, first)).body).toMatchObject({
    result: { inputRequests: { note: {} } },
  });
  const third = await back({ note: accept({ note: "shipped" }) }, second.result);
  expect(third.body.result?.content).toMatchObject([{ text: "ann: no answer, bob: no answer, shipped" }]);
});

test("a client of 2025-11-25 that thinks for too long has its question taken back, and gets the result", async () => {
  const clock = manualClock();
  await using server = await replica(join(folder, "held.db"), clock);
  await server.work();
  const client = await oldClient(server.url);
  const stream = await client.stream("tools/call", { name: "release", arguments: {} });
  const asked = [await stream.next(), await stream.next()];
  clock.advance(half);
  const then = [await stream.next(), await stream.next(), await stream.next()];
  expect(then.slice(0, 2).map(({ params }) => params.requestId)).toEqual(asked.map(({ id }) => id));
  expect(then[2]).toMatchObject({ method: "elicitation/create", params: { message: "A note?" } });
  expect(await client.respond(asked[0], accept())).toBe(202);
  expect(await client.respond(then[2], accept({ note: "shipped" }))).toBe(202);
  expect(await stream.next()).toMatchObject({
    result: { content: [{ text: "ann: no answer, bob: no answer, shipped" }] },
  });
});
