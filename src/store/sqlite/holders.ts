import { mayLive, thisProcess } from "../../liveness.ts";
import type { FindDead } from "./claim.ts";

const recheckMs = 200;
const self = JSON.parse(thisProcess()) as object;

/** This process, as it signs its leases for one of its workers: its name, with the worker's added. */
export function holderName(worker: string): string {
  return JSON.stringify({ worker, ...self });
}

/** Looks at each process again no sooner than after a while, so that a claim stays cheap. */
export function createLivenessCheck(): FindDead {
  let seen = new Map<string, { readonly alive: boolean; readonly at: number }>();
  return (holders) => {
    const now = performance.now();
    const next: typeof seen = new Map();
    for (const holder of holders) {
      const known = seen.get(holder);
      const fresh = known !== undefined && (!known.alive || now - known.at < recheckMs);
      next.set(holder, fresh ? known : { alive: mayLive(holder), at: now });
    }
    seen = next;
    return holders.filter((holder) => next.get(holder)?.alive === false);
  };
}
