import { failure, instant, timedOut } from "../rules.ts";
import type { CallerFacts, Claim, ClaimRequest } from "../store.ts";
import { encodeName, readEvents, readJournal, toTask, type TaskRow } from "./rows.ts";
import { countAttempt, end, endAll, endOrUnwind, enqueue, requeue } from "./transitions.ts";
import type { Statements } from "./statements.ts";
import { endLate } from "./waits.ts";
import { batch, type Transaction } from "./writes.ts";

/** A task with the call that started it. */
interface WorkRow extends TaskRow {
  readonly client: string;
  readonly auth: string;
  readonly answers: string;
  readonly args: string;
}

/** Tells which of the processes that hold leases are certainly gone. */
export type FindDead = (holders: readonly string[]) => readonly string[];

/** First what is over ends and what is due is made ready, then the ready ones are picked from. */
export function claim(tx: Transaction, request: ClaimRequest, holder: string, findDead: FindDead): Claim[] {
  endAll(tx, tx.sql.timedOut.all({ now: tx.now, most: batch }), timedOut);
  recoverLost(tx, findDead);
  endLate(tx);
  promoteDue(tx);
  const kinds = {
    tools: JSON.stringify(
      request.tools.map(({ name, version, limit }) => ({
        name: encodeName(name),
        version: encodeName(version),
        limit,
      })),
    ),
    queues: JSON.stringify(request.queues.map(encodeName)),
    ownerLimit: request.ownerLimit,
  };
  const claims: Claim[] = [];
  while (claims.length < request.count) {
    const lane = tx.sql.nextLane.get(kinds) as unknown as
      | { id: number; owner: string; head: number | null }
      | undefined;
    if (lane === undefined) break;
    if (lane.head === null) {
      tx.sql.dropLane.run({ id: lane.id });
      continue;
    }
    const row = tx.sql.findWork.get({ seq: lane.head }) as unknown as WorkRow;
    if (isOver(tx, row)) continue;
    tx.sql.served.run({ owner: lane.owner });
    claims.push(lease(tx, row, holder, request.leaseMs));
  }
  return claims;
}

/** Ends a task whose time or attempts are used up, so that nobody runs it for nothing. */
function isOver(tx: Transaction, row: TaskRow): boolean {
  if (row.deadline !== null && row.deadline <= tx.now) end(tx, row, timedOut, "store");
  else if (row.strikes >= row.attempts) end(tx, row, failure("ATTEMPTS_EXHAUSTED", row.strikes), "store");
  return row.finishedAt !== null;
}

function lease(tx: Transaction, row: WorkRow, holder: string, leaseMs: number): Claim {
  const task = row.seq;
  row.epoch += 1;
  row.strikes += 1;
  countAttempt(tx, row);
  tx.sql.lease.run({ task, holder, until: instant(tx.now, leaseMs) });
  const first = row.epoch === 1;
  // What an earlier attempt waited for must not cut short the pause before a later one.
  if (!first) tx.sql.forgetAwaited.run({ task });
  return {
    taskId: row.id,
    epoch: row.epoch,
    task: toTask({ ...row, activation: "leased" }),
    args: row.args,
    answers: row.answers,
    client: JSON.parse(row.client) as CallerFacts,
    auth: row.auth,
    attempt: row.strikes,
    deadline: row.deadline,
    now: tx.now,
    journal: first ? { steps: {}, inputs: {}, events: readEvents(tx.sql, task) } : readJournal(tx.sql, task),
  };
}

/** Takes back leases that ran out, or whose process is gone. The attempt was counted when it was claimed. */
export function recoverLost(tx: Transaction, findDead: FindDead): { cancelled: number; more: boolean } {
  const holders = tx.sql.holders.all() as unknown as { holder: string }[];
  const dead = findDead(holders.map(({ holder }) => holder));
  const lost = [
    ...tx.sql.expiredLeases.all({ now: tx.now, most: batch }),
    ...dead.flatMap((holder) => tx.sql.leasesOf.all({ holder, most: batch })),
  ];
  const tasks = new Set(lost.map(({ task }) => Number(task)));
  let cancelled = 0;
  for (const seq of tasks) {
    const row = tx.sql.findSeq.get({ seq }) as unknown as TaskRow;
    if (row.cancelRequested === 1) {
      endOrUnwind(tx, row, "store");
      if (row.finishedAt !== null) cancelled += 1;
    } else if (row.recovery === "fail") end(tx, row, failure("INTERRUPTED"), "store");
    else if (!isOver(tx, row)) requeue(tx, row);
  }
  return { cancelled, more: lost.length >= batch };
}

function promoteDue(tx: Transaction): void {
  for (const { task } of tx.sql.due.all({ now: tx.now, most: batch })) enqueue(tx, Number(task));
}

/** Milliseconds until a timer, the timeout of a wait or the end of a lease. */
export function nextDue(sql: Statements, now: number): number | null {
  const instants = (sql.nextDue.all() as unknown as { at: number | null }[]).flatMap(({ at }) => at ?? []);
  return instants.length === 0 ? null : Math.max(0, Math.min(...instants) - now);
}
