import { isCallToolResult } from "@modelcontextprotocol/client";
import type { Command } from "commander";
import type { DetailedTask } from "../../protocol/wire.ts";
import type { Context, Run } from "../context.ts";
import { exits } from "../exit.ts";
import { answerLine, questionLines } from "../questions.ts";
import { openSource } from "../open.ts";
import { type CommonOptions, examples, withTarget } from "../options.ts";
import { documentOf, type Output, resultText } from "../output.ts";
import { json, oneLine } from "../text.ts";

/** Shows a task as it is: its state, and what it has or asks. */
export function showTask(context: Context, task: DetailedTask): void {
  const { out } = context;
  out.document(documentOf(task));
  const { taskId, status, statusMessage = "", createdAt, lastUpdatedAt, ttlMs } = task;
  out.print(`${oneLine(taskId)}  ${status}  ${oneLine(statusMessage)}`.trimEnd());
  out.print(`  created ${oneLine(createdAt)}, changed ${oneLine(lastUpdatedAt)}`);
  if (ttlMs !== null) out.print(`  kept until ${oneLine(new Date(Date.parse(createdAt) + ttlMs).toISOString())}`);
  printOutcome(out, task);
  if (task.status !== "input_required") return;
  for (const [key, request] of Object.entries(task.inputRequests)) out.print(questionLines(key, request).join("\n"));
  out.say(answerLine(task, context));
}

/** What a finished task came to, for people: whoever is shown it needn't come back. */
export function printOutcome(out: Output, task: DetailedTask): void {
  if (task.status === "completed")
    out.print(isCallToolResult(task.result) ? resultText(task.result) : json(task.result, 2));
  if (task.status === "failed") out.print(`  error ${task.error.code}: ${oneLine(task.error.message)}`);
}

/** `mcp-tasks get ID`. */
export function addGet(program: Command, run: Run): void {
  const command = program.command("get <id>").description("Show a task as it is now");
  examples(withTarget(command, { remote: true, db: true }), [
    "mcp-tasks get 3fa9c1d2 --url http://127.0.0.1:3000/mcp",
    "mcp-tasks get 3fa9c1d2 --json --db tasks.db",
  ]);
  command.action((text: string, options: CommonOptions) =>
    run(options, async (context) => {
      await using source = await openSource(context);
      showTask(context, await source.read(await source.identify(text)));
      return exits.done;
    }),
  );
}
