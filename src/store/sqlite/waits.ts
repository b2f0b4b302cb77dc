import { instant, lateResponse, lateValue } from "../rules.ts";
import type { Waits } from "../store.ts";
import { encodeName, type TaskRow } from "./rows.ts";
import { reveal, touch, wake } from "./transitions.ts";
import { batch, type Transaction } from "./writes.ts";

/** What a task waits for, and what ends it. */

/** How many requests of a task are open, and whether one of its waits has ever timed out. */
export function unanswered(tx: Transaction, task: number): { open: number; late: boolean } {
  const counted = tx.sql.countOpen.get({ task });
  return { open: Number(counted?.open), late: counted?.late === 1 };
}

/** What an attempt's waits came to: whether something is asked anew or open, and when the task goes on; null: not by itself. */
interface Stored {
  readonly asked: boolean;
  readonly open: boolean;
  readonly dueAt: number | null;
}

/** Stores what an attempt waits for. */
export function storeWaits(tx: Transaction, task: number, waits: Waits, hold: boolean): Stored {
  // A held attempt tells of its waits as they come, any other of all of them at once.
  if (!hold) {
    tx.sql.closeInputs.run({ task });
    tx.sql.forgetAwaited.run({ task });
  }
  const until = (timeoutMs: number | undefined) => (timeoutMs === undefined ? null : instant(tx.now, timeoutMs));
  let asked = false;
  for (const { key: name, request, timeoutMs, since = name } of waits.inputs) {
    const key = encodeName(name);
    const ask = { task, key, request: JSON.stringify(request), until: until(timeoutMs), since: encodeName(since) };
    const { changes } = tx.sql.ask.run(ask);
    asked ||= Number(changes) > 0;
  }
  const due: number[] = [];
  for (const { key, timeoutMs } of waits.events) {
    const known = tx.sql.awaitEvent.get({ task, key: encodeName(key), until: until(timeoutMs) });
    if (known?.value !== null) due.push(0);
  }
  for (const { key: name, dueInMs } of waits.timers) {
    const key = encodeName(name);
    tx.sql.setTimer.run({ task, key, wakeAt: instant(tx.now, dueInMs), now: tx.now });
    // Null: that step has ended already.
    due.push(Number(tx.sql.timer.get({ task, key })?.wakeAt ?? 0));
  }
  // What has a timeout from an earlier attempt keeps it.
  if (tx.sql.mayBeOver.get({ task }) !== undefined && endLateOf(tx, task).events) due.push(0);
  const { open, late } = unanswered(tx, task);
  const hasCome = ({ key }: { key: string }) =>
    tx.sql.findResponse.get({ task, key: encodeName(key) })?.response !== null;
  if (open === 0) {
    if (waits.inputs.length > 0 || (waits.events.length === 0 && due.length === 0)) due.push(0);
  } else if (!late) due.length = 0;
  else if (waits.inputs.some(hasCome)) due.push(0);
  return { asked, open: open > 0, dueAt: due.length === 0 ? null : Math.min(...due) };
}

/** Ends those waits of a task whose timeout has passed; tells whether there were requests and events among them. */
export function endLateOf(tx: Transaction, task: number): { inputs: boolean; events: boolean } {
  const inputs = Number(tx.sql.endLateInputs.run({ task, now: tx.now, lateResponse }).changes);
  const events = Number(tx.sql.endLateEvents.run({ task, now: tx.now, lateValue }).changes);
  tx.sql.setWaitUntil.run({ task, late: inputs + events > 0 ? 1 : 0 });
  return { inputs: inputs > 0, events: events > 0 };
}

/** Ends waits whose timeout has passed, and wakes their tasks; tells how many tasks it looked at. */
export function endLate(tx: Transaction): number {
  // Asked by each claim: where no wait has a timeout, that is a microsecond, and the search below five.
  if (tx.sql.anyTimeout.get() === undefined) return 0;
  const found = tx.sql.waitsOver.all({ now: tx.now, most: batch }) as { seq: number }[];
  for (const { seq } of found) endLateAt(tx, seq);
  return found.length;
}

/** Ends those waits of a task whose timeout has passed, and wakes it if there were any. */
export function endLateAt(tx: Transaction, task: number): void {
  const { inputs, events } = endLateOf(tx, task);
  if (!inputs && !events) return;
  wake(tx, task);
  const row = tx.sql.findSeq.get({ seq: task }) as unknown as TaskRow;
  if (row.status === "input_required" && unanswered(tx, task).open === 0)
    reveal(tx, row, { status: "working", statusMessage: null });
  else if (inputs) reveal(tx, row, {});
  else touch(tx, row);
}
