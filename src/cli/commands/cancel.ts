import type { Command } from "commander";
import { isTerminal } from "../../protocol/status.ts";
import type { Run } from "../context.ts";
import { exits } from "../exit.ts";
import { openSource } from "../open.ts";
import { type CommonOptions, examples, withTarget } from "../options.ts";
import { documentOf } from "../output.ts";
import { oneLine } from "../text.ts";
import { printOutcome } from "./get.ts";

interface CancelOptions extends CommonOptions {
  readonly wait?: boolean;
}

/** `mcp-tasks cancel ID`. */
export function addCancel(program: Command, run: Run): void {
  const command = program
    .command("cancel <id>")
    .description("Ask the server to stop a task, which may take a while or come too late")
    .option("--wait", "wait until the task has ended");
  examples(withTarget(command, { remote: true, db: true }), [
    "mcp-tasks cancel 3fa9c1d2 --url http://127.0.0.1:3000/mcp",
    "mcp-tasks cancel 3fa9c1d2 --wait --db tasks.db",
  ]);
  command.action((text: string, options: CancelOptions) =>
    run(options, async (context) => {
      await using source = await openSource(context);
      const task = await source.cancel(await source.identify(text), options.wait === true);
      context.out.document(documentOf(task));
      context.out.print(`${oneLine(task.taskId)}  ${task.status}`);
      printOutcome(context.out, task);
      if (!isTerminal(task.status))
        context.out.say(`Asked. To see how it ends: ${context.line("result", task.taskId)}`);
      return exits.done;
    }),
  );
}
