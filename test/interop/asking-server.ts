import { parseArgs } from "node:util";
import { McpServer } from "@modelcontextprotocol/server";
import { createTasks, taskTool } from "mcp-tasks";
import { sqlite } from "mcp-tasks/sqlite";
import { z } from "zod";

/** A server whose tools ask for every kind of input: over stdio with `--stdio`, or as a module. */

const text = (said: string) => ({ content: [{ type: "text" as const, text: said }] });
const name = z.object({ name: z.string().min(2) });

export const tools = [
  taskTool({
    name: "form",
    async run(_args, task) {
      return text(`Hello, ${(await task.elicit("name", { message: "Who are you?", schema: name })).name}!`);
    },
  }),
  taskTool({
    name: "page",
    async run(_args, task) {
      await task.elicit("page", { message: "Pay here", url: "https://example.com/pay" });
      return text("paid");
    },
  }),
  taskTool({
    name: "model",
    async run(_args, task) {
      const messages = [{ role: "user" as const, content: { type: "text" as const, text: "Say something" } }];
      const { content } = await task.sample("model", { messages, maxTokens: 10 });
      return text(JSON.stringify(content));
    },
  }),
  taskTool({
    name: "roots",
    async run(_args, task) {
      return text((await task.roots("roots")).map(({ uri }) => uri).join());
    },
  }),
  taskTool({
    name: "first",
    before: { who: { message: "Who are you?", schema: name } },
    run: (_args, { answers }) => text(`Hello, ${name.parse(answers.who).name}!`),
  }),
  taskTool({
    name: "must",
    task: { support: "required" },
    run: () => ({ ...text("no such file"), isError: true }),
  }),
  taskTool({
    name: "slow",
    run: (_args, { signal }) =>
      new Promise((_resolve, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason as Error));
      }),
  }),
  taskTool({
    name: "structured",
    outputSchema: z.object({ n: z.number() }),
    run: () => ({ ...text("1"), structuredContent: { n: 1 } }),
  }),
];

export const factory = () => new McpServer({ name: "asking-server", version: "1.0.0" });

export async function openTasks() {
  const store = sqlite(":memory:");
  const tasks = createTasks({ store, tools, pollInterval: 50, owner: ({ clientId }) => clientId });
  await tasks.work();
  return { store, tasks };
}

if (parseArgs({ strict: false }).values.stdio === true) {
  const { store, tasks } = await openTasks();
  await tasks.serveStdio(factory).closed;
  await tasks.close();
  await store[Symbol.asyncDispose]();
}
