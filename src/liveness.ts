import { readFileSync, readlinkSync } from "node:fs";
import { hostname } from "node:os";
import process from "node:process";

/** Names this process on this machine, so that another one can tell whether it still lives. */
export function thisProcess(): string {
  return JSON.stringify({ host, pid: process.pid, start: startOf(process.pid) });
}

/** Whether the process of this name may be alive. False only for one of this machine that is certainly gone. */
export function mayLive(name: string): boolean {
  const { host: itsHost, pid, start } = parse(name);
  if (typeof pid !== "number") return false;
  if (itsHost !== host) return true;
  try {
    process.kill(pid, 0);
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code === "ESRCH") return false;
  }
  // A pid alone may be another process by now.
  return start === null || start === startOf(pid);
}

function parse(name: string): Readonly<Record<string, unknown>> {
  try {
    return Object(JSON.parse(name)) as Record<string, unknown>;
  } catch {
    return {};
  }
}

/** When a process began, from /proc; "gone" for one that ended and only waits for its parent. Null elsewhere. */
function startOf(pid: number): string | null {
  const text = attempt(() => readFileSync(`/proc/${pid}/stat`, "utf8"));
  if (text === null) return null;
  // The name in parentheses may hold anything. What follows is the state, and 19 fields on the start.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return ["Z", "X"].includes(fields[0] ?? "") ? "gone" : (fields[19] ?? null);
}

function attempt<T>(action: () => T): T | null {
  try {
    return action();
  } catch {
    return null;
  }
}

/** Process ids mean something only inside one pid namespace. */
const host = [hostname(), attempt(() => readlinkSync("/proc/self/ns/pid")) ?? ""].join(" ");
