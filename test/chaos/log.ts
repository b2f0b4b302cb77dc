import { openSync, readFileSync, writeSync } from "node:fs";

/** What a process does, as it does it: one line each, in one file for all of them. */
export type Entry =
  /** A handler began. */
  | readonly ["run", task: string]
  /** A step's function ran, up to where it knew its value. */
  | readonly ["ran", task: string, key: string, token: string]
  /** A handler got a value from its task. */
  | readonly ["saw", task: string, key: string, value: string]
  | readonly ["died", task: string]
  | readonly ["claim", task: string, epoch: number]
  /** A write of a worker begins. `detail` is what it writes. */
  | readonly ["begin", write: string, task: string, epoch: number, verb: string, detail: unknown]
  | readonly ["end", write: string, taken: boolean]
  | readonly ["error", code: string, message: string]
  /** What the harness itself did. */
  | readonly ["blow", kind: string, detail: string];

export type Append = (entry: Entry) => void;

/**
 * Appends lines to the file. One append is one write, in the kernel's hands when it returns: lines of several processes
 * don't mix, a kill loses none, and if one event came before another then so do their lines.
 */
export function openLog(file: string): Append {
  const descriptor = openSync(file, "a");
  return (entry) => void writeSync(descriptor, `${Date.now()} ${process.pid} ${JSON.stringify(entry)}\n`);
}

const linesOf = (file: string) => readFileSync(file, "utf8").split("\n").slice(0, -1);
const entryOf = (line: string) => JSON.parse(line.split(" ").slice(2).join(" ")) as Entry;

export function readLog(file: string): Entry[] {
  return linesOf(file).map(entryOf);
}

/** The lines of one task with their instants and processes, among the blows, for a person to read. */
export function excerpt(file: string, taskId: string): string[] {
  const writes = new Set<string>();
  return linesOf(file).filter((line) => {
    const entry = entryOf(line);
    if (entry[0] === "begin" && entry[2] === taskId) writes.add(entry[1]);
    return entry[0] === "blow" || (entry[0] === "end" ? writes.has(entry[1]) : line.includes(taskId));
  });
}
