import type { Entry } from "./log.ts";

/** What the processes wrote down, by task. */
export interface TaskHistory {
  /** How often a handler began. */
  runs: number;
  deaths: number;
  /** By key: each value that the function of a step came to. */
  readonly ran: Map<string, string[]>;
  /** By key: each value that a handler got. */
  readonly saw: Map<string, Set<string>>;
  /** Records of steps that the store said it has. */
  readonly recorded: { readonly key: string; readonly value: string }[];
  /** Ends that the store said it has: the outcomes, as JSON, and their epochs. */
  readonly finished: { readonly epoch: number; readonly outcome: Record<string, unknown> }[];
  readonly claimed: Set<number>;
  latestClaim: number;
}

export interface History {
  readonly tasks: ReadonlyMap<string, TaskHistory>;
  readonly errors: Record<string, number>;
  /** Writes that a worker was told it may not make; `zombies` of them began after a later claim was known. */
  readonly refused: number;
  readonly zombies: number;
  readonly violations: string[];
}

/** Reads the log in its order and checks what shows in it alone: that no stale attempt writes. */
export function readHistory(entries: readonly Entry[]): History {
  const tasks = new Map<string, TaskHistory>();
  const errors: Record<string, number> = {};
  const violations: string[] = [];
  const open = new Map<string, { task: string; epoch: number; verb: string; detail: unknown; stale: boolean }>();
  let refused = 0;
  let zombies = 0;

  function of(task: string): TaskHistory {
    let history = tasks.get(task);
    if (history === undefined) {
      history = {
        runs: 0,
        deaths: 0,
        ran: new Map(),
        saw: new Map(),
        recorded: [],
        finished: [],
        claimed: new Set(),
        latestClaim: 0,
      };
      tasks.set(task, history);
    }
    return history;
  }

  function end(name: string, taken: boolean): void {
    const write = open.get(name);
    if (write === undefined) return;
    const { task, epoch, verb, detail, stale } = write;
    if (!taken) {
      refused += 1;
      if (stale) zombies += 1;
      return;
    }
    if (stale) violations.push(`${verb} of epoch ${epoch} was taken after a later claim of ${task}`);
    if (verb === "finish") of(task).finished.push({ epoch, outcome: detail as Record<string, unknown> });
    if (verb === "recordStep") {
      const { key, record } = detail as { key: string; record: { state: string; value: string } };
      if (record.state === "done") of(task).recorded.push({ key, value: record.value });
    }
  }

  for (const entry of entries) {
    switch (entry[0]) {
      case "run":
        of(entry[1]).runs += 1;
        break;
      case "died":
        of(entry[1]).deaths += 1;
        break;
      case "ran":
        add(of(entry[1]).ran, entry[2], [] as string[]).push(entry[3]);
        break;
      case "saw":
        add(of(entry[1]).saw, entry[2], new Set<string>()).add(entry[3]);
        break;
      case "claim": {
        const history = of(entry[1]);
        if (history.claimed.has(entry[2])) violations.push(`epoch ${entry[2]} of ${entry[1]} was claimed twice`);
        history.claimed.add(entry[2]);
        history.latestClaim = Math.max(history.latestClaim, entry[2]);
        break;
      }
      case "begin": {
        const [, name, task, epoch, verb, detail] = entry;
        open.set(name, { task, epoch, verb, detail, stale: of(task).latestClaim > epoch });
        break;
      }
      case "end":
        end(entry[1], entry[2]);
        break;
      case "error":
        errors[entry[1]] = (errors[entry[1]] ?? 0) + 1;
        if (entry[1] === "INTERNAL") violations.push(`an internal error: ${entry[2]}`);
        break;
      case "blow":
    }
  }
  return { tasks, errors, refused, zombies, violations };
}

function add<T>(map: Map<string, T>, key: string, initial: T): T {
  const found = map.get(key) ?? initial;
  map.set(key, found);
  return found;
}
