import type { DatabaseSync } from "node:sqlite";
import type { Clock } from "../../clock.ts";
import { TaskError } from "../../errors.ts";
import { isBusy, storeError } from "./failures.ts";
import { createLiveCounts, type LiveCounts } from "./live.ts";
import type { Statements } from "./statements.ts";

/** What a write verb works with, inside a transaction. */
export interface Transaction {
  readonly sql: Statements;
  readonly now: number;
  readonly live: LiveCounts;
  /** How many changes there were, of all tasks and at all times, with those of this transaction. */
  readonly changes: number;
  /** Notes a change of a task for those who watch, and gives it its place in the order of all changes. */
  change(taskId: string): number;
}

/** What a transaction changed: tasks, and the places before and after in the order of all changes. */
export interface Committed {
  readonly ids: ReadonlySet<string>;
  readonly from: number;
  readonly to: number;
}

/** The one way to write. */
export interface Writes {
  /** Runs `verb` in a transaction; resolves once it is durable. */
  write<T>(verb: (tx: Transaction) => T): Promise<T>;
  /** Runs `look` now, and again while another process is in the way. */
  read<T>(look: () => T): Promise<T>;
  /** Finishes what was asked for and takes no more. */
  close(): Promise<void>;
}

/** `busyMs`: how long to try again while another process is in the way. `check` throws when the file can't be used. */
export interface WritesOptions {
  readonly clock: Clock;
  readonly busyMs: number;
  readonly check: () => void;
}

interface Job {
  run(tx: Transaction): void;
  resolve(): void;
  reject(error: TaskError): void;
}

/** A verb moves so many timers, timeouts and lost leases at most: what is over waits for the next one. */
export const batch = 500;

/** So many verbs share a transaction at most: others want the lock, too. */
const largestBatch = 256;

const turn = () => new Promise<void>((resolve) => setImmediate(resolve));
const jitter = () => new Promise<void>((resolve) => setTimeout(resolve, 1 + Math.random() * 4));

/**
 * Verbs that are called in one turn of the event loop share a transaction, and so one sync of the disk. SQLite's own
 * busy timeout would block the process while another one writes; here it is zero, and the batch is tried again.
 */
export function createWrites(
  db: DatabaseSync,
  sql: Statements,
  { clock, busyMs, check }: WritesOptions,
  committed: (what: Committed) => void,
): Writes {
  const waiting: Job[] = [];
  const live = createLiveCounts(sql);
  let draining: Promise<void> | null = null;
  let closed = false;

  let checkedAt = -Infinity;

  /** Once for all reads in a millisecond: asking the file system costs as much as a read. */
  function checkOnce(): void {
    const at = performance.now();
    if (at - checkedAt < 1) return;
    check();
    checkedAt = at;
  }

  async function drain(): Promise<void> {
    // A worker takes one turn to ask for the places of attempts that end: it then shares the transaction of their ends.
    await turn();
    await turn();
    while (waiting.length > 0) {
      const batch = waiting.splice(0, largestBatch);
      try {
        const what = await persist(() => commit(batch), busyMs);
        for (const job of batch) job.resolve();
        if (what.ids.size > 0) committed(what);
      } catch (thrown) {
        for (const job of batch) job.reject(storeError(thrown));
      }
    }
    // In the same turn as the last look at what is waiting: nothing can fall between the two.
    draining = null;
  }

  function commit(batch: readonly Job[]): Committed {
    check();
    db.exec("BEGIN IMMEDIATE");
    let kept = false;
    try {
      const from = Number(sql.lastChange.get()?.last);
      const ids = new Set<string>();
      let to = from;
      const tx = {
        sql,
        now: Math.trunc(clock.now()),
        live,
        get changes() {
          return to;
        },
        change(taskId: string) {
          ids.add(taskId);
          return ++to;
        },
      };
      for (const job of batch) job.run(tx);
      if (to > from) sql.setLastChange.run({ last: to });
      db.exec("COMMIT");
      kept = true;
      return { ids, from, to };
    } finally {
      if (!kept) live.forget();
      if (db.isOpen && db.isTransaction) db.exec("ROLLBACK");
    }
  }

  /** A verb that throws undoes itself and leaves its neighbours in the batch alone. */
  function job<T>(verb: (tx: Transaction) => T, resolve: (value: T) => void, reject: (error: TaskError) => void): Job {
    let outcome: { readonly value: T } | { readonly error: TaskError };
    return {
      run(tx) {
        sql.beginVerb.run();
        try {
          outcome = { value: verb(tx) };
        } catch (thrown) {
          // Some failures, a full disk for one, end the whole transaction; then nothing of the batch is left.
          if (!db.isTransaction || isBusy(thrown)) throw thrown;
          sql.undoVerb.run();
          outcome = { error: storeError(thrown) };
        }
        sql.endVerb.run();
      },
      resolve: () => ("error" in outcome ? reject(outcome.error) : resolve(outcome.value)),
      reject,
    };
  }

  return {
    write(verb) {
      if (closed) return Promise.reject(new TaskError("STORE_CLOSED"));
      return new Promise((resolve, reject) => {
        waiting.push(job(verb, resolve, reject));
        draining ??= drain();
      });
    },
    async read(look) {
      try {
        if (closed) throw new TaskError("STORE_CLOSED");
        checkOnce();
        return await persist(look, busyMs);
      } catch (thrown) {
        throw storeError(thrown);
      }
    },
    async close() {
      closed = true;
      await draining;
    },
  };
}

/** Repeats an action for as long as another connection is in the way, without holding up the event loop. */
async function persist<T>(action: () => T, busyMs: number): Promise<T> {
  const end = performance.now() + busyMs;
  for (;;) {
    try {
      return action();
    } catch (thrown) {
      if (!isBusy(thrown) || performance.now() > end) throw thrown;
    }
    await jitter();
  }
}
