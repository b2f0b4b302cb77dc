import type { Clock } from "../../src/clock.ts";

/** A clock that a test moves. Timers fire in their order; what they set off over the network is awaited by the test. */
export class ManualClock implements Clock {
  #now = Date.UTC(2026, 7, 1);
  #timers = new Set<{ at: number; fn: () => void }>();
  #waiting: { least: number; resolve: () => void }[] = [];

  now(): number {
    return this.#now;
  }

  after(ms: number, fn: () => void): () => void {
    const timer = { at: this.#now + ms, fn };
    this.#timers.add(timer);
    this.#waiting = this.#waiting.filter(({ least, resolve }) => ms < least || resolve());
    return () => this.#timers.delete(timer);
  }

  get timers(): number {
    return this.#timers.size;
  }

  /** Resolves with the wait once somebody waits for at least so long, now or later. */
  async until(predicate: (ms: number) => boolean): Promise<number> {
    for (;;) {
      for (const timer of this.#timers) if (predicate(timer.at - this.#now)) return timer.at - this.#now;
      await new Promise<void>((resolve) => this.#waiting.push({ least: 0, resolve }));
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
}
