import type { Clock } from "../clock.ts";
import type { TaskStore } from "../store/store.ts";

/** Turns the store's one stream of hints into hints for each task. */
export interface Changes {
  watch(id: string, changed: () => void): () => void;
  watchAll(changed: () => void): () => void;
  /** Calls `look` now, after each hint, and now and then in case one was lost, until it gives a value. */
  until<T>(id: string, signal: AbortSignal, look: () => Promise<T | undefined>): Promise<T>;
  close(): void;
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
    async until(id, signal, look) {
      let wake = () => {};
      let changed = false;
      const stopWatching = watch(id, () => {
        changed = true;
        wake();
      });
      const aborted = () => wake();
      signal.addEventListener("abort", aborted);
      try {
        for (;;) {
          signal.throwIfAborted();
          changed = false;
          const found = await look();
          if (found !== undefined) return found;
          if (changed || signal.aborted) continue;
          const { promise, resolve } = Promise.withResolvers<void>();
          wake = resolve;
          const cancel = clock.after(lookAgainMs, resolve);
          await promise;
          cancel();
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
