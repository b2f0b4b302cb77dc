const waiting = new WeakMap<AbortSignal, Set<() => void>>();

/**
 * Whom a signal that thousands may share is to wake: one listener for all of them. One for each would make every removal
 * a search, and `AbortSignal.any` would keep a kilobyte for each. One that has aborted already wakes nobody.
 */
export function wokenBy(signal: AbortSignal): Set<() => void> {
  const known = waiting.get(signal);
  if (known !== undefined) return known;
  const woken = new Set<() => void>();
  waiting.set(signal, woken);
  signal.addEventListener("abort", () => woken.forEach((wake) => wake()), { once: true });
  return woken;
}
