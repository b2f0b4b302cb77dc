import { digestOf } from "../protocol/digest.ts";
import type { Reuse } from "../store/store.ts";
import type { TaskTool } from "../tool.ts";
import type { Caller } from "./methods.ts";

/** What of a call tells whether it was made before. */
export interface Repeatable extends Caller {
  readonly tool: TaskTool;
  readonly args: unknown;
  /** The key that the client gave the call, to make it again without starting it again. */
  readonly idempotencyKey: string | undefined;
  /** Tells this sender from the others of their owner, or null for one that can't be told from a stranger. */
  readonly sender: string | null;
}

/**
 * By what a call is known when it is made again, or null where each call is a new one. A client that gives a key says so
 * itself. One that knows neither keys nor tasks can't look after a call whose answer it lost: while the task runs, the
 * same call of the same sender is taken for another try.
 */
export function reuseOf({ tool, args, client, idempotencyKey, sender }: Repeatable, answers: object): Reuse | null {
  const explicit = idempotencyKey !== undefined;
  if (!explicit && (client.tasks || !tool.reuse || sender === null)) return null;
  const call = digestOf([tool.name, args ?? {}, answers]);
  return explicit
    ? { key: digestOf(["key", idempotencyKey]), call, scope: "kept" }
    : { key: digestOf(["call", sender, tool.version, call]), call, scope: "unfinished" };
}
