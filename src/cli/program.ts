import { Command, CommanderError } from "commander";
import { addAnswer } from "./commands/answer.ts";
import { addCall } from "./commands/call.ts";
import { addCancel } from "./commands/cancel.ts";
import { addCompletion } from "./commands/completion.ts";
import { addDoctor } from "./commands/doctor.ts";
import { addForget } from "./commands/forget.ts";
import { addGet } from "./commands/get.ts";
import { addLs } from "./commands/ls.ts";
import { addPurge } from "./commands/purge.ts";
import { addResult } from "./commands/result.ts";
import { addTools } from "./commands/tools.ts";
import { addWatch } from "./commands/watch.ts";
import { addWorker } from "./commands/worker.ts";
import type { Run } from "./context.ts";
import { CliError, type Exit, type Line, asCliError, exits } from "./exit.ts";
import { createInterrupts } from "./interrupts.ts";
import { examples, prepared } from "./options.ts";
import { createOutput, errorDocument, type Output } from "./output.ts";
import { targetWords } from "./target.ts";
import { shellWord } from "./text.ts";
import { version } from "./version.ts";

const words = process.argv.slice(2);
let out = createOutput(words.includes("--json"));
/** What the next command begins with. Whoever runs this by npx may have no `mcp-tasks` on the path. */
const self = process.env.npm_command === "exec" ? "npx mcp-tasks" : "mcp-tasks";
let line: Line = (...command) => [self, ...command.map(shellWord)].join(" ");

/** An end that is no success: a document where there was none, and the error. */
function fail(thrown: unknown, output: Output): Exit {
  const error = asCliError(thrown, line);
  const { code, exit, message, taskId } = error;
  const next = error.next ?? (exit === exits.usage ? `${self} ${words[0] ?? ""} --help` : undefined);
  if (output.documents === 0) output.document({ ...(taskId === undefined ? {} : { taskId }), ...errorDocument(error) });
  output.error(new CliError(exit, code, message, { taskId, next }));
  return exit;
}

/** Ends the process once all that was written has left it: an open socket or pipe must not hold it up. */
function end(exit: Exit): void {
  process.exitCode = exit;
  process.stdout.write("", () => process.stderr.write("", () => process.exit(exit)));
}

const interrupts = createInterrupts(() =>
  end(fail(new CliError(exits.interrupted, "INTERRUPTED", "Interrupted."), out)),
);
process.on("SIGINT", interrupts.fire);
process.stdout.on("error", ({ code }: NodeJS.ErrnoException) => {
  // Whoever read it has gone, and wants no more of it.
  if (code !== "EPIPE") process.stderr.write("mcp-tasks: Standard output can't be written.\n");
  process.exit(exits.unexpected);
});
process.stderr.on("error", () => {}); // the result counts, whether or not anybody heard of the way to it

const run: Run = async (options, body) => {
  const targets = targetWords(options);
  line = (...command) => [self, ...command.map(shellWord), ...targets].join(" ");
  out = createOutput(options.json === true);
  end(await body({ options, out, interrupts, line }).catch((thrown: unknown) => fail(thrown, out)));
};

const program = new Command("mcp-tasks")
  .description("Call tools that take long, over the Model Context Protocol, and look after their tasks")
  .version(version)
  .exitOverride()
  .configureOutput({ outputError: () => {} })
  .helpOption("-h, --help", "show help and examples")
  .helpCommand(false);
for (const add of [addCall, addWatch, addGet, addResult, addAnswer, addCancel, addLs, addForget, addTools, addDoctor])
  add(program, run);
for (const add of [addPurge, addWorker, addCompletion]) add(program, run);
examples(program, [
  "mcp-tasks tools --url http://127.0.0.1:3000/mcp",
  "mcp-tasks call deploy --arg ref=v2 --url http://127.0.0.1:3000/mcp",
  "mcp-tasks ls --db tasks.db",
]);

try {
  await program.parseAsync(prepared(words), { from: "user" });
} catch (thrown) {
  if (!(thrown instanceof CommanderError)) end(fail(thrown, out));
  else if (thrown.exitCode === 0) end(exits.done);
  else {
    const message = thrown.code === "commander.help" ? "Give a command." : thrown.message.replace(/^error: /, "");
    const known = program.commands.some((command) => command.name() === words[0]);
    const next = known ? `${self} ${words[0] ?? ""} --help` : `${self} --help`;
    end(fail(new CliError(exits.usage, "USAGE", message, { next }), out));
  }
}
