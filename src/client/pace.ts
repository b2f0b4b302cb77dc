import type { Clock } from "../clock.ts";

/** How long to wait between two looks at a task, in milliseconds, where the server says nothing usable. */
export const defaultInterval = 1_000;
/** The shortest wait, whatever a server asks for. */
export const shortest = 250;
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

/** One waiting at a time, which can be shortened while it lasts and before it begins. Times are milliseconds. */
export class Alarm {
  readonly #clock: Clock;
  #due = Number.POSITIVE_INFINITY;
  #takeBack = () => {};
  #ring: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Resolves after so long, or sooner if that was or is asked for. */
  wait(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.#ring = resolve;
      const asked = this.#due;
      this.#due = Number.POSITIVE_INFINITY;
      this.#set(Math.min(asked, this.#clock.now() + ms));
    });
  }

  /** Rings within so long from now. */
  within(ms: number): void {
    this.#set(this.#clock.now() + ms);
  }

  #set(due: number): void {
    if (due >= this.#due) return;
    this.#takeBack();
    this.#due = due;
    if (this.#ring === undefined) return;
    const left = due - this.#clock.now();
    if (left > 0) this.#takeBack = this.#clock.after(left, () => this.#end());
    else this.#end();
  }

  #end(): void {
    const ring = this.#ring;
    this.#takeBack();
    this.#takeBack = () => {};
    this.#ring = undefined;
    this.#due = Number.POSITIVE_INFINITY;
    ring?.();
  }
}
