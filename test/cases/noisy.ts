import { spawnSync } from "node:child_process";
import { McpServer } from "@modelcontextprotocol/server";
import { createTasks, taskTool } from "mcp-tasks";
import { sqlite } from "mcp-tasks/sqlite";

/** A server over stdio whose handler prints wherever a handler may print by accident. */

const chatty = taskTool({
  name: "chatty",
  run() {
    console.log("a line of a log");
    console.info("%o", { debug: true });
    console.debug("debugging");
    console.dir({ directory: 1 });
    process.stdout.write("no newline");
    process.stdout.write('{"jsonrpc":"2.0"');
    const { stdout } = spawnSync("echo", ["of a child"], { encoding: "utf8" });
    console.log(stdout);
    return { content: [{ type: "text", text: "said" }] };
  },
});

const tasks = createTasks({ store: sqlite(":memory:"), tools: [chatty], reply: { grace: 0 } });
await tasks.work();
tasks.serveStdio(() => new McpServer({ name: "noisy", version: "1.0.0" }));
