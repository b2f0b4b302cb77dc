import { TaskError } from "../../errors.ts";
import type { InputResponse } from "../../protocol/input.ts";
import { cleanMessage, instant, newTask } from "../rules.ts";
import type { Census, Gone, ListFilter, LiveCount, NewTask, Place, QueueCount, Reuse, Task } from "../store.ts";
import { decodeName, encodeName, fromValues, toTask, type TaskRow } from "./rows.ts";
import type { Statements } from "./statements.ts";
import { end, enqueue, reveal, touch, unwind, wake } from "./transitions.ts";
import { endLateOf, endLateAt, unanswered } from "./waits.ts";
import type { Transaction } from "./writes.ts";

/** The verbs of any replica. */

export function create(tx: Transaction, task: NewTask, liveLimit: number | null): Task {
  const owner = encodeName(task.owner);
  const { reuse } = task;
  const earlier = reuse === null ? undefined : reusable(tx, owner, reuse);
  if (earlier !== undefined) return earlier;
  if (liveLimit !== null && !tx.live.below(liveLimit, owner, tx.changes)) throw new TaskError("TOO_MANY_TASKS");
  const { lastInsertRowid } = tx.sql.insertTask.run({
    id: task.id,
    owner,
    tool: encodeName(task.tool),
    version: encodeName(task.version),
    queue: encodeName(task.queue),
    priority: task.priority,
    now: tx.now,
    timeoutMs: task.timeoutMs,
    keepMs: task.keepMs,
    deadline: task.timeoutMs === null ? null : instant(tx.now, task.timeoutMs),
    attempts: task.attempts,
    recovery: task.recovery,
    unwind: task.unwind ? 1 : 0,
    changed: tx.change(task.id),
  });
  const { auth, answers, args } = task;
  tx.sql.insertCall.run({ client: JSON.stringify(task.client), auth, answers, args });
  const seq = Number(lastInsertRowid);
  enqueue(tx, seq);
  if (reuse !== null) tx.sql.setReusable.run({ owner, key: encodeName(reuse.key), call: reuse.call, task: seq });
  return newTask(task, tx.now);
}

/** The task that stands for a call already. */
function reusable(tx: Transaction, owner: string, { key, call, scope }: Reuse): Task | undefined {
  const who = { owner, key: encodeName(key), scope, now: tx.now };
  const row = tx.sql.findReusable.get(who) as unknown as (TaskRow & { readonly reuseCall: string }) | undefined;
  if (row !== undefined && row.reuseCall !== call) throw new TaskError("IDEMPOTENCY_MISMATCH");
  return row === undefined ? undefined : toTask(row);
}

/** A row that may be read; `expired` also for a finished one that no sweep has come by yet. */
function look(sql: Statements, now: number, id: string, owner: string): TaskRow | Gone | undefined {
  const row = sql.find.get({ id, owner: encodeName(owner) }) as unknown as TaskRow | undefined;
  if (row === undefined) return buried(sql, id, owner);
  return isOver(row, now) ? "expired" : row;
}

function buried(sql: Statements, id: string, owner: string): Gone | undefined {
  return sql.findTombstone.get({ id, owner: encodeName(owner) }) === undefined ? undefined : "expired";
}

function isOver({ purgeAt }: { readonly purgeAt: number | null }, now: number): boolean {
  return purgeAt !== null && purgeAt <= now;
}

export function get(sql: Statements, now: number, id: string, owner: string): Task | Gone | undefined {
  const values = sql.read.get(id, encodeName(owner)) as unknown as readonly unknown[] | undefined;
  if (values === undefined) return buried(sql, id, owner);
  const row = fromValues(values);
  return isOver(row, now) ? "expired" : toTask(row);
}

export function answer(
  tx: Transaction,
  id: string,
  owner: string,
  responses: Readonly<Record<string, InputResponse>>,
  refused: string | null,
): Task | Gone | undefined {
  const row = look(tx.sql, tx.now, id, owner);
  if (typeof row !== "object") return row;
  if (row.status !== "input_required") return toTask(row);
  const task = row.seq;
  const given = Object.entries(responses);
  let stored = 0;
  for (const [key, response] of given) {
    const text = JSON.stringify(response);
    stored += Number(tx.sql.answer.run({ task, key: encodeName(key), response: text, now: tx.now }).changes);
  }
  // One that was not taken may have come too late: then its question is gone when its sender looks.
  const isLate = stored < given.length && tx.sql.isInputOver.get({ task, now: tx.now }) !== undefined;
  const ended = isLate ? endLateOf(tx, task) : { inputs: false, events: false };
  const moved = stored > 0 || ended.inputs || ended.events;
  const { open, late } = unanswered(tx, task);
  // Someone who holds the task in memory goes on with it; otherwise it is queued.
  if (open === 0 || (moved && late)) wake(tx, task);
  if (open === 0) reveal(tx, row, { status: "working", statusMessage: null });
  else if (moved || refused !== null) reveal(tx, row, refused === null ? {} : { statusMessage: cleanMessage(refused) });
  return toTask(tx.sql.findSeq.get({ seq: task }) as unknown as TaskRow);
}

export function send(tx: Transaction, id: string, key: string, value: string): boolean {
  const row = tx.sql.findAny.get({ id }) as unknown as TaskRow | undefined;
  if (row === undefined || row.finishedAt !== null) return false;
  const task = row.seq;
  const kept = tx.sql.keepEvent.get({ task, key: encodeName(key), value, now: tx.now });
  if (kept === undefined) {
    // It may have come too late: then its wait is over by now.
    endLateAt(tx, task);
    return true;
  }
  if (kept.awaited === 1 && (row.status === "working" || unanswered(tx, task).late)) wake(tx, task);
  touch(tx, row);
  return true;
}

export function requestCancel(tx: Transaction, id: string, owner: string, graceMs: number): Task | Gone | undefined {
  const row = look(tx.sql, tx.now, id, owner);
  if (typeof row !== "object") return row;
  if (row.finishedAt !== null || row.cancelRequested === 1) return toTask(row);
  const lease = tx.sql.heldUntil.get({ task: row.seq });
  row.cancelRequested = 1;
  if (lease !== undefined && Number(lease.until) > tx.now) {
    row.cancelBy = instant(tx.now, graceMs);
    reveal(tx, row, {});
  } else if (row.unwind === 1 && row.epoch > 0) {
    row.cancelBy = instant(tx.now, graceMs);
    unwind(tx, row.seq);
    reveal(tx, row, { status: "working" });
  } else end(tx, row, { status: "cancelled", statusMessage: null }, "store");
  return toTask(tx.sql.findSeq.get({ seq: row.seq }) as unknown as TaskRow);
}

export function census(sql: Statements, now: number): Census {
  const live = sql.countLiveByTool.all() as unknown as LiveCount[];
  const queues = sql.countQueued.all({ now }) as unknown as QueueCount[];
  return {
    live: live.map((row) => ({ ...row, tool: decodeName(row.tool) })),
    queues: queues.map((row) => ({ ...row, queue: decodeName(row.queue), oldestMs: Math.max(0, row.oldestMs) })),
  };
}

export function page(sql: Statements, now: number, owner: string, after: Place | null, limit: number): Task[] {
  const { createdAt, id } = after ?? { createdAt: Number.MAX_SAFE_INTEGER, id: "" };
  const rows = sql.page.all({ owner: encodeName(owner), createdAt, id, now, limit }) as unknown as TaskRow[];
  return rows.map(toTask);
}

export function list(sql: Statements, filter: ListFilter): Task[] {
  const rows = sql.list.all({
    status: filter.status ?? null,
    tool: filter.tool === undefined ? null : encodeName(filter.tool),
    owner: filter.owner === undefined ? null : encodeName(filter.owner),
    before: filter.before ?? null,
    limit: filter.limit,
  }) as unknown as TaskRow[];
  return rows.map(toTask);
}
