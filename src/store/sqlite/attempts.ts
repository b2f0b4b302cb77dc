import { cleanMessage, failure, instant } from "../rules.ts";
import type { Attempt, Journal, Outcome, Progress, Renewal, StepRecord, Waits } from "../store.ts";
import { encodeName, readJournal, type TaskRow } from "./rows.ts";
import type { Statements } from "./statements.ts";
import { countAttempt, end, endOrUnwind, enqueue, requeue, reveal, touch } from "./transitions.ts";
import { storeWaits } from "./waits.ts";
import type { Transaction } from "./writes.ts";

/** The verbs of an attempt. Each one passes the fence first, and changes nothing if the lease is lost. */

function leased(sql: Statements, { taskId, epoch }: Attempt): TaskRow | undefined {
  return sql.findLeased.get({ id: taskId, epoch }) as unknown as TaskRow | undefined;
}

export function renew(tx: Transaction, holder: string, attempts: readonly Attempt[], leaseMs: number): Renewal {
  const lost: Attempt[] = [];
  const cancelled: Attempt[] = [];
  const until = instant(tx.now, leaseMs);
  for (const { taskId, epoch } of attempts) {
    const held = tx.sql.renew.get({ id: taskId, epoch, holder, until });
    if (held === undefined) lost.push({ taskId, epoch });
    else if (held.cancelRequested === 1) cancelled.push({ taskId, epoch });
  }
  return { lost, cancelled };
}

export function startStep(tx: Transaction, attempt: Attempt, key: string): boolean {
  const row = leased(tx.sql, attempt);
  if (row === undefined) return false;
  tx.sql.startStep.run({ task: row.seq, key: encodeName(key) });
  return true;
}

/** A step that failed is no progress: else a tool that is tried again for the same failure would be for ever. */
export function recordStep(tx: Transaction, attempt: Attempt, name: string, record: StepRecord): boolean {
  const row = leased(tx.sql, attempt);
  if (row === undefined) return false;
  const task = row.seq;
  const key = encodeName(name);
  switch (record.state) {
    case "started":
      if (record.wakeAt === null) tx.sql.startStep.run({ task, key });
      else tx.sql.setTimer.run({ task, key, wakeAt: record.wakeAt, now: tx.now });
      break;
    case "done":
      tx.sql.endStep.run({ task, key, state: "done", value: record.value });
      break;
    case "failed":
      tx.sql.endStep.run({ task, key, state: "failed", value: record.error });
      return true;
  }
  if (row.strikes > 0) countAttempt(tx, Object.assign(row, { strikes: 0 }));
  return true;
}

/** Several statements: the caller sees to it that they read one moment. */
export function journal(sql: Statements, attempt: Attempt): Journal | null {
  const row = leased(sql, attempt);
  return row === undefined ? null : readJournal(sql, row.seq);
}

export function setStatus(
  tx: Transaction,
  attempt: Attempt,
  message: string | null,
  progress: Progress | null,
): boolean {
  const row = leased(tx.sql, attempt);
  if (row === undefined) return false;
  const next = {
    statusMessage: message === null ? null : cleanMessage(message),
    progress: progress === null ? null : JSON.stringify(progress),
  };
  if (next.statusMessage !== row.statusMessage || next.progress !== row.progress) reveal(tx, row, next);
  return true;
}

export function park(tx: Transaction, attempt: Attempt, waits: Waits, hold: boolean): boolean {
  const row = leased(tx.sql, attempt);
  if (row === undefined) return false;
  if (row.cancelRequested === 1) {
    endOrUnwind(tx, row, "attempt");
    return true;
  }
  row.strikes = 0;
  const { asked, open, dueAt } = storeWaits(tx, row.seq, waits, hold);
  const status = open ? "input_required" : "working";
  if (!hold) {
    if (dueAt === null) tx.sql.dropActivation.run({ task: row.seq });
    else enqueue(tx, row.seq, dueAt);
  }
  if (status !== row.status || asked) reveal(tx, row, { status });
  else touch(tx, row);
  return true;
}

export function finish(tx: Transaction, attempt: Attempt, outcome: Outcome): boolean {
  const row = leased(tx.sql, attempt);
  if (row === undefined) return false;
  end(tx, row, outcome, "attempt");
  return true;
}

export function release(
  tx: Transaction,
  attempt: Attempt,
  { delayMs, spend }: { readonly delayMs: number; readonly spend: boolean },
): boolean {
  const row = leased(tx.sql, attempt);
  if (row === undefined) return false;
  // Even an attempt that made progress counts as one when it is to be spent.
  row.strikes = spend ? Math.max(row.strikes, 1) : Math.max(row.strikes - 1, 0);
  if (spend) tx.sql.forgetFailed.run({ task: row.seq });
  if (row.cancelRequested === 1) endOrUnwind(tx, row, "attempt");
  // No sense in a pause before the end.
  else if (row.strikes >= row.attempts) end(tx, row, failure("ATTEMPTS_EXHAUSTED", row.strikes), "attempt");
  else requeue(tx, row, instant(tx.now, delayMs));
  return true;
}
