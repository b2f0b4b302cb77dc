import type { InputRequest } from "../../protocol/input.ts";
import type { TaskStatus } from "../../protocol/status.ts";
import { lateValue, toResponse, ttl } from "../rules.ts";
import type { InputRecord, Journal, Progress, StepRecord, Task } from "../store.ts";
import type { Statements } from "./statements.ts";

/** A task as the view `seen` gives it. Transitions change it and save it. */
export interface TaskRow {
  readonly seq: number;
  readonly id: string;
  readonly owner: string;
  readonly tool: string;
  readonly version: string;
  readonly createdAt: number;
  readonly timeoutMs: number | null;
  readonly keepMs: number | null;
  readonly attempts: number;
  readonly recovery: "retry" | "fail";
  readonly unwind: number;
  readonly activation: Task["activation"];
  readonly asks: string | null;
  status: TaskStatus;
  statusMessage: string | null;
  progress: string | null;
  updatedAt: number;
  turnedAt: number;
  deadline: number | null;
  finishedAt: number | null;
  purgeAt: number | null;
  rev: number;
  epoch: number;
  strikes: number;
  cancelRequested: number;
  cancelBy: number | null;
  changed: number;
  error: string | null;
  result: string | null;
}

/**
 * A name as SQLite can hold it. Text in SQLite is UTF-8, where a lone surrogate becomes a replacement character, and two
 * owners could become one: such a name is kept as its JSON text, and so is one that looks like that.
 */
export function encodeName(name: string): string {
  return name.isWellFormed() && !name.startsWith('"') ? name : JSON.stringify(name);
}

export function decodeName(text: string): string {
  return text.startsWith('"') ? (JSON.parse(text) as string) : text;
}

/** What everybody sees of a row. */
type Shown = Omit<
  TaskRow,
  "seq" | "deadline" | "attempts" | "recovery" | "unwind" | "strikes" | "cancelBy" | "changed"
>;

/**
 * The row of the statement `read`, in its columns' order. Clients read tasks so often that naming the values for each
 * would take as long as finding them.
 */
export function fromValues(values: readonly unknown[]): Shown {
  const [id, owner, tool, version, status, statusMessage, progress, createdAt, updatedAt, ...more] = values;
  const [turnedAt, timeoutMs, keepMs, finishedAt, purgeAt, rev, epoch, cancelRequested, ...last] = more;
  const [activation, asks, result, error] = last;
  return {
    ...{ id, owner, tool, version, status, statusMessage, progress, createdAt, updatedAt },
    ...{ turnedAt, timeoutMs, keepMs, finishedAt, purgeAt, rev, epoch, cancelRequested },
    ...{ activation, asks, result, error },
  } as Shown;
}

/** A row as the task that everybody sees. */
export function toTask(row: Shown): Task {
  const asks = JSON.parse(row.asks ?? "[]") as [key: string, request: string][];
  return {
    id: row.id,
    owner: decodeName(row.owner),
    tool: decodeName(row.tool),
    version: decodeName(row.version),
    status: row.status,
    statusMessage: row.statusMessage,
    progress: row.progress === null ? null : (JSON.parse(row.progress) as Progress),
    createdAt: row.createdAt,
    updatedAt: row.updatedAt,
    turnedAt: row.turnedAt,
    ttlMs: ttl(row),
    rev: row.rev,
    epoch: row.epoch,
    cancelRequested: row.cancelRequested === 1,
    activation: row.activation,
    inputRequests: byKey(asks, ([key, request]) => [key, JSON.parse(request) as InputRequest]),
    result: row.result,
    error: row.error,
  };
}

/** What is recorded of a task, in the order of recording. */
export function readJournal(sql: Statements, task: number): Journal {
  const steps = sql.steps.all({ task }) as unknown as StepRow[];
  const inputs = sql.inputs.all({ task }) as unknown as { key: string; request: string; response: string | null }[];
  return {
    steps: byKey(steps, (row) => [row.key, toStep(row)]),
    inputs: byKey(inputs, ({ key, request, response }): [string, InputRecord] => {
      return [key, { request: JSON.parse(request) as InputRequest, response: toResponse(response) }];
    }),
    events: readEvents(sql, task),
  };
}

/** What is recorded of a task before its first attempt: events may have come, and nothing else. */
export function readEvents(sql: Statements, task: number): Journal["events"] {
  const events = sql.events.all({ task }) as unknown as { key: string; value: string }[];
  return byKey(events, ({ key, value }) => [key, value === lateValue ? null : value]);
}

interface StepRow {
  readonly key: string;
  readonly state: StepRecord["state"];
  readonly value: string | null;
  readonly wakeAt: number | null;
}

function toStep({ state, value, wakeAt }: StepRow): StepRecord {
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
function byKey<R, V>(rows: readonly R[], entry: (row: R) => [key: string, value: V]): Record<string, V> {
  return Object.fromEntries(
    rows.map((row) => {
      const [key, value] = entry(row);
      return [decodeName(key), value];
    }),
  );
}
