import type { LoggedTask } from "../client/index.ts";
import { CliError, type Line, exits, usage } from "./exit.ts";
import { findId, oneLine } from "./text.ts";

/** A task or a call that was started from here, as `--json` shows it. */
export interface Remembered {
  readonly taskId: string | null;
  /** Names the call here, with or without a task. */
  readonly call: string;
  /** With it the call can be made again to its server. */
  readonly idempotencyKey?: string;
  /** As it was last heard of. `unknown`: the process that called died before the server gave a task. */
  readonly status: string;
  readonly tool: string | null;
  readonly startedAt: string;
  readonly server: string;
}

export function rememberedAs(entry: LoggedTask): Remembered {
  const { taskId, call, tool, state, startedAt, server } = entry;
  const status = isLost(entry) ? "unknown" : state;
  const key = isRepeatable(entry) ? { idempotencyKey: entry.idempotencyKey } : {};
  return { taskId, call, ...key, status, tool, startedAt: new Date(startedAt).toISOString(), server: server.address };
}

/** Whether nobody waits any more for the answer to this call. */
export const isLost = ({ taskId, heldElsewhere = false }: LoggedTask): boolean => taskId === null && !heldElsewhere;

/** Whether what became of a lost call can be had by making it again. One that was still asking has started nothing. */
export const isRepeatable = (entry: LoggedTask): entry is LoggedTask & { readonly idempotencyKey: string } =>
  isLost(entry) && entry.state !== "asking" && entry.idempotencyKey !== undefined;

/** What it is called on the command line: by its task's id, and until there is one by its own. */
export const idOf = ({ taskId, call }: Pick<LoggedTask, "taskId" | "call">): string => taskId ?? call;

/** The entries that this text means: of one id, which may be on several servers. Throws for one that begins several ids. */
export function meant(text: string, entries: readonly LoggedTask[], line: Line): LoggedTask[] {
  const found = findId(text, entries.map(idOf));
  if (found === null) throw usage(`"${oneLine(text)}" is the beginning of several ids.`, line("ls"));
  return entries.filter((entry) => idOf(entry) === found);
}

/** What is known of a call that has no task: that it may have started, that it has not, or that its answer may yet come. */
export function withoutTask(entry: LoggedTask, line: Line, canRepeat = isRepeatable(entry)): CliError {
  const none = (message: string, next: string) => new CliError(exits.unknownTask, "NO_TASK", message, { next });
  const lost = (message: string, next: string) =>
    new CliError(exits.unreachable, "MAY_HAVE_STARTED", message, { next });
  if (entry.heldElsewhere === true) return none("Another process waits for the answer to this call.", line("ls"));
  if (entry.state === "asking")
    return none("This call was asked something before it starts, and ended there.", callLine(entry, line));
  const known = "The answer to this call was lost: the tool may have run, or be running.";
  return canRepeat
    ? lost(`${known} The server takes it again for the same call.`, repeatLine(entry, line))
    : lost(`${known} The server can't tell: look for the call's effect.`, line("forget", idOf(entry)));
}

/** A call's arguments are not remembered. */
const callLine = ({ tool }: LoggedTask, line: Line, ...words: string[]) =>
  line("call", oneLine(tool ?? "TOOL"), "…", ...words);

/** The command that makes a lost call again. */
export const repeatLine = (entry: LoggedTask, line: Line) => callLine(entry, line, "--repeat", idOf(entry));
