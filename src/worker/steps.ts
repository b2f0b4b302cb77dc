import { milliseconds, type Clock } from "../clock.ts";
import { TaskError } from "../errors.ts";
import type { StepRecord } from "../store/store.ts";
import type { StepContext, StepOptions } from "../tool.ts";
import { messageOf } from "./result.ts";

/** A thrown value as a record, so that a replay throws alike. */
export function failure(thrown: unknown): StepRecord {
  const name = thrown instanceof Error ? thrown.name : "Error";
  const code = thrown instanceof TaskError ? thrown.code : undefined;
  return { state: "failed", error: JSON.stringify({ name, code, message: messageOf(thrown) }) };
}

/** The error that a recorded failure stands for. */
export function recallFailure(text: string): Error {
  const { name, code, message } = JSON.parse(text) as { name: string; code?: TaskError["code"]; message: string };
  const error = code === undefined ? new Error(message) : new TaskError(code);
  error.name = name;
  error.message = message;
  return error;
}

/** Begins the text that stands for a failure that is kept; no JSON text begins so. */
const failedMark = "!";

/** A failure that a tool's retry doesn't forget: a `once` step that threw must not run again either. */
export function keepFailure(thrown: unknown): StepRecord {
  const record = failure(thrown);
  return record.state === "failed" ? { state: "done", value: failedMark + record.error } : record;
}

/** The error that a kept failure stands for, or null for the text of a value. */
export function recallOnce(text: string): Error | null {
  return text.startsWith(failedMark) ? recallFailure(text.slice(failedMark.length)) : null;
}

/** Runs a step's function, again after a pause if it throws and its options say so. */
export async function tries(
  fn: (step: StepContext) => unknown,
  options: StepOptions,
  key: string,
  signal: AbortSignal,
  clock: Clock,
): Promise<unknown> {
  const attempts = options.retry?.attempts ?? 1;
  const backoffMs = milliseconds(options.retry?.backoff ?? "1s");
  for (let attempt = 1; ; attempt++) {
    try {
      return await once(fn, options, key, signal, clock);
    } catch (thrown) {
      if (!(attempt < attempts) || signal.aborted) throw thrown;
      await pause(backoff(backoffMs, attempt), signal, clock);
    }
  }
}

/** Twice as long after each try, up to an hour, with jitter so that many don't come back at once. */
export function backoff(firstMs: number, attempt: number): number {
  return Math.round(Math.min(firstMs * 2 ** (attempt - 1), 3_600_000) * (0.75 + Math.random() / 2));
}

async function once(
  fn: (step: StepContext) => unknown,
  options: StepOptions,
  key: string,
  signal: AbortSignal,
  clock: Clock,
): Promise<unknown> {
  if (options.timeout === undefined) return fn({ key, signal });
  const late = new AbortController();
  const { promise, reject } = Promise.withResolvers<never>();
  const cancel = clock.after(milliseconds(options.timeout), () => {
    const error = new TaskError("STEP_TIMED_OUT");
    late.abort(error);
    reject(error);
  });
  try {
    return await Promise.race([promise, fn({ key, signal: AbortSignal.any([signal, late.signal]) })]);
  } finally {
    cancel();
  }
}

function pause(ms: number, signal: AbortSignal, clock: Clock): Promise<void> {
  return new Promise((resolve, reject) => {
    const aborted = () => {
      cancel();
      reject(signal.reason as Error);
    };
    const cancel = clock.after(ms, () => {
      signal.removeEventListener("abort", aborted);
      resolve();
    });
    signal.addEventListener("abort", aborted, { once: true });
  });
}
