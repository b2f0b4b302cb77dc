import { setImmediate as turn } from "node:timers/promises";
import { expect, test } from "vitest";
import { z } from "zod";
import { systemClock } from "../../src/clock.ts";
import { serve } from "../../src/server/http.ts";
import { taskTool } from "../../src/tool.ts";
import { manualClock } from "../../src/store/contract/manual-clock.ts";
import { authenticate, completed, eventually, factory, open, question, type Json, type Served } from "./harness.ts";
import { everyInput, oldClient } from "./old-client.ts";

/** Protocol 2025-11-25, message by message. The sections cited are those of its page "Tasks". */

const meta = (taskId: string) => ({ "io.modelcontextprotocol/related-task": { taskId } });
const run = () => ({ content: [] });
const required = { name: "required", arguments: {} };
const optional = { name: "optional", arguments: { text: "x" } };
const failed = { status: "failed", error: '{"code":-32007,"message":"broke","data":{"at":1}}', statusMessage: "broke" };

async function start(client: Awaited<ReturnType<typeof oldClient>>, call: object = required): Promise<string> {
  const answer = await client.call("tools/call", { ...call, task: {} });
  return answer.result.task.taskId as string;
}

/** The next task, as soon as there is one. */
const take = (served: Served) => eventually(() => served.claim().catch(() => undefined));

const asks = (...keys: string[]) => ({
  inputs: keys.map((key) => ({ key, request: question(`${key}?`) })),
  events: [],
  timers: [],
});
const accept = { action: "accept", content: { ok: true } };

// "Capabilities", "Tool-Level Negotiation".
test("the server declares tasks, and each tool whether it runs as one", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  expect(client.hello.result.protocolVersion).toBe("2025-11-25");
  expect(client.hello.result.capabilities.tasks).toEqual({ cancel: {}, requests: { tools: { call: {} } } });
  expect(client.hello.result.capabilities).not.toHaveProperty("extensions");
  const { tools } = (await client.call("tools/list")).result;
  const support = Object.fromEntries(tools.map((tool: Json) => [tool.name, tool.execution?.taskSupport]));
  expect(support).toMatchObject({ plain: undefined, optional: "optional", required: "required" });
});

// "Tool-Level Negotiation".
test("a tool that is no task refuses the parameter, and one that must be a task wants it", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const plain = await client.call("tools/call", { name: "plain", arguments: { name: "Ada" }, task: {} });
  expect(plain.error).toMatchObject({ code: -32601, message: expect.stringContaining("without") });
  expect((await client.call("tools/call", required)).error).toMatchObject({ code: -32601 });
  const greeted = await client.call("tools/call", { name: "plain", arguments: { name: "Ada" } });
  expect(greeted.result.content).toEqual([{ type: "text", text: "Hello, Ada!" }]);
});

// "Creating Tasks", "Getting Tasks", "Retrieving Task Results".
test("a call with the parameter is answered by a task, which is read until its result can be fetched", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const { result } = await client.call("tools/call", { ...optional, task: { ttl: 120_000 } });
  expect(Object.keys(result)).toEqual(["task"]);
  const { taskId } = result.task;
  const iso = expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/);
  const task = { taskId, createdAt: iso, lastUpdatedAt: iso, ttl: null, pollInterval: 1_000 };
  expect(result.task).toEqual({ ...task, status: "working" });
  expect((await client.call("tasks/get", { taskId })).result).toEqual({ ...task, status: "working" });

  const waits = client.call("tasks/result", { taskId });
  await served.finish(await take(served), completed("done", { structuredContent: { n: 1 } }));
  const content = [{ type: "text", text: "done" }];
  expect((await waits).result).toEqual({ content, structuredContent: { n: 1 }, _meta: meta(taskId) });
  expect((await client.call("tasks/result", { taskId })).result).toMatchObject({ content });
  const read = (await client.call("tasks/get", { taskId })).result;
  expect(read).toEqual({ ...task, status: "completed", ttl: expect.any(Number) });
  expect(read.ttl).toBeGreaterThanOrEqual(120_000);
});

// "TTL and Resource Management".
test.each([
  [0, 60_000],
  [3_600_000, 3_600_000],
  [1e15, 7 * 86_400_000],
  [undefined, 7 * 86_400_000],
])("with a ttl of %s a task is kept for %i ms after its end", async (ttl, keptMs) => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const { taskId } = (await client.call("tools/call", { ...required, task: { ttl } })).result.task;
  await served.finish(await take(served), completed("done"));
  const { createdAt, lastUpdatedAt, ttl: actual } = (await client.call("tasks/get", { taskId })).result;
  expect(actual - (Date.parse(lastUpdatedAt) - Date.parse(createdAt))).toBe(keptMs);
});

test("a ttl that is no length of time is refused", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  for (const ttl of [-1, "soon", {}])
    expect((await client.call("tools/call", { ...required, task: { ttl } })).error.code).toBe(-32602);
  await expect(served.claim()).rejects.toThrow("Nothing to claim");
});

// "Task Execution Errors".
test("a task that failed says why, and its result is the error of the call", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const first = await start(client);
  await served.finish(await take(served), failed as never);
  expect((await client.call("tasks/get", { taskId: first })).result).toMatchObject({
    status: "failed",
    statusMessage: "broke",
  });
  const error = { code: -32007, message: "broke", data: { at: 1 } };
  expect((await client.call("tasks/result", { taskId: first })).error).toEqual(error);

  const second = await start(client);
  await served.finish(await take(served), completed("no such file", { isError: true }));
  expect((await client.call("tasks/get", { taskId: second })).result).toMatchObject({
    status: "failed",
    statusMessage: "no such file",
  });
  const said = [{ type: "text", text: "no such file" }];
  expect((await client.call("tasks/result", { taskId: second })).result).toEqual({
    content: said,
    isError: true,
    _meta: meta(second),
  });
});

// "Task Cancellation".
test("a cancel is answered when the task is cancelled, and refused once it has ended", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const queued = await start(client);
  expect((await client.call("tasks/cancel", { taskId: queued })).result).toMatchObject({
    taskId: queued,
    status: "cancelled",
  });
  expect((await client.call("tasks/result", { taskId: queued })).result).toMatchObject({
    isError: true,
    _meta: meta(queued),
  });
  expect((await client.call("tasks/cancel", { taskId: queued })).error).toMatchObject({ code: -32602 });

  const running = await start(client);
  const claim = await take(served);
  const answer = client.call("tasks/cancel", { taskId: running });
  await expect.poll(async () => (await served.engine.read(running, "")).cancelRequested).toBe(true);
  await served.finish(claim, { status: "cancelled", statusMessage: null });
  expect((await answer).result).toMatchObject({ taskId: running, status: "cancelled" });
});

test("a task that completes in spite of the cancel stays completed, and the cancel says so", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const taskId = await start(client);
  const claim = await take(served);
  const answer = client.call("tasks/cancel", { taskId });
  await expect.poll(async () => (await served.engine.read(taskId, "")).cancelRequested).toBe(true);
  await served.finish(claim, completed("done"));
  expect((await answer).error).toMatchObject({ code: -32602 });
  expect((await client.call("tasks/get", { taskId })).result.status).toBe("completed");
});

// "Protocol Errors", "Task Isolation and Access Control".
test("no method of tasks finds a task that doesn't exist, or that is another owner's", async () => {
  await using served = await open({ authenticate });
  const alice = await oldClient(served.listening.url, everyInput, "alice");
  const bob = await oldClient(served.listening.url, everyInput, "bob");
  const taskId = await start(alice);
  for (const method of ["tasks/get", "tasks/result", "tasks/cancel"]) {
    for (const params of [{ taskId }, { taskId: "A".repeat(22) }, { taskId: 7 }, {}])
      expect((await bob.call(method, params)).error.code, method).toBe(-32602);
    // Alice's own session changes nothing about who asks.
    expect((await bob.call(method, { taskId }, { session: alice.session })).error.code, method).toBe(-32602);
  }
  expect((await alice.call("tasks/get", { taskId })).result.status).toBe("working");
  // The old methods are those of the old protocol, and the new one's are not there.
  expect((await alice.call("tasks/update", { taskId, inputResponses: {} })).error.code).toBe(-32601);
});

// "Listing Tasks", "Task Isolation and Access Control".
test("an authenticated client lists its own tasks page by page; nobody else is offered a list", async () => {
  await using served = await open({ authenticate });
  const alice = await oldClient(served.listening.url, everyInput, "alice");
  const bob = await oldClient(served.listening.url, everyInput, "bob");
  expect(alice.hello.result.capabilities.tasks).toHaveProperty("list");
  const own = await Promise.all(Array.from({ length: 25 }, () => start(alice)));
  await start(bob);
  const first = (await alice.call("tasks/list")).result;
  expect(first.tasks).toHaveLength(20);
  expect(first.tasks[0]).toMatchObject({ status: "working", ttl: null, createdAt: expect.any(String) });
  const second = (await alice.call("tasks/list", { cursor: first.nextCursor })).result;
  expect(second).not.toHaveProperty("nextCursor");
  const listed = [...first.tasks, ...second.tasks].map((task: Json) => task.taskId as string);
  expect(listed.toSorted()).toEqual(own.toSorted());
  for (const cursor of ["x", "", 7, Buffer.from('["a",1]').toString("base64url")])
    expect((await alice.call("tasks/list", { cursor })).error.code).toBe(-32602);
});

test("without authentication tasks/list does not exist", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  expect(client.hello.result.capabilities.tasks).not.toHaveProperty("list");
  expect((await client.call("tasks/list")).error.code).toBe(-32601);
});

// "Input Required Status", "Associating Task-Related Messages".
test("what a task asks is asked while its result is waited for", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const taskId = await start(client);
  const parked = await take(served);
  expect(parked.client).toMatchObject({ tasks: true, elicitation: { form: true, url: true }, roots: true });
  await served.engine.attempts.park(parked, asks("first", "second"), false);
  expect((await client.call("tasks/get", { taskId })).result.status).toBe("input_required");

  const stream = await client.stream("tasks/result", { taskId }, { id: "r" });
  const [first, second] = [await stream.next(), await stream.next()];
  expect(first).toMatchObject({ method: "elicitation/create", params: { message: "first?", _meta: meta(taskId) } });
  expect(second).toMatchObject({ method: "elicitation/create", params: { message: "second?", _meta: meta(taskId) } });
  expect(first.id).not.toBe(second.id);
  expect(await client.respond(second, accept)).toBe(202);
  expect(await client.respond(first, accept)).toBe(202);
  const resumed = await take(served);
  expect(resumed.journal.inputs.first?.response).toEqual(accept);
  await served.finish(resumed, completed("done"));
  expect(await stream.next()).toMatchObject({ id: "r", result: { content: [{ text: "done" }], _meta: meta(taskId) } });
});

test("an answer that doesn't fit is asked for again, and says why", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const taskId = await start(client);
  await served.engine.attempts.park(await take(served), asks("sure"), false);
  const stream = await client.stream("tasks/result", { taskId });
  await client.respond(await stream.next(), { action: "accept", content: { ok: "maybe" } });
  const again = await stream.next();
  expect(again.params.message).toMatch(/^sure\? \(content\.ok: .+\)$/);
  await client.respond(again, accept);
  await served.finish(await take(served), completed("done"));
  expect(await stream.next()).toMatchObject({ result: { content: [{ text: "done" }] } });
});

test("every kind of input takes the form of this protocol", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const taskId = await start(client);
  const message = { role: "user", content: { type: "text", text: "?" } };
  const inputs = [
    {
      key: "page",
      request: { method: "elicitation/create", params: { mode: "url", message: "Pay", url: "https://a.b" } },
    },
    { key: "model", request: { method: "sampling/createMessage", params: { messages: [message], maxTokens: 5 } } },
    { key: "roots", request: { method: "roots/list" } },
  ] as const;
  await served.engine.attempts.park(await take(served), { inputs, events: [], timers: [] }, false);
  const stream = await client.stream("tasks/result", { taskId });
  const page = await stream.next();
  expect(page.params).toMatchObject({ mode: "url", url: "https://a.b", elicitationId: expect.any(String) });
  await client.respond(page, { action: "accept" });
  const model = await stream.next();
  expect(model.params).toEqual({ messages: [message], maxTokens: 5, _meta: meta(taskId) });
  const sampled = { role: "assistant", content: { type: "text", text: "!" }, model: "m" };
  await client.respond(model, sampled);
  await client.respond(await stream.next(), { roots: [{ uri: "file:///a" }] });
  const { inputs: answered } = (await take(served)).journal;
  expect(answered.page?.response).toEqual({ action: "accept" });
  expect(answered.model?.response).toEqual(sampled);
  expect(answered.roots?.response).toEqual({ roots: [{ uri: "file:///a" }] });
  await stream.cancel();
});

test("an answer may come to another server over the same tasks, and one question is answered once", async () => {
  await using served = await open();
  const other = await serve(served.parts, factory).listen();
  const client = await oldClient(served.listening.url);
  const taskId = await start(client);
  await served.engine.attempts.park(await take(served), asks("sure"), false);
  const stream = await client.stream("tasks/result", { taskId });
  const elsewhere = await client.stream("tasks/result", { taskId }, { url: other.url });
  const [here, there] = [await stream.next(), await elsewhere.next()];
  expect(here.id).not.toBe(there.id);
  expect(await client.respond(here, accept, { url: other.url })).toBe(202);
  const resumed = await take(served);
  // What is still asked elsewhere is taken back.
  expect(await elsewhere.next()).toMatchObject({
    method: "notifications/cancelled",
    params: { requestId: there.id, _meta: meta(taskId) },
  });
  await served.finish(resumed, completed("done"));
  expect(await elsewhere.next()).toMatchObject({ result: { content: [{ text: "done" }] } });
  await other.close();
});

test("nobody answers for another owner, even with the id of the question", async () => {
  await using served = await open({ authenticate });
  const alice = await oldClient(served.listening.url, everyInput, "alice");
  const taskId = await start(alice);
  await served.engine.attempts.park(await take(served), asks("sure"), false);
  const stream = await alice.stream("tasks/result", { taskId });
  const asked = await stream.next();
  await alice.respond(asked, accept, { token: "bob" });
  expect((await alice.call("tasks/get", { taskId })).result.status).toBe("input_required");
  await alice.respond(asked, accept);
  await served.finish(await take(served), completed("done"));
  expect(await stream.next()).toMatchObject({ result: { content: [{ text: "done" }] } });
});

test("what the client can't give, or answers with an error, stays open for others", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const taskId = await start(client);
  await served.engine.attempts.park(await take(served), asks("sure"), false);
  const stream = await client.stream("tasks/result", { taskId }, { id: "r" });
  const asked = await stream.next();
  await client.post({ id: asked.id, error: { code: -1, message: "not now" } });
  expect((await client.call("tasks/get", { taskId })).result.status).toBe("input_required");
  await served.engine.answer(taskId, "", { sure: accept });
  await served.finish(await take(served), completed("done"));
  expect(await stream.next()).toMatchObject({ id: "r", result: { content: [{ text: "done" }] } });
});

// Core specification, "Elicitation": without tasks, the server asks while the call is open.
test("a call without the parameter is held, and asks on its own stream", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const stream = await client.stream("tools/call", optional, { id: "c" });
  await served.engine.attempts.park(await take(served), asks("sure"), false);
  const asked = await stream.next();
  expect(asked).toMatchObject({ method: "elicitation/create", params: { message: "sure?" } });
  expect(asked.params).not.toHaveProperty("_meta");
  await client.respond(asked, accept);
  await served.finish(await take(served), completed("done"));
  expect(await stream.next()).toEqual({
    jsonrpc: "2.0",
    id: "c",
    result: { content: [{ type: "text", text: "done" }] },
  });
  expect(await stream.next()).toBeUndefined();
});

test("questions before a task are asked on the call, until they are answered as they should be", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const stream = await client.stream("tools/call", { name: "asks_first", arguments: {}, task: {} });
  const [name, size] = [await stream.next(), await stream.next()];
  await client.respond(name, { action: "accept", content: { name: "A" } });
  await client.respond(size, { action: "accept", content: {} });
  const again = await stream.next();
  expect(again.params.message).toMatch(/^Who are you\? \(.+\)$/);
  await client.respond(again, { action: "accept", content: { name: "Ada" } });
  expect(await stream.next()).toMatchObject({ result: { task: { status: "working" } } });
  const { answers } = await take(served);
  expect(JSON.parse(answers)).toEqual({ name: { name: "Ada" }, size: { size: 3 } });
});

test("a question before a task that is declined, or can't be put, makes no task", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const call = { name: "asks_first", arguments: {}, task: {} };
  const stream = await client.stream("tools/call", call);
  const [name, size] = [await stream.next(), await stream.next()];
  await client.respond(name, { action: "decline" });
  await client.respond(size, { action: "accept", content: {} });
  expect(await stream.next()).toMatchObject({
    result: { isError: true, content: [{ text: expect.stringContaining("no") }] },
  });
  const mute = await oldClient(served.listening.url, {});
  expect((await mute.call("tools/call", call)).result).toMatchObject({ isError: true });
  await expect(served.claim()).rejects.toThrow("Nothing to claim");
});

test("a call can be cancelled by another request of its session", async () => {
  await using served = await open({ authenticate });
  const client = await oldClient(served.listening.url, everyInput, "alice");
  const stranger = await oldClient(served.listening.url, everyInput, "alice");
  const stream = await client.stream("tools/call", optional, { id: 77 });
  const claim = await take(served);
  const cancelled = { method: "notifications/cancelled", params: { requestId: 77 } };
  await stranger.post(cancelled);
  await client.post(cancelled, { token: "bob" });
  await client.post({ method: "notifications/cancelled", params: { requestId: 78 } });
  expect(await served.engine.read(claim.taskId, "alice")).toMatchObject({ cancelRequested: false });
  await client.post(cancelled);
  expect(await stream.next()).toMatchObject({ id: 77, error: { code: -32603 } });
  expect(await served.engine.read(claim.taskId, "alice")).toMatchObject({ cancelRequested: true });
});

test("so can one whose client is being asked, and the question is taken back", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const stream = await client.stream("tools/call", optional, { id: 77 });
  const claim = await take(served);
  await served.engine.attempts.park(claim, asks("sure"), false);
  const { id } = await stream.next();
  await client.post({ method: "notifications/cancelled", params: { requestId: 77 } });
  expect(await stream.next()).toMatchObject({ method: "notifications/cancelled", params: { requestId: id } });
  expect(await stream.next()).toMatchObject({ id: 77, error: { code: -32603 } });
  expect(await served.engine.read(claim.taskId, "")).toMatchObject({ status: "cancelled" });
});

test("so can one that is asked before there is a task, and there will be none", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const stream = await client.stream("tools/call", { name: "asks_first", arguments: {}, task: {} }, { id: 77 });
  const asked = [await stream.next(), await stream.next()];
  await client.post({ method: "notifications/cancelled", params: { requestId: 77 } });
  for (const { id } of asked)
    expect(await stream.next()).toMatchObject({ method: "notifications/cancelled", params: { requestId: id } });
  expect(await stream.next()).toMatchObject({ id: 77, error: { code: -32603 } });
  expect(await served.tasks()).toEqual([]);
});

test("closing answers a call whose client is being asked with a handle, and the question stays open", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const stream = await client.stream("tools/call", optional);
  const claim = await take(served);
  await served.engine.attempts.park(claim, asks("sure"), false);
  expect(await stream.next()).toMatchObject({ method: "elicitation/create" });
  const closed = served.handler.close();
  const said = [await stream.next(), await stream.next()];
  expect(said).toMatchObject([
    { method: "notifications/cancelled" },
    { result: { structuredContent: { taskId: claim.taskId } } },
  ]);
  await closed;
  expect(await served.engine.read(claim.taskId, "")).toMatchObject({
    status: "input_required",
    cancelRequested: false,
  });
});

test("whoever stops waiting for a result leaves the task alone", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const taskId = await start(client);
  const claim = await take(served);
  const leave = new AbortController();
  const left = await client.stream("tasks/result", { taskId }, { signal: leave.signal });
  leave.abort();
  await expect(left.next()).rejects.toThrow();
  await served.finish(claim, completed("done"));
  expect((await client.call("tasks/result", { taskId })).result).toMatchObject({ content: [{ text: "done" }] });
});

test("closing answers those that wait for a result, and the task goes on", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const taskId = await start(client);
  const stream = await client.stream("tasks/result", { taskId });
  await expect.poll(async () => (await client.call("tasks/get", { taskId })).result.status).toBe("working");
  await served.handler.close();
  expect(await stream.next()).toMatchObject({ error: { code: -32603 } });
  expect(await served.engine.read(taskId, "")).toMatchObject({ cancelRequested: false });
});

// Core specification of 2025-11-25, "Session Management".
test("a session outlives its server, and one of another server is not found", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  expect(client.session).toMatch(/^[!-~]+$/);
  expect((await oldClient(served.listening.url)).session).not.toBe(client.session);
  const next = await serve(served.parts, factory).listen();
  const stream = await client.stream("tools/call", { name: "asks_first", arguments: {}, task: {} }, { url: next.url });
  expect(await stream.next()).toMatchObject({ method: "elicitation/create" });
  await stream.cancel();
  await next.close();
  const lost = await client.post({ id: 1, method: "tools/list" }, { session: "of-another-server" });
  expect(lost.status).toBe(404);
  const long = await client.post({ id: 1, method: "tools/list" }, { session: `${client.session}${"A".repeat(4_000)}` });
  expect(long.status).toBe(404);
  for (const method of ["GET", "DELETE"]) {
    const headers = { accept: "text/event-stream", "mcp-session-id": client.session! };
    expect((await fetch(served.listening.url, { method, headers })).status, method).toBe(405);
  }
});

test("a client without a session is served, too, as one that can be asked nothing", async () => {
  await using served = await open();
  const client = await oldClient(served.listening.url);
  const answer = await client.call("tools/call", { ...required, task: {} }, { session: null });
  expect(answer.result.task.status).toBe("working");
  expect((await take(served)).client).toMatchObject({ tasks: true, elicitation: { form: false }, roots: false });
});

test("both protocols read the same tasks", async () => {
  await using served = await open({ authenticate });
  const client = await oldClient(served.listening.url, everyInput, "alice");
  const alice = { token: "alice" };
  const old = await start(client);
  const current = await served.create("required", {}, alice);
  expect((await served.call("tasks/get", { taskId: old }, alice)).body.result).toMatchObject({
    resultType: "complete",
    taskId: old,
    status: "working",
    ttlMs: null,
  });
  expect((await client.call("tasks/get", { taskId: current })).result).toMatchObject({ taskId: current, ttl: null });
  const listed = (await client.call("tasks/list")).result.tasks.map((task: Json) => task.taskId as string);
  expect(listed.toSorted()).toEqual([old, current].toSorted());

  // Asked in one protocol, answered in the other.
  await served.engine.attempts.park(await take(served), asks("sure"), false);
  const stream = await client.stream("tasks/result", { taskId: old });
  const asked = await stream.next();
  await served.call("tasks/update", { taskId: old, inputResponses: { sure: accept } }, alice);
  expect(await stream.next()).toMatchObject({ method: "notifications/cancelled", params: { requestId: asked.id } });
  for (let n = 0; n < 2; n++) await served.finish(await take(served), completed("done"));
  expect(await stream.next()).toMatchObject({ result: { content: [{ text: "done" }] } });
  expect((await client.call("tasks/result", { taskId: current })).result).toMatchObject({
    content: [{ text: "done" }],
  });

  for (const method of ["tasks/list", "tasks/result"]) {
    const { status, body } = await served.call(method, { taskId: old }, alice);
    expect([status, body.error?.code]).toEqual([404, -32601]);
  }
});

// Core specification, "Elicitation": a person may think for longer than a call is held.
test("a call is held for as long as its client is asked, and no longer than usual before and after", async () => {
  const clock = manualClock();
  await using served = await open({}, { clock });
  const client = await oldClient(served.listening.url);
  const stream = await client.stream("tools/call", optional);
  await served.engine.attempts.park(await take(served), asks("sure"), false);
  const asked = await stream.next();
  clock.advance(3_600_000);
  await client.respond(asked, accept);
  const { taskId } = await take(served);
  let over = false;
  const handle = stream.next().finally(() => (over = true));
  while (!over) {
    clock.advance(25_000);
    await turn();
  }
  expect(await handle).toMatchObject({ result: { structuredContent: { taskId, status: "working" } } });
});

test("how long a call is held goes by who opened the session", async () => {
  await using served = await open();
  const limits = (host: { name: string } | undefined) => ({ graceMs: 0, holdMs: host?.name === "hasty" ? 0 : 60_000 });
  const server = await serve({ ...served.parts, limits }, factory).listen();
  const hasty = await oldClient(server.url, everyInput, undefined, "hasty");
  const { structuredContent } = (await hasty.call("tools/call", optional)).result;
  expect(structuredContent).toMatchObject({ status: "working", taskId: (await take(served)).taskId });

  const patient = (await oldClient(server.url)).call("tools/call", optional);
  await served.finish(await take(served), completed("done"));
  expect((await patient).result).toMatchObject({ content: [{ text: "done" }] });
  await server.close();
});

test("a held call whose question the client can't be asked, or answers with an error, gets a handle", async () => {
  await using served = await open();
  const mute = await oldClient(served.listening.url, {});
  const waits = mute.call("tools/call", optional);
  await served.engine.attempts.park(await take(served), asks("sure"), false);
  const unanswered = { status: "input_required", questions: [{ key: "sure" }] };
  expect((await waits).result).toMatchObject({ structuredContent: unanswered });

  const client = await oldClient(served.listening.url);
  const stream = await client.stream("tools/call", optional);
  const { taskId, ...attempt } = await take(served);
  await served.engine.attempts.park({ taskId, ...attempt }, asks("sure", "really"), false);
  const [first, second] = [await stream.next(), await stream.next()];
  await client.post({ id: first.id, error: { code: -1, message: "not now" } });
  await client.respond(second, accept);
  expect(await stream.next()).toMatchObject({ result: { structuredContent: { ...unanswered, taskId } } });
  expect(await served.engine.read(taskId, "")).toMatchObject({ cancelRequested: false });
});

// "Task Progress Notifications".
test("whoever waits for a result hears of progress, if they ask for it", async () => {
  const clock = { ahead: 0, now: () => Date.now() + clock.ahead, after: systemClock.after };
  await using served = await open();
  const server = await serve({ ...served.parts, clock }, factory).listen();
  const client = await oldClient(server.url);
  const taskId = await start(client);
  const claim = await take(served);
  const stream = await client.stream("tasks/result", { taskId, _meta: { progressToken: "p" } });
  clock.ahead += 10_000;
  await served.engine.attempts.setStatus(claim, "half way", { progress: 1, total: 2 });
  expect(await stream.next()).toMatchObject({
    method: "notifications/progress",
    params: { progressToken: "p", message: "half way (1 of 2)", _meta: meta(taskId) },
  });
  await served.finish(claim, completed("done"));
  expect(await stream.next()).toMatchObject({ result: { content: [{ text: "done" }] } });
  await server.close();
});

// "Tools", "Structured Content": there it is always an object.
test("structured content that is no object is wrapped as its schema is listed, for whoever calls", async () => {
  const list = taskTool({ name: "required", task: { support: "required" }, outputSchema: z.array(z.string()), run });
  const either = z.union([z.object({ a: z.string() }), z.string()]);
  const union = taskTool({ name: "optional", outputSchema: either, run });
  await using served = await open({}, {}, { hold: "20s" }, { tools: [list, union] });
  const client = await oldClient(served.listening.url);
  const { tools } = (await client.call("tools/list")).result;
  const listed = tools.find(({ name }: Json) => name === "required").outputSchema;
  expect(listed).toMatchObject({ type: "object", properties: { result: { type: "array" } }, required: ["result"] });

  const taskId = await start(client);
  await served.finish(await take(served), completed("done", { structuredContent: ["a"] }));
  const { result } = await client.call("tasks/result", { taskId });
  expect(result.structuredContent).toEqual({ result: ["a"] });

  for (const structuredContent of ["b", { a: "b" }]) {
    const held = client.call("tools/call", { name: "optional", arguments: {} });
    await served.finish(await take(served), completed("done", { structuredContent }));
    expect((await held).result.structuredContent).toEqual({ result: structuredContent });
  }
});

test("a handle is shown as it is, whatever the tool's own results look like", async () => {
  const union = taskTool({ name: "optional", outputSchema: z.union([z.object({ a: z.string() }), z.string()]), run });
  await using served = await open({}, {}, { hold: 0 }, { tools: [union] });
  const client = await oldClient(served.listening.url);
  const { result } = await client.call("tools/call", { name: "optional", arguments: {} });
  const [task] = await served.tasks();
  expect(result.structuredContent).toMatchObject({ taskId: task!.id, status: "working" });
});
