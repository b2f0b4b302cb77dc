import { Client } from "@modelcontextprotocol/client";
import { McpServer } from "@modelcontextprotocol/server";
import { createTasks, taskTool } from "mcp-tasks";
import { TaskClient, idempotencyKey, memoryLog } from "mcp-tasks/client";
import { sqlite } from "mcp-tasks/sqlite";
import { expect, test } from "vitest";
import { tasksExtension } from "../../src/protocol/capabilities.ts";
import { idempotencyExtension } from "../../src/protocol/idempotency.ts";
import { ManualClock } from "./clock.ts";
import { type FakeServer, type Reply, type Script, fakeServer } from "./fake-http.ts";
import { losesFirstAnswer } from "./lossy-proxy.ts";
import { connected } from "./setup.ts";
import { form } from "./wire.ts";

const heeding = { [tasksExtension]: {}, [idempotencyExtension]: { tools: ["x"] } };
const done = { resultType: "complete", content: [{ type: "text", text: "done" }] };
const keysOf = (server: FakeServer) => server.of("tools/call").map(({ params }) => params._meta[idempotencyKey]);

/** Answers the first calls one way each, and all that follow by the last one. */
function script(...answers: ((reply: Reply) => void)[]): Script {
  let n = 0;
  return (_, reply) => answers[Math.min(n++, answers.length - 1)]!(reply);
}

const reset = (reply: Reply) => reply.reset();
const ok = (reply: Reply) => reply.result(done);

test.each([
  ["a reset connection", reset],
  [
    "a stream that ends",
    (reply: Reply) => reply.raw.writeHead(200, { "content-type": "text/event-stream" }).end(": hi\n\n"),
  ],
  ["a gateway's error", (reply: Reply) => reply.status(502)],
])("a call whose answer is lost is sent again with its key to a server that heeds it: %s", async (_, lose) => {
  await using server = await fakeServer(script(lose, lose, ok), heeding);
  const clock = new ManualClock();
  const log = memoryLog();
  const tasks = await connected(server, { clock, log });
  const result = tasks.callTool({ name: "x" });
  for (let n = 0; n < 2; n += 1) {
    await clock.pass();
    const [entry] = await log.list();
    expect(entry).toMatchObject({ state: "calling", idempotencyKey: keysOf(server)[0] });
  }
  expect(await result).toMatchObject({ content: done.content });
  const keys = keysOf(server);
  expect(keys).toHaveLength(3);
  expect(new Set(keys).size).toBe(1);
  expect(keys[0]).toMatch(/^[\x21-\x7e]{22,128}$/);
  await tasks.callTool({ name: "x" });
  expect(keysOf(server)[3]).not.toBe(keys[0]);
  await tasks.close();
});

test("a tool that the server doesn't name is called once, without a key", async () => {
  await using server = await fakeServer(script(reset), heeding);
  const tasks = await connected(server);
  await expect(tasks.callTool({ name: "y" })).rejects.toMatchObject({ code: "MAY_HAVE_STARTED" });
  expect(keysOf(server)).toEqual([undefined]);
  await tasks.close();
});

test("an answer that stays lost is MAY_HAVE_STARTED with the key, by which the caller can try again later", async () => {
  await using server = await fakeServer(script(reset, reset, reset, reset, reset, ok), heeding);
  const clock = new ManualClock();
  const tasks = await connected(server, { clock });
  const result = tasks.callTool({ name: "x" }).catch((error: unknown) => error);
  for (let n = 0; n < 4; n += 1) await clock.pass();
  const key = keysOf(server)[0];
  expect(await result).toMatchObject({ code: "MAY_HAVE_STARTED", data: { idempotencyKey: key } });
  expect(keysOf(server)).toHaveLength(5);
  await tasks.callTool({ name: "x", _meta: { [idempotencyKey]: key } });
  expect(keysOf(server)[5]).toBe(key);
  await tasks.close();
});

test.each([
  [
    "what the server says to the second is the answer",
    (reply: Reply) => reply.error(-32602, "no"),
    { code: "CALL_FAILED", rpc: -32602 },
  ],
  [
    "a refusal of the second says nothing about the first",
    (reply: Reply) => reply.status(401),
    { code: "MAY_HAVE_STARTED" },
  ],
])("after a lost answer, %s", async (_, second, outcome) => {
  await using server = await fakeServer(script(reset, second), heeding);
  const clock = new ManualClock();
  const tasks = await connected(server, { clock });
  const result = tasks.callTool({ name: "x" }).catch((error: unknown) => error);
  await clock.pass();
  expect(await result).toMatchObject(outcome);
  expect(keysOf(server)).toHaveLength(2);
  await tasks.close();
});

test("whoever leaves between two tries is told so, and a deadline leaves the question open", async () => {
  await using server = await fakeServer(script(reset), heeding);
  const clock = new ManualClock();
  const tasks = await connected(server, { clock });
  const controller = new AbortController();
  const left = tasks.callTool({ name: "x" }, { signal: controller.signal }).catch((error: unknown) => error);
  await clock.waiting();
  controller.abort();
  expect(await left).toMatchObject({ code: "CANCELLED", data: { idempotencyKey: keysOf(server)[0] } });
  const late = tasks.callTool({ name: "x" }, { deadline: 60_000 }).catch((error: unknown) => error);
  await clock.waiting(60_000);
  clock.advance(60_000);
  expect(await late).toMatchObject({ code: "MAY_HAVE_STARTED", cause: { code: "DEADLINE_PASSED" } });
  await tasks.close();
});

test("a call that a crash cut off is MAY_HAVE_STARTED with the key that was sent", async () => {
  await using server = await fakeServer(() => {}, heeding);
  const log = memoryLog();
  const first = await connected(server, { log });
  void first.callTool({ name: "x" }).catch(() => {});
  const [entry] = await expect
    .poll(() => log.list())
    .toHaveLength(1)
    .then(() => log.list());
  const other = memoryLog();
  await other.put(entry!);
  const second = await connected(server, { log: other });
  const [run] = await second.resumeAll();
  await expect(run!.result()).rejects.toMatchObject({
    code: "MAY_HAVE_STARTED",
    data: { idempotencyKey: entry!.idempotencyKey },
  });
  await second.close();
  await first.close();
});

test("a call whose answer was lost stays in the log with keep, and the next resumeAll tells it once more", async () => {
  await using server = await fakeServer(script(reset));
  const log = memoryLog();
  const tasks = await connected(server, { log });
  const lost = { code: "MAY_HAVE_STARTED" };
  await expect(tasks.callTool({ name: "x" })).rejects.toMatchObject(lost);
  await expect.poll(() => log.list()).toEqual([]);
  await expect(tasks.callTool({ name: "x" }, { keep: true })).rejects.toMatchObject(lost);
  expect(await log.list()).toMatchObject([{ tool: "x", taskId: null, state: "calling" }]);
  const [run] = await tasks.resumeAll();
  await expect(run!.result()).rejects.toMatchObject(lost);
  await expect.poll(() => log.list()).toEqual([]);
  expect(server.of("tools/call")).toHaveLength(2);
  await tasks.close();
});

test.each(["cancel", "detach"] as const)(
  "a call that was left before its answer stays in the log with keep (%s)",
  async (onAbort) => {
    const calls = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    let asks = false;
    await using server = await fakeServer((_, reply) => {
      if (asks) reply.result({ resultType: "input_required", inputRequests: { who: form("Who?") } });
      else calls[server.of("tools/call").length - 1]!.resolve();
    }, heeding);
    const log = memoryLog();
    const asked = Promise.withResolvers<void>();
    const elicit = () => (asked.resolve(), new Promise<never>(() => {}));
    const tasks = await connected(server, { log, input: { elicit } });
    const call = async (name: string, keep: boolean, sent: Promise<void>) => {
      const controller = new AbortController();
      const result = tasks
        .callTool({ name }, { signal: controller.signal, onAbort, keep })
        .catch((error: unknown) => error);
      await sent;
      controller.abort();
      return await result;
    };
    const code = onAbort === "cancel" ? "CANCELLED" : "DETACHED";
    expect(await call("x", true, calls[0]!.promise)).toMatchObject({ code });
    const [entry] = await log.list();
    expect(entry).toMatchObject({ state: "calling", taskId: null, idempotencyKey: keysOf(server)[0] });
    // What was asked first and not answered has started nothing.
    asks = true;
    expect(await call("y", true, asked.promise)).toMatchObject({ code });
    await expect.poll(() => log.list()).toEqual([entry]);
    await tasks.close();
  },
);

test("our own server runs a call once whose answer was lost on the way", async () => {
  const runs: string[] = [];
  const build = taskTool({
    name: "build",
    run: (_args, task) => {
      runs.push(task.id);
      return { content: [{ type: "text", text: "built" }] };
    },
  });
  await using store = sqlite(":memory:");
  await using served = createTasks({ store, tools: [build] });
  const { url } = await served.serve(() => new McpServer({ name: "real", version: "1" })).listen();
  await served.work();
  await using proxy = await losesFirstAnswer(url, (socket) => socket.resetAndDestroy());
  const tasks = await new TaskClient(new Client({ name: "test", version: "1" })).connect(proxy.url);
  expect(await tasks.callTool({ name: "build" })).toMatchObject({ content: [{ text: "built" }] });
  expect(proxy.lost()).toBe(1);
  expect(runs).toHaveLength(1);
  expect(await store.list({ limit: 10 })).toHaveLength(1);
  await tasks.close();
});
