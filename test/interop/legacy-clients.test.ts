import { Client as CurrentClient, StreamableHTTPClientTransport as CurrentHttp } from "@modelcontextprotocol/client";
import { StdioClientTransport as CurrentStdio } from "@modelcontextprotocol/client/stdio";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  CallToolResultSchema,
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { TaskClient } from "mcp-tasks/client";
import { factory, openTasks } from "./asking-server.ts";
import { channels, root, type Channel } from "./channels.ts";

const info = { name: "legacy-client", version: "1.0.0" };
const server = {
  command: process.execPath,
  args: ["--conditions=mcp-tasks-dev", "test/interop/asking-server.ts", "--stdio"],
  cwd: root,
};
const capabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };
const sampled = { role: "assistant" as const, content: { type: "text" as const, text: "!" }, model: "m" };
const relatedKey = "io.modelcontextprotocol/related-task";

let url = "";
let opened: Awaited<ReturnType<typeof openTasks>> | undefined;
beforeAll(async () => {
  opened = await openTasks();
  ({ url } = await opened.tasks
    .serve(factory, {
      authenticate: (request) => {
        const token = request.headers.get("authorization")?.replace("Bearer ", "");
        return token === undefined ? undefined : { token, clientId: token, scopes: [] };
      },
    })
    .listen());
});
afterAll(async () => {
  await opened?.tasks.close();
  await opened?.store[Symbol.asyncDispose]();
});

/** What each tool comes to, whatever way it is called. */
const outcomes: readonly (readonly [tool: string, text: string])[] = [
  ["form", "Hello, Ada!"],
  ["page", "paid"],
  ["model", '{"type":"text","text":"!"}'],
  ["roots", "file:///a"],
  ["first", "Hello, Ada!"],
];

describe.each(channels)("the SDK's client of the v1 line, over %s", (channel) => {
  /** What was asked, and which task it was for. */
  const asked: [method: string, taskId: unknown][] = [];
  const headers = { authorization: "Bearer ada" };

  function answering(client: Client): Client {
    const note = (method: string, meta: Readonly<Record<string, unknown>> | undefined) => {
      asked.push([method, (meta?.[relatedKey] as { taskId?: unknown } | undefined)?.taskId]);
    };
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
      note("elicitation/create", params._meta);
      return params.mode === "url" ? { action: "accept" } : { action: "accept", content: { name: "Ada" } };
    });
    client.setRequestHandler(CreateMessageRequestSchema, ({ params }) => {
      note("sampling/createMessage", params._meta);
      return sampled;
    });
    client.setRequestHandler(ListRootsRequestSchema, ({ params }) => {
      note("roots/list", params?._meta);
      return { roots: [{ uri: "file:///a" }] };
    });
    return client;
  }

  async function connect(client: Client, how: Channel): Promise<Client> {
    const transport =
      how === "http"
        ? new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } })
        : new StdioClientTransport({ ...server, stderr: "inherit" });
    await client.connect(transport);
    return client;
  }

  let client: Client;
  beforeAll(async () => {
    client = await connect(answering(new Client(info, { capabilities })), channel);
    await client.listTools();
  });
  afterAll(async () => await client.close());

  test.each(outcomes)("without tasks, %s asks on the call and answers it", async (name, text) => {
    asked.length = 0;
    expect(await client.callTool({ name })).toEqual({ content: [{ type: "text", text }] });
    expect(asked).toEqual([[expect.any(String), undefined]]);
  });

  test.each(outcomes)("as a task, %s asks while the result is waited for", async (name, text) => {
    asked.length = 0;
    const seen: string[] = [];
    let taskId: string | undefined;
    let result: unknown;
    for await (const message of client.experimental.tasks.callToolStream({ name }, CallToolResultSchema)) {
      seen.push(message.type);
      if (message.type === "taskCreated") ({ taskId } = message.task);
      if (message.type === "result") ({ result } = message);
      if (message.type === "error") throw message.error;
    }
    expect(seen[0]).toBe("taskCreated");
    expect(seen.at(-1)).toBe("result");
    expect(result).toEqual({ content: [{ type: "text", text }], _meta: { [relatedKey]: { taskId } } });
    expect(asked).toEqual([[expect.any(String), name === "first" ? undefined : taskId]]);
  });

  test("takes a structured result through the check of its schema", async () => {
    const content = { structuredContent: { n: 1 } };
    expect(await client.callTool({ name: "structured" })).toMatchObject(content);
    const stream = client.experimental.tasks.callToolStream({ name: "structured" }, CallToolResultSchema);
    expect((await Array.fromAsync(stream)).at(-1)).toMatchObject({ type: "result", result: content });
  });

  test("is told that a tool which must be a task failed, and can fetch what it said", async () => {
    await expect(client.callTool({ name: "must" })).rejects.toThrow("task");
    const messages = await Array.fromAsync(
      client.experimental.tasks.callToolStream({ name: "must" }, CallToolResultSchema),
    );
    const created = messages.find((message) => message.type === "taskCreated");
    expect(messages.at(-1)).toMatchObject({ type: "error" });
    const taskId = created!.task.taskId;
    expect(await client.experimental.tasks.getTask(taskId)).toMatchObject({
      status: "failed",
      statusMessage: "no such file",
    });
    expect(await client.experimental.tasks.getTaskResult(taskId, CallToolResultSchema)).toMatchObject({
      content: [{ type: "text", text: "no such file" }],
      isError: true,
    });
  });

  test("cancels a task, and can't cancel it twice", async () => {
    const stream = client.experimental.tasks.callToolStream({ name: "slow" }, CallToolResultSchema);
    const first = await stream.next();
    const taskId = first.value?.type === "taskCreated" ? first.value.task.taskId : "";
    expect(await client.experimental.tasks.cancelTask(taskId)).toMatchObject({ taskId, status: "cancelled" });
    await expect(client.experimental.tasks.cancelTask(taskId)).rejects.toMatchObject({ code: -32602 });
    await stream.return(undefined);
  });

  test("lists its tasks where it is authenticated", async () => {
    const list = client.experimental.tasks.listTasks();
    if (channel === "stdio") return await expect(list).rejects.toThrow();
    const { tasks } = await list;
    expect(tasks.length).toBeGreaterThan(5);
  });

  test("a client that declares nothing is told that somebody else must answer", async () => {
    const mute = await connect(new Client(info), channel);
    const open = { status: "input_required", questions: [{ key: "name", message: "Who are you?" }] };
    expect(await mute.callTool({ name: "form" })).toMatchObject({ structuredContent: open });
    expect(await mute.callTool({ name: "first" })).toMatchObject({ isError: true });
    await mute.close();
  });

  // Over stdio this is the SDK's own doing, and the server's tasks are out of sight.
  test.runIf(channel === "http")("a call that is given up is cancelled", async () => {
    const leave = new AbortController();
    const call = client.callTool({ name: "slow" }, undefined, { signal: leave.signal });
    const last = async () => (await opened!.store.list({ limit: 1 }))[0];
    await expect.poll(last).toMatchObject({ tool: "slow", activation: "leased" });
    leave.abort();
    await expect(call).rejects.toThrow();
    await expect.poll(last).toMatchObject({ tool: "slow", status: "cancelled" });
  });
});

describe.each(channels)("the SDK's current client in the older protocol, over %s", (channel) => {
  let client: CurrentClient;
  beforeAll(async () => {
    client = new CurrentClient(info, { capabilities, versionNegotiation: { mode: "legacy" } });
    client.setRequestHandler("elicitation/create", ({ params }) =>
      params.mode === "url" ? { action: "accept" } : { action: "accept", content: { name: "Ada" } },
    );
    client.setRequestHandler("sampling/createMessage", () => sampled);
    client.setRequestHandler("roots/list", () => ({ roots: [{ uri: "file:///a" }] }));
    await client.connect(
      channel === "http" ? new CurrentHttp(new URL(url)) : new CurrentStdio({ ...server, stderr: "inherit" }),
    );
  });
  afterAll(async () => await client.close());

  test.each(outcomes)("%s asks on the call and answers it", async (name, text) => {
    expect(client.getNegotiatedProtocolVersion()).toBe("2025-11-25");
    expect(await client.callTool({ name })).toEqual({ content: [{ type: "text", text }] });
  });
});

describe.each(channels)("our own client in the older protocol, over %s", (channel) => {
  test.each(outcomes)("runs %s as a task", async (name, text) => {
    const transport =
      channel === "http" ? new CurrentHttp(new URL(url)) : new CurrentStdio({ ...server, stderr: "inherit" });
    const tasks = await new TaskClient(new CurrentClient(info), {
      versionNegotiation: { mode: "legacy" },
      input: {
        elicit: () => ({ action: "accept", content: { name: "Ada" } }),
        visit: () => ({ action: "accept" }),
        sample: () => sampled,
        roots: () => ({ roots: [{ uri: "file:///a" }] }),
      },
    }).connect(transport);
    const run = await tasks.start({ name, arguments: {} });
    expect(run.taskId).toEqual(expect.any(String));
    expect(await run.result()).toMatchObject({ content: [{ type: "text", text }] });
    await tasks.close();
  });
});
