import type { AttemptVerbs } from "../engine/attempts.ts";
import type { TaskStore } from "../store/store.ts";

/** The write at which a process dies, 1 being the first of a run, and whether that write is still made. */
export interface Crash {
  readonly write: number;
  readonly made: boolean;
}

/** Processes that follow one another on a store; one of them dies as the {@link Crash} says. */
export interface Mortal {
  /** A new process: its verbs, and a promise that resolves when it has died. A dead one's verbs never return. */
  live(): { readonly verbs: AttemptVerbs; readonly died: Promise<void> };
  /** Writes made so far. */
  writes(): number;
  /** Keys of the events that the task has parked for last. */
  awaited(): readonly string[];
}

export function createMortal(store: TaskStore, crash: Crash | null): Mortal {
  let writes = 0;
  let awaited: readonly string[] = [];

  function live(): ReturnType<Mortal["live"]> {
    let dead = false;
    const { promise: died, resolve: die } = Promise.withResolvers<void>();
    const gone = new Promise<never>(() => {});

    async function write(verb: () => Promise<boolean>): Promise<boolean> {
      if (dead) return gone;
      writes += 1;
      if (crash?.write !== writes) return verb();
      dead = true;
      if (crash.made) await verb();
      die();
      return gone;
    }

    const verbs: AttemptVerbs = {
      claim: (request) => store.claim(request),
      nextDue: () => store.nextDue(),
      renew: (worker, attempts, leaseMs) => store.renew(worker, attempts, leaseMs),
      journal: (attempt) => (dead ? gone : store.journal(attempt)),
      setStatus: (attempt, message, progress) => (dead ? gone : store.setStatus(attempt, message, progress)),
      startStep: (attempt, key) => write(() => store.startStep(attempt, key)),
      recordStep: (attempt, key, record) => write(() => store.recordStep(attempt, key, record)),
      park: (attempt, waits, hold) =>
        write(() => {
          awaited = waits.events.map(({ key }) => key);
          return store.park(attempt, waits, hold);
        }),
      finish: (attempt, outcome) => write(() => store.finish(attempt, outcome)),
      release: (attempt, how) => write(() => store.release(attempt, how)),
    };
    return { verbs, died };
  }

  return { live, writes: () => writes, awaited: () => awaited };
}
