import type { Journal } from "../store/store.ts";
import type { Reporter } from "./report.ts";

/** Follows how far a handler repeats what is recorded; until it does something new, its reports are old news. */
export interface Replay {
  /** A record was used. */
  use<T>(value: T): T;
  /** Something new begins. */
  live(): void;
}

export function createReplay(journal: Journal, reporter: Reporter): Replay {
  let left =
    Object.keys(journal.steps).length +
    Object.values(journal.inputs).filter(({ response }) => response !== null).length +
    Object.keys(journal.events).length;
  if (left > 0) reporter.hold();
  return {
    use(value) {
      left -= 1;
      if (left === 0) reporter.release();
      return value;
    },
    live: () => reporter.release(),
  };
}
