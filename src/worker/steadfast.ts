import type { Clock } from "../clock.ts";
import { asTaskError, isStoreAway, type TaskError } from "../errors.ts";
import type { AttemptVerbs } from "../engine/attempts.ts";
import { backoff } from "./steps.ts";

/** About a minute in all, with the pauses of {@link backoff}. */
const tries = 10;

/**
 * The same verbs for a store that may be away for a moment: what a handler has done must not be lost to that. A write
 * that fails for good answers false, as if the lease were lost: another attempt will then find the task as it was. So does
 * one that ended the attempt without the answer coming through, when it is repeated: there is nothing left to do for it.
 */
export function steadfast(verbs: AttemptVerbs, clock: Clock, onError: (error: TaskError) => void): AttemptVerbs {
  async function persist(write: () => Promise<boolean>): Promise<boolean> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await write();
      } catch (thrown) {
        const error = asTaskError(thrown);
        onError(error);
        if (attempt === tries || !isStoreAway(error)) return false;
        await new Promise<void>((resolve) => void clock.after(backoff(100, attempt), resolve));
      }
    }
  }
  return {
    claim: (request) => verbs.claim(request),
    nextDue: () => verbs.nextDue(),
    renew: (worker, attempts, leaseMs) => verbs.renew(worker, attempts, leaseMs),
    journal: (attempt) => verbs.journal(attempt),
    setStatus: (attempt, message, progress) => verbs.setStatus(attempt, message, progress),
    startStep: (attempt, key) => persist(() => verbs.startStep(attempt, key)),
    recordStep: (attempt, key, record) => persist(() => verbs.recordStep(attempt, key, record)),
    park: (attempt, waits, hold) => persist(() => verbs.park(attempt, waits, hold)),
    finish: (attempt, outcome) => persist(() => verbs.finish(attempt, outcome)),
    release: (attempt, how) => persist(() => verbs.release(attempt, how)),
  };
}
