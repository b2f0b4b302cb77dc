import { TaskError } from "../errors.ts";
import type { InputResponse } from "../protocol/input.ts";
import type { InputRecord, NewTask, Outcome, Task } from "./store.ts";

/** What every store does alike, so that a task doesn't behave differently on another one. */

/** A task as it begins. */
export function newTask({ id, owner, tool, version, timeoutMs, keepMs }: NewTask, now: number): Task {
  return {
    ...{ id, owner, tool, version, status: "working", statusMessage: null, progress: null },
    ...{ createdAt: now, updatedAt: now, turnedAt: now },
    ttlMs: ttl({ createdAt: now, finishedAt: null, timeoutMs, keepMs }),
    ...{ rev: 1, epoch: 0, cancelRequested: false, activation: "queued", inputRequests: {}, result: null, error: null },
  };
}

/** The longest status message, in UTF-16 units. */
export const longestMessage = 1_000;

/**
 * What is stored for an answer, or for an event's value, that didn't come in time. No JSON text that anybody gives has
 * these spaces, or is empty. A version of the code that knows of no timeouts reads the first as "closed without an answer".
 */
export const lateResponse = '{ "action": "cancel" }';
export const lateValue = "";

/** The response that a stored text stands for. */
export function toResponse(text: string | null): InputRecord["response"] {
  return text === null ? null : text === lateResponse ? "timed out" : (JSON.parse(text) as InputResponse);
}

/** How long a purged task is remembered at least, in milliseconds. */
const shortestMemory = 3_600_000;

/** A status message fit for any client: well-formed, in one line and of limited length. */
export function cleanMessage(message: string): string {
  const line = message.toWellFormed().replace(/[\p{Cc}\u2028\u2029]+/gu, " ");
  // The cut may part a surrogate pair.
  return line.slice(0, longestMessage).replace(/[\ud800-\udbff]$/, "");
}

/** An instant so many milliseconds from `now`, in whole milliseconds that every store can hold. */
export function instant(now: number, inMs: number): number {
  return inMs > 0 ? Math.min(Math.ceil(now + inMs), Number.MAX_SAFE_INTEGER) : now;
}

/** From creation to deletion, in milliseconds, or null while nothing bounds it (Tasks extension, "ttlMs"). */
export function ttl(task: {
  readonly createdAt: number;
  readonly finishedAt: number | null;
  readonly timeoutMs: number | null;
  readonly keepMs: number | null;
}): number | null {
  if (task.keepMs === null) return null;
  const lastsMs = task.finishedAt === null ? task.timeoutMs : task.finishedAt - task.createdAt;
  return lastsMs === null ? null : Math.min(lastsMs + task.keepMs, Number.MAX_SAFE_INTEGER);
}

/** How long a purged task is remembered: as long again as it was kept, and at least an hour. */
export function memoryMs(keepMs: number): number {
  return Math.max(shortestMemory, keepMs);
}

/** The end of a task that the store fails by itself. */
export function failure(code: "TIMED_OUT" | "INTERRUPTED" | "ATTEMPTS_EXHAUSTED", tries = 0): Outcome {
  const detail = code === "ATTEMPTS_EXHAUSTED" ? { detail: `It was tried ${tries} times.` } : {};
  const error = new TaskError(code, detail).toRpc();
  return { status: "failed", error: JSON.stringify(error), statusMessage: error.message };
}

/** The one that claims look for each time: to make an error takes longer than to find that there is none. */
export const timedOut = failure("TIMED_OUT");
