import { createHash } from "node:crypto";
import { z } from "zod";
import type { InputResponse } from "../protocol/input.ts";
import type { LoggedTask } from "./log.ts";

interface TaskRecord {
  readonly task: LoggedTask;
  /** The process that has it. */
  readonly holder: string;
  /** The keys whose answers it tells: all others stand as the records before left them. Without them it tells all. */
  readonly keys?: readonly string[];
}

/** A record of a log file: an entry, or that an entry is gone. */
export type LogRecord = TaskRecord | { readonly gone: string };

const answer = z.custom<InputResponse>((value) => typeof value === "object" && value !== null).nullable();
const task = z.object({
  call: z.string(),
  server: z.object({ address: z.string(), name: z.string() }),
  tool: z.string().nullable(),
  digest: z.string().nullable(),
  idempotencyKey: z.string().exactOptional(),
  startedAt: z.number(),
  taskId: z.string().nullable(),
  state: z.enum(["calling", "asking", "working", "input_required", "completed", "failed", "cancelled"]),
  answers: z.record(z.string(), answer),
});
const record = z.union([
  z.object({ task, holder: z.string(), keys: z.array(z.string()).exactOptional() }),
  z.object({ gone: z.string() }),
]);

const sumOf = (json: string) => createHash("sha256").update(json).digest("hex").slice(0, 8);

/** The record as a line of its own, with a sum by which a damaged one is told. */
export function writeLine(value: LogRecord): string {
  const json = JSON.stringify(value);
  return `${sumOf(json)} ${json}\n`;
}

/** What a log file holds, by call, in the order of their first records, and the lines that can't be read. */
export interface LogContent {
  readonly records: ReadonlyMap<string, TaskRecord>;
  /** Numbered from 1. */
  readonly damaged: readonly { readonly line: number; readonly text: string }[];
}

/** Reads a log file. A damaged line costs its own record only, and the entry then stands as the record before left it. */
export function readLines(text: string): LogContent {
  const records = new Map<string, TaskRecord>();
  const damaged: { line: number; text: string }[] = [];
  for (const [index, line] of text.split("\n").entries()) {
    if (line === "") continue;
    const one = readLine(line);
    if (one === undefined) damaged.push({ line: index + 1, text: line });
    else if ("gone" in one) records.delete(one.gone);
    else records.set(one.task.call, after(records.get(one.task.call), one));
  }
  return { records, damaged };
}

/** Two processes may know of different answers to one task: each record speaks for the keys that it names. */
function after(before: TaskRecord | undefined, { keys, ...record }: TaskRecord): TaskRecord {
  if (before === undefined || keys === undefined) return record;
  const pick = (answers: LoggedTask["answers"], named: boolean) =>
    Object.entries(answers).filter(([key]) => keys.includes(key) === named);
  const answers = Object.fromEntries([...pick(before.task.answers, false), ...pick(record.task.answers, true)]);
  return { ...record, task: { ...record.task, answers } };
}

function readLine(line: string): LogRecord | undefined {
  const json = line.slice(9);
  if (line.slice(0, 9) !== `${sumOf(json)} `) return undefined;
  try {
    return record.safeParse(JSON.parse(json)).data;
  } catch {
    return undefined;
  }
}
