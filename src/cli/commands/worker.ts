import path from "node:path";
import { pathToFileURL } from "node:url";
import type { Command } from "commander";
import type { Duration } from "../../clock.ts";
import { createTasks, type WorkOptions } from "../../tasks.ts";
import type { TaskTool } from "../../tool.ts";
import type { Run } from "../context.ts";
import { CliError, exits, usage } from "../exit.ts";
import { type CommonOptions, count, duration, examples, repeated, withTarget } from "../options.ts";
import { openStore } from "../store.ts";

interface WorkerOptions extends CommonOptions {
  readonly tools: string;
  readonly concurrency?: number;
  readonly ownerConcurrency?: number;
  readonly queue?: readonly string[];
  readonly drain?: Duration;
}

/** `mcp-tasks worker`. */
export function addWorker(program: Command, run: Run): void {
  const command = program
    .command("worker")
    .description("Run the tools of a module on a server's own database, until a signal ends it")
    .requiredOption("--tools <module>", "a module that exports tools of taskTool(), by themselves or in lists")
    .option("--concurrency <number>", "handlers that run at once (default: 10)", count)
    .option("--owner-concurrency <number>", "tasks of one owner that run at once over all workers", count)
    .addOption(repeated("--queue <name>", 'a queue to take tasks from; may be repeated (default: "default")'))
    .option("--drain <time>", "how long handlers may go on after the signal (default: 5s)", duration);
  examples(withTarget(command, { db: true }), [
    "mcp-tasks worker --tools ./tools.ts --db tasks.db",
    "mcp-tasks worker --tools ./dist/tools.js --concurrency 4 --db postgres://db.internal/app",
    "mcp-tasks worker --tools ./dist/tools.js --queue gpu --drain 25s --db postgres://db.internal/app",
  ]);
  command.action((options: WorkerOptions) =>
    run(options, async (context) => {
      const { out, interrupts } = context;
      if (options.db === undefined)
        throw usage("Give the database by --db.", context.line("worker", "--tools", "FILE", "--db", "FILE"));
      const tools = await toolsOf(options.tools);
      await using store = await openStore(options, false);
      await using tasks = createTasks({
        store,
        tools,
        onError: ({ code, message }) => out.say(`${new Date().toISOString()} ${code}: ${message}`),
      });
      const stop = Promise.withResolvers<void>();
      process.once("SIGTERM", () => stop.resolve());
      interrupts.take(() => stop.resolve());
      await tasks.work(workOptions(options));
      out.say(`Working on ${tools.map(({ name }) => name).join(", ")}. Ctrl-C or SIGTERM ends it.`);
      await stop.promise;
      out.say("Ending: running handlers may finish or are handed back.");
      return exits.done;
    }),
  );
}

/** What was said of how to work; the rest is the library's to choose. */
function workOptions({ concurrency, ownerConcurrency, queue, drain }: WorkerOptions): WorkOptions {
  return {
    ...(concurrency === undefined ? {} : { concurrency }),
    ...(ownerConcurrency === undefined ? {} : { ownerConcurrency }),
    ...(queue === undefined ? {} : { queues: queue }),
    ...(drain === undefined ? {} : { drain }),
  };
}

/** The tools that a module exports. */
async function toolsOf(file: string): Promise<TaskTool[]> {
  let exported: Record<string, unknown>;
  try {
    exported = (await import(pathToFileURL(path.resolve(file)).href)) as Record<string, unknown>;
  } catch (cause) {
    const message = cause instanceof Error ? cause.message : "";
    throw new CliError(exits.usage, "USAGE", `--tools: the module can't be loaded. ${message}`, { cause });
  }
  const tools = [...new Set(Object.values(exported).flat())].filter(isTool);
  if (tools.length === 0) throw usage("--tools: the module exports no tool of taskTool().");
  return tools;
}

function isTool(value: unknown): value is TaskTool {
  const { name, run, attempts, keepMs } = (value ?? {}) as Partial<TaskTool>;
  return typeof name === "string" && typeof run === "function" && attempts !== undefined && keepMs !== undefined;
}
