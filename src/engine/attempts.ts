import { channels } from "../channels.ts";
import type { Attempt, TaskStore } from "../store/store.ts";

/** The verbs of a worker: one store step each. */
export type AttemptVerbs = Pick<
  TaskStore,
  "claim" | "nextDue" | "renew" | "startStep" | "recordStep" | "journal" | "setStatus" | "park" | "finish" | "release"
>;

/** The same verbs; what changed nothing, because the attempt had lost its lease, is told. */
export function tellingRefusals(verbs: AttemptVerbs): AttemptVerbs {
  const telling =
    <A extends readonly unknown[]>(verb: string, write: (attempt: Attempt, ...rest: A) => Promise<boolean>) =>
    async (attempt: Attempt, ...rest: A): Promise<boolean> => {
      const done = await write(attempt, ...rest);
      if (!done && channels.refused.hasSubscribers)
        channels.refused.publish({ taskId: attempt.taskId, epoch: attempt.epoch, verb });
      return done;
    };
  return {
    claim: (request) => verbs.claim(request),
    nextDue: () => verbs.nextDue(),
    renew: (worker, attempts, leaseMs) => verbs.renew(worker, attempts, leaseMs),
    journal: (attempt) => verbs.journal(attempt),
    startStep: telling("startStep", verbs.startStep),
    recordStep: telling("recordStep", verbs.recordStep),
    setStatus: telling("setStatus", verbs.setStatus),
    park: telling("park", verbs.park),
    finish: telling("finish", verbs.finish),
    release: telling("release", verbs.release),
  };
}
