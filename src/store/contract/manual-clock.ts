import type { Clock } from "../../clock.ts";

/** A clock that stands still until it is moved. */
export interface ManualClock extends Clock {
  /** Moves on by so many milliseconds and runs what became due, in order. */
  advance(ms: number): void;
}

/** A {@link ManualClock}; starts at a fixed instant unless told otherwise. */
export function manualClock(start = 1_800_000_000_000): ManualClock {
  let now = start;
  const waiting = new Set<{ readonly at: number; readonly fn: () => void }>();

  return {
    now: () => now,
    after(ms, fn) {
      const timer = { at: now + Math.max(0, ms), fn };
      waiting.add(timer);
      return () => void waiting.delete(timer);
    },
    advance(ms) {
      const end = now + ms;
      for (;;) {
        const [next] = [...waiting].filter(({ at }) => at <= end).toSorted((a, b) => a.at - b.at);
        if (next === undefined) break;
        waiting.delete(next);
        now = Math.max(now, next.at);
        next.fn();
      }
      now = end;
    },
  };
}
