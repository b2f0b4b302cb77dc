import { Client, type SubscriptionFilter, type Transport } from "@modelcontextprotocol/client";
import type { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { z } from "zod";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { channels, httpServer, openTransport } from "./channels.ts";
import { rawDispatch } from "./raw-dispatch.ts";

const extension = "io.modelcontextprotocol/tasks";
const clientInfo = { name: "stock-client", version: "1.0.0" };
const declaring = { elicitation: { form: {} }, extensions: { [extension]: {} } };
const modern = { era: "2026-07-28", versionNegotiation: { mode: { pin: "2026-07-28" } } } as const;
const legacy = { era: "2025-11-25", versionNegotiation: { mode: "legacy" } } as const;
/** What the SDK's server adds to every result. */
const serverInfo = { "io.modelcontextprotocol/serverInfo": { name: "mcp-tasks-fixture", version: "1.0.0" } };
const envelope = {
  "io.modelcontextprotocol/protocolVersion": modern.era,
  "io.modelcontextprotocol/clientInfo": clientInfo,
  "io.modelcontextprotocol/clientCapabilities": declaring,
};
const ways = channels.flatMap((channel) => [
  { channel, ...modern },
  { channel, ...legacy },
]);

const url = httpServer();

describe.each(ways)(
  "the SDK's own client without the extension, $era over $channel",
  ({ channel, era, ...options }) => {
    let client: Client;

    beforeAll(async () => {
      client = new Client(clientInfo, options);
      await client.connect(openTransport(channel, url()));
    });
    afterAll(async () => await client.close());

    test("speaks the protocol that it asked for", () => {
      expect(client.getNegotiatedProtocolVersion()).toBe(era);
      const { [extension]: advertised } = client.getServerCapabilities()?.extensions ?? {};
      expect(advertised).toEqual(era === modern.era ? {} : undefined);
      const tasks = { cancel: {}, requests: { tools: { call: {} } } };
      expect(client.getServerCapabilities()?.tasks).toEqual(era === modern.era ? undefined : tasks);
    });

    test("lists the tools", async () => {
      const { tools } = await client.listTools();
      expect(tools.map(({ name }) => name)).toEqual(
        expect.arrayContaining(["greet", "slow_compute", "confirm_delete"]),
      );
      const support = Object.fromEntries(tools.map(({ name, execution }) => [name, execution?.taskSupport]));
      if (era === modern.era) expect(new Set(Object.values(support))).toEqual(new Set([undefined]));
      else expect(support).toMatchObject({ greet: undefined, slow_compute: "optional", failing_job: "required" });
    });

    test("calls a plain tool", async () => {
      const result = await client.callTool({ name: "greet", arguments: { name: "Ada" } });
      expect(result).toMatchObject({ content: [{ type: "text", text: "Hello, Ada!" }] });
    });

    test("gets the result of a long-running tool in line", async () => {
      const result = await client.callTool({ name: "slow_compute", arguments: { seconds: 1, label: "sum" } });
      expect(result.content).toEqual([{ type: "text", text: "Computed sum in 1 s" }]);
      expect(result.isError).toBeUndefined();
    });

    test("is refused a tool that runs as a task only, and told what is missing", async () => {
      const missing = { code: -32021, data: { requiredCapabilities: { extensions: { [extension]: {} } } } };
      const refusal = era === modern.era ? missing : { code: -32601 };
      await expect(client.callTool({ name: "failing_job" })).rejects.toMatchObject(refusal);
    });

    test("is told that somebody else must answer when a tool has a question that it can't be asked", async () => {
      const result = await client.callTool({ name: "confirm_delete", arguments: { filename: "a.txt" } });
      expect(result).toMatchObject({
        content: [{ type: "text", text: expect.stringContaining("Delete a.txt?") }],
        structuredContent: { status: "input_required", questions: [{ key: "confirm", by: "person" }] },
      });
    });
  },
);

test("a server on stdio ends by itself when its client hangs up", async () => {
  const transport = openTransport("stdio", "") as StdioClientTransport;
  const client = new Client(clientInfo, { versionNegotiation: modern.versionNegotiation });
  await client.connect(transport);
  const pid = transport.pid!;
  const hungUp = performance.now();
  await client.close();
  // The SDK gives it two seconds before it sends a signal.
  expect(performance.now() - hungUp).toBeLessThan(2_000);
  expect(() => process.kill(pid, 0)).toThrow("ESRCH");
});

describe.each(channels)("the SDK's own client that declares the extension, over %s", (channel) => {
  const anything = z.looseObject({});
  let client: Client;
  let transport: Transport;

  beforeAll(async () => {
    transport = openTransport(channel, url());
    client = new Client(clientInfo, { capabilities: declaring, versionNegotiation: modern.versionNegotiation });
    await client.connect(transport);
  });
  afterAll(async () => await client.close());

  async function get(taskId: string) {
    return await client.request({ method: "tasks/get", params: { taskId } }, anything);
  }

  test("can't take a task from callTool, and says so", async () => {
    await expect(client.callTool({ name: "slow_compute" })).rejects.toMatchObject({
      code: "UNSUPPORTED_RESULT_TYPE",
    });
  });

  test("reads and cancels a task by plain requests", async () => {
    const taskId = await startTask(transport, "slow_compute", { seconds: 30, label: "long" });
    expect(await get(taskId)).toMatchObject({ taskId, status: "working", ttlMs: null, pollIntervalMs: 100 });
    expect(await client.request({ method: "tasks/cancel", params: { taskId } }, anything)).toEqual({
      _meta: serverInfo,
    });
    await expect.poll(async () => (await get(taskId)).status, { interval: 50 }).toBe("cancelled");
  });

  test("answers a question by a plain request", async () => {
    const taskId = await startTask(transport, "confirm_delete", { filename: "a.txt" });
    await expect.poll(async () => (await get(taskId)).status, { interval: 50 }).toBe("input_required");
    const { inputRequests } = (await get(taskId)) as { inputRequests: Record<string, { method: string }> };
    const [[key, request] = ["", undefined]] = Object.entries(inputRequests);
    expect(request).toMatchObject({ method: "elicitation/create", params: { message: "Delete a.txt?" } });
    const inputResponses = { [key]: { action: "accept", content: { confirm: true } } };
    await client.request({ method: "tasks/update", params: { taskId, inputResponses } }, anything);
    await expect.poll(async () => (await get(taskId)).status, { interval: 50 }).toBe("completed");
    expect((await get(taskId)).result).toEqual({
      resultType: "complete",
      content: [{ type: "text", text: "Deleted a.txt" }],
    });
  });

  test("hears of a task's changes on a subscription, which ends with the task", async () => {
    const taskId = await startTask(transport, "slow_compute", { seconds: 1, label: "heard" });
    const heard: Record<string, unknown>[] = [];
    client.setNotificationHandler("notifications/tasks", { params: anything }, (task) => void heard.push(task));
    const subscription = await client.listen({ taskIds: [taskId] } as SubscriptionFilter);
    // The client knows only its own kinds of news: it drops from the acknowledgement what it doesn't.
    expect(subscription.honoredFilter).toEqual({});
    expect(await subscription.closed).toBe("graceful");
    // Its handlers run in turns of their own: the last one may come after the end.
    await expect.poll(() => heard.map(({ status }) => status)).toEqual(["working", "completed"]);
    expect(heard.at(-1)).toMatchObject({
      taskId,
      result: { resultType: "complete", content: [{ type: "text", text: "Computed heard in 1 s" }] },
    });
    expect(heard.at(-1)).not.toHaveProperty("resultType");
  });
});

/** Calls a tool behind the client's back, which could not take the task for an answer. */
async function startTask(transport: Transport, name: string, args: Record<string, string | number>): Promise<string> {
  const { onmessage } = transport;
  const reply = await rawDispatch(transport)({
    method: "tools/call",
    params: { name, arguments: args, _meta: envelope },
  });
  transport.onmessage = onmessage!;
  if (reply.kind === "error") throw new Error(`no task came: ${JSON.stringify(reply.error)}`);
  return (reply.result as { taskId: string }).taskId;
}
