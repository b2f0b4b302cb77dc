import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { McpServer } from "@modelcontextprotocol/server";
import { createTasks } from "mcp-tasks";
import { type InputHandlers, TaskClient, type TaskClientOptions } from "mcp-tasks/client";
import { sqlite } from "mcp-tasks/sqlite";
import { expect, test } from "vitest";
import { conformanceTools, registerGreet } from "../fixture/conformance-tools.ts";

/** Our own server with a worker, on a file that goes with it. */
async function served() {
  const folder = await mkdtemp(path.join(tmpdir(), "mcp-tasks-client-"));
  const store = sqlite(path.join(folder, "tasks.db"));
  const tasks = createTasks({ store, tools: conformanceTools({}), reply: { grace: 0 } });
  const handler = tasks.serve(() => {
    const mcp = new McpServer({ name: "real", version: "1.0.0" });
    registerGreet(mcp);
    return mcp;
  });
  const { url } = await handler.listen();
  await tasks.work();
  return {
    url,
    async [Symbol.asyncDispose]() {
      await tasks.close();
      await store[Symbol.asyncDispose]();
      await rm(folder, { recursive: true });
    },
  };
}

const client = (options: TaskClientOptions = {}) => new TaskClient(new Client({ name: "test", version: "1" }), options);
const elicit: NonNullable<InputHandlers["elicit"]> = ({ requestedSchema }) => {
  const answers = { confirm: true, name: "Ada" };
  const asked = Object.keys(requestedSchema.properties) as (keyof typeof answers)[];
  return { action: "accept", content: Object.fromEntries(asked.map((key) => [key, answers[key]])) };
};

test.each([true, false])(
  "our own server answers plainly, by a task, and with a question (pushed: %s)",
  async (listen) => {
    await using server = await served();
    const errors: unknown[] = [];
    const tasks = await client({ listen, input: { elicit }, onError: (error) => errors.push(error) }).connect(
      server.url,
    );
    expect(await tasks.callTool({ name: "greet", arguments: { name: "Ada" } })).toMatchObject({
      content: [{ text: "Hello, Ada!" }],
    });
    const statuses: string[] = [];
    const deletion = await tasks.callTool(
      { name: "confirm_delete", arguments: { filename: "a.txt" } },
      { onUpdate: ({ status }) => statuses.push(status) },
    );
    expect(deletion).toMatchObject({ content: [{ text: "Deleted a.txt" }] });
    expect(statuses[0]).toBe("working");
    expect(statuses).toContain("input_required");
    expect(statuses.at(-1)).toBe("completed");
    expect(await tasks.callTool({ name: "multi_input" })).toMatchObject({ content: [{ text: "Ada is sure" }] });
    expect(await tasks.callTool({ name: "test_tool_with_task" })).toMatchObject({ content: [{ text: "Hello, Ada!" }] });
    expect(await tasks.callTool({ name: "failing_job" })).toMatchObject({ isError: true });
    await expect(tasks.callTool({ name: "protocol_error_job" })).rejects.toMatchObject({
      code: "TASK_FAILED",
      rpc: -32603,
    });
    await expect(tasks.resume("nothing-of-the-kind").result()).rejects.toMatchObject({ code: "TASK_NOT_FOUND" });
    expect(errors).toEqual([]);
    await tasks.close();
  },
);

test("a task of our own server is resumed by another client, and cancelled by a third", async () => {
  await using server = await served();
  const first = await client().connect(server.url);
  const short = await first.start({ name: "slow_compute", arguments: { seconds: 1, label: "it" } });
  const long = await first.start({ name: "slow_compute", arguments: { seconds: 600 } });
  await first.close();
  const second = await client().connect(server.url);
  expect(await second.resume(short.taskId!).result()).toMatchObject({ content: [{ text: "Computed it in 1 s" }] });
  const waiting = second.resume(long.taskId!).result();
  const third = await client({ listen: false }).connect(server.url);
  await third.cancel(long.taskId!);
  await expect(waiting).rejects.toMatchObject({ code: "CANCELLED", data: { taskId: long.taskId } });
  await second.close();
  await third.close();
});

test("the SDK's own callTool on the same connection is answered in line", async () => {
  await using server = await served();
  const tasks = await client().connect(server.url);
  const result = await tasks.client.callTool({ name: "slow_compute", arguments: { seconds: 0, label: "inline" } });
  expect(result).toMatchObject({ content: [{ text: "Computed inline in 0 s" }] });
  await tasks.close();
});

test("our own server over stdio", async () => {
  const args = ["--conditions=mcp-tasks-dev", new URL("../fixture/main.ts", import.meta.url).pathname, "--stdio"];
  const tasks = await client({ input: { elicit } }).connect(
    new StdioClientTransport({ command: process.execPath, args }),
  );
  const deletion = await tasks.callTool({ name: "confirm_delete", arguments: { filename: "b.txt" } });
  expect(deletion).toMatchObject({ content: [{ text: "Deleted b.txt" }] });
  await tasks.close();
});
