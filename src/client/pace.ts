/** How long to wait between two looks at a task, in milliseconds, where the server says nothing usable. */
export const defaultInterval = 1_000;
const shortest = 250;
/** A server may not park us for longer: its task could end, and its own mind change, in the meantime. */
const longest = 600_000;

/** The wait that a `pollIntervalMs` asks for, in whole milliseconds and within bounds, whatever it is. */
export function interval(hint: unknown): number {
  if (typeof hint !== "number" || Number.isNaN(hint) || hint < 0) return defaultInterval;
  return Math.ceil(Math.min(longest, Math.max(shortest, hint)));
}

/** The wait after the nth failure in a row (from 1): the usual one, and up to 30 s more, drawn by lot. */
export function backoff(failures: number, usual: number, random: () => number = Math.random): number {
  return Math.ceil(usual + random() * Math.min(30_000, 500 * 2 ** Math.min(failures, 10)));
}
