import type { Command } from "commander";
import type { LoggedTask } from "../../client/index.ts";
import type { Context, Run } from "../context.ts";
import { CliError, exits, usage } from "../exit.ts";
import { type CommonOptions, examples, withTarget } from "../options.ts";
import { idOf, isLost, isRepeatable, meant, rememberedAs } from "../remembered.ts";
import { openLog, startedFrom } from "../state.ts";
import { namedAddress } from "../target.ts";
import { oneLine } from "../text.ts";

interface ForgetOptions extends CommonOptions {
  readonly lost?: boolean;
  readonly force?: boolean;
}

/** `mcp-tasks forget ID…`. */
export function addForget(program: Command, run: Run): void {
  const command = program
    .command("forget [id...]")
    .description("Take tasks, or calls that got no answer, out of ls, whatever their state; no server is told")
    .option(
      "--lost",
      "all calls without an answer that no process waits for, but for those that --repeat can still have",
    )
    .option("--force", "with an id: although another process seems to wait for it");
  examples(withTarget(command, { remote: true }), [
    "mcp-tasks forget 3fa9c1d2 77b0e4aa",
    "mcp-tasks forget --lost",
    "mcp-tasks forget --lost --url http://127.0.0.1:3000/mcp",
  ]);
  command.action((texts: string[], options: ForgetOptions) =>
    run(options, async (context) => {
      const { out } = context;
      if (texts.length > 0 === (options.lost === true)) throw usage("Give ids, or --lost.");
      if (options.force === true && options.lost === true) throw usage("--force goes with ids.");
      const log = await openLog(options.state);
      const entries = await startedFrom(options.state, namedAddress(options), ({ message }) => out.say(message));
      const going = options.lost === true ? entries.filter(isGone) : named(context, texts, entries, options);
      const left = options.lost === true ? entries.filter(isRepeatable) : [];
      await Promise.all(going.map(({ call }) => log.remove(call)));
      out.document({ forgotten: going.map(rememberedAs), left: left.map(rememberedAs) });
      say(context, going, left);
      return exits.done;
    }),
  );
}

/** Whether nothing is left by which anybody could come to a task: nobody waits, and the call can't be made again. */
const isGone = (entry: LoggedTask) => isLost(entry) && !isRepeatable(entry);

function named(
  { line }: Context,
  texts: readonly string[],
  entries: readonly LoggedTask[],
  { force = false }: ForgetOptions,
): LoggedTask[] {
  const all = texts.flatMap((text) => {
    const found = meant(text, entries, line);
    if (found.length === 0) {
      const message = `Nothing with the id "${oneLine(text)}" is remembered here.`;
      throw new CliError(exits.unknownTask, "NOT_REMEMBERED", message, { next: line("ls") });
    }
    if (new Set(found.map(({ server }) => server.address)).size > 1)
      throw usage(`"${oneLine(text)}" is on several servers. Name one by --url, --stdio or --server.`, line("ls"));
    return found;
  });
  if (!force && all.some(({ heldElsewhere }) => heldElsewhere === true)) {
    const message = "Another process seems to wait for it.";
    throw new CliError(exits.usage, "HELD", message, { next: line("forget", ...texts, "--force") });
  }
  return [...new Set(all)];
}

/** Each of them whole: the id may be all that it takes to come back. */
function say({ out }: Context, going: readonly LoggedTask[], left: readonly LoggedTask[]): void {
  for (const { taskId, call, status, tool, server } of going.map(rememberedAs))
    out.print([idOf({ taskId, call }), status, tool ?? "-", server].map(oneLine).join("  "));
  if (going.length === 0) out.say("Nothing to forget.");
  if (going.some(({ taskId }) => taskId !== null))
    out.say("No server was told. While it has the task, the whole id still finds it.");
  if (left.length > 0) out.say("Left, since it can be had by calling it again with --repeat:");
  for (const entry of left) out.say(`  ${oneLine(idOf(entry))}  ${oneLine(entry.tool ?? "-")}`);
}
