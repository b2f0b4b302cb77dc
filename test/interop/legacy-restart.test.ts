import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CallToolResultSchema, ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { expect, test } from "vitest";
import { startFixture } from "../fixture/start.ts";

/** The SDK's client of the v1 line, and a server that is killed and started again under it. */

const related = "io.modelcontextprotocol/related-task";

async function connect(url: string): Promise<{ client: Client; asked: string[] }> {
  const client = new Client({ name: "host", version: "1" }, { capabilities: { elicitation: {} } });
  const asked: string[] = [];
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
    asked.push(params.message);
    return { action: "accept", content: { value: String(asked.length) } };
  });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  await client.listTools();
  return { client, asked };
}

test.each([
  ["journal", { tag: "a" }, "journaled a", []],
  ["ask_twice", {}, "first=1 second=2", ["The first value?", "The second value?"]],
])("a server killed between the call of %s and its result loses nothing", async (name, args, text, questions) => {
  const folder = mkdtempSync(join(tmpdir(), "legacy-"));
  const flags = ["--db", join(folder, "tasks.db"), "--poll", "50", "--lease", "500"];
  await using first = await startFixture(flags);
  const { client, asked } = await connect(first.url);
  const stream = client.experimental.tasks.callToolStream({ name, arguments: args }, CallToolResultSchema);
  const created = await stream.next();
  if (created.value?.type !== "taskCreated") throw new Error(`No task: ${JSON.stringify(created.value)}`);
  const { taskId } = created.value.task;
  await first.stop("SIGKILL");
  await using _second = await startFixture([...flags, "--port", new URL(first.url).port]);
  const messages = await Array.fromAsync(stream);
  expect(messages.at(-1)).toMatchObject({
    type: "result",
    result: { content: [{ type: "text", text }], _meta: { [related]: { taskId } } },
  });
  expect(asked).toEqual(questions);
  await client.close();
  rmSync(folder, { recursive: true });
});
