import process from "node:process";
import { createTasks, taskTool } from "mcp-tasks";
import { sqlite } from "mcp-tasks/sqlite";

/** A worker whose handlers leave a promise behind that nobody handles, which ends a process of Node. */

const said = { content: [{ type: "text" as const, text: "said" }] };

export const careless = taskTool({
  name: "careless",
  run() {
    void Promise.reject(new Error("nobody handles this"));
    return said;
  },
});

export const careful = taskTool({ name: "careful", run: () => said });

if (import.meta.main) {
  const tasks = createTasks({ store: sqlite(process.argv[2] ?? ""), tools: [careless, careful] });
  await tasks.work({ concurrency: 1 });
  process.stdout.write("ready\n");
  // An idle worker holds no process; its end is up to whoever started it.
  process.stdin.resume();
}
