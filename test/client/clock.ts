import type { Clock } from "../../src/clock.ts";

/** A clock that a test moves; what a timer sets off over the network is for the test to await. */
export class ManualClock implements Clock {
  #now = Date.UTC(2026, 7, 1);
  readonly #timers = new Set<{ at: number; fn: () => void }>();
  #changed = Promise.withResolvers<void>();

  now(): number {
    return this.#now;
  }

  after(ms: number, fn: () => void): () => void {
    const timer = { at: this.#now + ms, fn };
    this.#timers.add(timer);
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
    return () => this.#timers.delete(timer);
  }

  /** Resolves with the wait that somebody is in, once it lasts less than `below` milliseconds from now. */
  async waiting(below = 30_000): Promise<number> {
    for (;;) {
      const left = Math.min(...[...this.#timers].map(({ at }) => at - this.#now));
      if (left < below) return left;
      await this.#changed.promise;
    }
  }

  advance(ms: number): void {
    const end = this.#now + ms;
    for (;;) {
      const [first] = [...this.#timers].filter(({ at }) => at <= end).toSorted((a, b) => a.at - b.at);
      if (first === undefined) break;
      this.#now = Math.max(this.#now, first.at);
      this.#timers.delete(first);
      first.fn();
    }
    this.#now = end;
  }

  /** Lets the next wait below `below` pass; resolves with how long it was. */
  async pass(below?: number): Promise<number> {
    const wait = await this.waiting(below);
    this.advance(wait);
    return wait;
  }
}
