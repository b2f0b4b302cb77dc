import type { Statements } from "./statements.ts";

/** So many owners are remembered at most. */
const mostOwners = 1_000;

/** How many unfinished tasks owners have. */
export interface LiveCounts {
  /** Whether an owner has fewer than `limit` of them, once there were so many changes. */
  below(limit: number, owner: string, changes: number): boolean;
  /** A transaction in which this was asked came to nothing. */
  forget(): void;
}

/**
 * Counts only near the limit. A create is a change, and so is an end, by whatever process: since an owner's tasks were
 * counted, their number has moved by no more than there were changes since.
 */
export function createLiveCounts(sql: Statements): LiveCounts {
  const counted = new Map<string, { readonly live: number; readonly limit: number; readonly changes: number }>();
  return {
    below(limit, owner, changes) {
      const known = counted.get(owner);
      // Whoever was counted up to a lower limit may have more.
      if (known !== undefined && known.limit >= limit) {
        const moved = changes - known.changes;
        if (known.live + moved < limit) return true;
        if (known.live - moved >= limit) return false;
      }
      const live = Number(sql.countLive.get({ owner, most: limit })?.live);
      if (counted.size >= mostOwners) counted.clear();
      counted.set(owner, { live, limit, changes });
      return live < limit;
    },
    forget: () => counted.clear(),
  };
}
