import { McpServer } from "@modelcontextprotocol/server";
import { createTasks, TaskError, taskTool, type Tasks } from "mcp-tasks";
import { sqlite } from "mcp-tasks/sqlite";
import { z } from "zod";

// Only type-checked: that the declarations say what the README does, with nothing of this repository at hand.
export const deploy = taskTool({
  name: "deploy",
  inputSchema: z.object({ ref: z.string() }),
  outputSchema: z.object({ url: z.string() }),
  task: { support: "optional", timeout: "2h", keep: "1d", attempts: 5 },
  async run({ ref }, task) {
    const image: string = await task.step("build", () => `image of ${ref}`, { retry: { attempts: 3 } });
    await task.approve("release", `Release ${image}?`);
    const { replicas } = await task.elicit("size", {
      message: "How many?",
      schema: z.object({ replicas: z.int().min(1) }),
    });
    const count: number = replicas;
    // @ts-expect-error: the arguments have the types of the schema
    const wrong: number = ref;
    return { content: [{ type: "text", text: `${image} ${count} ${wrong}` }], structuredContent: { url: image } };
  },
});

export async function main(): Promise<void> {
  await using store = sqlite(":memory:");
  await using tasks: Tasks = createTasks({ store, tools: [deploy] });
  const handler = tasks.serve(() => new McpServer({ name: "deployer", version: "1.0.0" }));
  await tasks.work();
  const response: Response = await handler.fetch(new Request("http://127.0.0.1/mcp", { method: "POST" }));
  if (!response.ok) throw new TaskError("INTERNAL");
}
