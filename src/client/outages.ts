import { type Clock, onceIn } from "../clock.ts";
import { TaskError } from "../errors.ts";
import { isPassing } from "./failures.ts";

/** How long an outage that was told counts as known. Milliseconds. */
const knownFor = 10_000;

/**
 * While a server is away every look at every task fails, again and again: that is told once in 10 s for each code, and
 * anything else each time. `reason` is what the error comes to, where it is not such a one itself.
 */
export function tellOutagesOnce(onError: (error: unknown) => void, clock: Clock) {
  const isDue = onceIn(knownFor, clock);
  return (error: unknown, reason = error): void => {
    if (!(reason instanceof TaskError) || !isPassing(reason) || isDue(reason.code)) onError(error);
  };
}
