import type { Engine, Wait } from "../engine/engine.ts";
import type { Task } from "../store/store.ts";
import type { Asker } from "./asker.ts";
import type { Limits } from "./hosts.ts";
import type { Way } from "./policy.ts";

/** The least that the task of a held call is kept, in milliseconds: its client may be about to come back for the end. */
export const leastKeptMs = 60_000;

/** How long a call may wait, and what ends that. */
export interface Patience {
  readonly limits: Limits;
  /** Aborts when nobody waits for the answer any more. */
  readonly signal: AbortSignal;
  /** Aborts when the server stops: the call is then answered with what there is. */
  readonly stop: AbortSignal;
}

/** Waits as long as the way says, for anything that changes the answer. `report`: what is seen meanwhile. */
export function waitOf(
  { limits, signal, stop }: Patience,
  { waits }: Way,
  report: (task: Task) => void,
): Required<Wait> {
  const forMs = { not: 0, grace: limits.graceMs, hold: limits.holdMs }[waits];
  return {
    forMs,
    signal,
    stop,
    seen(task) {
      if (task.status !== "working") return true;
      report(task);
      return false;
    },
  };
}

/** For so long at least, because somebody here is still to read the end. */
export function leastKept({ limits }: Patience, { waits }: Way): number {
  return { not: 0, grace: limits.graceMs, hold: leastKeptMs }[waits];
}

/**
 * Asks what the task of a held call asks, and holds the call for as long as somebody is asked: whoever thinks has their
 * time, and the work between two questions has its own.
 */
export async function askMeanwhile(
  engine: Engine,
  first: Task,
  asker: Asker,
  wait: Required<Wait>,
  report: (task: Task) => void,
): Promise<Task> {
  const patient = {
    ...wait,
    forMs: Infinity,
    signal: AbortSignal.any([wait.signal, asker.stuck]),
    seen(now: Task) {
      asker.see(now);
      report(now);
      return now.status !== "input_required";
    },
  };
  let task = first;
  try {
    while (task.status === "input_required" && !patient.signal.aborted && !wait.stop.aborted) {
      task = await engine.wait(task.id, task.owner, patient);
      if (task.status === "working") task = await engine.wait(task.id, task.owner, wait);
    }
    return task;
  } finally {
    asker.stop();
  }
}
