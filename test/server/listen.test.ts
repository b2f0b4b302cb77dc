import { expect, test } from "vitest";
import { TaskError } from "../../src/errors.ts";
import { tasksRequired } from "../../src/protocol/capabilities.ts";
import { newTaskId } from "../../src/protocol/ids.ts";
import { serve } from "../../src/server/http.ts";
import { sqlite } from "../../src/store/sqlite/index.ts";
import {
  authenticate,
  completed,
  events,
  eventually,
  factory,
  open,
  question,
  type SendOptions,
  type Served,
} from "./harness.ts";

const subscriptionKey = "io.modelcontextprotocol/subscriptionId";

function listen(served: Served, taskIds: unknown, options: SendOptions = {}, others: object = {}) {
  return served.send("subscriptions/listen", { notifications: { ...others, taskIds } }, options);
}

/** What tasks/get says, as a notification would. */
async function got(served: Served, taskId: string, options?: SendOptions) {
  return told({ params: (await served.call("tasks/get", { taskId }, options)).body.result! });
}

/** A task without what differs between an answer and a notification, or with the time. */
function told({ params }: { params: Record<string, unknown> }) {
  const differs = ["resultType", "_meta", "pollIntervalMs"];
  return Object.fromEntries(Object.entries(params).filter(([name]) => !differs.includes(name)));
}

test.each(["a", 0, 7])("a subscription with id %j follows a task from its state to its end", async (id) => {
  await using served = await open();
  const taskId = await served.create();
  const response = await listen(served, [taskId, taskId, newTaskId(), "x"], { id });
  expect(response.headers.get("content-type")).toBe("text/event-stream");
  const stream = events(response);
  const meta = { [subscriptionKey]: id };
  expect(await stream.next()).toEqual({
    jsonrpc: "2.0",
    method: "notifications/subscriptions/acknowledged",
    params: { notifications: { taskIds: [taskId] }, _meta: meta },
  });
  const first = await stream.next();
  expect(first).toMatchObject({ method: "notifications/tasks", params: { taskId, status: "working", _meta: meta } });
  expect(first.params).not.toHaveProperty("resultType");

  const claim = await served.claim();
  await served.engine.attempts.park(
    claim,
    { inputs: [{ key: "ok", request: question("Sure?") }], events: [], timers: [] },
    false,
  );
  const asking = await stream.next();
  expect(asking.params.inputRequests).toEqual({ ok: question("Sure?") });
  expect(told(asking)).toEqual(await got(served, taskId));

  await served.engine.answer(taskId, "", { ok: { action: "accept", content: { ok: true } } });
  expect((await stream.next()).params).toMatchObject({ status: "working" });
  await served.finish(await served.claim(), completed("done"));
  const last = await stream.next();
  expect(told(last)).toEqual(await got(served, taskId));
  expect(await stream.next()).toMatchObject({ jsonrpc: "2.0", id, result: { resultType: "complete", _meta: meta } });
  expect(await stream.next()).toBeUndefined();
});

test("finished tasks are told, too, and then the stream ends", async () => {
  await using served = await open();
  const taskId = await served.create();
  await served.finish(await served.claim(), completed("done"));
  const stream = events(await listen(served, [taskId]));
  expect((await stream.next()).params.notifications).toEqual({ taskIds: [taskId] });
  expect((await stream.next()).params).toMatchObject({
    taskId,
    status: "completed",
    result: { content: [{ text: "done" }] },
  });
  expect(await stream.next()).toMatchObject({ result: { resultType: "complete" } });
  expect(await stream.next()).toBeUndefined();
});

test.each([[[]], [[newTaskId()]], [["nonsense", ""]]])(
  "a subscription to nothing that exists ends at once: %j",
  async (taskIds) => {
    await using served = await open();
    const stream = events(await listen(served, taskIds));
    expect((await stream.next()).params.notifications).toEqual({ taskIds: [] });
    expect(await stream.next()).toMatchObject({ id: 1, result: { resultType: "complete" } });
    expect(await stream.next()).toBeUndefined();
  },
);

test("a client that doesn't declare the extension is refused, whatever the ids", async () => {
  await using served = await open();
  for (const taskIds of [[await served.create()], [newTaskId()], "x"]) {
    const response = await listen(served, taskIds, { capabilities: {}, id: "q" });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ id: "q", error: { code: -32021, data: tasksRequired } });
  }
});

test.each(["x", 7, null, {}, [7], [null]])("taskIds that are no strings are refused: %j", async (taskIds) => {
  await using served = await open();
  const response = await listen(served, taskIds);
  expect(await response.json()).toMatchObject({ id: 1, error: { code: -32602 } });
});

test("too many ids are refused, and repetitions don't count", async () => {
  await using served = await open({ maxTaskIds: 2 });
  const taskId = await served.create();
  const stream = events(
    await listen(
      served,
      Array.from({ length: 50 }, () => taskId),
    ),
  );
  expect((await stream.next()).params.notifications).toEqual({ taskIds: [taskId] });
  await stream.cancel();
  const refused = await listen(served, [taskId, "a", "b"]);
  expect(await refused.json()).toMatchObject({ error: { code: -32602, message: expect.stringContaining("2 tasks") } });
});

test("somebody else's task is not acknowledged, and nothing of it is told", async () => {
  await using served = await open({ authenticate });
  const ada = await served.create("required", {}, { token: "ada" });
  const bob = await served.create("required", {}, { token: "bob" });
  const stream = events(await listen(served, [ada, bob], { token: "bob" }));
  expect((await stream.next()).params.notifications).toEqual({ taskIds: [bob] });
  expect((await stream.next()).params.taskId).toBe(bob);
  const claims = [await served.claim(), await served.claim()];
  for (const claim of claims) await served.finish(claim, completed("done"));
  expect((await stream.next()).params).toMatchObject({ taskId: bob, status: "completed" });
  expect(await stream.next()).toMatchObject({ result: { resultType: "complete" } });
});

test("no state is older than the one before it, and a reader who was away gets the newest", async () => {
  await using served = await open();
  const taskId = await served.create();
  const stream = events(await listen(served, [taskId]));
  await stream.next();
  await stream.next();
  const claim = await served.claim();
  for (let step = 1; step <= 50; step += 1) await served.engine.attempts.setStatus(claim, `step ${step}`, null);
  await served.finish(claim, completed("done"));
  const steps: number[] = [];
  for (let next = await stream.next(); next.method === "notifications/tasks"; next = await stream.next())
    steps.push(next.params.status === "completed" ? 51 : Number(next.params.statusMessage.slice(5)));
  expect(steps.at(-1)).toBe(51);
  expect(steps).toEqual([...new Set(steps)].toSorted((a, b) => a - b));
});

test("a reader that doesn't read costs one state of each task, and gets the newest in the end", async () => {
  await using served = await open();
  const taskId = await served.create();
  const body = JSON.stringify({
    jsonrpc: "2.0",
    id: 1,
    method: "subscriptions/listen",
    params: {
      notifications: { taskIds: [taskId] },
      _meta: {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
        "io.modelcontextprotocol/clientCapabilities": { extensions: { "io.modelcontextprotocol/tasks": {} } },
      },
    },
  });
  const headers = {
    accept: "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "subscriptions/listen",
  };
  const response = await served.handler.fetch(new Request("http://localhost/", { method: "POST", headers, body }));
  const claim = await served.claim();
  for (let step = 1; step <= 100; step += 1) await served.engine.attempts.setStatus(claim, `step ${step}`, null);
  const stream = events(response);
  expect((await stream.next()).method).toBe("notifications/subscriptions/acknowledged");
  const seen = [(await stream.next()).params.statusMessage];
  while (seen.at(-1) !== "step 100") seen.push((await stream.next()).params.statusMessage);
  expect(seen.length).toBeLessThan(5);
  await stream.cancel();
});

test("a change right after the acknowledgement is never missed", async () => {
  await using served = await open();
  for (let round = 0; round < 30; round += 1) {
    const taskId = await served.create();
    const claim = await served.claim();
    const [stream] = await Promise.all([
      listen(served, [taskId]).then(events),
      new Promise((resolve) => setTimeout(resolve, round % 6)).then(() => served.finish(claim, completed("done"))),
    ]);
    let last: { params?: { status?: string } } = {};
    for (let next = await stream.next(); next !== undefined; next = await stream.next())
      if (next.method === "notifications/tasks") last = next;
    expect(last.params?.status).toBe("completed");
  }
});

test("what else was subscribed goes on beside tasks and outlives them", async () => {
  await using served = await open();
  const taskId = await served.create();
  const response = await listen(served, [taskId], { id: "both" }, { toolsListChanged: true });
  const stream = events(response);
  expect((await stream.next()).params.notifications).toEqual({ toolsListChanged: true, taskIds: [taskId] });
  await stream.next();
  await served.finish(await served.claim(), completed("done"));
  expect((await stream.next()).params).toMatchObject({ taskId, status: "completed" });
  await served.handler.close();
  expect(await stream.next()).toMatchObject({ id: "both", result: { resultType: "complete" } });
  expect(await stream.next()).toBeUndefined();
});

test("a subscription without tasks is the SDK's alone", async () => {
  await using served = await open();
  const stream = events(await served.send("subscriptions/listen", { notifications: { toolsListChanged: true } }));
  expect((await stream.next()).params.notifications).toEqual({ toolsListChanged: true });
  await stream.cancel();
});

test("closing ends each stream with its last answer, and leaves the tasks alone", async () => {
  await using served = await open();
  const taskId = await served.create();
  const stream = events(await listen(served, [taskId], { id: 5 }));
  await stream.next();
  await stream.next();
  await served.handler.close();
  expect(await stream.next()).toMatchObject({
    id: 5,
    result: { resultType: "complete", _meta: { [subscriptionKey]: 5 } },
  });
  expect(await stream.next()).toBeUndefined();
  expect(await served.engine.read(taskId, "")).toMatchObject({ status: "working", cancelRequested: false });
});

test("an idle stream is kept alive with comments", async () => {
  await using served = await open({ keepAliveMs: 10 });
  const taskId = await served.create();
  const stream = events(await listen(served, [taskId]));
  await stream.next();
  await stream.next();
  const next = stream.next();
  await eventually(() => stream.seen.comments >= 3);
  await served.finish(await served.claim(), completed("done"));
  expect((await next).params.status).toBe("completed");
});

test("an owner has so many streams, all together have so many, and a closed one makes room", async () => {
  await using served = await open({ authenticate, maxStreamsPerOwner: 2, maxStreams: 3 });
  const ids = {
    ada: await served.create("required", {}, { token: "ada" }),
    bob: await served.create("required", {}, { token: "bob" }),
  };
  const start = (token: "ada" | "bob") => listen(served, [ids[token]], { token });
  const refused = { error: { code: -32603, message: new TaskError("TOO_MANY_STREAMS").message } };
  const streams = [events(await start("ada")), events(await start("ada"))];
  expect(await (await start("ada")).json()).toMatchObject(refused);
  streams.push(events(await start("bob")));
  expect(await (await start("bob")).json()).toMatchObject(refused);
  expect((await served.call("tasks/get", { taskId: ids.ada }, { token: "ada" })).status).toBe(200);
  await streams[0]!.cancel();
  const again = await eventually(async () => {
    const response = await start("ada");
    return response.headers.get("content-type") === "text/event-stream" && response;
  });
  streams.push(events(again));
  for (const stream of streams.slice(1)) await stream.cancel();
  expect(served.errors.every(({ code }) => code === "TOO_MANY_STREAMS")).toBe(true);
});

test("a stream works on a replica that has never seen the task", async () => {
  await using served = await open();
  const taskId = await served.create();
  const replica = serve(served.parts, factory);
  const { url } = await replica.listen();
  const stream = events(await listen(served, [taskId], { url }));
  expect((await stream.next()).params.notifications).toEqual({ taskIds: [taskId] });
  expect((await stream.next()).params.status).toBe("working");
  await served.finish(await served.claim(), completed("done"));
  expect((await stream.next()).params.status).toBe("completed");
  await stream.cancel();
  await replica.close();
});

test("a store that can't be read is told as such, and a stream that is open comes back by itself", async () => {
  const inner = sqlite(":memory:");
  let broken = false;
  const get: typeof inner.get = (...of) =>
    broken ? Promise.reject(new TaskError("STORE_UNAVAILABLE")) : inner.get(...of);
  await using served = await open({ keepAliveMs: 20 }, { store: { ...inner, get } });
  const taskId = await served.create();
  const stream = events(await listen(served, [taskId]));
  await stream.next();
  await stream.next();
  broken = true;
  const refused = await listen(served, [taskId], { id: 9 });
  expect(await refused.json()).toMatchObject({
    id: 9,
    error: { code: -32603, message: new TaskError("STORE_UNAVAILABLE").message },
  });
  await served.finish(await served.claim(), completed("done"));
  await eventually(() => served.errors.length >= 2);
  broken = false;
  expect((await stream.next()).params.status).toBe("completed");
});
