import { describe, expect } from "vitest";
import { tasksExtension } from "../../src/protocol/capabilities.ts";
import { everything, withoutTasks } from "../wire/client.ts";
import { elicitations, missingTasks, open, unknownId } from "./harness.ts";
import { verifies } from "./verifies.ts";

const { http, stdio, url } = await open(["--grace", "200"]);
const transports = [
  ["HTTP", http],
  ["stdio", stdio],
] as const;

describe.each(transports)("negotiation over %s", (name, wire) => {
  const refused = name === "HTTP" ? 400 : 200;

  verifies(["cap:advertise", "cap:no-legacy-advert"], "a server says that it knows tasks, once", async () => {
    const { body } = await wire.request("server/discover");
    expect(body.result?.capabilities?.extensions?.[tasksExtension]).toEqual({});
    expect(body.result?.capabilities).not.toHaveProperty("tasks");
  });

  verifies("cap:never-unasked", "a request without the extension gets a result, whatever came before it", async () => {
    const args = { seconds: 0.1, label: "x" };
    expect((await wire.call("slow_compute", args)).body.result?.resultType).toBe("task");
    for (const capabilities of [withoutTasks, {}]) {
      const { status, body, before } = await wire.call("slow_compute", args, { capabilities });
      expect(status).toBe(200);
      expect(body.result?.resultType).toBe("complete");
      expect(body.result).not.toHaveProperty("taskId");
      expect(body.result?.content?.[0]?.type).toBe("text");
      expect(before).toEqual([]);
    }
    expect((await wire.call("slow_compute", args)).body.result?.resultType).toBe("task");
  });

  verifies("cap:required-tool", "a tool that only runs as a task names what is missing", async () => {
    const { status, body } = await wire.call("failing_job", {}, { capabilities: withoutTasks });
    expect(status).toBe(refused);
    expect(body).toMatchObject({ error: { code: -32021, data: missingTasks } });
    expect(body.error?.data).toEqual(missingTasks);
    expect(body).not.toHaveProperty("result");
  });

  verifies("cap:gate-methods", "who does not declare the extension can't use a task, known or not", async () => {
    const taskId = await wire.start("confirm_delete", { filename: "x" });
    const before = await wire.until(taskId, "input_required");
    for (const id of [taskId, unknownId])
      for (const method of ["tasks/get", "tasks/update", "tasks/cancel"]) {
        const params = { taskId: id, inputResponses: {} };
        const { status, body } = await wire.request(method, params, { capabilities: withoutTasks });
        expect([method, status, body.error?.code]).toEqual([method, refused, -32021]);
        expect(body.error?.data).toEqual(missingTasks);
      }
    expect((await wire.get(taskId)).body.result).toMatchObject({
      status: "input_required",
      lastUpdatedAt: before.lastUpdatedAt,
    });
  });

  verifies("cap:gate-listen", "who does not declare the extension can't listen to a task", async () => {
    const taskId = await wire.start("slow_compute", { seconds: 1, label: "x" });
    for (const id of [taskId, unknownId]) {
      const stream = await wire.listen([id], { capabilities: withoutTasks });
      expect(stream.status).toBe(refused);
      expect(await stream.next()).toMatchObject({ id: stream.id, error: { code: -32021, data: missingTasks } });
      await stream.close();
    }
  });

  verifies("cap:server-decides", "a task parameter changes nothing", async () => {
    const params = { name: "slow_compute", arguments: { seconds: 0, label: "x" }, task: { ttl: 1 } };
    const { body } = await wire.request("tools/call", params, { capabilities: withoutTasks });
    expect(body.result?.resultType).toBe("complete");
    const greeting = await wire.request("tools/call", { name: "greet", arguments: { name: "Ada" }, task: { ttl: 1 } });
    expect(greeting.body.result).toMatchObject({
      resultType: "complete",
      content: [{ type: "text", text: "Hello, Ada!" }],
    });
    const bounded = await wire.request("tools/call", {
      name: "slow_compute",
      arguments: { seconds: 1, label: "x" },
      task: { ttl: 1 },
    });
    expect(bounded.body.result?.resultType).toBe("task");
    expect(bounded.body.result?.ttlMs).not.toBe(1);
  });

  verifies("cap:legacy-declares-nothing", "only the extension itself, in its own place, declares it", async () => {
    const legacy = { ...withoutTasks, tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } };
    const elsewhere = { ...withoutTasks, experimental: { [tasksExtension]: {} }, [tasksExtension]: {} };
    const nothing = { ...withoutTasks, extensions: {} };
    for (const capabilities of [legacy, elsewhere, nothing]) {
      const { body } = await wire.call("failing_job", {}, { capabilities, meta: { [tasksExtension]: {} } });
      expect(body.error?.code).toBe(-32021);
      const read = await wire.get(unknownId, { capabilities, meta: { [tasksExtension]: {} } });
      expect(read.body.error?.code).toBe(-32021);
    }
  });

  verifies("cap:input-kinds", "a client is never asked for what it did not declare", async () => {
    const asking = { elicitation: { form: {} }, extensions: everything.extensions };
    const cases = [
      [{ extensions: everything.extensions }, { elicitation: { form: {} } }],
      [{ elicitation: { url: {} }, extensions: everything.extensions }, { elicitation: { form: {} } }],
    ] as const;
    for (const [capabilities, requiredCapabilities] of cases) {
      const taskId = await wire.start("confirm_delete", { filename: "x" }, { capabilities });
      const { inputRequests } = await wire.until(taskId, "input_required");
      expect(elicitations(inputRequests)).toHaveLength(1);
      const stream = await wire.listen([taskId], { capabilities });
      const { result } = (await wire.get(taskId, { capabilities })).body;
      expect(result).toMatchObject({ status: "working", statusMessage: expect.stringContaining("did not declare") });
      expect(result).not.toHaveProperty("inputRequests");
      await wire.cancel(taskId);
      for await (const { params } of stream) expect(params?.inputRequests).toBeUndefined();
      const early = await wire.call("test_tool_with_task", {}, { capabilities });
      expect(early.body.error).toMatchObject({ code: -32021, data: { requiredCapabilities } });
    }
    const taskId = await wire.start("confirm_delete", { filename: "x" }, { capabilities: asking });
    const { inputRequests } = await wire.until(taskId, "input_required");
    expect(elicitations(inputRequests)).toHaveLength(1);
  });
});

describe("an older protocol", () => {
  const meta = { "io.modelcontextprotocol/clientCapabilities": everything };
  const legacy = async (method: string, params: object) => {
    const response = await fetch(url, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        "mcp-protocol-version": "2025-11-25",
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params: { ...params, _meta: meta } }),
    });
    const text = await response.text();
    const data = text.startsWith("{") ? text : (/^data: (.*)$/m.exec(text)?.[1] ?? "{}");
    return JSON.parse(data) as { result?: Record<string, unknown>; error?: { code: number } };
  };

  verifies("cap:not-in-2025", "under 2025-11-25 there is no extension, whatever a request says", async () => {
    const clientInfo = { name: "old", version: "1" };
    const hello = await legacy("initialize", { protocolVersion: "2025-11-25", capabilities: everything, clientInfo });
    expect(hello.result).toMatchObject({ protocolVersion: "2025-11-25" });
    expect(hello.result?.capabilities).not.toHaveProperty("extensions");
    const called = await legacy("tools/call", { name: "slow_compute", arguments: { seconds: 0.1, label: "x" } });
    expect(called.result?.content).toMatchObject([{ type: "text" }]);
    expect(called.result).not.toHaveProperty("taskId");
    expect(called.result?.resultType).not.toBe("task");
    expect((await legacy("tasks/update", { taskId: unknownId, inputResponses: {} })).error?.code).toBe(-32601);
  });
});
