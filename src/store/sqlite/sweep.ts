import { failure, instant, memoryMs } from "../rules.ts";
import type { Swept } from "../store.ts";
import { recoverLost, type FindDead } from "./claim.ts";
import { endAll } from "./transitions.ts";
import { endLate } from "./waits.ts";
import { batch, type Transaction } from "./writes.ts";

/** One round of what time brings about. Each part is bounded, so that the file is never locked for long. */
export function sweep(tx: Transaction, findDead: FindDead): Swept {
  const limits = { now: tx.now, most: batch };
  // Before the cancelled ones: a task that is both was cut off by its own tool's limit.
  const timedOut = endAll(tx, tx.sql.timedOut.all(limits), failure("TIMED_OUT"));
  const cancelled = endAll(tx, tx.sql.graceOver.all(limits), { status: "cancelled", statusMessage: null });
  const recovered = recoverLost(tx, findDead);
  const late = endLate(tx);
  const purged = purge(tx);
  const forgotten = Number(tx.sql.forgetTombstones.run(limits).changes);
  return {
    timedOut,
    cancelled: cancelled + recovered.cancelled,
    purged,
    more: recovered.more || [timedOut, cancelled, late, purged.length, forgotten].includes(batch),
  };
}

function purge(tx: Transaction): string[] {
  const found = tx.sql.overdue.all({ now: tx.now, most: batch }) as unknown as {
    seq: number;
    id: string;
    owner: string;
    keepMs: number;
  }[];
  for (const { seq, id, owner, keepMs } of found) {
    tx.sql.bury.run({ id, owner, until: instant(tx.now, memoryMs(keepMs)) });
    tx.sql.purge.run({ seq });
  }
  return found.map(({ id }) => id);
}
