import { expect, test } from "vitest";
import { TaskError } from "../../src/errors.ts";
import { tasksRequired } from "../../src/protocol/capabilities.ts";
import { newTaskId } from "../../src/protocol/ids.ts";
import { sqlite } from "../../src/store/sqlite/index.ts";
import { authenticate, completed, open, question, type Served } from "./harness.ts";

const methods = ["tasks/get", "tasks/update", "tasks/cancel"];

async function ask(served: Served, ...keys: string[]): Promise<string> {
  await served.create();
  const claim = await served.claim();
  const inputs = keys.map((key) => ({ key, request: question(key) }));
  await served.engine.attempts.park(claim, { inputs, events: [], timers: [] }, false);
  return claim.taskId;
}

test.each(methods)(
  "%s is refused to a client that doesn't declare the extension, before it looks at the id",
  async (method) => {
    await using served = await open();
    for (const params of [{ taskId: newTaskId() }, { taskId: "nonsense" }, {}]) {
      const { status, body } = await served.call(method, params, { capabilities: { tasks: {} } });
      expect(status).toBe(400);
      expect(body.error).toMatchObject({ code: -32021, data: tasksRequired });
    }
  },
);

test.each(methods)("to %s a malformed, an unknown and somebody else's id look the same", async (method) => {
  await using served = await open({ authenticate });
  const foreign = await served.create("required", {}, { token: "ada" });
  const texts: string[] = [];
  for (const taskId of [foreign, newTaskId(), "x", "../../etc", ""]) {
    const response = await served.send(method, { taskId, inputResponses: {} }, { token: "bob" });
    expect(response.status).toBe(200);
    texts.push(await response.text());
  }
  expect(new Set(texts).size).toBe(1);
  expect(JSON.parse(texts[0]!)).toMatchObject({
    error: { code: -32602, message: new TaskError("TASK_NOT_FOUND").message },
  });
});

test.each(methods)("%s refuses an id that is no string", async (method) => {
  await using served = await open();
  for (const taskId of [7, null, undefined, ["x"], {}]) {
    const { body } = await served.call(method, { taskId, inputResponses: {} });
    expect(body.error).toMatchObject({ code: -32602, message: expect.stringContaining("taskId is a string") });
  }
});

test("tasks/get gives the payload of each state, and resultType complete", async () => {
  await using served = await open();
  const taskId = await ask(served, "ok");
  const asking = (await served.call("tasks/get", { taskId })).body.result!;
  expect(asking).toMatchObject({
    resultType: "complete",
    status: "input_required",
    inputRequests: { ok: question("ok") },
  });
  await served.call("tasks/update", { taskId, inputResponses: { ok: { action: "accept", content: { ok: true } } } });
  expect((await served.call("tasks/get", { taskId })).body.result).toMatchObject({ status: "working" });
  await served.finish(await served.claim(), completed("done", { isError: true }));
  const first = (await served.call("tasks/get", { taskId })).body;
  expect(first.result).toMatchObject({
    resultType: "complete",
    status: "completed",
    result: { resultType: "complete", content: [{ text: "done" }], isError: true },
  });
  expect((await served.call("tasks/get", { taskId })).body).toEqual(first);
});

test("tasks/update and tasks/cancel acknowledge with nothing", async () => {
  await using served = await open();
  const taskId = await ask(served, "ok");
  for (const method of ["tasks/update", "tasks/cancel", "tasks/update", "tasks/cancel"]) {
    const { body } = await served.call(method, { taskId, inputResponses: { other: { action: "decline" } } });
    const { _meta, ...rest } = body.result!;
    expect(rest).toEqual({ resultType: "complete" });
  }
  expect((await served.call("tasks/get", { taskId })).body.result).toMatchObject({ status: "cancelled" });
});

test.each([undefined, null, [], "x", 7])(
  "tasks/update refuses inputResponses that are no object: %j",
  async (inputResponses) => {
    await using served = await open();
    const taskId = await ask(served, "ok");
    expect((await served.call("tasks/update", { taskId, inputResponses })).body.error).toMatchObject({ code: -32602 });
  },
);

test.each([
  ["a value that is no object", 7],
  ["an answer in a wrapper", { method: "elicitation/create", result: { action: "accept", content: { ok: true } } }],
  ["content that doesn't fit", { action: "accept", content: { ok: "yes" } }],
])("%s is acknowledged, leaves the request open and shows in the status message", async (_, response) => {
  await using served = await open();
  const taskId = await ask(served, "ok", "more");
  const accepted = { action: "accept", content: { ok: true } };
  const answer = await served.call("tasks/update", {
    taskId,
    inputResponses: { ok: response, more: accepted, none: 1 },
  });
  expect(answer.body.result).toMatchObject({ resultType: "complete" });
  const task = (await served.call("tasks/get", { taskId })).body.result!;
  expect(Object.keys(task.inputRequests)).toEqual(["ok"]);
  expect(task.statusMessage).toMatch(/^The answer to "ok" was not taken: /);
});

test.each(["tasks/result", "tasks/list"])("%s doesn't exist", async (method) => {
  await using served = await open();
  const { status, body } = await served.call(method, { taskId: newTaskId() });
  expect(status).toBe(404);
  expect(body.error!.code).toBe(-32601);
});

test("a fault of the server's own is told without its cause, and reported with it", async () => {
  const store = sqlite(":memory:");
  await using served = await open(
    {},
    { store: { ...store, get: () => Promise.reject(new Error("SELECT broke at /srv/tasks.db")) } },
  );
  const { status, body } = await served.call("tasks/get", { taskId: newTaskId() });
  expect(status).toBe(200);
  expect(body.error).toEqual({ code: -32603, message: new TaskError("INTERNAL").message });
  expect(served.errors).toMatchObject([{ code: "INTERNAL", cause: { message: "SELECT broke at /srv/tasks.db" } }]);
});

test("an owner's tasks are theirs with any token of theirs, and nobody's without", async () => {
  await using served = await open({ authenticate });
  const taskId = await served.create("required", {}, { token: "ada" });
  expect((await served.call("tasks/get", { taskId }, { token: "ada" })).body.result).toMatchObject({ taskId });
  const nobody = await served.send("tasks/get", { taskId });
  expect(nobody.status).toBe(401);
  expect(JSON.parse((await served.claim()).auth)).toEqual({ who: "ada" });
});
