import type { Command } from "commander";
import type { InputRequest, InputRequests, InputResponse } from "../../protocol/input.ts";
import { createAsk, laterFor } from "../ask.ts";
import type { Context, Run } from "../context.ts";
import { CliError, exits, nothingAsked, usage } from "../exit.ts";
import { answerFrom } from "../form.ts";
import { openSource } from "../open.ts";
import { type CommonOptions, examples, pairs, repeated, withTarget } from "../options.ts";
import { documentOf } from "../output.ts";
import { answerLine, answerWords, questionLines } from "../questions.ts";
import { oneLine } from "../text.ts";
import { printOutcome, showTask } from "./get.ts";

interface AnswerOptions extends CommonOptions {
  readonly key?: string;
  readonly set?: readonly string[];
  readonly accept?: boolean;
  readonly decline?: boolean;
}

/** `mcp-tasks answer ID`. */
export function addAnswer(program: Command, run: Run): void {
  const command = program
    .command("answer <id>")
    .description("Answer what a task asks: on a terminal by its questions, elsewhere by --set, --accept or --decline")
    .option("--key <key>", "which question, where there are several")
    .addOption(
      repeated("--set <name=value>", "a field of the form; may be repeated; fields with a default may be left out"),
    )
    .option("--accept", "say yes, where no field needs a value")
    .option("--decline", "say no");
  examples(withTarget(command, { remote: true, db: true }), [
    "mcp-tasks answer 3fa9c1d2 --url http://127.0.0.1:3000/mcp",
    "mcp-tasks answer 3fa9c1d2 --key size --set replicas=3 --server deployer",
    "mcp-tasks answer 3fa9c1d2 --decline --db tasks.db",
  ]);
  command.action((text: string, options: AnswerOptions) =>
    run(options, async (context) => {
      const { set, accept = false, decline = false } = options;
      if ([set !== undefined, accept, decline].filter(Boolean).length > 1)
        throw usage("Give one of --set, --accept and --decline.");
      const given = pairs(set ?? []);
      await using source = await openSource(context);
      const id = await source.identify(text);
      let task = await source.read(id);
      if (task.status !== "input_required") {
        showTask(context, task);
        throw nothingAsked(id, context.line, `The task is ${task.status} and asks nothing.`);
      }
      const prepared = set !== undefined || accept || decline;
      const answerTo = async (request: InputRequest, key: string) => {
        if (!prepared) return await ask(context, id, request, key);
        return decline ? declined(request) : answerFrom(request, given);
      };
      if (Object.keys(task.inputRequests).length === 0) {
        if (!prepared && !context.out.canAsk) throw unseen(context, id);
        task = await source.answerNext(task, (request) => answerTo(request, ""), !prepared);
      } else {
        for (const [key, request] of chosen(task.inputRequests, options.key, prepared)) {
          const answer = await answerTo(request, key);
          if (answer !== undefined) task = await source.answer(id, key, answer);
        }
      }
      context.out.document(documentOf(task));
      context.out.print(`${oneLine(id)}  ${task.status}`);
      printOutcome(context.out, task);
      if (task.status === "input_required") context.out.say(answerLine(task, context));
      return exits.done;
    }),
  );
}

/** The questions to answer: all, or the one that is named; what was given on the command line fits only one. */
function chosen(requests: InputRequests, key: string | undefined, one: boolean): [string, InputRequest][] {
  const all = Object.entries(requests);
  const found = key === undefined ? all : all.filter(([name]) => name === key);
  const keys = all.map(([name]) => oneLine(name)).join(", ");
  if (found.length === 0) throw usage(`The task doesn't ask "${key ?? ""}". It asks: ${keys}.`);
  if (one && found.length > 1) throw usage(`Say by --key which question you answer: ${keys}.`);
  return found;
}

/** Nobody sees the question before it is answered, so nobody can be shown it. */
function unseen({ line }: Context, taskId: string): CliError {
  const message = "The server tells its question only to who answers it, and there is nobody to ask here.";
  return new CliError(exits.inputNeeded, "INPUT_NEEDED", message, {
    taskId,
    next: line("answer", taskId, "--decline"),
  });
}

function declined(request: InputRequest): InputResponse {
  if (request.method !== "elicitation/create") throw usage("The question is not one for a person.");
  return { action: "decline" };
}

async function ask(
  context: Context,
  id: string,
  request: InputRequest,
  key: string,
): Promise<InputResponse | undefined> {
  const { out, interrupts, line } = context;
  if (request.method !== "elicitation/create") throw usage("The question is not one for a person.");
  if (!out.canAsk) {
    for (const text of questionLines(key, request)) out.say(text);
    const next = line("answer", id, ...answerWords(key, request));
    throw new CliError(exits.inputNeeded, "INPUT_NEEDED", "There is nobody to ask here.", { taskId: id, next });
  }
  const signal = new AbortController().signal;
  const asked = await createAsk(out, interrupts)({ request, from: "The task", signal, later: laterFor(key) });
  if (asked === "ended") {
    const message = "Nobody answered: the question is still open.";
    throw new CliError(exits.inputNeeded, "INPUT_NEEDED", message, { taskId: id, next: line("answer", id) });
  }
  return asked === "open" ? undefined : asked;
}
