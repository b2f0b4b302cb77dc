import { channel, type Channel } from "node:diagnostics_channel";
import type { TraceContext } from "./protocol/trace.ts";

/** A task was stored. */
export interface TaskCreated {
  readonly taskId: string;
  readonly tool: string;
  readonly version: string;
  readonly queue: string;
  /** Of the call that created it. */
  readonly trace: TraceContext | null;
}

/** A worker begins to run a task's handler: for the first time, after a wait, or after another attempt's end. */
export interface AttemptStarted {
  readonly taskId: string;
  readonly epoch: number;
  /** 1 for the first attempt since the task last made progress. */
  readonly attempt: number;
  readonly tool: string;
  readonly version: string;
  /** From the task's creation to this, in milliseconds, where no attempt came before. */
  readonly waitedMs: number | null;
  readonly trace: TraceContext | null;
  /** A subscriber may put a function here that the handler is run by, for a context of its own around it. */
  around: (<T>(run: () => T) => T) | null;
}

/** How an attempt came to its end: with its task's, at a wait, handed back, or because its lease was lost. */
export type AttemptEnd = "completed" | "failed" | "cancelled" | "parked" | "released" | "lost";

/** An attempt is over: `started` is the very object that its beginning was told with. */
export interface AttemptEnded {
  readonly started: AttemptStarted;
  readonly end: AttemptEnd;
  /** Milliseconds that it took. */
  readonly ms: number;
}

/** A worker's write changed nothing, for its attempt had lost the lease. */
export interface WriteRefused {
  readonly taskId: string;
  readonly epoch: number;
  readonly verb: string;
}

/** One of the methods `tasks/*` was answered. */
export interface MethodAnswered {
  readonly method: string;
  /** The name of the error in the table of codes, or null. */
  readonly error: string | null;
  readonly ms: number;
}

/**
 * What happens inside, told by `node:diagnostics_channel` while it happens: subscribe to these, or by name. No message
 * holds arguments, results, answers or owners. Without a subscriber nothing is made.
 */
export const channels = {
  created: named<TaskCreated>("mcp-tasks:task:created"),
  started: named<AttemptStarted>("mcp-tasks:attempt:started"),
  ended: named<AttemptEnded>("mcp-tasks:attempt:ended"),
  refused: named<WriteRefused>("mcp-tasks:write:refused"),
  answered: named<MethodAnswered>("mcp-tasks:method:answered"),
} as const;

/** A channel that says what its messages are. */
export interface TypedChannel<M> extends Omit<Channel, "publish" | "subscribe" | "unsubscribe"> {
  publish(message: M): void;
  subscribe(listener: (message: M) => void): void;
  unsubscribe(listener: (message: M) => void): boolean;
}

function named<M>(name: string): TypedChannel<M> {
  return channel(name) as unknown as TypedChannel<M>;
}
