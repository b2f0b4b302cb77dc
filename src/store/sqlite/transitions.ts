import type { TaskStatus } from "../../protocol/status.ts";
import { cleanMessage, instant } from "../rules.ts";
import type { Outcome } from "../store.ts";
import type { TaskRow } from "./rows.ts";
import type { Transaction } from "./writes.ts";

/** The moves that verbs are made of. Each one writes what it changed of the row. */

/** What of a task clients can see, and a verb may change. */
export interface Visible {
  readonly status?: TaskStatus;
  readonly statusMessage?: string | null;
  readonly progress?: string | null;
  readonly cancelRequested?: 1;
}

/** Writes down what attempts came to: nobody's business but the workers', and told to no one. */
export function countAttempt(tx: Transaction, { seq, epoch, strikes }: TaskRow): void {
  tx.sql.countAttempt.run({ seq, epoch, strikes });
}

function save(tx: Transaction, row: TaskRow): void {
  tx.sql.save.run({
    seq: row.seq,
    status: row.status,
    statusMessage: row.statusMessage,
    progress: row.progress,
    updatedAt: row.updatedAt,
    turnedAt: row.turnedAt,
    deadline: row.deadline,
    finishedAt: row.finishedAt,
    purgeAt: row.purgeAt,
    rev: row.rev,
    epoch: row.epoch,
    strikes: row.strikes,
    cancelRequested: row.cancelRequested,
    cancelBy: row.cancelBy,
    changed: row.changed,
    error: row.error,
    result: row.result,
  });
}

/** Writes a row and tells those who watch: workers may have something to do. */
export function touch(tx: Transaction, row: TaskRow): void {
  row.changed = tx.change(row.id);
  save(tx, row);
}

/** Makes a visible change. A clock that went back doesn't take `updatedAt` with it. */
export function reveal(tx: Transaction, row: TaskRow, change: Visible): void {
  const turned = change.status !== undefined && change.status !== row.status;
  Object.assign(row, change);
  row.rev += 1;
  row.updatedAt = Math.max(row.updatedAt, tx.now);
  if (turned) row.turnedAt = row.updatedAt;
  touch(tx, row);
}

/** Ends a task, by its own attempt or over its head; then the epoch rises, and whoever still runs it is fenced. */
export function end(tx: Transaction, row: TaskRow, outcome: Outcome, by: "attempt" | "store"): void {
  const statusMessage = "statusMessage" in outcome ? outcome.statusMessage : null;
  row.finishedAt = Math.max(row.updatedAt, tx.now);
  row.purgeAt = row.keepMs === null ? null : instant(row.finishedAt, row.keepMs);
  row.deadline = null;
  row.cancelBy = null;
  if (by === "store") row.epoch += 1;
  if (outcome.status === "completed") row.result = outcome.result;
  if (outcome.status === "failed") row.error = outcome.error;
  tx.sql.dropActivation.run({ task: row.seq });
  reveal(tx, row, {
    status: outcome.status,
    ...(statusMessage === null ? {} : { statusMessage: cleanMessage(statusMessage) }),
  });
}

/** The end of a cancelled attempt: of the task too, unless its handler is to see the cancel and has attempts left. */
export function endOrUnwind(tx: Transaction, row: TaskRow, by: "attempt" | "store"): void {
  if (row.unwind === 1 && row.strikes < row.attempts) {
    unwind(tx, row.seq);
    if (row.status === "input_required") reveal(tx, row, { status: "working" });
    else touch(tx, row);
  } else end(tx, row, { status: "cancelled", statusMessage: null }, by);
}

/** Queues a cancelled task for its handler to clean up: what it waited for is neither asked any more nor over. */
export function unwind(tx: Transaction, task: number): void {
  tx.sql.closeInputs.run({ task });
  tx.sql.forgetAwaited.run({ task });
  enqueue(tx, task);
}

/** Ends tasks that a statement found by their `seq`; tells how many there were. */
export function endAll(tx: Transaction, found: readonly object[], outcome: Outcome): number {
  for (const { seq } of found as { seq: number }[]) {
    end(tx, tx.sql.findSeq.get({ seq }) as unknown as TaskRow, outcome, "store");
  }
  return found.length;
}

/** Queues a task's activation, for now or for an instant. */
export function enqueue(tx: Transaction, task: number, dueAt = 0): void {
  const delayed = dueAt > tx.now;
  tx.sql.enqueue.run({ task, state: delayed ? "delayed" : "ready", due: delayed ? dueAt : 0 });
  if (!delayed) tx.sql.enterLane.run({ task });
}

/** Queues a task for now that waits; not one that somebody is at, or about to be, or that pauses after a failure. */
export function wake(tx: Transaction, task: number): void {
  if (tx.sql.isWaiting.get({ task }) !== undefined) enqueue(tx, task);
}

/** Puts a task whose attempt is over back in the queue. */
export function requeue(tx: Transaction, row: TaskRow, dueAt = 0): void {
  enqueue(tx, row.seq, dueAt);
  touch(tx, row);
}
