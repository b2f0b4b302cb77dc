import { describe, expect } from "vitest";
import { everything, withoutTasks, type Fields } from "../wire/client.ts";
import { open } from "./harness.ts";
import { verifies } from "./verifies.ts";

const { http, stdio } = await open([]);
const transports = [
  ["HTTP", http],
  ["stdio", stdio],
] as const;
const slow = { seconds: 0.3, label: "x" };
const accept = (content: object) => ({ action: "accept", content });

describe.each(transports)("creation over %s", (_name, wire) => {
  verifies(["create:flat", "create:fields"], "a handle is a task without payload, in one flat object", async () => {
    const { result = {} } = (await wire.call("slow_compute", slow)).body;
    const { _meta, statusMessage, ...rest } = result;
    expect(rest).toEqual({
      resultType: "task",
      taskId: expect.stringMatching(/^[\w-]{22}$/),
      status: "working",
      createdAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      lastUpdatedAt: rest.createdAt,
      ttlMs: null,
      pollIntervalMs: expect.any(Number),
    });
    expect(Math.abs(Date.parse(rest.createdAt ?? "") - Date.now())).toBeLessThan(5_000);
    const read = (await wire.get(rest.taskId ?? "")).body.result;
    expect(read).toMatchObject({ taskId: rest.taskId, createdAt: rest.createdAt });
  });

  verifies(["create:result-type", "create:only-tools-call"], "only a tool call brings a task", async () => {
    const taskId = await wire.start("confirm_delete", { filename: "x" });
    const { inputRequests = {} } = await wire.until(taskId, "input_required");
    const [key = ""] = Object.keys(inputRequests);
    const answers = [
      await wire.request("server/discover"),
      await wire.request("tools/list"),
      await wire.get(taskId),
      await wire.update(taskId, { [key]: { action: "decline" } }),
      await wire.cancel(taskId),
      await wire.call("greet", { name: "Ada" }),
      await wire.call("slow_compute", { seconds: 0, label: "x" }, { capabilities: withoutTasks }),
    ];
    expect(answers.map(({ body }) => body.result?.resultType)).toEqual(Array(7).fill("complete"));
    const stream = await wire.listen([taskId]);
    for await (const { params, result } of stream) {
      expect(params?.resultType).toBeUndefined();
      expect(result?.resultType).toBe(result && "complete");
    }
    expect(stream.seen.at(-1)?.result?.resultType).toBe("complete");
  });

  verifies(
    "create:mrtr-first",
    "what is asked before the task is asked on the call, under keys of its own",
    async () => {
      const first = (await wire.call("test_tool_with_task")).body.result ?? {};
      expect(first.resultType).toBe("input_required");
      expect(first).not.toHaveProperty("taskId");
      const [key = "", ...others] = Object.keys(first.inputRequests ?? {});
      expect(others).toEqual([]);
      expect(first.inputRequests?.[key]?.method).toBe("elicitation/create");

      const field = Object.keys(
        (first.inputRequests?.[key]?.params?.requestedSchema as { properties: object }).properties,
      )[0]!;
      const retry = (inputResponses: object): Promise<{ body: { result?: Fields } }> =>
        wire.request("tools/call", {
          name: "test_tool_with_task",
          arguments: {},
          inputResponses,
          requestState: first.requestState,
        });
      const wrong = await retry({ [key]: accept({ [field]: 7 }) });
      expect(wrong.body.result).toMatchObject({ resultType: "input_required" });
      const second = await retry({ [key]: accept({ [field]: "Grace" }) });
      expect(second.body.result).toMatchObject({ resultType: "task", status: "working" });
      const ended = await wire.until(second.body.result?.taskId ?? "");
      expect(ended.status).toBe("completed");
      expect(ended.result?.resultType).toBe("complete");
      expect(ended.result?.content?.[0]?.text).toContain("Grace");
    },
  );
});

describe("ids", () => {
  verifies("create:id-entropy", "each of the 128 bits of an id is as often set as not", async () => {
    const ids = await Promise.all(
      Array.from({ length: 200 }, () => http.start("slow_compute", { seconds: 0, label: "x" })),
    );
    expect(new Set(ids).size).toBe(200);
    const ones = Array.from({ length: 128 }, () => 0);
    for (const id of ids) {
      expect(id).toMatch(/^[A-Za-z0-9_-]{22}$/);
      const bytes = Buffer.from(id, "base64url");
      expect(bytes).toHaveLength(16);
      for (let bit = 0; bit < 128; bit++) ones[bit]! += (bytes[bit >> 3]! >> (bit & 7)) & 1;
    }
    // Six standard deviations: a fair coin leaves this range once in a hundred million runs.
    expect(ones.filter((count) => count < 57 || count > 143)).toEqual([]);
  });

  verifies("create:only-tools-call", "a call without the extension leaves no handle, even of a long tool", async () => {
    const { body } = await http.call("slow_compute", slow, { capabilities: { ...everything, extensions: {} } });
    expect(body.result?.resultType).toBe("complete");
    expect(JSON.stringify(body)).not.toContain("taskId");
  });
});
