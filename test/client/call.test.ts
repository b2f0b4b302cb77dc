import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { expect, test } from "vitest";
import { TaskClient } from "../../src/client/index.ts";
import { capabilitiesKey, tasksExtension } from "../../src/protocol/capabilities.ts";
import { type Reply, type Seen, fakeServer } from "./fake-http.ts";
import { connected } from "./setup.ts";
import { ack, completed, created, failed, form, text, working } from "./wire.ts";

/** Answers the call with a task and its reading with each of `states` in turn, the last one for ever. */
const task =
  (...states: object[]) =>
  ({ method }: Seen, reply: Reply) => {
    if (method === "tools/call") reply.result(created());
    else if (method === "tasks/get") reply.result(states.length > 1 ? states.shift() : states[0]);
    else reply.result(ack);
  };

test("a task is polled to its end and its result returned as the call would have returned it", async () => {
  await using server = await fakeServer(task(working(), completed("hello")));
  const tasks = await connected(server);
  expect(await tasks.callTool({ name: "slow", arguments: { a: 1 } })).toEqual(text("hello"));
  expect(server.of("tools/call")).toHaveLength(1);
  expect(server.of("tools/call")[0]!.params).toMatchObject({ name: "slow", arguments: { a: 1 } });
  await tasks.close();
});

test("every request declares the extension, and tasks/* carry the task's id in Mcp-Name", async () => {
  await using server = await fakeServer(task(working(), completed()));
  const tasks = await connected(server);
  const run = await tasks.start({ name: "slow" });
  await run.result();
  await tasks.cancel("täsk");
  for (const { params } of server.seen) {
    expect(params._meta[capabilitiesKey].extensions).toEqual({ [tasksExtension]: {} });
  }
  for (const { headers } of server.of("tasks/get")) {
    expect(headers).toMatchObject({ "mcp-name": "task-1", "mcp-method": "tasks/get" });
  }
  expect(server.of("tasks/cancel")[0]!.headers["mcp-name"]).toMatch(/^=\?base64\?.*\?=$/);
  await tasks.close();
});

test("a client that was connected before declares the extension and its handlers all the same", async () => {
  await using server = await fakeServer(task(completed("late")));
  const client = new Client({ name: "test", version: "1" }, { versionNegotiation: { mode: { pin: "2026-07-28" } } });
  await client.connect(new StreamableHTTPClientTransport(new URL(server.url)));
  const tasks = new TaskClient(client, { listen: false, input: { elicit: () => ({ action: "decline" }) } });
  expect(await tasks.callTool({ name: "slow" })).toEqual(text("late"));
  expect(server.of("tools/call")[0]!.params._meta[capabilitiesKey]).toMatchObject({
    elicitation: { form: {} },
    extensions: { [tasksExtension]: {} },
  });
  await client.close();
});

test("the SDK's own callTool beside it goes without the extension, because it can't take a task", async () => {
  await using server = await fakeServer((_, reply) => reply.result({ resultType: "complete", ...text("plain") }));
  const tasks = await connected(server);
  expect(await tasks.client.callTool({ name: "x" })).toMatchObject(text("plain"));
  expect(server.of("tools/call")[0]!.params._meta[capabilitiesKey].extensions).toEqual({});
  await tasks.close();
});

test("two task clients on one connection don't take the declaration from each other", async () => {
  await using server = await fakeServer(task(completed("both")));
  const first = await connected(server);
  const second = new TaskClient(first.client, { listen: false });
  expect(await second.callTool({ name: "x" })).toEqual(text("both"));
  expect(await first.callTool({ name: "x" })).toEqual(text("both"));
  await first.close();
});

test("a server that answers at once gives the result, and a handle that is finished", async () => {
  await using server = await fakeServer(
    (_, reply) => reply.result({ resultType: "complete", ...text("now", { structuredContent: { a: 1 } }) }),
    {},
  );
  const tasks = await connected(server);
  const run = await tasks.start({ name: "fast" });
  expect(run.taskId).toBeUndefined();
  expect(await run.result()).toEqual(text("now", { structuredContent: { a: 1 } }));
  expect(await Array.fromAsync(run)).toEqual([]);
  await tasks.close();
});

test("a tool's own error is returned whole, at once or by a task, and never thrown", async () => {
  const broken = text("broken", { isError: true, structuredContent: { why: 42 } });
  await using plain = await fakeServer((_, reply) => reply.result({ resultType: "complete", ...broken }));
  await using slow = await fakeServer(task(working({ status: "completed", result: broken })));
  for (const server of [plain, slow]) {
    const tasks = await connected(server);
    expect(await tasks.callTool({ name: "x" })).toEqual(broken);
    await tasks.close();
  }
});

test("a failed task rejects with the server's code, message and data", async () => {
  await using server = await fakeServer(task(failed({ code: -32050, message: "rate limit", data: { after: 9 } })));
  const tasks = await connected(server);
  await expect(tasks.callTool({ name: "x" })).rejects.toMatchObject({
    name: "TaskError",
    code: "TASK_FAILED",
    rpc: -32050,
    message: "rate limit",
    data: { after: 9 },
  });
  await tasks.close();
});

test("an error that the server answers the call with is passed on as it came", async () => {
  await using server = await fakeServer((_, reply) => reply.error(-32602, "Unknown tool", { tool: "x" }));
  const tasks = await connected(server);
  const thrown = { code: "CALL_FAILED", rpc: -32602, message: "Unknown tool", data: { tool: "x" } };
  await expect(tasks.callTool({ name: "x" })).rejects.toMatchObject(thrown);
  await tasks.close();
});

test("input that is needed before a task exists is answered by the same handlers, and the state goes back", async () => {
  await using server = await fakeServer(({ method, params }, reply) => {
    if (method !== "tools/call") return reply.result(completed(params.taskId));
    if (params.requestState === "two") return reply.result(created());
    if (params.requestState === "one") return reply.result({ resultType: "input_required", requestState: "two" });
    reply.result({ resultType: "input_required", inputRequests: { who: form("Who?") }, requestState: "one" });
  });
  const asked: unknown[] = [];
  const tasks = await connected(server, {
    input: {
      elicit: ({ message }, { key, taskId }) => {
        asked.push({ message, key, taskId });
        return { action: "accept", content: { name: "Ada" } };
      },
    },
  });
  expect(await tasks.callTool({ name: "x", arguments: { a: 1 } })).toEqual(text("task-1"));
  expect(asked).toEqual([{ message: "Who?", key: "who", taskId: undefined }]);
  const [, second, third] = server.of("tools/call");
  expect(second!.params).toMatchObject({
    name: "x",
    arguments: { a: 1 },
    requestState: "one",
    inputResponses: { who: { action: "accept", content: { name: "Ada" } } },
  });
  expect(third!.params).toMatchObject({ requestState: "two", inputResponses: {} });
  await tasks.close();
});

test("a question before the call that nobody can answer is INPUT_UNSUPPORTED, and endless questions are an error", async () => {
  await using server = await fakeServer((_, reply) =>
    reply.result({ resultType: "input_required", inputRequests: { who: form("Who?") } }),
  );
  const mute = await connected(server);
  await expect(mute.callTool({ name: "x" })).rejects.toMatchObject({ code: "INPUT_UNSUPPORTED", rpc: -32021 });
  expect(server.of("tools/call")).toHaveLength(1);
  await mute.close();
  const patient = await connected(server, { input: { elicit: () => ({ action: "decline" }) } });
  await expect(patient.callTool({ name: "x" })).rejects.toMatchObject({ code: "INVALID_RESPONSE" });
  expect(server.of("tools/call").length).toBeLessThan(30);
  await patient.close();
});

test.each([
  ["without a discriminator", (() => ({ ...created(), resultType: undefined }))(), "INVALID_RESPONSE"],
  ["with a discriminator that nobody knows", { ...created(), resultType: "future" }, "INVALID_RESPONSE"],
  ["without its fields", { resultType: "task", taskId: "task-1" }, "INVALID_RESPONSE"],
])("a task %s is an invalid answer that names the task, never an empty success", async (_, answer, code) => {
  await using server = await fakeServer((_seen, reply) => reply.result(answer));
  const tasks = await connected(server);
  await expect(tasks.callTool({ name: "x" })).rejects.toMatchObject({ code, data: { taskId: "task-1" } });
  expect(server.of("tools/call")).toHaveLength(1);
  await tasks.close();
});

test("a task in answer to anything but tools/call is refused", async () => {
  await using server = await fakeServer((_, reply) => reply.result(created()));
  const tasks = await connected(server);
  await expect(tasks.client.getPrompt({ name: "x" })).rejects.toThrow();
  await tasks.close();
});

test("a task from a connection that can't have declared the extension is NOT_A_TASK and names the task", async () => {
  await using server = await fakeServer(({ method }, reply) => {
    if (method === "initialize") {
      reply.result({
        protocolVersion: "2025-11-25",
        capabilities: { tools: {} },
        serverInfo: { name: "old", version: "1" },
      });
    } else reply.result(created());
  });
  const tasks = await connected(server, { versionNegotiation: { mode: "legacy" } });
  await expect(tasks.callTool({ name: "x" })).rejects.toMatchObject({ code: "NOT_A_TASK", data: { taskId: "task-1" } });
  await tasks.close();
});

test("a server of 2025-11-25 is called through the same client", async () => {
  await using server = await fakeServer(({ method }, reply) => {
    if (method === "initialize") {
      reply.result({
        protocolVersion: "2025-11-25",
        capabilities: { tools: {} },
        serverInfo: { name: "old", version: "1" },
      });
    } else reply.result(text("from the past"));
  });
  const tasks = await connected(server, { versionNegotiation: { mode: "legacy" } });
  expect(await tasks.callTool({ name: "x" })).toEqual(text("from the past"));
  await tasks.close();
});

test("a task is taken from a server that never advertised the extension: we did declare it", async () => {
  await using server = await fakeServer(task(completed("anyway")), {});
  const tasks = await connected(server);
  expect(await tasks.callTool({ name: "x" })).toEqual(text("anyway"));
  await tasks.close();
});

test("tasks/get may say resultType task, as the specification's own examples do, but not nothing at all", async () => {
  await using server = await fakeServer(task({ ...completed("old sample"), resultType: "task" }));
  const tasks = await connected(server);
  expect(await tasks.callTool({ name: "x" })).toEqual(text("old sample"));
  await tasks.close();
  await using bare = await fakeServer(task({ ...completed(), resultType: undefined }));
  const strict = await connected(bare);
  const thrown = { code: "INVALID_RESPONSE", data: { taskId: "task-1" } };
  await expect(strict.callTool({ name: "x" })).rejects.toMatchObject(thrown);
  await strict.close();
});

test.each([
  [
    "an input_required result",
    working({ status: "completed", result: { resultType: "input_required", requestState: "x" } }),
  ],
  ["no tool result", working({ status: "completed", result: { answer: 42 } })],
  ["no result", working({ status: "completed" })],
  ["another task's state", { ...completed(), taskId: "task-2" }],
])("a task that completes with %s is an invalid answer", async (_, answer) => {
  await using server = await fakeServer(task(answer));
  const tasks = await connected(server);
  const thrown = { code: "INVALID_RESPONSE", data: { taskId: "task-1" } };
  await expect(tasks.callTool({ name: "x" })).rejects.toMatchObject(thrown);
  await tasks.close();
});

test.each([
  ["the connection is cut after the request was read", (reply: Reply) => reply.reset()],
  ["503", (reply: Reply) => reply.status(503)],
  ["503 with Retry-After", (reply: Reply) => reply.status(503, { "retry-after": "1" })],
  [
    "500 with a JSON-RPC error",
    (reply: Reply) =>
      reply.status(
        500,
        { "content-type": "application/json" },
        '{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"x"}}',
      ),
  ],
  ["404", (reply: Reply) => reply.status(404)],
  [
    "half a JSON answer",
    (reply: Reply) => {
      reply.raw.writeHead(200, { "content-type": "application/json" }).write('{"jsonrpc":"2.0","id":0,"res');
      setTimeout(() => reply.raw.destroy(), 20);
    },
  ],
  [
    "a stream that is cut before the answer",
    (reply: Reply) => {
      reply.raw.writeHead(200, { "content-type": "text/event-stream" }).write(": hello\n\n");
      setTimeout(() => reply.raw.destroy(), 20);
    },
  ],
  [
    "a stream that ends before the answer",
    (reply: Reply) => {
      reply.raw.writeHead(200, { "content-type": "text/event-stream" }).end(": hello\n\n");
    },
  ],
  ["silence for longer than callTimeout", () => {}],
])("a call is sent once and MAY_HAVE_STARTED when its answer is lost: %s", async (_, answer) => {
  await using server = await fakeServer((_seen, reply) => answer(reply));
  const tasks = await connected(server, { callTimeout: 300 });
  await expect(tasks.callTool({ name: "x" })).rejects.toMatchObject({ code: "MAY_HAVE_STARTED" });
  expect(server.of("tools/call")).toHaveLength(1);
  await tasks.close();
});

test("a call that can't have reached the server, or was turned away, is not MAY_HAVE_STARTED", async () => {
  const server = await fakeServer((_, reply) => reply.status(429, { "retry-after": "3", connection: "close" }));
  const tasks = await connected(server);
  const refused = { code: "REFUSED", data: { status: 429, retryAfterMs: 3_000 } };
  await expect(tasks.callTool({ name: "x" })).rejects.toMatchObject(refused);
  await server[Symbol.asyncDispose]();
  await expect(tasks.callTool({ name: "x" })).rejects.toMatchObject({ code: "CONNECTION_LOST", data: { sent: false } });
  await tasks.close();
  await expect(tasks.callTool({ name: "x" })).rejects.toMatchObject({ code: "CONNECTION_LOST" });
});
