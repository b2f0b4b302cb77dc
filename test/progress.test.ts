import { Client } from "@modelcontextprotocol/client";
import { McpServer } from "@modelcontextprotocol/server";
import { expect, test } from "vitest";
import { z } from "zod";
import { TaskClient } from "../src/client/index.ts";
import { createTasks, taskTool } from "../src/index.ts";
import { sqlite } from "../src/store/sqlite/index.ts";
import { wire } from "./wire/client.ts";

test("the numbers that a handler reports reach whoever reads, listens or follows", async () => {
  const copy = taskTool({
    name: "copy",
    async run(_args, task) {
      await task.report("Copying", { progress: 2, total: 5 });
      await task.elicit("go", { message: "Go on?", schema: z.object({}) });
      return { content: [] };
    },
  });
  await using store = sqlite(":memory:");
  await using tasks = createTasks({ store, tools: [copy] });
  const { url } = await tasks.serve(() => new McpServer({ name: "s", version: "1" })).listen();
  await tasks.work();

  const raw = wire(url);
  const taskId = await raw.start("copy");
  await raw.until(taskId, "input_required");
  const { body } = await raw.get(taskId);
  const meta = { "io.github.mcp-tasks/progress": { progress: 2, total: 5 } };
  expect(body.result).toMatchObject({ statusMessage: "Copying", _meta: meta });

  const frames = await raw.listen([taskId]);
  for await (const { method, params } of frames) {
    if (method !== "notifications/tasks") continue;
    expect(params?._meta).toMatchObject({ ...meta, "io.modelcontextprotocol/subscriptionId": expect.anything() });
    break;
  }

  const client = await new TaskClient(
    new Client({ name: "c", version: "1" }, { capabilities: { elicitation: { form: {} } } }),
  ).connect(url);
  expect(await client.get(taskId)).toMatchObject({ progress: { progress: 2, total: 5 }, unhandledInput: ["go"] });
  await client.close();
});
