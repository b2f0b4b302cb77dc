import { readFileSync, readlinkSync } from "node:fs";
import { hostname } from "node:os";
import process from "node:process";
import type { FindDead } from "./claim.ts";

/** Who holds a lease: enough to tell, on the same machine, whether that process is still there. */
interface Holder {
  readonly worker: string;
  readonly host: string;
  readonly pid: number;
  /** When the process began, in the system's own terms; null where that is not known. A pid alone may be another's by now. */
  readonly start: string | null;
}

const recheckMs = 200;

/** This process, as it signs its leases for one of its workers. */
export function holderName(worker: string): string {
  return JSON.stringify({ worker, host, pid: process.pid, start } satisfies Holder);
}

/** Process ids mean something only inside one pid namespace: a container beside us may have our host's name. */
const host = [hostname(), attempt(() => readlinkSync("/proc/self/ns/pid")) ?? ""].join(" ");
const start = startOf(process.pid);

/** Looks at each process again no sooner than after a while, so that a claim stays cheap. */
export function createLivenessCheck(): FindDead {
  let seen = new Map<string, { readonly alive: boolean; readonly at: number }>();
  return (holders) => {
    const now = performance.now();
    const next: typeof seen = new Map();
    for (const holder of holders) {
      const known = seen.get(holder);
      const fresh = known !== undefined && (!known.alive || now - known.at < recheckMs);
      next.set(holder, fresh ? known : { alive: isAlive(holder), at: now });
    }
    seen = next;
    return holders.filter((holder) => next.get(holder)?.alive === false);
  };
}

/** False only for a process of this machine that is certainly gone. Of others nothing is known: their lease decides. */
function isAlive(holder: string): boolean {
  const { host: itsHost, pid, start } = JSON.parse(holder) as Holder;
  if (itsHost !== host || pid === process.pid) return itsHost !== host || start === startOf(pid);
  try {
    process.kill(pid, 0);
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code === "ESRCH") return false;
  }
  return start === null || start === startOf(pid);
}

/** When a process began, from /proc; "gone" for one that ended and only waits for its parent. Null elsewhere. */
function startOf(pid: number): string | null {
  const stat = attempt(() => readFileSync(`/proc/${pid}/stat`, "utf8"));
  if (stat === null) return null;
  // The name in parentheses may hold anything, spaces too; what follows is the state, and 19 fields on the start.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return ["Z", "X"].includes(fields[0] ?? "") ? "gone" : (fields[19] ?? null);
}

function attempt<T>(action: () => T): T | null {
  try {
    return action();
  } catch {
    return null;
  }
}
