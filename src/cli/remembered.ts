import type { LoggedTask } from "../client/index.ts";
import { type Line, usage } from "./exit.ts";
import { findId, oneLine } from "./text.ts";

/** A task or a call that was started from here, as `--json` shows it. */
export interface Remembered {
  readonly taskId: string | null;
  /** Names the call here, with or without a task. */
  readonly call: string;
  /** As it was last heard of. `unknown`: the process that called died before the server gave a task. */
  readonly status: string;
  readonly tool: string | null;
  readonly startedAt: string;
  readonly server: string;
}

export function rememberedAs(entry: LoggedTask): Remembered {
  const { taskId, call, tool, state, startedAt, server } = entry;
  const status = isLost(entry) ? "unknown" : state;
  return { taskId, call, status, tool, startedAt: new Date(startedAt).toISOString(), server: server.address };
}

/** Whether nobody waits any more for the answer to this call. */
export const isLost = ({ taskId, heldElsewhere = false }: LoggedTask): boolean => taskId === null && !heldElsewhere;

/** Whether what became of a lost call can be had by making it again. One that was still asking has started nothing. */
export const isRepeatable = (entry: LoggedTask): boolean =>
  isLost(entry) && entry.state !== "asking" && entry.idempotencyKey !== undefined;

/** What it is called on the command line: by its task's id, and until there is one by its own. */
export const idOf = ({ taskId, call }: Pick<LoggedTask, "taskId" | "call">): string => taskId ?? call;

/** The entries that this text means: of one id, which may be on several servers. Throws for one that begins several ids. */
export function meant(text: string, entries: readonly LoggedTask[], line: Line): LoggedTask[] {
  const found = findId(text, entries.map(idOf));
  if (found === null) throw usage(`"${oneLine(text)}" is the beginning of several ids.`, line("ls"));
  return entries.filter((entry) => idOf(entry) === found);
}
