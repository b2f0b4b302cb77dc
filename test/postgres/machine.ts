import { createInterface } from "node:readline";
import { McpServer } from "@modelcontextprotocol/server";
import { createTasks, taskTool, type TaskError } from "mcp-tasks";
import { postgres } from "mcp-tasks/postgres";
import { witness } from "../chaos/witness.ts";

/**
 * `node machine.ts front URL`: a front end over stdio. `node machine.ts worker URL NAME`: a worker that prints a line of
 * JSON for each thing it does, and whose steps each take until it reads their task's id.
 */

const [, , role = "", url = "", name = ""] = process.argv;
const leaseMs = 1_000;

const say = (line: readonly unknown[]) => void process.stdout.write(`${JSON.stringify(line)}\n`);
const input = role === "worker" ? createInterface(process.stdin) : null;

const held = taskTool({
  name: "held",
  description: "Works until it is told that it is done, and says who worked",
  async run(_args, { id, step, signal }) {
    signal.addEventListener("abort", () => say(["aborted", id, (signal.reason as TaskError).code]));
    // What somebody may have to be stopped from: this step heeds no signal.
    const text = await step("work", async () => {
      say(["working", id]);
      await new Promise<void>((resolve) => input!.on("line", (line) => line === id && resolve()));
      return name;
    });
    return { content: [{ type: "text", text }] };
  },
});

const store = postgres(url);
const tasks = createTasks({ store: role === "worker" ? witness(store, say) : store, tools: [held] });

if (role === "worker") {
  // Whoever started us is gone.
  input!.once("close", () => process.exit(0));
  await tasks.work({ lease: leaseMs });
  await store.nextDue();
  say(["ready"]);
} else {
  const { closed } = tasks.serveStdio(() => new McpServer({ name: "machine", version: "1.0.0" }));
  await closed;
  await tasks.close();
  await store[Symbol.asyncDispose]();
}
