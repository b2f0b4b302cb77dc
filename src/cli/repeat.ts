import type { FollowOptions, LoggedTask, TaskRun, ToolCall } from "../client/index.ts";
import { TaskError, idempotencyKey } from "../client/index.ts";
import { digestOf } from "../protocol/digest.ts";
import { heedsKeys } from "../protocol/idempotency.ts";
import type { Context } from "./context.ts";
import { CliError, asCliError, exits, usage } from "./exit.ts";
import { isLost, isRepeatable, meant, repeatLine, withoutTask } from "./remembered.ts";
import type { Remote } from "./remote.ts";
import { oneLine } from "./text.ts";

/** The call whose answer was lost, which `text` means and which `call` is again. Throws where it can't be repeated. */
async function lostCall({ line }: Context, remote: Remote, call: ToolCall, text: string): Promise<LoggedTask> {
  const [entry] = meant(text, await remote.known(), line);
  if (entry === undefined) {
    const message = `No call with the id "${oneLine(text)}" is remembered of this server.`;
    throw new CliError(exits.unknownTask, "NOT_REMEMBERED", message, { next: line("ls") });
  }
  if (entry.taskId !== null) throw usage("This call has become a task.", line("result", entry.taskId));
  if (entry.tool !== call.name || entry.digest !== digestOf(call.arguments))
    throw usage("It can only be repeated as it was: this is another tool, or other arguments.", line("ls"));
  const { client } = remote.tasks;
  // Another one may answer at this address by now.
  if (entry.server.name !== (client.getServerVersion()?.name ?? "")) throw new TaskError("OTHER_SERVER");
  const heeded =
    client.getProtocolEra() === "modern" && heedsKeys(client.getServerCapabilities()?.extensions, call.name);
  if (!isRepeatable(entry) || !heeded) throw withoutTask(entry, line, false);
  return entry;
}

/**
 * Calls a tool, or with `repeated` calls it again with the key of that call. A call without an answer stays in the log,
 * and where it was called again without one, under the id that it had.
 */
export async function startCall(
  context: Context,
  remote: Remote,
  call: ToolCall,
  repeated: string | undefined,
  how: FollowOptions,
): Promise<TaskRun> {
  const before = repeated === undefined ? undefined : await lostCall(context, remote, call, repeated);
  const key = before?.idempotencyKey;
  try {
    const sent = key === undefined ? call : { ...call, _meta: { [idempotencyKey]: key } };
    const run = await remote.tasks.start(sent, { ...how, keep: true });
    if (key !== undefined) await dropCalls(remote, await callsOf(remote, key));
    return run;
  } catch (thrown) {
    if (!(thrown instanceof TaskError)) throw thrown;
    const own = key ?? (thrown.data as { idempotencyKey?: string } | undefined)?.idempotencyKey;
    const calls = await callsOf(remote, own);
    if (before !== undefined) await dropCalls(remote, calls, before.call);
    if (thrown.code === "DEADLINE_PASSED" && before === undefined) throw notStarted(context, call, thrown);
    if (thrown.code !== "MAY_HAVE_STARTED" && thrown.code !== "DEADLINE_PASSED") throw thrown;
    throw unanswered(context, thrown, before ?? calls[0]);
  }
}

/** The calls with this key that have no task and that no other process waits for: those before, and the one just made. */
async function callsOf(remote: Remote, key: string | undefined): Promise<LoggedTask[]> {
  if (key === undefined) return [];
  const entries = await remote.known().catch(() => []);
  return entries.filter((entry) => entry.idempotencyKey === key && isLost(entry));
}

async function dropCalls(remote: Remote, calls: readonly LoggedTask[], except?: string): Promise<void> {
  await Promise.all(calls.filter(({ call }) => call !== except).map(({ call }) => remote.dropCall(call)));
}

/** The time to wait is over, and no tool has begun to run: the call has not come through, or was asked something first. */
function notStarted({ line }: Context, { name }: ToolCall, cause: TaskError): CliError {
  const message = "The time to wait was over before the call could start. Nothing runs.";
  return new CliError(exits.timedOut, cause.code, message, { cause, next: line("call", name, "…") });
}

/** A call without an answer: it was lost, or the time to wait was over first. `entry` is what is left to repeat. */
function unanswered({ line }: Context, cause: TaskError, entry: LoggedTask | undefined): CliError {
  const isLate = [cause, cause.cause].some((one) => one instanceof TaskError && one.code === "DEADLINE_PASSED");
  if (!isLate && entry === undefined) return asCliError(cause, line);
  const how = { cause, next: entry === undefined ? line("ls") : repeatLine(entry, line) };
  if (!isLate) return new CliError(exits.unreachable, cause.code, cause.message, how);
  const way = entry === undefined ? "" : " The same call again, with --repeat, gives what became of it.";
  const message = `The time to wait is over, and the call has no answer yet: the tool may be running. It stays in ls.${way}`;
  return new CliError(exits.timedOut, "MAY_HAVE_STARTED", message, how);
}
