import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { expect, test, vi } from "vitest";
import { TaskClient, type TaskClientOptions } from "../../src/client/index.ts";
import { text } from "./wire.ts";

const script = new URL("./fake-stdio.ts", import.meta.url).pathname;

async function spawned(options: TaskClientOptions = {}): Promise<TaskClient> {
  const transport = new StdioClientTransport({ command: process.execPath, args: [script] });
  return await new TaskClient(new Client({ name: "test", version: "1" }), { listen: false, ...options }).connect(
    transport,
  );
}

async function logOf(tasks: TaskClient): Promise<string[]> {
  const { content } = await tasks.callTool({ name: "log" });
  return JSON.parse((content[0] as { text: string }).text) as string[];
}

test("over stdio a plain result, a task and its question go the same way", async () => {
  const tasks = await spawned({ input: { elicit: () => ({ action: "accept", content: { name: "Ada" } }) } });
  expect(await tasks.callTool({ name: "plain" })).toMatchObject(text("plain"));
  expect(await tasks.callTool({ name: "task" })).toEqual(text("Ada"));
  await tasks.close();
});

test("an abort before the handle is known cancels the request, and then the task when its handle comes", async () => {
  const tasks = await spawned();
  const controller = new AbortController();
  const result = tasks.callTool({ name: "slow" }, { signal: controller.signal });
  result.catch(() => {});
  await vi.waitFor(async () => expect(await logOf(tasks)).toContain("tools/call slow"));
  controller.abort();
  await expect(result).rejects.toMatchObject({ code: "CANCELLED" });
  await vi.waitFor(async () => expect(await logOf(tasks)).toContain("tasks/cancel late"), { timeout: 3_000 });
  const log = (await logOf(tasks)).filter((line) => !line.endsWith("log"));
  expect(log).toEqual(["tools/call slow", "notifications/cancelled", "tasks/cancel late"]);
  await tasks.close();
});

test("once there is a handle only tasks/cancel is sent", async () => {
  const tasks = await spawned();
  const run = await tasks.start({ name: "task" });
  const result = run.result();
  await run.cancel();
  await expect(result).rejects.toMatchObject({ code: "CANCELLED" });
  expect(await logOf(tasks)).not.toContain("notifications/cancelled");
  await tasks.close();
});

test("a server that dies with a call unanswered is MAY_HAVE_STARTED", async () => {
  const tasks = await spawned();
  const { pid } = tasks.client.transport as StdioClientTransport;
  const result = tasks.callTool({ name: "silence" });
  result.catch(() => {});
  await vi.waitFor(async () => expect(await logOf(tasks)).toContain("tools/call silence"));
  process.kill(pid!, "SIGKILL");
  await expect(result).rejects.toMatchObject({ code: "MAY_HAVE_STARTED" });
});
