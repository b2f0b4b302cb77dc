import type { Command } from "commander";
import type { Client } from "@modelcontextprotocol/client";
import type { Duration } from "../../clock.ts";
import type { Run } from "../context.ts";
import type { FollowOptions } from "../../client/index.ts";
import { CliError, exits, usage } from "../exit.ts";
import { askedInVain, askedTooEarly, follow, leftEarly } from "../follow.ts";
import { valueOf } from "../form.ts";
import { type CommonOptions, argumentsFrom, duration, examples, pairs, repeated, withTarget } from "../options.ts";
import { resultText } from "../output.ts";
import { openRemote } from "../remote.ts";
import { startCall } from "../repeat.ts";

interface CallOptions extends CommonOptions {
  readonly arg?: readonly string[];
  readonly argsJson?: string;
  readonly detach?: boolean;
  readonly repeat?: string;
  readonly wait?: Duration;
}

/** `mcp-tasks call TOOL`. */
export function addCall(program: Command, run: Run): void {
  const command = program
    .command("call <tool>")
    .description("Call a tool and wait for its result, however long that takes")
    .addOption(repeated("--arg <name=value>", "an argument; its type is the tool's own; may be repeated"))
    .option("--args-json <json>", "all arguments as JSON, as @FILE, or - for standard input")
    .option("--detach", "print the task's id and leave")
    .option("--repeat <id>", "the call again whose answer was lost: by its key the server starts nothing twice")
    .option("--wait <time>", "wait at most so long; the task goes on", duration);
  examples(withTarget(command, { remote: true }), [
    "mcp-tasks call deploy --arg ref=v2 --url http://127.0.0.1:3000/mcp",
    "mcp-tasks call deploy --args-json @deploy.json --detach --server deployer",
    'echo \'{"ref":"v2"}\' | mcp-tasks call deploy --args-json - --wait 5m --json --stdio node server.js',
  ]);
  command.action((tool: string, options: CallOptions) =>
    run(options, async (context) => {
      const { out, line } = context;
      if (options.arg !== undefined && options.argsJson !== undefined) throw usage("Give --arg or --args-json.");
      const given = pairs(options.arg ?? []);
      const whole = options.argsJson === undefined ? undefined : argumentsFrom(options.argsJson);
      const startedAt = Date.now();
      await using remote = await openRemote(context, {
        listen: options.detach !== true,
        asks: true,
        wait: options.wait,
      });
      const args = whole ?? (given.length === 0 ? {} : await typedArguments(remote.tasks.client, tool, given));
      const call = { name: tool, arguments: args };
      if (options.detach !== true) {
        const begin = (how: FollowOptions) => startCall(context, remote, call, options.repeat, how);
        const job = { label: tool, startedAt, begin };
        return await follow(context, remote, job, { wait: options.wait, stopsAtInput: true });
      }
      const limit = options.wait === undefined ? {} : { deadline: options.wait };
      const left = Promise.withResolvers<never>();
      const giveBack = context.interrupts.take(() => left.reject(leftEarly(context)));
      void remote.unanswered.then(() => left.reject(askedInVain(context)));
      const begun = await Promise.race([startCall(context, remote, call, options.repeat, limit), left.promise])
        .catch((thrown: unknown) => {
          throw askedTooEarly(thrown, context, tool) ?? thrown;
        })
        .finally(giveBack);
      const { taskId } = begun;
      if (taskId === undefined) {
        const result = await begun.result();
        out.document({ status: "completed", result });
        out.print(resultText(result));
        if (result.isError !== true) return exits.done;
        throw new CliError(exits.toolError, "TOOL_ERROR", "The tool reported an error.", { next: line("tools") });
      }
      begun.detach();
      out.document({ taskId, status: "working" });
      out.print(taskId);
      out.say(`To come back to it: ${line("result", taskId)}`);
      return exits.done;
    }),
  );
}

type Json = Readonly<Record<string, unknown>>;

/** Arguments as the tool's schema wants them. What it says nothing about is JSON if it reads as that, and else text. */
async function typedArguments(client: Client, tool: string, given: readonly [string, string][]): Promise<Json> {
  const { tools } = await client.listTools();
  const schema = tools.find(({ name }) => name === tool)?.inputSchema.properties as Record<string, Json> | undefined;
  return Object.fromEntries(given.map(([name, text]) => [name, argument(schema?.[name], text)]));
}

function argument(field: Json | undefined, text: string): unknown {
  if (["string", "number", "integer", "boolean"].includes(String(field?.type)))
    return valueOf({ type: field?.type }, text);
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}
