import { RELATED_TASK_META_KEY } from "@modelcontextprotocol/client";
import { expect, test, vi } from "vitest";
import type { TaskSnapshot } from "../../src/client/index.ts";
import { type Reply, type Script, type Seen, fakeServer } from "./fake-http.ts";
import { connected } from "./setup.ts";
import { text } from "./wire.ts";

/** A task as 2025-11-25 has it. */
const old = (more: object = {}) => ({
  taskId: "old-1",
  status: "working",
  createdAt: "2026-08-01T00:00:00.000Z",
  lastUpdatedAt: "2026-08-01T00:00:00.000Z",
  ttl: 60_000,
  pollInterval: 250,
  ...more,
});
const related = { [RELATED_TASK_META_KEY]: { taskId: "old-1" } };
const everything = { list: {}, cancel: {}, requests: { tools: { call: {} } } };
const supports = (name: string, taskSupport?: string) => ({
  name,
  inputSchema: { type: "object" },
  ...(taskSupport === undefined ? {} : { execution: { taskSupport } }),
});

/** A server of 2025-11-25 that has these tasks, and says the rest by its script. */
function legacy(script: Script, tasks: object | null = everything): Script {
  return (seen, reply) => {
    if (seen.method === "initialize") {
      const capabilities = { tools: {}, ...(tasks === null ? {} : { tasks }) };
      return reply.result({ protocolVersion: "2025-11-25", capabilities, serverInfo: { name: "old", version: "1" } });
    }
    if (seen.method !== "tools/list") return script(seen, reply);
    const tools = [supports("may", "optional"), supports("must", "required"), supports("not", "forbidden")];
    reply.result({ tools: [...tools, supports("silent")] });
  };
}
const old2025 = { versionNegotiation: { mode: "legacy" } } as const;
/** The methods that were asked for, in order; an opened stream asks for none. */
const methods = (seen: readonly Seen[]) => seen.map(({ method }) => method).filter((one) => one !== undefined);

test.each(["may", "must"])(
  "a tool that %s be a task is called as one, polled, and its result fetched",
  async (name) => {
    let polls = 0;
    await using server = await fakeServer(
      legacy(({ method }, reply) => {
        if (method === "tools/call") reply.result({ task: old() });
        else if (method === "tasks/get") reply.result(old({ status: (polls += 1) < 3 ? "working" : "completed" }));
        else if (method === "tasks/result") reply.result({ ...text("from 2025"), _meta: related });
        else reply.error(-32601, method);
      }),
    );
    const tasks = await connected(server, old2025);
    const run = await tasks.start({ name, arguments: { a: 1 } });
    expect(run.taskId).toBe("old-1");
    const seen: TaskSnapshot[] = await Array.fromAsync(run);
    expect(seen.map(({ status, ttlMs }) => [status, ttlMs])).toEqual([
      ["working", 60_000],
      ["completed", 60_000],
    ]);
    expect(await run.result()).toEqual(text("from 2025"));
    expect(server.of("tools/call")[0]!.params).toMatchObject({ name, arguments: { a: 1 }, task: {} });
    expect(server.of("tasks/result")).toHaveLength(1);
    const at = server.of("tasks/get").map((one) => one.at);
    expect(at[1]! - at[0]!).toBeGreaterThan(200);
    await tasks.close();
  },
);

test.each(["not", "silent", "unlisted"])("a tool that is %s a task is called plainly", async (name) => {
  await using server = await fakeServer(legacy((_, reply) => reply.result(text("plain"))));
  const tasks = await connected(server, old2025);
  expect(await tasks.callTool({ name })).toEqual(text("plain"));
  expect(await tasks.callTool({ name })).toEqual(text("plain"));
  expect(server.of("tools/call")[0]!.params).not.toHaveProperty("task");
  expect(server.of("tools/list")).toHaveLength(1);
  await tasks.close();
});

test("a server of 2025-11-25 without tasks is not asked for its tools", async () => {
  await using server = await fakeServer(legacy((_, reply) => reply.result(text("plain")), null));
  const tasks = await connected(server, old2025);
  expect(await tasks.callTool({ name: "may" })).toEqual(text("plain"));
  expect(methods(server.seen)).toEqual(["initialize", "notifications/initialized", "tools/call"]);
  await tasks.close();
});

test("a task where none was asked for is NOT_A_TASK and names it", async () => {
  await using server = await fakeServer(legacy((_, reply) => reply.result({ task: old() })));
  const tasks = await connected(server, old2025);
  const thrown = { code: "NOT_A_TASK", data: { taskId: "old-1" } };
  await expect(tasks.callTool({ name: "not" })).rejects.toMatchObject(thrown);
  await tasks.close();
});

test("a question of such a task comes while its result is waited for, and names the task", async () => {
  const waiting = Promise.withResolvers<Reply>();
  let answered: unknown;
  const params = {
    message: "Who?",
    requestedSchema: { type: "object", properties: { name: { type: "string" } } },
    _meta: related,
  };
  const question = { jsonrpc: "2.0", id: "q", method: "elicitation/create", params };
  await using server = await fakeServer(
    legacy((seen, reply) => {
      if (seen.method === "tools/call") return reply.result({ task: old() });
      if (seen.method === "tasks/get") {
        return reply.result(old({ status: answered === undefined ? "input_required" : "completed" }));
      }
      if (answered !== undefined) return reply.result(text("Hello, Ada!"));
      reply.raw.writeHead(200, { "content-type": "text/event-stream" });
      reply.raw.write(`data: ${JSON.stringify(question)}\n\n`);
      waiting.resolve({
        ...reply,
        result: (result) => reply.raw.end(`data: ${JSON.stringify({ jsonrpc: "2.0", id: seen.id, result })}\n\n`),
      });
    }),
  );
  const elicit = vi.fn((_: unknown, context: { taskId: string | undefined }) => {
    answered = context.taskId;
    return { action: "accept" as const, content: { name: "Ada" } };
  });
  const tasks = await connected(server, { ...old2025, input: { elicit } });
  const result = tasks.callTool({ name: "may" });
  (await waiting.promise).raw.on("close", () => {});
  await vi.waitFor(() => expect(elicit).toHaveBeenCalledTimes(1));
  (await waiting.promise).result(text("Hello, Ada!"));
  expect(await result).toEqual(text("Hello, Ada!"));
  expect(answered).toBe("old-1");
  await tasks.close();
});

test("a question is given away to who waits for the result: nobody does who only reads, or has nobody to ask", async () => {
  let attended = false;
  await using server = await fakeServer(
    legacy(({ method }, reply) => {
      if (method === "tasks/get") reply.result(old({ status: "input_required" }));
      // And answered never: it waits for the task's end.
    }),
  );
  const errors: unknown[] = [];
  const input = { elicit: () => undefined };
  const told = { input, attended: () => attended, onError: (error: unknown) => errors.push(error) };
  const tasks = await connected(server, { ...old2025, ...told });
  expect(await tasks.get("old-1")).toMatchObject({ status: "input_required", inputRequests: {} });
  const run = tasks.resume("old-1");
  expect((await run[Symbol.asyncIterator]().next()).value).toMatchObject({ status: "input_required" });
  await vi.waitFor(() => expect(server.of("tasks/get").length).toBeGreaterThan(3));
  expect(server.of("tasks/result")).toEqual([]);
  attended = true;
  await vi.waitFor(() => expect(server.of("tasks/result")).toHaveLength(1));
  run.detach();
  await tasks.close();
  expect(errors).toEqual([]);
});

test("a tool's own error is a result, and a failed task has the error that its result was answered with", async () => {
  const broken = text("broken", { isError: true });
  await using tool = await fakeServer(
    legacy(({ method }, reply) => {
      if (method === "tools/call") reply.result({ task: old() });
      else reply.result(method === "tasks/get" ? old({ status: "failed" }) : broken);
    }),
  );
  const first = await connected(tool, old2025);
  expect(await first.callTool({ name: "must" })).toEqual(broken);
  await first.close();
  await using protocol = await fakeServer(
    legacy(({ method }, reply) => {
      if (method === "tools/call") reply.result({ task: old() });
      else if (method === "tasks/get") reply.result(old({ status: "failed" }));
      else reply.error(-32050, "rate limit", { after: 9 });
    }),
  );
  const second = await connected(protocol, old2025);
  const thrown = { code: "TASK_FAILED", rpc: -32050, message: "rate limit", data: { after: 9 } };
  await expect(second.callTool({ name: "must" })).rejects.toMatchObject(thrown);
  await second.close();
});

test("cancelling, resuming and a status notification's hint work there too", async () => {
  let status = "working";
  await using server = await fakeServer(
    legacy(({ method, params }, reply) => {
      if (params?.taskId === "gone") return reply.error(-32602, "Task not found");
      if (method === "tools/call") reply.result({ task: old({ pollInterval: 60_000 }) });
      else if (method === "tasks/cancel") reply.result(old({ status: (status = "cancelled") }));
      else reply.result(method === "tasks/get" ? old({ status }) : text("late"));
    }),
  );
  const tasks = await connected(server, old2025);
  const waiting = (await tasks.start({ name: "may" })).result();
  waiting.catch(() => {});
  const run = tasks.resume("old-1");
  expect((await run[Symbol.asyncIterator]().next()).value).toMatchObject({ status: "working" });
  await tasks.cancel("old-1");
  const note = { jsonrpc: "2.0", method: "notifications/tasks/status", params: old({ status }) } as const;
  tasks.client.transport?.onmessage?.(note);
  await expect(waiting).rejects.toMatchObject({ code: "CANCELLED" });
  await expect(tasks.resume("gone").result()).rejects.toMatchObject({ code: "TASK_NOT_FOUND" });
  const sent = new Set(methods(server.seen));
  expect([...sent].filter((one) => one.startsWith("tasks/")).toSorted()).toEqual(["tasks/cancel", "tasks/get"]);
  expect(server.seen.map(({ method }) => method)).not.toContain("notifications/cancelled");
  await tasks.close();
});

test("a lost answer to such a call is MAY_HAVE_STARTED as well", async () => {
  await using server = await fakeServer(legacy((_, reply) => reply.reset()));
  const tasks = await connected(server, old2025);
  await expect(tasks.callTool({ name: "may" })).rejects.toMatchObject({ code: "MAY_HAVE_STARTED" });
  expect(server.of("tools/call")).toHaveLength(1);
  await tasks.close();
});
