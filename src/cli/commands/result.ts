import { writeFile } from "node:fs/promises";
import type { CallToolResult } from "@modelcontextprotocol/client";
import type { Command } from "commander";
import type { Duration } from "../../clock.ts";
import type { Run } from "../context.ts";
import { usage } from "../exit.ts";
import { type Job, follow } from "../follow.ts";
import { type CommonOptions, duration, examples, withTarget } from "../options.ts";
import { resultBytes } from "../output.ts";
import { type Remote, openRemote } from "../remote.ts";

interface ResultOptions extends CommonOptions {
  readonly output?: string;
  readonly wait?: Duration;
}

/** A task of an earlier call, to be followed. */
export async function resumed(remote: Remote, taskId: string): Promise<Job> {
  const entry = (await remote.known()).find((one) => one.taskId === taskId);
  const label = entry?.tool ?? "task";
  return { label, taskId, startedAt: entry?.startedAt ?? Date.now(), begin: (how) => remote.tasks.resume(taskId, how) };
}

/** `mcp-tasks result ID`. */
export function addResult(program: Command, run: Run): void {
  const command = program
    .command("result <id>")
    .description("Wait for a task and print its result")
    .option("-o, --output <file>", "write the result to a file: text, or the bytes of a picture or sound")
    .option("--wait <time>", "wait at most so long; the task goes on", duration);
  examples(withTarget(command, { remote: true }), [
    "mcp-tasks result 3fa9c1d2 --url http://127.0.0.1:3000/mcp",
    "mcp-tasks result 3fa9c1d2 -o report.pdf --wait 10m --server deployer",
  ]);
  command.action((text: string, options: ResultOptions) =>
    run(options, async (context) => {
      const { output, wait } = options;
      await using remote = await openRemote(context, { listen: true, asks: true, wait });
      const id = await remote.identify(text);
      const deliver =
        output === undefined
          ? undefined
          : async (result: CallToolResult) => {
              await writeFile(output, resultBytes(result)).catch(() => {
                throw usage(`${output} can't be written.`, context.line("result", id, "-o", "FILE"));
              });
              context.out.say(`Written to ${output}.`);
            };
      return await follow(context, remote, await resumed(remote, id), { wait, deliver, stopsAtInput: true });
    }),
  );
}
