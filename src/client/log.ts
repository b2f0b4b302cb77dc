import type { TaskError } from "../errors.ts";
import type { InputResponse } from "../protocol/input.ts";
import type { TaskStatus } from "../protocol/status.ts";
import type { ServerIdentity } from "./transport.ts";

/** What a log holds of one call: that it was sent, and then of its task. */
export interface LoggedTask {
  /** Names this call in the log. Made before the call is sent. */
  readonly call: string;
  readonly server: ServerIdentity;
  /** The tool that was called; null for a task that was resumed by its id alone. */
  readonly tool: string | null;
  /** SHA-256 of the arguments, in hexadecimal; null as above. */
  readonly digest: string | null;
  /** The key that was sent with the call, to a server that heeds it: with it the call can be made again. */
  readonly idempotencyKey?: string;
  /** Milliseconds since the Unix epoch. */
  readonly startedAt: number;
  /** Null until the server has said that there is a task. */
  readonly taskId: string | null;
  /** The status that was seen last; before that `calling` (it was sent) or `asking` (the server wants input first). */
  readonly state: "calling" | "asking" | TaskStatus;
  /** What was answered, by key. An answer stands here until the server has acknowledged it, and then null. */
  readonly answers: Readonly<Record<string, InputResponse | null>>;
  /** Set by a log that processes share: another one, which is alive, has this call. */
  readonly heldElsewhere?: boolean;
}

/** Remembers over a crash what was called and is waited for (Tasks extension, "Task Polling"). */
export interface TaskLog {
  /**
   * Stores an entry in place of what it held under the same `call`. Durable once it resolves. `keys` are those whose
   * answers its writer knows best: a log that processes share keeps what it has under all others, which another process
   * may have written. Without them all answers are replaced.
   */
  put(task: LoggedTask, keys?: readonly string[]): Promise<void>;
  /** Does nothing where there is no such entry. */
  remove(call: string): Promise<void>;
  /** All entries, oldest first. `onDamage` is told of records that can't be read, which cost nothing but themselves. */
  list(onDamage?: (error: TaskError) => void): Promise<LoggedTask[]>;
}

/** A log for as long as the process lives. */
export function memoryLog(): TaskLog {
  const tasks = new Map<string, LoggedTask>();
  return {
    async put(task) {
      tasks.set(task.call, task);
    },
    async remove(call) {
      tasks.delete(call);
    },
    async list() {
      return [...tasks.values()].toSorted((a, b) => a.startedAt - b.startedAt);
    },
  };
}
