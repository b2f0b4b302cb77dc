import { linkSync, readFileSync, readdirSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import path from "node:path";
import { mayLive, thisProcess } from "../liveness.ts";

const pattern = /^lock\.(\d+)$/;

/**
 * Takes the lock of a folder, or returns undefined while a living process has it. The returned function gives it back.
 *
 * A lock is a file with a number, and the highest number counts. To take over from a process that died is to make the
 * next number, which only one can; no lock of a living process is ever removed, however slow its rivals are.
 */
export function takeLock(folder: string): (() => void) | undefined {
  const draft = path.join(folder, `draft.${crypto.randomUUID()}`);
  writeFileSync(draft, thisProcess(), { mode: 0o600 });
  try {
    for (;;) {
      const last = highest(folder);
      if (last > 0 && isHeld(lockFile(folder, last))) return undefined;
      const mine = last + 1;
      if (!made(draft, lockFile(folder, mine))) continue;
      if (highest(folder) !== mine) {
        // Somebody had gone on from a number that we found too late.
        rmSync(lockFile(folder, mine), { force: true });
        continue;
      }
      for (const older of numbers(folder)) if (older < mine) rmSync(lockFile(folder, older), { force: true });
      return () => truncateSync(lockFile(folder, mine));
    }
  } finally {
    rmSync(draft, { force: true });
  }
}

const lockFile = (folder: string, number: number) => path.join(folder, `lock.${number}`);

const numbers = (folder: string) => readdirSync(folder).flatMap((name) => Number(pattern.exec(name)?.[1] ?? []));

const highest = (folder: string) => Math.max(0, ...numbers(folder));

/** A file that was emptied is a lock that was given back; one that is gone has a higher one after it. */
function isHeld(file: string): boolean {
  try {
    const name = readFileSync(file, "utf8");
    return name !== "" && mayLive(name);
  } catch {
    return false;
  }
}

/** A link is made with its content, whole, and only if there is none of that name. */
function made(draft: string, file: string): boolean {
  try {
    linkSync(draft, file);
    return true;
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw thrown;
  }
}
