/** Time as a parameter: what waits asks a clock, so that tests can move it. All times are milliseconds. */
export interface Clock {
  /** Milliseconds since the Unix epoch. */
  now(): number;
  /** Runs `fn` once after `ms` (any length); the returned function takes it back. */
  after(ms: number, fn: () => void): () => void;
}

/** setTimeout fires at once for anything longer. */
const longestTimer = 2 ** 31 - 1;

/** The machine's clock. */
export const systemClock: Clock = {
  now: () => Date.now(),
  after: (ms, fn) => (ms <= longestTimer ? once(ms, fn) : inParts(ms, fn)),
};

function once(ms: number, fn: () => void): () => void {
  const timer = setTimeout(fn, Math.max(0, ms));
  return () => clearTimeout(timer);
}

function inParts(ms: number, fn: () => void): () => void {
  let timer: NodeJS.Timeout;
  const arm = (left: number) => {
    const part = Math.min(left, longestTimer);
    timer = setTimeout(() => (left > part ? arm(left - part) : fn()), part);
  };
  arm(ms);
  return () => clearTimeout(timer);
}

/** Says how many milliseconds have passed since it was made. A clock that is set back doesn't take any of them away. */
export function stopwatch(clock: Clock): () => number {
  let at = clock.now();
  let passed = 0;
  return () => {
    const before = at;
    at = clock.now();
    passed += Math.max(0, at - before);
    return passed;
  };
}

/** Says of each name whether this is the first time, or so many milliseconds after it last said yes. */
export function onceIn(ms: number, clock: Clock): (name: string) => boolean {
  const passed = stopwatch(clock);
  const due = new Map<string, number>();
  return (name) => {
    const now = passed();
    if (now < (due.get(name) ?? 0)) return false;
    due.set(name, now + ms);
    return true;
  };
}

/** A length of time: milliseconds, or a number with its unit, such as `"500ms"`, `"30s"`, `"2h"` or `"7d"`. */
export type Duration = number | `${number}${"ms" | "s" | "m" | "h" | "d"}`;

const units = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/**
 * A {@link Duration} in whole milliseconds, as many as numbers hold at most. Throws a `RangeError` for what is none, or is
 * negative.
 */
export function milliseconds(duration: Duration): number {
  const [, amount, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(String(duration)) ?? [];
  const ms = typeof duration === "number" ? duration : Number(amount) * units[(unit ?? "ms") as keyof typeof units];
  if (!Number.isFinite(ms) || ms < 0) {
    throw new RangeError(
      `${JSON.stringify(duration)} is no duration: write milliseconds, or a number with ms, s, m, h or d`,
    );
  }
  return Math.min(Math.round(ms), Number.MAX_SAFE_INTEGER);
}
