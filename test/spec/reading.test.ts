import { setTimeout as pause } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { wire as connect, withoutTasks } from "../wire/client.ts";
import { elicitations, open, unknownId } from "./harness.ts";
import { verifies } from "./verifies.ts";

const { http, stdio, url } = await open(["--grace", "200"]);
const transports = [
  ["HTTP", http],
  ["stdio", stdio],
] as const;
const common = [
  "createdAt",
  "lastUpdatedAt",
  "pollIntervalMs",
  "resultType",
  "status",
  "statusMessage",
  "taskId",
  "ttlMs",
];
/** Fields beyond those that every task has. */
const payload = (task: object) =>
  Object.keys(task)
    .filter((name) => name !== "_meta" && !common.includes(name))
    .toSorted();

describe.each(transports)("reading over %s", (name, wire) => {
  verifies(["get:working", "get:complete"], "a working task is a task and nothing more", async () => {
    const taskId = await wire.start("slow_compute", { seconds: 1, label: "x" });
    const { result = {} } = (await wire.get(taskId)).body;
    expect(result).toMatchObject({ resultType: "complete", taskId, status: "working", ttlMs: null });
    expect(payload(result)).toEqual([]);
  });

  verifies("get:input-required", "open requests are shown, each until it is answered", async () => {
    const taskId = await wire.start("multi_input");
    const task = await wire.until(taskId, "input_required");
    const asked = elicitations(task.inputRequests);
    expect(asked).toHaveLength(2);
    expect(payload(task)).toEqual(["inputRequests"]);
    expect(task.resultType).toBe("complete");
    const [first, second] = asked as [(typeof asked)[0], (typeof asked)[0]];
    await wire.update(taskId, { [first.key]: first.accept() });
    const later = await wire.untilTask(taskId, ({ inputRequests }) => !(first.key in (inputRequests ?? {})));
    expect(later.status).toBe("input_required");
    expect(later.inputRequests).toEqual({ [second.key]: task.inputRequests?.[second.key] });
    await wire.update(taskId, { [second.key]: second.accept() });
    expect((await wire.until(taskId)).status).toBe("completed");
  });

  verifies("get:completed", "the result is the one that the call would have had", async () => {
    const args = { seconds: 0.05, label: "same" };
    const { _meta, ...direct } =
      (await wire.call("slow_compute", args, { capabilities: withoutTasks })).body.result ?? {};
    const ended = await wire.until(await wire.start("slow_compute", args));
    expect(ended.status).toBe("completed");
    expect(payload(ended)).toEqual(["result"]);
    const { _meta: _, ...result } = ended.result ?? {};
    expect(result).toEqual(direct);
    expect(result.content?.[0]?.text).toContain("same");
  });

  verifies(["get:failed-only-rpc", "get:completed"], "a tool's own error completes the task", async () => {
    const ended = await wire.until(await wire.start("failing_job"));
    expect(ended.status).toBe("completed");
    expect(ended.result).toMatchObject({ resultType: "complete", isError: true, content: [{ type: "text" }] });
    expect(payload(ended)).toEqual(["result"]);
  });

  verifies("get:failed", "a failed task carries the JSON-RPC error and says why", async () => {
    const ended = await wire.until(await wire.start("protocol_error_job"));
    expect(ended.status).toBe("failed");
    expect(payload(ended)).toEqual(["error"]);
    expect(ended.error?.code).toBeLessThan(0);
    expect(ended.error?.message).toMatch(/\w/);
    expect(ended.statusMessage).toBe(ended.error?.message);
  });

  verifies("get:cancelled", "a cancelled task says so", async () => {
    const taskId = await wire.start("slow_compute", { seconds: 30, label: "x" });
    await wire.cancel(taskId);
    const ended = await wire.until(taskId);
    expect(ended.status).toBe("cancelled");
    expect(payload(ended)).toEqual([]);
  });

  verifies("get:terminal-frozen", "nothing changes a task that is finished", async () => {
    const asking = await wire.start("confirm_delete", { filename: "x" });
    const [question] = elicitations((await wire.until(asking, "input_required")).inputRequests);
    await wire.cancel(asking);
    const finished = [
      await wire.start("slow_compute", { seconds: 0, label: "x" }),
      await wire.start("protocol_error_job"),
      asking,
    ];
    const states: string[] = [];
    for (const taskId of finished) {
      const before = await wire.until(taskId);
      states.push(before.status ?? "");
      expect((await wire.cancel(taskId)).body.result?.resultType).toBe("complete");
      expect((await wire.update(taskId, { [question!.key]: question!.accept() })).body.result?.resultType).toBe(
        "complete",
      );
      expect((await wire.get(taskId)).body.result).toEqual(before);
    }
    expect(states).toEqual(["completed", "failed", "cancelled"]);
  });

  verifies("get:read-only", "reads are all alike, and take nothing away", async () => {
    const taskId = await wire.start("multi_input");
    const waiting = await wire.until(taskId, "input_required");
    const many = () => Promise.all(Array.from({ length: 20 }, () => wire.get(taskId)));
    for (const { body } of await many())
      expect({ ...body.result, pollIntervalMs: 0 }).toEqual({ ...waiting, pollIntervalMs: 0 });
    const answers = elicitations(waiting.inputRequests).map(({ key, accept }) => [key, accept()]);
    await wire.update(taskId, Object.fromEntries(answers));
    const ended = await wire.until(taskId);
    for (const { body } of await many()) expect(body.result).toEqual(ended);
    if (name === "HTTP") expect((await connect(url).get(taskId)).body.result).toEqual(ended);
  });

  verifies("get:unknown-id", "whatever is no id of a task is refused as unknown", async () => {
    const params: unknown[] = [
      unknownId,
      "x",
      "",
      "тест",
      "a".repeat(10_000),
      "../../etc",
      "a\nb",
      7,
      null,
      {},
      [unknownId],
      undefined,
    ];
    for (const taskId of params) {
      const headers = typeof taskId === "string" ? {} : { "mcp-name": null };
      const { body } = await wire.request("tasks/get", { taskId }, { headers });
      const shown = JSON.stringify(taskId)?.slice(0, 40);
      // Over HTTP a header has to name the task, and what is no string can't be named.
      const code = name === "HTTP" && typeof taskId !== "string" && body.error?.code === -32020 ? -32020 : -32602;
      expect([shown, body.error?.code]).toEqual([shown, code]);
    }
    const { error } = (await wire.get(unknownId)).body;
    expect(error?.message).toMatch(/no task has this id/i);
  });

  verifies("get:removed-methods", "the methods of 2025-11-25 are gone", async () => {
    const taskId = await wire.start("slow_compute", { seconds: 0, label: "x" });
    for (const method of ["tasks/result", "tasks/list"]) {
      const { status, body } = await wire.request(method, { taskId }, { headers: { "mcp-name": taskId } });
      expect([method, status, body.error?.code]).toEqual([method, name === "HTTP" ? 404 : 200, -32601]);
    }
  });
});

describe("the life of a finished task", async () => {
  const { http } = await open(["--keep", "700"], { stdio: false });

  verifies(["get:ttl", "get:unknown-id"], "a task is kept as long as it says, and then known as expired", async () => {
    const taskId = await http.start("slow_compute", { seconds: 0.2, label: "x" });
    expect((await http.get(taskId)).body.result?.ttlMs).toBeNull();
    const { createdAt = "", lastUpdatedAt = "", ttlMs } = await http.until(taskId);
    expect(ttlMs).toBe(Date.parse(lastUpdatedAt) - Date.parse(createdAt) + 700);
    const due = Date.parse(createdAt) + ttlMs!;
    for (;;) {
      const { error } = (await http.get(taskId)).body;
      if (error === undefined) {
        expect(Date.now()).toBeLessThan(due + 5_000);
        await pause(20);
        continue;
      }
      expect(Date.now()).toBeGreaterThanOrEqual(due);
      expect(error.code).toBe(-32602);
      expect(error.message).toMatch(/expired/i);
      break;
    }
    for (const { body } of [await http.update(taskId, {}), await http.cancel(taskId)])
      expect(body.error).toMatchObject({ code: -32602, message: expect.stringMatching(/expired/i) as string });
  });
});

test("the wire client notices what breaks the schema", async () => {
  const { checkAnswer } = await import("../wire/shapes.ts");
  const task = {
    taskId: "x",
    status: "working",
    createdAt: "2026-01-01T00:00:00Z",
    lastUpdatedAt: "2026-01-01T00:00:00Z",
    ttlMs: null,
  };
  const answer = (result: object) => () => checkAnswer("tasks/get", { jsonrpc: "2.0", id: 1, result });
  expect(answer({ ...task, resultType: "complete" })).not.toThrow();
  expect(answer({ ...task, resultType: "task" })).toThrow("answered with a task");
  expect(answer({ ...task, resultType: "complete", status: "completed" })).toThrow("schema");
  expect(answer({ ...task, resultType: "complete", result: { content: [] } })).toThrow("has result");
  expect(answer({ ...task, resultType: "complete", ttlMs: 0.5 })).toThrow("schema");
  expect(answer({ ...task, resultType: "complete", createdAt: "yesterday" })).toThrow("ISO 8601");
});
