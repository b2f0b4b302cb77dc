import { TaskError } from "../../errors.ts";
import type { Statements } from "./statements.ts";
import type { Committed } from "./writes.ts";

type Listener = (taskId: string | null) => void;

const pollMs = 20;

/** With more changes than this at once it is cheaper to look at everything. */
const mostIds = 256;

/** Tells those who watch what changed. */
export interface Hints {
  watch(listener: Listener): () => void;
  /** To be called after each commit of this process. */
  committed(what: Committed): void;
  close(): void;
}

/**
 * Own changes are told at once. Those of other processes show in SQLite's data version, which costs microseconds to
 * ask for, and is asked for only while somebody watches; watching the file itself is racy.
 */
export function createHints(sql: Statements): Hints {
  const listeners = new Set<Listener>();
  let closed = false;
  let timer: NodeJS.Timeout | null = null;
  /** The data version at the last look, and up to which change everything has been told. */
  let version = 0;
  let told = 0;

  function tell(ids: Iterable<string | null>): void {
    for (const id of ids) {
      for (const listener of listeners) queueMicrotask(() => listeners.has(listener) && listener(id));
    }
  }

  const dataVersion = () => Number(sql.dataVersion.get()?.data_version);

  function look(): void {
    try {
      const latest = dataVersion();
      if (latest === version) return;
      // Changes later than this version may be among these; they will be told twice, which is allowed.
      const changes = sql.changedSince.all({ last: told, most: mostIds + 1 }) as { id: string; changed: number }[];
      version = latest;
      told = changes.at(-1)?.changed ?? told;
      if (changes.length <= mostIds) return tell(changes.map(({ id }) => id));
      told = Number(sql.lastChange.get()?.last);
      tell([null]);
    } catch {
      // The file is busy or broken. The version still differs, so the next look does it; verbs report what is wrong.
    }
  }

  function begin(): void {
    try {
      version = dataVersion();
      told = Number(sql.lastChange.get()?.last);
    } catch {
      // Like a version that nobody has seen: the next look tells all there is.
      version = -1;
      told = 0;
    }
  }

  function stop(): void {
    if (timer !== null) clearInterval(timer);
    timer = null;
  }

  return {
    watch(listener) {
      const own: Listener = (id) => listener(id);
      if (closed) throw new TaskError("STORE_CLOSED");
      listeners.add(own);
      if (timer === null) {
        begin();
        timer = setInterval(look, pollMs).unref();
      }
      return () => {
        listeners.delete(own);
        if (listeners.size === 0) stop();
      };
    },
    committed({ ids, from, to }) {
      if (listeners.size === 0) return;
      // Only if nobody else changed anything before: theirs must still be told.
      if (from === told) told = to;
      tell(ids.size > mostIds ? [null] : ids);
    },
    close() {
      closed = true;
      listeners.clear();
      stop();
    },
  };
}
