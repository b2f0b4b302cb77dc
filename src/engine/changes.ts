import { stopwatch, type Clock } from "../clock.ts";
import type { TaskStore } from "../store/store.ts";
import { wokenBy } from "./stops.ts";

/** Turns the store's one stream of hints into hints for each task. */
export interface Changes {
  watch(id: string, changed: () => void): () => void;
  watchAll(changed: () => void): () => void;
  /**
   * Calls `look` now, after each hint, and now and then in case one was lost, until it gives true, the time is up or a
   * signal aborts. One timer at a time, and no look without a reason. `fresh`: the first look makes what is watched, and
   * the one hint of that is no news.
   */
  until(id: string, span: Span, look: () => Promise<boolean>, fresh?: boolean): Promise<void>;
  close(): void;
}

/** How long to wait. */
export interface Span {
  /** Milliseconds from now, or `Infinity`. */
  readonly forMs: number;
  /** Ends the wait early. */
  readonly signal: AbortSignal;
  /** Does the same, for many waits at once. */
  readonly stop?: AbortSignal;
}

/** The longest that a lost hint goes unnoticed by who waits for a value. */
const lookAgainMs = 5_000;

/** Listens to the store only while somebody listens here. */
export function createChanges(store: TaskStore, clock: Clock): Changes {
  const byId = new Map<string, Set<() => void>>();
  const all = new Set<() => void>();
  let unwatch: (() => void) | null = null;

  function notify(id: string | null): void {
    for (const changed of all) changed();
    const groups = id === null ? byId.values() : [byId.get(id) ?? []];
    for (const group of groups) for (const changed of group) changed();
  }

  function settle(): void {
    const wanted = byId.size > 0 || all.size > 0;
    if (wanted && unwatch === null) unwatch = store.watch(notify);
    if (!wanted && unwatch !== null) {
      unwatch();
      unwatch = null;
    }
  }

  /** Each listener once. */
  function listen(id: string, changed: () => void): () => void {
    const group = byId.get(id) ?? new Set();
    byId.set(id, group.add(changed));
    settle();
    return () => {
      group.delete(changed);
      if (group.size === 0 && byId.get(id) === group) byId.delete(id);
      settle();
    };
  }

  return {
    watch: (id, changed) => listen(id, () => changed()),
    watchAll(changed) {
      const listener = () => changed();
      all.add(listener);
      settle();
      return () => {
        all.delete(listener);
        settle();
      };
    },
    async until(id, { forMs, signal, stop }, look, fresh = false) {
      const passed = stopwatch(clock);
      let wake: (() => void) | undefined;
      let hints = 0;
      const stopWatching = listen(id, () => {
        hints += 1;
        wake?.();
      });
      const isOver = () => signal.aborted || stop?.aborted === true;
      const over = () => wake?.();
      const woken = stop === undefined ? null : wokenBy(stop).add(over);
      signal.addEventListener("abort", over);
      try {
        for (let ours = fresh ? 1 : 0; ; ours = 0) {
          hints = 0;
          if (await look()) return;
          const leftMs = forMs - passed();
          if (leftMs <= 0 || isOver()) return;
          if (hints > ours) continue;
          const { promise, resolve } = Promise.withResolvers<void>();
          wake = resolve;
          const cancel = clock.after(Math.min(lookAgainMs, leftMs), resolve);
          await promise;
          cancel();
          // Nobody asks for what came to light in the last moment: a hint would have told.
          if (hints <= ours && (isOver() || passed() >= forMs)) return;
        }
      } finally {
        signal.removeEventListener("abort", over);
        woken?.delete(over);
        stopWatching();
      }
    },
    close() {
      byId.clear();
      all.clear();
      settle();
    },
  };
}
