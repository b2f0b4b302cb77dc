import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { tasksRequired } from "../../src/protocol/capabilities.ts";
import { related } from "../../src/protocol/legacy.ts";
import { newTaskId } from "../../src/protocol/ids.ts";
import { sqlite } from "../../src/store/sqlite/index.ts";
import { completed, declared, eventually, open, parameters, question, type Json } from "./harness.ts";

const program = fileURLToPath(new URL("stdio-server.ts", import.meta.url));
const subscriptionKey = "io.modelcontextprotocol/subscriptionId";

/** A server in a process of its own, and this process beside it on the same store. */
async function start() {
  const folder = mkdtempSync(join(tmpdir(), "stdio-"));
  const file = join(folder, "tasks.db");
  const store = sqlite(file);
  const beside = await open({}, { store });
  const child = spawn(process.execPath, ["--conditions=mcp-tasks-dev", program, file]);
  const exited = once(child, "exit");
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const errors: string[] = [];
  child.stderr.setEncoding("utf8").on("data", (text: string) => errors.push(text));
  const early: Json[] = [];

  function send(method: string, params: object = {}, id?: unknown, capabilities: object = declared): void {
    const message = { jsonrpc: "2.0", ...(id === undefined ? {} : { id }), method };
    const own = id === undefined ? params : parameters(params, capabilities);
    child.stdin.write(`${JSON.stringify({ ...message, params: own })}\n`);
  }

  /** The next line, or the next that `wanted` takes. Each line must be a JSON-RPC message. */
  async function next(wanted: (message: Json) => boolean = () => true): Promise<Json> {
    const found = early.findIndex(wanted);
    if (found >= 0) return early.splice(found, 1)[0];
    for (;;) {
      const { value, done } = await lines.next();
      if (done === true) return undefined;
      const message: Json = JSON.parse(value);
      expect(message.jsonrpc).toBe("2.0");
      if (wanted(message)) return message;
      early.push(message);
    }
  }

  return {
    beside,
    file,
    child,
    send,
    next,
    errors,
    exited,
    async call(method: string, params: object, id: unknown, capabilities?: object): Promise<Json> {
      send(method, params, id, capabilities);
      return next((message) => message.id === id && message.method === undefined);
    },
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await exited;
      await beside[Symbol.asyncDispose]();
      rmSync(folder, { recursive: true });
    },
  };
}

const call = { name: "required", arguments: {} };

test("a call, its task and its end go over stdio, and nothing but JSON-RPC does", async () => {
  await using served = await start();
  const created = await served.call("tools/call", call, 1);
  expect(created.result).toMatchObject({ resultType: "task", status: "working" });
  expect(created.result).not.toHaveProperty("content");
  const { taskId } = created.result;
  expect((await served.call("tasks/get", { taskId }, "b")).result).toMatchObject({ resultType: "complete", taskId });
  await served.beside.finish(await served.beside.claim(), completed("done"));
  expect((await served.call("tasks/get", { taskId }, 3)).result).toMatchObject({ status: "completed" });
  expect(served.errors.join("")).toContain("a stray line");
});

test("the gate is the same as over HTTP", async () => {
  await using served = await start();
  const refused = { code: -32021, data: tasksRequired };
  expect((await served.call("tools/call", call, 1, {})).error).toMatchObject(refused);
  expect((await served.call("tasks/get", { taskId: newTaskId() }, 2, {})).error).toMatchObject(refused);
  const listen = { notifications: { taskIds: ["x"] } };
  expect((await served.call("subscriptions/listen", listen, 3, {})).error).toMatchObject(refused);
  const wrong = { notifications: { taskIds: "x" } };
  expect((await served.call("subscriptions/listen", wrong, 4)).error).toMatchObject({ code: -32602 });
});

test("cancelling a call that was answered with a task leaves the task alone; one that waits takes it along", async () => {
  await using served = await start();
  const { taskId } = (await served.call("tools/call", call, 1)).result;
  served.send("notifications/cancelled", { requestId: 1 });
  await served.call("tasks/get", { taskId }, 2);
  expect(await served.beside.engine.read(taskId, "")).toMatchObject({ cancelRequested: false });
  const first = await served.beside.claim();
  served.send("tools/call", { name: "typed" }, 3, {});
  const held = await eventually(() => served.beside.claim().catch(() => undefined));
  expect(held.taskId).not.toBe(first.taskId);
  served.send("notifications/cancelled", { requestId: 3 });
  await eventually(async () => (await served.beside.engine.read(held.taskId, "")).cancelRequested);
});

test("a held call that is taken back for a time limit leaves its task alone: whoever made it may call again", async () => {
  await using served = await start();
  served.send("tools/call", { name: "typed" }, 1, {});
  const held = await eventually(() => served.beside.claim().catch(() => undefined));
  served.send("notifications/cancelled", { requestId: 1, reason: "SdkError: Request timed out" });
  // Answered in its turn: by now the server has read what came before.
  await served.call("tasks/get", { taskId: held.taskId }, 2);
  served.child.stdin.end();
  expect(await served.next()).toBeUndefined();
  expect(await served.exited).toEqual([0, null]);
  expect(await served.beside.engine.read(held.taskId, "")).toMatchObject({ status: "working", cancelRequested: false });
});

test("an id that is still in use is refused, and its first call keeps its arguments and its answer", async () => {
  await using served = await start();
  served.send("tools/call", { name: "optional", arguments: { text: "first" } }, 1, {});
  served.send("tools/call", { name: "optional", arguments: { text: "second" } }, 1);
  expect(await served.next()).toMatchObject({ id: 1, error: { code: -32600 } });
  const held = await eventually(() => served.beside.claim().catch(() => undefined));
  expect(JSON.parse(held.args)).toEqual({ text: "first" });
  await served.beside.finish(held, completed("done"));
  expect(await served.next()).toMatchObject({ id: 1, result: { content: [{ text: "done" }] } });
  expect((await served.call("tools/call", call, 1)).result.resultType).toBe("task");
});

test("a subscription follows its tasks across processes and ends in both ways", async () => {
  await using served = await start();
  const { taskId } = (await served.call("tools/call", call, 1)).result;
  served.send("subscriptions/listen", { notifications: { taskIds: [taskId, newTaskId()] } }, "sub");
  const meta = { [subscriptionKey]: "sub" };
  expect(await served.next()).toEqual({
    jsonrpc: "2.0",
    method: "notifications/subscriptions/acknowledged",
    params: { notifications: { taskIds: [taskId] }, _meta: meta },
  });
  expect((await served.next()).params).toMatchObject({ taskId, status: "working", _meta: meta });
  const claim = await served.beside.claim();
  const inputs = [{ key: "ok", request: question("Sure?") }];
  await served.beside.engine.attempts.park(claim, { inputs, events: [], timers: [] }, false);
  expect((await served.next()).params).toMatchObject({ status: "input_required", inputRequests: { ok: {} } });
  await served.beside.engine.cancel(taskId, "");
  expect((await served.next()).params).toMatchObject({ status: "cancelled" });
  const last = await served.next();
  expect(last).toMatchObject({ id: "sub", result: { resultType: "complete", _meta: meta } });
  expect(last.result._meta["io.modelcontextprotocol/serverInfo"]).toEqual({ name: "test", version: "1.0.0" });
  expect(await served.next()).toMatchObject({ method: "notifications/cancelled", params: { requestId: "sub" } });
});

test("a subscription to nothing that exists ends at once, and its id can be used again", async () => {
  await using served = await start();
  for (const round of [1, 2]) {
    served.send("subscriptions/listen", { notifications: { taskIds: [newTaskId()] } }, "sub");
    expect((await served.next()).params.notifications, String(round)).toEqual({ taskIds: [] });
    expect(await served.next()).toMatchObject({ id: "sub", result: { resultType: "complete" } });
    expect(await served.next()).toMatchObject({ method: "notifications/cancelled" });
  }
});

test("a client ends a subscription by cancelling it, and hears no more of it", async () => {
  await using served = await start();
  const { taskId } = (await served.call("tools/call", call, 1)).result;
  served.send("subscriptions/listen", { notifications: { taskIds: [taskId], toolsListChanged: true } }, 2);
  expect((await served.next()).params.notifications).toEqual({ taskIds: [taskId], toolsListChanged: true });
  await served.next();
  served.send("notifications/cancelled", { requestId: 2 });
  await served.call("tasks/get", { taskId }, 3);
  await served.beside.finish(await served.beside.claim(), completed("done"));
  const answer = await served.call("tasks/get", { taskId }, 4);
  expect(answer.result.status).toBe("completed");
  served.child.stdin.end();
  expect(await served.next()).toBeUndefined();
});

test("when the server closes, each subscription ends in both ways, and the process exits", async () => {
  await using served = await start();
  const { taskId } = (await served.call("tools/call", call, 1)).result;
  served.send("subscriptions/listen", { notifications: { taskIds: [taskId] } }, 2);
  await served.next();
  await served.next();
  served.child.kill("SIGTERM");
  expect(await served.next()).toMatchObject({ id: 2, result: { resultType: "complete" } });
  expect(await served.next()).toMatchObject({ method: "notifications/cancelled", params: { requestId: 2 } });
  expect(await served.next()).toBeUndefined();
  expect(await served.exited).toEqual([0, null]);
});

test("requests that came before the end of the input are answered, and then the process exits", async () => {
  await using served = await start();
  for (const id of [1, 2, 3]) served.send("tools/call", call, id);
  served.child.stdin.end();
  for (const id of [1, 2, 3]) expect(await served.next()).toMatchObject({ id, result: { resultType: "task" } });
  expect(await served.next()).toBeUndefined();
  expect(await served.exited).toEqual([0, null]);
  expect(served.errors.join("")).toContain("closed");
});

test("a call that still waits a while after the end of the input is told where it stands, and its task goes on", async () => {
  await using served = await start();
  served.send("tools/call", { name: "typed" }, 1, {});
  const held = await eventually(() => served.beside.claim().catch(() => undefined));
  served.child.stdin.end();
  expect(await served.next()).toMatchObject({ id: 1, result: { resultType: "input_required" } });
  expect(await served.next()).toBeUndefined();
  expect(await served.exited).toEqual([0, null]);
  expect(await served.beside.engine.read(held.taskId, "")).toMatchObject({ status: "working", cancelRequested: false });
});

test("a message that is too large is refused, and the connection goes on", async () => {
  await using served = await start();
  const whole = { jsonrpc: "2.0", id: 1, method: "tools/call", params: parameters(call, declared) };
  served.child.stdin.write(JSON.stringify(whole));
  for (let mebibyte = 0; mebibyte < 12; mebibyte++) served.child.stdin.write(" ".repeat(1 << 20));
  served.child.stdin.write("\n");
  expect(await served.next()).toMatchObject({ error: { code: -32602 } });
  served.send("tools/call", call, 2);
  expect(await served.next()).toMatchObject({ id: 2, result: { resultType: "task" } });
});

test("a client of 2025-11-25 has its own tasks, and is asked while it waits for their result", async () => {
  await using served = await start();
  const write = (message: object) => served.child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  const clientInfo = { name: "old", version: "1" };
  const hello = { protocolVersion: "2025-11-25", clientInfo, capabilities: { elicitation: {} } };
  write({ id: 1, method: "initialize", params: hello });
  expect(await served.next()).toMatchObject({ id: 1 });
  write({ id: 2, method: "tools/call", params: { name: "required", arguments: {}, task: {} } });
  const { taskId } = (await served.next()).result.task;
  write({ id: 3, method: "tasks/result", params: { taskId } });
  const attempt = await eventually(() => served.beside.claim().catch(() => undefined));
  const waits = { inputs: [{ key: "sure", request: question("sure?") }], events: [], timers: [] };
  await served.beside.engine.attempts.park(attempt, waits, false);
  const asked = await served.next();
  expect(asked).toMatchObject({ method: "elicitation/create", params: { message: "sure?", _meta: related(taskId) } });
  write({ id: asked.id, result: { action: "accept", content: { ok: true } } });
  const resumed = await eventually(() => served.beside.claim().catch(() => undefined));
  await served.beside.finish(resumed, completed("done"));
  expect(await served.next()).toMatchObject({ id: 3, result: { content: [{ text: "done" }], _meta: related(taskId) } });
});

test("a client of a protocol before 2025-11-25 sees no tasks", async () => {
  await using served = await start();
  const write = (message: object) => served.child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  const clientInfo = { name: "older", version: "1" };
  const capabilities = { elicitation: { form: {}, url: {} } };
  write({ id: 1, method: "initialize", params: { protocolVersion: "2025-06-18", clientInfo, capabilities } });
  expect((await served.next()).result.capabilities).not.toHaveProperty("tasks");
  write({ id: 2, method: "tools/list" });
  for (const tool of (await served.next()).result.tools) expect(tool).not.toHaveProperty("execution");
  write({ id: 3, method: "tasks/get", params: { taskId: newTaskId() } });
  expect(await served.next()).toMatchObject({ id: 3, error: { code: -32601 } });
  write({ id: 4, method: "tools/call", params: { name: "optional", arguments: { text: "x" }, task: {} } });
  const claim = await eventually(() => served.beside.claim().catch(() => undefined));
  expect(claim.client).toMatchObject({ tasks: false, elicitation: { form: true, url: false } });
  await served.beside.finish(claim, completed("done"));
  expect(await served.next()).toMatchObject({ id: 4, result: { content: [{ text: "done" }] } });
});

test("an answer that came just before the end of the input is kept, though the store is busy meanwhile", async () => {
  await using served = await start();
  const write = (message: object) => served.child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  const clientInfo = { name: "old", version: "1" };
  const hello = { protocolVersion: "2025-11-25", clientInfo, capabilities: { elicitation: {} } };
  write({ id: 1, method: "initialize", params: hello });
  await served.next();
  write({ id: 2, method: "tools/call", params: { name: "required", arguments: {}, task: {} } });
  const { taskId } = (await served.next()).result.task;
  const waits = { inputs: [{ key: "sure", request: question("sure?") }], events: [], timers: [] };
  await served.beside.engine.attempts.park(await served.beside.claim(), waits, false);
  write({ id: 3, method: "tasks/result", params: { taskId } });
  const asked = await served.next();
  using lock = new DatabaseSync(served.file);
  lock.exec("BEGIN IMMEDIATE");
  write({ id: asked.id, result: { action: "accept", content: { ok: true } } });
  served.child.stdin.end();
  // It stops: whoever waits is told.
  expect(await served.next()).toMatchObject({ id: 3, error: { code: -32603 } });
  lock.exec("ROLLBACK");
  await served.exited;
  expect((await served.beside.claim()).journal.inputs.sure?.response).toMatchObject({ action: "accept" });
});

test("a client of 2025-11-25 sees no extension", async () => {
  await using served = await start();
  const clientInfo = { name: "old", version: "1" };
  const hello = { protocolVersion: "2025-11-25", clientInfo, capabilities: declared };
  served.child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params: hello })}\n`);
  const { capabilities } = (await served.next()).result;
  expect(capabilities).not.toHaveProperty("extensions");
  // Its own tasks, of which nobody here may see all.
  expect(capabilities.tasks).toEqual({ cancel: {}, requests: { tools: { call: {} } } });
  for (const [id, method] of [
    [2, "tasks/list"],
    [3, "tasks/update"],
    [4, "subscriptions/listen"],
  ]) {
    const params = { taskId: "x", notifications: { taskIds: ["x"] } };
    served.child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
    expect(await served.next()).toMatchObject({ id, error: { code: -32601 } });
  }
});
