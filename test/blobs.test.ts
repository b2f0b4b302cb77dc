import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { McpServer } from "@modelcontextprotocol/server";
import { expect, test } from "vitest";
import { createTasks, taskTool } from "../src/index.ts";
import { manualClock } from "../src/testing.ts";
import { sqlite } from "../src/store/sqlite/index.ts";
import { z } from "zod";
import { wire } from "./wire/client.ts";

const large = "x".repeat(5_000);

test("a large result is linked to and can be read by its owner alone, a large step is recalled, both go with the task", async () => {
  const folder = await mkdtemp(path.join(tmpdir(), "blobs-"));
  const clock = manualClock(Date.now());
  const store = sqlite(":memory:", { clock });
  const bulky = taskTool({
    name: "bulky",
    task: { keep: "1h" },
    async run(_args, task) {
      const made = await task.step("make", () => large);
      await task.elicit("go", { message: "Go?", schema: z.object({}) });
      return { content: [{ type: "text", text: made }] };
    },
  });
  const verifier = { alice: "A", bob: "B" };
  const authenticate = (request: Request) => {
    const token = request.headers.get("authorization")?.slice("Bearer ".length) ?? "";
    const [clientId] = Object.entries(verifier).find(([, value]) => value === token) ?? ["nobody"];
    return { token, clientId, scopes: [] };
  };
  const tasks = createTasks({ store, tools: [bulky], blobs: folder, clock, owner: ({ clientId }) => clientId });
  try {
    const served = tasks.serve(() => new McpServer({ name: "s", version: "1" }), { authenticate });
    const { url } = await served.listen();
    await tasks.work({ maxResultBytes: 1_000, maxStepBytes: 1_000 });
    const alice = wire(url, { token: "A" });
    const taskId = await alice.start("bulky");
    await alice.until(taskId, "input_required");
    await alice.update(taskId, { go: { action: "accept", content: {} } });
    const [link] = (await alice.until(taskId, "completed")).result?.content ?? [];
    const uri = `task-result://${taskId}`;
    expect(link).toMatchObject({ type: "resource_link", uri });
    const read = await alice.request("resources/read", { uri });
    const { contents } = read.body.result as unknown as { contents: [{ text: string }] };
    const [{ text }] = contents;
    expect(JSON.parse(text)).toEqual({ resultType: "complete", content: [{ type: "text", text: large }] });
    expect(link).toMatchObject({ size: Buffer.byteLength(text) });

    const foreign = await wire(url, { token: "B" }).request("resources/read", { uri });
    expect(foreign.body.error).toMatchObject({ code: -32602, message: expect.stringContaining("No task has this id") });

    expect(await readdir(folder)).toHaveLength(2);
    clock.advance(3_600_000);
    await expect.poll(() => readdir(folder)).toEqual([]);
  } finally {
    await tasks.close();
    await store[Symbol.asyncDispose]();
    await rm(folder, { recursive: true });
  }
});
