import type { Clock } from "../clock.ts";
import { TaskError, asTaskError } from "../errors.ts";
import { askedToWait, isPassing } from "./failures.ts";
import { backoff, defaultInterval } from "./pace.ts";

/** What sending a call again takes. */
export interface RepeatOptions {
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** The key in all that is sent. */
  readonly key: string;
}

/** So often a call is sent at most. */
const mostTries = 5;

/**
 * Sends a call to a server that knows it again by its key, and sends it again while its answer is lost in passing. Throws
 * what `send` throws; where the answer stays lost, `MAY_HAVE_STARTED` with the key, whatever came of the last try.
 */
export async function sendUntilAnswered<T>({ clock, signal, key }: RepeatOptions, send: () => Promise<T>): Promise<T> {
  let facts: object | undefined;
  const lost = (reason: TaskError) => {
    const cause = hasPassed(signal) ? signal.reason : reason;
    return new TaskError("MAY_HAVE_STARTED", { data: { ...facts, idempotencyKey: key }, cause });
  };
  for (let tries = 1; ; tries += 1) {
    try {
      return await send();
    } catch (thrown) {
      const error = asTaskError(thrown);
      let reason = error;
      if (error.code === "MAY_HAVE_STARTED") {
        reason = asTaskError(error.cause);
        facts = error.data ?? {};
      } else if (facts === undefined || isAnswer(error, signal)) throw error;
      if (tries === mostTries || !isPassing(reason)) throw lost(reason);
      await pause(clock, Math.max(backoff(tries, defaultInterval), askedToWait(reason) ?? 0), signal);
      if (signal.aborted) throw hasPassed(signal) ? lost(reason) : signal.reason;
    }
  }
}

const hasPassed = ({ reason }: AbortSignal) => reason instanceof TaskError && reason.code === "DEADLINE_PASSED";

/** Whether an error of a later try says what became of the call: the server's answer, or the caller who left. */
function isAnswer(error: TaskError, signal: AbortSignal): boolean {
  if (error === signal.reason) return !hasPassed(signal);
  return error.code !== "CONNECTION_LOST" && error.code !== "REFUSED" && !isPassing(error);
}

/** Resolves after so long, or when the signal aborts. */
async function pause(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  const takeBack = clock.after(ms, resolve);
  const stop = () => resolve();
  signal.addEventListener("abort", stop);
  await promise;
  signal.removeEventListener("abort", stop);
  takeBack();
}
