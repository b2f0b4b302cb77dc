import { expect, test } from "vitest";
import { tasksExtension, tasksRequired } from "../../src/protocol/capabilities.ts";
import { completed, declared, eventually, open, type Json, type Served } from "./harness.ts";

test("a call of a client that knows tasks is answered with the task, flat, and nothing of its payload", async () => {
  await using served = await open();
  const { status, body } = await served.call("tools/call", { name: "optional", arguments: { text: "x" } }, { id: "a" });
  expect(status).toBe(200);
  expect(body.id).toBe("a");
  const { taskId, createdAt, lastUpdatedAt, _meta, ...rest } = body.result!;
  expect(rest).toEqual({ resultType: "task", status: "working", ttlMs: null, pollIntervalMs: 1000 });
  expect(taskId).toMatch(/^[\w-]{22}$/);
  expect(Date.parse(createdAt)).toBeLessThanOrEqual(Date.parse(lastUpdatedAt));
  expect(_meta).toEqual({ "io.modelcontextprotocol/serverInfo": { name: "test", version: "1.0.0" } });
  const read = await served.call("tasks/get", { taskId });
  expect(read.body.result).toMatchObject({ resultType: "complete", taskId, status: "working" });
});

test("the task keeps the arguments as they were sent, the client's capabilities and what is kept of its auth", async () => {
  await using served = await open();
  await served.create("optional", { text: "x", extra: "\u0000 \ud800" });
  const claim = await served.claim();
  expect(JSON.parse(claim.args)).toEqual({ text: "x", extra: "\u0000 \ud800" });
  expect(claim.client).toMatchObject({ tasks: true, elicitation: { form: true, url: false }, roots: false });
  expect(claim).toMatchObject({ auth: "null", answers: "{}" });
});

test("bad arguments are refused before there is a task, and a plain tool is never one", async () => {
  await using served = await open();
  const bad = await served.call("tools/call", { name: "optional", arguments: { text: 1 } });
  expect(bad.body.result).toMatchObject({ isError: true });
  const plain = await served.call("tools/call", { name: "plain", arguments: { name: "you" } });
  expect(plain.body.result).toMatchObject({ resultType: "complete", content: [{ text: "Hello, you!" }] });
  const unknown = await served.call("tools/call", { name: "nothing" });
  expect(unknown.body.error).toMatchObject({ code: -32602 });
  await expect(served.claim()).rejects.toThrow("Nothing to claim");
});

test("the extension is advertised under 2026-07-28, and the older tasks capability is not", async () => {
  await using served = await open();
  const { body } = await served.call("server/discover");
  expect(body.result!.capabilities.extensions).toMatchObject({ [tasksExtension]: {} });
  expect(body.result!.capabilities).not.toHaveProperty("tasks");
});

test("a tool that only runs as a task refuses a client that doesn't know tasks, with HTTP 400 and no task", async () => {
  await using served = await open();
  const { status, body } = await served.call(
    "tools/call",
    { name: "required", arguments: {}, task: { ttl: 1 } },
    { capabilities: { tasks: { requests: {} } }, id: 7 },
  );
  expect(status).toBe(400);
  expect(body).toMatchObject({ id: 7, error: { code: -32021, data: tasksRequired } });
  await expect(served.claim()).rejects.toThrow("Nothing to claim");
});

const undeclared = { capabilities: {} };

test("a client that doesn't know tasks gets the plain result of the same durable task", async () => {
  await using served = await open();
  const answer = served.call("tools/call", { name: "optional", arguments: { text: "x" } }, undeclared);
  const claim = await eventually(() => served.claim().catch(() => undefined));
  expect(claim.client.tasks).toBe(false);
  await served.finish(claim, completed("done", { structuredContent: { a: 1 } }));
  const { status, body } = await answer;
  expect(status).toBe(200);
  expect(body.result).toMatchObject({
    resultType: "complete",
    content: [{ type: "text", text: "done" }],
    structuredContent: { a: 1 },
  });
  expect(body.result).not.toHaveProperty("taskId");
});

test("a held call ends with the JSON-RPC error of its task", async () => {
  await using served = await open();
  const answer = served.call("tools/call", { name: "typed" }, undeclared);
  const claim = await eventually(() => served.claim().catch(() => undefined));
  const error = { code: -32050, message: "It broke.", data: { why: 1 } };
  await served.finish(claim, { status: "failed", error: JSON.stringify(error), statusMessage: "It broke." });
  expect((await answer).body.error).toEqual(error);
});

test("a held call whose task is cancelled is a tool error", async () => {
  await using served = await open();
  const answer = served.call("tools/call", { name: "typed" }, undeclared);
  const claim = await eventually(() => served.claim().catch(() => undefined));
  await served.finish(claim, { status: "cancelled", statusMessage: null });
  expect((await answer).body.result).toMatchObject({ isError: true });
});

test("a held call gets its result however short its tool is kept: nobody else could read it", async () => {
  await using served = await open();
  const answer = served.call("tools/call", { name: "brief" }, undeclared);
  const claim = await eventually(() => served.claim().catch(() => undefined));
  await served.finish(claim, completed("done"));
  expect((await answer).body.result).toMatchObject({ content: [{ type: "text", text: "done" }] });
});

test("a client that leaves a held call leaves the task alone: its host may have a time limit, and call again", async () => {
  await using served = await open();
  const leave = new AbortController();
  const answer = served.call("tools/call", { name: "typed" }, { ...undeclared, signal: leave.signal });
  const claim = await eventually(() => served.claim().catch(() => undefined));
  leave.abort();
  await expect(answer).rejects.toThrow();
  // Resolves when no call is left.
  await served.handler.close();
  expect(await served.engine.read(claim.taskId, "")).toMatchObject({ status: "working", cancelRequested: false });
  expect(served.errors).toEqual([]);
});

test("a connection dropped after the handle leaves the task alone", async () => {
  await using served = await open();
  const leave = new AbortController();
  const response = await served.send("tools/call", { name: "typed" }, { signal: leave.signal });
  const { result } = (await response.json()) as { result: { taskId: string } };
  leave.abort();
  await served.call("tasks/get", { taskId: result.taskId });
  expect(await served.engine.read(result.taskId, "")).toMatchObject({ status: "working", cancelRequested: false });
});

test("closing answers the calls that wait as if their time was up, and their tasks go on", async () => {
  await using served = await open();
  const answer = served.call("tools/call", { name: "typed" }, undeclared);
  const claim = await eventually(() => served.claim().catch(() => undefined));
  await served.handler.close();
  expect((await answer).body.result).toMatchObject({ resultType: "input_required", requestState: expect.any(String) });
  expect(await served.engine.read(claim.taskId, "")).toMatchObject({ status: "working", cancelRequested: false });
});

/** Sends a request of protocol 2025-11-25. */
async function legacy(served: Served, method: string, params: object, signal: AbortSignal | null = null) {
  const response = await fetch(served.listening.url, {
    method: "POST",
    headers: {
      accept: "application/json, text/event-stream",
      "content-type": "application/json",
      "mcp-protocol-version": "2025-11-25",
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
    signal,
  });
  const text = await response.text();
  const answer: Json = JSON.parse(text.startsWith("{") ? text : text.split("data: ")[1]!);
  return answer;
}

test("a client of 2025-11-25 sees no extension, and its call is held, too", async () => {
  await using served = await open();
  const info = { protocolVersion: "2025-11-25", clientInfo: { name: "old", version: "1" } };
  const hello = await legacy(served, "initialize", { ...info, capabilities: declared });
  expect(hello.result.capabilities).not.toHaveProperty("extensions");
  expect((await legacy(served, "tasks/update", { taskId: "x" })).error.code).toBe(-32601);
  expect((await legacy(served, "tools/call", { name: "required", arguments: {} })).error.code).toBe(-32601);
  const first = await legacy(served, "tools/call", { name: "asks_first", arguments: {} });
  expect(first.error.code).toBe(-32601);
  const answer = legacy(served, "tools/call", { name: "optional", arguments: { text: "x" } });
  const claim = await eventually(() => served.claim().catch(() => undefined));
  await served.finish(claim, completed("done"));
  expect((await answer).result).toEqual({ content: [{ type: "text", text: "done" }] });
});

test("a client of 2025-11-25 that leaves leaves the task alone, too, and closing gives a handle to those that stay", async () => {
  await using served = await open();
  const leave = new AbortController();
  const call = { name: "typed", arguments: {} };
  const left = legacy(served, "tools/call", call, leave.signal);
  const first = await eventually(() => served.claim().catch(() => undefined));
  leave.abort();
  await expect(left).rejects.toThrow();
  const stays = legacy(served, "tools/call", call);
  const second = await eventually(() => served.claim().catch(() => undefined));
  await served.handler.close();
  const { result } = await stays;
  expect(result).not.toHaveProperty("resultType");
  expect(result).toMatchObject({ structuredContent: { taskId: second.taskId, status: "working" } });
  for (const { taskId } of [first, second])
    expect(await served.engine.read(taskId, "")).toMatchObject({ status: "working", cancelRequested: false });
  await expect(served.handler.listen()).rejects.toMatchObject({ code: "SHUTTING_DOWN" });
});
