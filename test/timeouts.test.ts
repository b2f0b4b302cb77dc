import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { McpServer } from "@modelcontextprotocol/server";
import { afterAll, expect, test } from "vitest";
import { z } from "zod";
import { createTasks, TaskError, taskTool } from "../src/index.ts";
import { manualClock, type ManualClock } from "../src/testing.ts";
import { sqlite } from "../src/store/sqlite/index.ts";
import { wire } from "./wire/client.ts";

const day = 86_400_000;
const folder = mkdtempSync(join(tmpdir(), "mcp-tasks-timeouts-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** Asks two people; who doesn't answer within a day isn't waited for. */
const release = taskTool({
  name: "release",
  async run(_args, task) {
    const ask = async (key: string) => {
      try {
        await task.approve(key, `${key}, may it be released?`, { timeout: "1d" });
        return `${key}: yes`;
      } catch (error) {
        if (!(error instanceof TaskError) || error.code !== "WAIT_TIMED_OUT") throw error;
        return `${key}: no answer`;
      }
    };
    const said = await Promise.all([ask("ann"), ask("bob")]);
    const { note } = await task.elicit("note", { message: "A note?", schema: z.object({ note: z.string() }) });
    return { content: [{ type: "text", text: [...said, note].join(", ") }] };
  },
});

/** A replica over HTTP, and a client of it. */
async function replica(file: string, clock: ManualClock) {
  const store = sqlite(file, { clock });
  const tasks = createTasks({ store, tools: [release], clock, reply: { grace: 0 } });
  // The clock stands still, and so would the limit's.
  const { url } = await tasks.serve(() => new McpServer({ name: "s", version: "1" }), { pollLimit: null }).listen();
  return {
    client: wire(url),
    work: () => tasks.work(),
    async [Symbol.asyncDispose]() {
      await tasks.close();
      await store[Symbol.asyncDispose]();
    },
  };
}

const accept = (content: object = {}) => ({ action: "accept", content });

test("a client sees a question go when its time is over, over a restart, and the task come to its end", async () => {
  const clock = manualClock();
  const file = join(folder, "restart.db");
  let taskId = "";
  {
    await using before = await replica(file, clock);
    await before.work();
    taskId = await before.client.start("release");
    const asked = await before.client.until(taskId, "input_required");
    expect(Object.keys(asked.inputRequests ?? {})).toEqual(["ann", "bob"]);
    expect((await before.client.update(taskId, { ann: accept() })).body.error).toBeUndefined();
  }
  clock.advance(day - 1);
  await using after = await replica(file, clock);
  expect((await after.client.get(taskId)).body.result).toMatchObject({
    status: "input_required",
    inputRequests: { bob: {} },
  });
  clock.advance(1);
  // No worker runs yet: the question goes all the same.
  const gone = await after.client.until(taskId, "working");
  expect(gone.inputRequests).toBeUndefined();
  await after.work();
  const noted = await after.client.until(taskId, "input_required");
  expect(Object.keys(noted.inputRequests ?? {})).toEqual(["note"]);
  const late = await after.client.update(taskId, { bob: accept(), note: accept({ note: "shipped" }) });
  expect(late.body.error).toBeUndefined();
  const done = await after.client.until(taskId, "completed");
  expect(done.result?.content).toEqual([{ type: "text", text: "ann: yes, bob: no answer, shipped" }]);
});
