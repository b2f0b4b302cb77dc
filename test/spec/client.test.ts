import { setTimeout as pause } from "node:timers/promises";
import { Client } from "@modelcontextprotocol/client";
import { TaskClient, type TaskClientOptions } from "mcp-tasks/client";
import { describe, expect } from "vitest";
import { capabilitiesKey, tasksExtension } from "../../src/protocol/capabilities.ts";
import { fakeServer, type Reply, type Script } from "../client/fake-http.ts";
import { ack, asking, completed, created, failed, form, taskFields, text, working } from "../client/wire.ts";
import { open } from "./harness.ts";
import { captureProxy, type Captured } from "./proxy.ts";
import { verifies } from "./verifies.ts";

const { url } = await open(["--poll", "100"], { stdio: false });
const three = ["tasks/get", "tasks/update", "tasks/cancel"];

async function connect(url: string, options: TaskClientOptions = {}): Promise<TaskClient> {
  return await new TaskClient(new Client({ name: "spec", version: "1" }), options).connect(url);
}

/** The capabilities that one message declared. */
function declared({ params }: { params: { _meta?: Record<string, unknown> } }) {
  return params._meta?.[capabilitiesKey] as { extensions?: object } | undefined;
}

/** Answers methods one after the other: each list holds the answers to one method, the last one for ever. */
function scripted(answers: Record<string, ((reply: Reply) => void)[]>): Script {
  const counts = new Map<string, number>();
  return ({ method }, reply) => {
    const count = counts.get(method) ?? 0;
    counts.set(method, count + 1);
    const list = answers[method];
    const answer = list?.[Math.min(count, list.length - 1)];
    if (answer === undefined) reply.error(-32601, "unknown method");
    else answer(reply);
  };
}
const gives = (result: object) => (reply: Reply) => reply.result(result);

describe("a client before a real server", () => {
  verifies(
    ["cap:per-request", "http:mcp-name", "reserve:names", "create:polymorphic"],
    "each request declares the extension and names its task in the headers",
    async () => {
      await using proxy = await captureProxy(url);
      const tasks = await connect(proxy.url, {
        input: {
          elicit: ({ message }) => ({
            action: "accept",
            content: message.includes("sure") ? { confirm: true } : { name: "Ada" },
          }),
        },
      });
      const greeting = await tasks.callTool({ name: "greet", arguments: { name: "Ada" } });
      expect(greeting.content).toEqual([{ type: "text", text: "Hello, Ada!" }]);
      const run = await tasks.start({ name: "multi_input" });
      expect((await run.result()).content).toEqual([{ type: "text", text: "Ada is sure" }]);
      const long = await tasks.start({ name: "sleepy", arguments: { ms: 600_000 } });
      await long.cancel();

      for (const method of three) expect(proxy.of(method).length).toBeGreaterThan(0);
      for (const one of proxy.captured) {
        if (one.id === undefined) continue;
        expect([one.method, declared(one)?.extensions]).toEqual([one.method, { [tasksExtension]: {} }]);
        expect(one.headers["mcp-method"]).toBe(one.method);
        if (one.method.startsWith("tasks/")) {
          expect(three).toContain(one.method);
          expect([long.taskId, run.taskId]).toContain(one.params.taskId);
          expect(one.headers["mcp-name"]).toBe(one.params.taskId);
        }
        if (one.method === "tools/call") {
          expect(one.headers["mcp-name"]).toBe(one.params.name);
          expect(one.params).not.toHaveProperty("task");
        }
      }
      await tasks.close();
    },
  );

  verifies("create:polymorphic", "a result and a task come to the same for who calls", async () => {
    const tasks = await connect(url);
    const plain = await tasks.start({ name: "greet", arguments: { name: "Ada" } });
    expect(plain.taskId).toBeUndefined();
    expect((await plain.result()).content).toEqual([{ type: "text", text: "Hello, Ada!" }]);
    const run = await tasks.start({ name: "slow_compute", arguments: { seconds: 0.1, label: "x" } });
    expect(run.taskId).toMatch(/^[\w-]{22}$/);
    expect((await run.result()).content).toEqual([{ type: "text", text: "Computed x in 0.1 s" }]);
    const broken = await tasks.callTool({ name: "failing_job" });
    expect(broken).toMatchObject({
      isError: true,
      content: [{ type: "text", text: "The job failed, as it always does" }],
    });
    await expect(tasks.callTool({ name: "protocol_error_job" })).rejects.toMatchObject({
      code: "TASK_FAILED",
      rpc: -32603,
      message: "The job broke, as it always does",
    });
    await tasks.close();
  });

  verifies(
    ["cancel:not-by-notification", "cancel:forget"],
    "a cancel is tasks/cancel, once, and then all is quiet",
    async () => {
      await using proxy = await captureProxy(url);
      const tasks = await connect(proxy.url);
      const controller = new AbortController();
      const byAbort = await tasks.start({ name: "sleepy", arguments: { ms: 600_000 } }, { signal: controller.signal });
      const aborted = byAbort.result();
      await pause(150);
      controller.abort();
      await expect(aborted).rejects.toMatchObject({ code: "CANCELLED" });
      const byHand = await tasks.start({ name: "sleepy", arguments: { ms: 600_000 } });
      const cancelled = byHand.result();
      cancelled.catch(() => {});
      await byHand.cancel();
      await expect(cancelled).rejects.toMatchObject({ code: "CANCELLED" });
      while (proxy.of("tasks/cancel").length < 2) await pause(10);
      const sent = proxy.captured.length;
      await pause(600);
      const later = proxy.captured.slice(sent).filter(({ method }) => method.startsWith("tasks/"));
      expect(later).toEqual([]);
      expect(proxy.of("tasks/cancel").map(({ params }) => params.taskId)).toEqual([byAbort.taskId, byHand.taskId]);
      // Ending a subscription is what is left to this notification.
      const subscriptions = proxy.of("subscriptions/listen").map(({ id }) => id);
      for (const { params } of proxy.of("notifications/cancelled")) expect(subscriptions).toContain(params.requestId);
      await tasks.close();
    },
  );

  verifies("get:persist", "another client, given the id alone, goes on where the first one left off", async () => {
    const elicit = ({ message }: { message: string }) => ({
      action: "accept" as const,
      content: message.includes("sure") ? { confirm: false } : { name: "Bob" },
    });
    const first = await connect(url, { input: { elicit } });
    const { taskId = "" } = await first.start({ name: "multi_input" });
    await first.close();
    const second = await connect(url, { input: { elicit } });
    expect((await second.resume(taskId).result()).content).toEqual([{ type: "text", text: "Bob is not sure" }]);
    await second.close();
  });

  verifies("listen:filter", "a subscription names the tasks that are followed, and no others", async () => {
    await using proxy = await captureProxy(url);
    const tasks = await connect(proxy.url, { listen: true });
    const run = await tasks.start({ name: "sleepy", arguments: { ms: 1_500 } });
    await run.result();
    const listens: readonly Captured[] = proxy.of("subscriptions/listen");
    expect(listens.length).toBeGreaterThan(0);
    for (const one of listens) {
      expect(one.params.notifications).toEqual({ taskIds: [run.taskId] });
      expect(declared(one)?.extensions).toEqual({ [tasksExtension]: {} });
    }
    await tasks.close();
  });
});

describe("a client before a scripted server", () => {
  verifies("get:poll-interval", "the wait before each read is the one that was told last", async () => {
    await using server = await fakeServer(
      scripted({
        "tools/call": [gives(created({ pollIntervalMs: 400 }))],
        "tasks/get": [
          gives(working({ pollIntervalMs: 900 })),
          gives(working({ pollIntervalMs: 300 })),
          gives(completed()),
        ],
      }),
    );
    const tasks = await connect(server.url, { listen: false });
    await tasks.callTool({ name: "x" });
    const times = [...server.of("tools/call"), ...server.of("tasks/get")].map(({ at }) => at);
    const gaps = times.slice(1).map((at, i) => at - times[i]!);
    expect(gaps).toHaveLength(3);
    for (const [i, told] of [400, 900, 300].entries()) {
      expect(gaps[i]).toBeGreaterThanOrEqual(told - 15);
      expect(gaps[i]).toBeLessThan(told + 500);
    }
    await tasks.close();
  });

  verifies(
    "get:until-terminal",
    "a task is read until it is final, whatever happens in between, and no longer",
    async () => {
      const ends: [object, object][] = [
        [completed("done"), { content: [{ type: "text", text: "done" }] }],
        [failed({ code: -32000, message: "no" }), { code: "TASK_FAILED", rpc: -32000, message: "no" }],
        [working({ status: "cancelled" }), { code: "CANCELLED" }],
      ];
      const tries = ends.map(async ([end, expected]) => {
        await using server = await fakeServer(
          scripted({
            "tools/call": [gives(created())],
            "tasks/get": [
              gives(working()),
              (reply) => reply.status(503),
              (reply) => reply.reset(),
              gives(working({ statusMessage: "still" })),
              gives(end),
            ],
          }),
        );
        const tasks = await connect(server.url, { listen: false });
        const outcome = await tasks.callTool({ name: "x" }).catch((error: unknown) => error);
        expect(outcome).toMatchObject(expected);
        await pause(350);
        expect(server.of("tasks/get")).toHaveLength(5);
        expect(server.of("tools/call")).toHaveLength(1);
        await tasks.close();
      });
      await Promise.all(tries);
    },
  );

  verifies(
    ["input:answer", "input:dedupe"],
    "a question is shown once and answered once, however often it is told",
    async () => {
      const once = { first: form("One?") };
      const both = { first: form("One?"), second: form("Two?") };
      let answered = 0;
      await using server = await fakeServer(({ method, params }, reply) => {
        if (method === "tools/call") return reply.result(created());
        if (method === "tasks/update") {
          answered += Object.keys((params as { inputResponses: object }).inputResponses).length;
          return reply.result(ack);
        }
        if (method !== "tasks/get") return reply.error(-32601, "unknown method");
        const reads = server.of("tasks/get").length;
        // The answer takes its time to show: the same question is told again after it was acknowledged.
        if (reads < 4) return reply.result(asking(once));
        if (reads < 7 || answered < 2) return reply.result(asking(both));
        reply.result(completed());
      });
      const shown: string[] = [];
      const tasks = await connect(server.url, {
        listen: false,
        input: {
          elicit(request, { key }) {
            shown.push(key);
            return { action: "accept", content: { name: request.message } };
          },
        },
      });
      await tasks.callTool({ name: "x" });
      expect(shown).toEqual(["first", "second"]);
      const updates = server
        .of("tasks/update")
        .map(({ params }) => params as { taskId: string; inputResponses: object });
      expect(updates.map(({ inputResponses }) => inputResponses)).toEqual([
        { first: { action: "accept", content: { name: "One?" } } },
        { second: { action: "accept", content: { name: "Two?" } } },
      ]);
      expect(updates.map(({ taskId }) => taskId)).toEqual(["task-1", "task-1"]);
      expect(server.of("tasks/get").length).toBeGreaterThanOrEqual(7);
      await tasks.close();
    },
  );

  verifies("input:as-direct", "questions of a task and of a call reach the same handler, unchanged", async () => {
    const { params } = form("Who?");
    await using server = await fakeServer(
      scripted({
        "tools/call": [
          gives({ resultType: "input_required", inputRequests: { early: form("Who?") }, requestState: "s" }),
          gives(created()),
        ],
        "tasks/get": [gives(asking({ late: form("Who?") })), gives(completed())],
        "tasks/update": [gives(ack)],
      }),
    );
    const seen: unknown[] = [];
    const tasks = await connect(server.url, {
      listen: false,
      input: {
        elicit(request) {
          seen.push(request);
          return { action: "decline" };
        },
      },
    });
    await tasks.callTool({ name: "x" });
    expect(seen).toEqual([params, params]);
    const retry = server.of("tools/call")[1]?.params as { inputResponses: object; requestState: string };
    expect(retry).toMatchObject({ inputResponses: { early: { action: "decline" } }, requestState: "s" });
    expect(server.of("tasks/update")[0]?.params).toMatchObject({ inputResponses: { late: { action: "decline" } } });
    await tasks.close();
  });

  verifies("create:only-tools-call", "a task in answer to anything but a tool call is no valid answer", async () => {
    await using server = await fakeServer(
      scripted({
        "tools/list": [gives(created())],
        "prompts/get": [gives(created())],
        "tools/call": [gives(created())],
      }),
    );
    const tasks = await connect(server.url, { listen: false });
    await expect(tasks.client.listTools()).rejects.toThrow();
    await expect(tasks.client.getPrompt({ name: "x" })).rejects.toThrow();
    // The SDK's own call does not declare the extension.
    await expect(tasks.client.callTool({ name: "x" })).rejects.toThrow();
    const call = server.of("tools/call").at(-1) as { params: { _meta?: Record<string, unknown> } };
    expect(declared(call)?.extensions ?? {}).toEqual({});
    expect(server.of("tasks/get")).toEqual([]);
    await tasks.close();
  });

  verifies("create:polymorphic", "what only looks like a task is no success", async () => {
    const { resultType: _, ...unnamed } = created();
    const { status: __, ...incomplete } = created() as { status?: string };
    for (const answer of [unnamed, incomplete, { resultType: "task", task: taskFields() }, { resultType: "later" }]) {
      await using server = await fakeServer(scripted({ "tools/call": [gives(answer)] }));
      const tasks = await connect(server.url, { listen: false });
      await expect(tasks.callTool({ name: "x" })).rejects.toMatchObject({ code: "INVALID_RESPONSE" });
      expect(server.of("tools/call")).toHaveLength(1);
      await tasks.close();
    }
  });

  verifies("http:mcp-name", "an id that no header can hold goes out in the encoded form", async () => {
    const tries = ["task-1", "тест", " padded ", "=?base64?eA==?="].map(async (taskId) => {
      await using server = await fakeServer(
        scripted({
          "tools/call": [gives(created({ taskId }))],
          "tasks/get": [gives(asking({ key: form("?") }, { taskId })), gives(completed("x", { taskId }))],
          "tasks/update": [gives(ack)],
          "tasks/cancel": [gives(ack)],
        }),
      );
      const tasks = await connect(server.url, { listen: false, input: { elicit: () => ({ action: "decline" }) } });
      await tasks.callTool({ name: "x" });
      await tasks.cancel(taskId);
      const encoded = taskId === "task-1" ? taskId : `=?base64?${Buffer.from(taskId).toString("base64")}?=`;
      for (const method of three)
        expect([method, server.of(method)[0]?.headers["mcp-name"]]).toEqual([method, encoded]);
      await tasks.close();
    });
    await Promise.all(tries);
  });

  verifies("listen:not-needed", "a subscription that never tells anything keeps nobody from the result", async () => {
    for (const taskIds of [["task-1"], []]) {
      await using server = await fakeServer(({ method, id }, reply) => {
        if (method === "tools/call") return reply.result(created());
        if (method === "subscriptions/listen") {
          const params = { notifications: { taskIds }, _meta: { "io.modelcontextprotocol/subscriptionId": id } };
          const message = { jsonrpc: "2.0", method: "notifications/subscriptions/acknowledged", params };
          reply.raw.writeHead(200, { "content-type": "text/event-stream" });
          return void reply.raw.write(`data: ${JSON.stringify(message)}\n\n`);
        }
        if (method !== "tasks/get") return reply.error(-32601, "unknown method");
        reply.result(server.of("subscriptions/listen").length > 0 ? completed() : working());
      });
      const tasks = await connect(server.url, { listen: true });
      const result = await tasks.callTool({ name: "x" }, { deadline: "10s" });
      expect(result).toMatchObject(text("done"));
      await tasks.close();
    }
  });
});
