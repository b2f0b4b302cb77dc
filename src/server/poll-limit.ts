import { isTaskId } from "../protocol/ids.ts";
import { Recent } from "./recent.ts";

/**
 * How often `tasks/get` may be asked about one task by one owner, in all of their clients together (Tasks extension,
 * "Task Polling"). Unknown ids count alike, so that a refusal tells nothing about an id.
 */
export interface PollLimit {
  /** How many polls may come at once, after a pause. Default 50. */
  readonly burst?: number;
  /** How many may follow in each of the shortest poll intervals that clients are told. Default 5. */
  readonly perInterval?: number;
  /** Tasks that are kept count of. The one polled longest ago makes room. Default 10 000. */
  readonly tracked?: number;
}

/** Counts polls. */
export interface Polls {
  /** Milliseconds until this poll may come; 0 for one that may come now, which counts it. */
  wait(owner: string, taskId: unknown): number;
}

/**
 * A token bucket for each owner and task. What is kept of one is only when it would be full again: a poll puts that off
 * by the time in which one token comes back.
 */
export function pollLimiter(limit: PollLimit, intervalMs: number, now: () => number): Polls {
  const { burst = 50, perInterval = 5, tracked = 10_000 } = limit;
  const tokenMs = Math.max(1, intervalMs) / perInterval;
  const full = new Recent<string, number>(tracked);
  return {
    wait(owner, taskId) {
      // Anything else is answered without asking the store, and would fill the table for nothing.
      if (!isTaskId(taskId)) return 0;
      const key = taskId + owner;
      const at = now();
      // However the clock was set back meanwhile, an empty bucket is the worst that can be.
      const fullAt = Math.min(Math.max(full.get(key) ?? at, at), at + burst * tokenMs);
      const wait = Math.max(0, fullAt - at - (burst - 1) * tokenMs);
      full.set(key, wait > 0 ? fullAt : fullAt + tokenMs);
      return Math.ceil(wait);
    },
  };
}
