import type { InputRequest } from "../../protocol/input.ts";
import type { TaskStatus } from "../../protocol/status.ts";
import { lateValue, toResponse, ttl } from "../rules.ts";
import type { CallerFacts, Census, Claim, Gone, InputRecord, Journal, Progress, StepRecord, Task } from "../store.ts";

/**
 * A task as the view `seen` gives it. One whose only value is the status `expired` stands for a task that is gone, and
 * `mismatch` for one of another call.
 */
export interface TaskRow {
  readonly id: string;
  readonly owner: string;
  readonly tool: string;
  readonly version: string;
  readonly status: TaskStatus | "expired" | "mismatch";
  readonly statusMessage: string | null;
  readonly progress: string | null;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly turnedAt: number;
  readonly timeoutMs: number | null;
  readonly keepMs: number | null;
  readonly deadline: number | null;
  readonly finishedAt: number | null;
  readonly rev: number;
  readonly epoch: number;
  readonly strikes: number;
  readonly cancelRequested: boolean;
  readonly error: string | null;
  readonly result: string | null;
  readonly activation: Task["activation"];
  readonly asks: string | null;
}

/** What `get` gives; but for `here`, every other column is null. */
export interface FoundRow extends TaskRow {
  readonly found: "here" | Gone | null;
}

/** What is recorded of a task, as the view `journal` gives it: lists of tuples as JSON texts, or null for none. */
export interface JournalRow {
  readonly steps: string | null;
  readonly inputs: string | null;
  readonly events: string | null;
}

/** What a claim gives. Without an id, it took nothing and only tells of changes. */
export interface ClaimRow extends Omit<TaskRow, "id">, JournalRow {
  readonly id: string | null;
  readonly now: number;
  readonly changed: readonly string[];
  readonly client: string;
  readonly auth: string;
  readonly answers: string;
  readonly args: string;
}

/** One count: of unfinished tasks of a tool, or, without a status, of a queue. */
export interface CountRow {
  readonly name: string;
  readonly status: TaskStatus | null;
  readonly count: number;
  readonly oldestMs: number | null;
}

/**
 * A name as Postgres can hold it. Its text is UTF-8 without NUL; a lone surrogate would become a replacement character,
 * and two owners could become one: such a name is kept as its JSON text, and so is one that looks like that.
 */
export function encodeName(name: string): string {
  return name.isWellFormed() && !name.includes("\0") && !name.startsWith('"') ? name : JSON.stringify(name);
}

export function decodeName(text: string): string {
  return text.startsWith('"') ? (JSON.parse(text) as string) : text;
}

/** A row as the task that everybody sees. */
export function toTask(row: TaskRow): Task {
  const asks = JSON.parse(row.asks ?? "[]") as [key: string, request: string][];
  return {
    id: decodeName(row.id),
    owner: decodeName(row.owner),
    tool: decodeName(row.tool),
    version: decodeName(row.version),
    status: row.status as TaskStatus,
    statusMessage: row.statusMessage,
    progress: row.progress === null ? null : (JSON.parse(row.progress) as Progress),
    createdAt: row.createdAt,
    updatedAt: row.updatedAt,
    turnedAt: row.turnedAt,
    ttlMs: ttl(row),
    rev: row.rev,
    epoch: row.epoch,
    cancelRequested: row.cancelRequested,
    activation: row.activation,
    inputRequests: byKey(asks, ([, request]) => JSON.parse(request) as InputRequest),
    result: row.result,
    error: row.error,
  };
}

/** What a verb that names a task found. */
export function toFound(rows: readonly TaskRow[]): Task | Gone | undefined {
  const [row] = rows;
  if (row === undefined) return undefined;
  return row.status === "expired" ? "expired" : toTask(row);
}

export function toCensus(rows: readonly CountRow[]): Census {
  const counts = rows.map((row) => ({ ...row, name: decodeName(row.name) }));
  return {
    live: counts.flatMap(({ name, status, count }) => (status === null ? [] : [{ tool: name, status, count }])),
    queues: counts.flatMap(({ name, status, count, oldestMs }) =>
      status === null ? [{ queue: name, count, oldestMs: Math.max(0, oldestMs ?? 0) }] : [],
    ),
  };
}

export function toClaim(row: ClaimRow & { readonly id: string }): Claim {
  const task = toTask(row);
  return {
    taskId: task.id,
    epoch: row.epoch,
    task,
    args: row.args,
    answers: row.answers,
    client: JSON.parse(row.client) as CallerFacts,
    auth: row.auth,
    attempt: row.strikes,
    deadline: row.deadline,
    now: row.now,
    journal: toJournal(row),
  };
}

export function toJournal(row: JournalRow): Journal {
  const parse = (text: string | null) => JSON.parse(text ?? "[]") as unknown[];
  return {
    steps: byKey(parse(row.steps) as StepTuple[], toStep),
    inputs: byKey(parse(row.inputs) as [string, string, string | null][], ([, request, response]): InputRecord => {
      return { request: JSON.parse(request) as InputRequest, response: toResponse(response) };
    }),
    events: byKey(parse(row.events) as [string, string][], ([, value]) => (value === lateValue ? null : value)),
  };
}

type StepTuple = [key: string, state: StepRecord["state"], value: string | null, wakeAt: number | null];

function toStep([, state, value, wakeAt]: StepTuple): StepRecord {
  switch (state) {
    case "started":
      return { state, wakeAt };
    case "done":
      return { state, value: value ?? "" };
    case "failed":
      return { state, error: value ?? "" };
  }
}

/** `Object.fromEntries` defines its properties, so that even a key named `__proto__` is an ordinary one. */
function byKey<R extends readonly [key: string, ...rest: unknown[]], V>(
  tuples: readonly R[],
  value: (tuple: R) => V,
): Record<string, V> {
  return Object.fromEntries(tuples.map((tuple) => [decodeName(tuple[0]), value(tuple)]));
}
