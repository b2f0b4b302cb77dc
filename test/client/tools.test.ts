import { expect, test } from "vitest";
import { type Script, fakeServer } from "./fake-http.ts";
import { connected } from "./setup.ts";
import { created, text, working } from "./wire.ts";

const outputSchema = { type: "object", properties: { count: { type: "integer" } }, required: ["count"] };

/** A tool with an output schema whose task comes to this result. */
const counting =
  (result: object): Script =>
  ({ method }, reply) => {
    const tools = [{ name: "count", inputSchema: { type: "object" }, outputSchema }];
    if (method === "tools/list") reply.result({ resultType: "complete", tools, ttlMs: 0, cacheScope: "private" });
    else if (method === "tools/call") reply.result(created());
    else reply.result(working({ status: "completed", result: { resultType: "complete", ...result } }));
  };

test.each([
  ["is missing", text("none")],
  ["doesn't match", text("wrong", { structuredContent: { count: "three" } })],
])("a task's structured content that %s is an invalid answer, as it is for a plain call", async (_, result) => {
  await using server = await fakeServer(counting(result));
  const tasks = await connected(server);
  await tasks.client.listTools();
  const thrown = { code: "INVALID_RESPONSE", data: { taskId: "task-1" } };
  await expect(tasks.callTool({ name: "count" })).rejects.toMatchObject(thrown);
  expect(server.of("tools/call")).toHaveLength(1);
  await tasks.close();
});

test.each([
  ["that matches", text("right", { structuredContent: { count: 3 } })],
  ["of a tool's own error", text("broken", { isError: true, structuredContent: { why: 1 } })],
])("structured content %s is returned", async (_, result) => {
  await using server = await fakeServer(counting(result));
  const tasks = await connected(server);
  await tasks.client.listTools();
  expect(await tasks.callTool({ name: "count" })).toEqual(result);
  await tasks.close();
});

test("where the host has not listed the tools nothing is asked for, and nothing checked", async () => {
  await using server = await fakeServer(counting(text("unchecked")));
  const tasks = await connected(server);
  expect(await tasks.callTool({ name: "count" })).toEqual(text("unchecked"));
  expect(server.of("tools/list")).toHaveLength(0);
  await tasks.close();
});
