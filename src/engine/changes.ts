import type { Clock } from "../clock.ts";
import type { TaskStore } from "../store/store.ts";

/** Turns the store's one stream of hints into hints for each task. */
export interface Changes {
  watch(id: string, changed: () => void): () => void;
  watchAll(changed: () => void): () => void;
  /**
   * Calls `look` now, after each hint, and now and then in case one was lost, until it gives true, the time is up or the
   * signal aborts. One timer at a time, and no look without a reason. `fresh`: the first look makes what is watched, and
   * the hint of that is no news.
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
}

/** The longest that a lost hint goes unnoticed by who waits for a value. */
const lookAgainMs = 5_000;

/** Listens to the store only while somebody listens here. */
export function createChanges(store: TaskStore, clock: Clock): Changes {
  const byId = new Map<string, Set<() => void>>();
  const all = new Set<() => void>();
  let stop: (() => void) | null = null;

  function notify(id: string | null): void {
    for (const changed of all) changed();
    const groups = id === null ? byId.values() : [byId.get(id) ?? []];
    for (const group of groups) for (const changed of group) changed();
  }

  function settle(): void {
    const wanted = byId.size > 0 || all.size > 0;
    if (wanted && stop === null) stop = store.watch(notify);
    if (!wanted && stop !== null) {
      stop();
      stop = null;
    }
  }

  function watch(id: string, changed: () => void): () => void {
    const group = byId.get(id) ?? new Set();
    const listener = () => changed();
    byId.set(id, group.add(listener));
    settle();
    return () => {
      group.delete(listener);
      if (group.size === 0 && byId.get(id) === group) byId.delete(id);
      settle();
    };
  }

  return {
    watch,
    watchAll(changed) {
      const listener = () => changed();
      all.add(listener);
      settle();
      return () => {
        all.delete(listener);
        settle();
      };
    },
    async until(id, { forMs, signal }, look, fresh = false) {
      let leftMs = forMs;
      let at = clock.now();
      let wake = () => {};
      let changed = false;
      const stopWatching = watch(id, () => {
        changed = true;
        wake();
      });
      const aborted = () => wake();
      signal.addEventListener("abort", aborted);
      /** A clock that is set back makes no wait longer than by the one timer that runs. */
      const pass = () => {
        const before = at;
        at = clock.now();
        leftMs -= Math.max(0, at - before);
      };
      try {
        for (let first = fresh; ; first = false) {
          changed = false;
          if (await look()) return;
          if (first) changed = false;
          pass();
          if (leftMs <= 0 || signal.aborted) return;
          if (changed) continue;
          const { promise, resolve } = Promise.withResolvers<void>();
          wake = resolve;
          const cancel = clock.after(Math.min(lookAgainMs, leftMs), resolve);
          await promise;
          cancel();
          // Nobody asks for what came to light in the last moment: a hint would have told.
          pass();
          if (!changed && (signal.aborted || leftMs <= 0)) return;
        }
      } finally {
        signal.removeEventListener("abort", aborted);
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
