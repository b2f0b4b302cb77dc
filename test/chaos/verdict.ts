import { codes } from "../../src/errors.ts";
import { isTerminal } from "../../src/protocol/status.ts";
import type { Fields } from "../wire/client.ts";
import type { Row } from "./database.ts";
import type { Driven, Sent } from "./driver.ts";
import type { TaskHistory } from "./history.ts";
import { boundMs, filler, flatten, type Plan, type Script } from "./script.ts";

/** Judges one task: everything that is not as it must be. */

/** How long after its grace a cancelled task may still end by itself: stopped processes hold up sweeps, too. */
const cancelSlackMs = 10_000;

/** Clocks are read in whole milliseconds, and set by others. */
const clockSlackMs = 5;

/** What goes with an acknowledged task. */
export interface Evidence {
  readonly task: Driven;
  readonly row: Row | undefined;
  readonly history: TaskHistory | undefined;
  readonly graceMs: number;
}

export function judge({ task, row, history, graceMs }: Evidence): string[] {
  if (row === undefined) return ["the database doesn't have it"];
  if (task.terminal === null || !isTerminal(row.status)) return [`it came to no end: ${describe(row)}`];
  return [
    ...judgeOutcome(task, row, graceMs),
    ...judgeSeen(task.plan, row, history),
    ...judgeSent(task, row),
    ...judgeWrites(row, history),
  ];
}

/** The row and its journal, for a person to read. */
export function describe(row: Row): string {
  return JSON.stringify(row, (_key, value: unknown) => (value instanceof Map ? Object.fromEntries(value) : value));
}

/** The end is one that the script can have, the same in the database as over the wire, and a cancel shows in it. */
function judgeOutcome({ plan, terminal, cancelledAt }: Driven, row: Row, graceMs: number): string[] {
  const faults: string[] = [];
  const said = JSON.parse(terminal!) as Fields;
  const finishedAt = row.finishedAt ?? Infinity;
  if (said.status !== row.status) faults.push(`it was said to be ${said.status} and is ${row.status}`);
  if (row.result !== null && JSON.stringify(JSON.parse(row.result)) !== JSON.stringify(said.result))
    faults.push("the result that was read is not the one in the database");
  if (row.error !== null && JSON.stringify(JSON.parse(row.error)) !== JSON.stringify(said.error))
    faults.push("the error that was read is not the one in the database");
  if (cancelledAt !== null && !row.cancelRequested && finishedAt > cancelledAt)
    faults.push("its cancel was acknowledged and forgotten");
  if (row.status === "cancelled") {
    if (plan.cancelAfter === null) faults.push("it was cancelled, but nobody asked for that");
    return faults;
  }
  if (cancelledAt !== null && finishedAt > cancelledAt + graceMs + cancelSlackMs)
    faults.push("it went on although its cancel was acknowledged");
  const wrong = misfit(plan, row);
  return wrong === null ? faults : [...faults, `${wrong}: ${terminal!.slice(0, 2_000)}`];
}

/** What is wrong with an end that is no cancellation, or null. */
function misfit({ tool, script }: Plan, row: Row): string | null {
  const message = row.error === null ? null : (JSON.parse(row.error) as { message: string }).message;
  const failedWith = (code: keyof typeof codes) => message?.startsWith(codes[code].text) === true;
  if (tool === "poison") return failedWith("ATTEMPTS_EXHAUSTED") ? null : "the poisonous task was not given up";
  if (tool === "bounded") {
    if (!failedWith("TIMED_OUT")) return "the bounded task did not time out";
    return row.finishedAt! >= row.createdAt + boundMs ? null : "it timed out before its time";
  }
  if (tool === "careful" && failedWith("INTERRUPTED")) return null;
  if (script.end === "refuse") return message === `refused ${script.tag}` ? null : "it did not fail as it should";
  if (row.status !== "completed") return "it did not complete";
  const result = JSON.parse(row.result!) as Fields;
  const text = result.content?.[0]?.text;
  if (script.end === "throw")
    return result.isError === true && text === `thrown ${script.tag}` ? null : "it did not end in its error";
  if (result.isError === true || text !== filler(script)) return "the result is another";
  const { tag, seen } = result.structuredContent as { tag: string; seen: Record<string, string> };
  if (tag !== script.tag) return "it is another task's result";
  const wanted = wantedKeys(script).toSorted().join();
  return Object.keys(seen).toSorted().join() === wanted ? null : `the result should have the keys ${wanted}`;
}

/** Every key under which the handler of this script gets a value. */
function wantedKeys(script: Script): string[] {
  return flatten(script.operations).flatMap((operation) => {
    switch (operation.do) {
      case "step":
      case "once":
      case "failing":
      case "event":
        return [operation.key];
      case "ask":
        return operation.timeoutMs === null ? operation.keys : [`${operation.keys[0]} before`, ...operation.keys];
      case "sleep":
        return [`${operation.key} before`, `${operation.key} after`];
      case "poll":
        return [`${operation.key} before`, operation.key];
      default:
        return [];
    }
  });
}

/** What handlers saw, at any attempt, is what the journal holds; and what was to run once did. */
function judgeSeen({ tool, script }: Plan, row: Row, history: TaskHistory | undefined): string[] {
  if (history === undefined) return [];
  const faults: string[] = [];
  const result = row.result === null ? null : (JSON.parse(row.result) as { structuredContent?: { seen?: object } });
  const returned = new Map(Object.entries(result?.structuredContent?.seen ?? {}));
  for (const [key, values] of history.saw) {
    const [value = "", ...others] = values;
    if (others.length > 0) faults.push(`attempts saw different values of ${key}: ${[...values].join(" | ")}`);
    if (returned.size > 0 && returned.get(key) !== value) faults.push(`its result has another ${key} than it saw`);
    if (value !== journaled(row, key))
      faults.push(`it saw ${value} of ${key}, the journal has ${String(journaled(row, key))}`);
    const ran = history.ran.get(key);
    if (row.steps.has(key) && value !== "interrupted" && ran?.includes(value) !== true)
      faults.push(`the value ${value} of ${key} was never made`);
  }
  for (const operation of flatten(script.operations)) {
    const runs = "key" in operation ? (history.ran.get(operation.key)?.length ?? 0) : 0;
    if (operation.do === "once" && runs > 1) faults.push(`${operation.key} may run once and ran ${runs} times`);
    if (operation.do === "sleep") {
      const [from = "", to = ""] = ["before", "after"].map((end) => returned.get(`${operation.key} ${end}`) as string);
      if (parseInt(to, 10) - parseInt(from, 10) < operation.ms - clockSlackMs)
        faults.push(`the sleep ${operation.key} was shorter than ${operation.ms} ms`);
    }
  }
  if (tool === "careful" && history.runs > 1) faults.push(`it may never run twice and ran ${history.runs} times`);
  if (tool === "poison" && history.deaths > 2) faults.push(`it killed ${history.deaths} workers`);
  if (tool === "gives_up" && row.status === "completed" && history.runs < 1) faults.push("it ended without a run");
  return faults;
}

/** The value that the journal holds for a key, as a handler is given it. */
function journaled(row: Row, key: string): unknown {
  const step = row.steps.get(key);
  if (step !== undefined) {
    if (step.state === "started") return "interrupted";
    const value: unknown = JSON.parse(step.value!);
    return step.state === "failed" ? (value as { message: string }).message : value;
  }
  const response = row.responses.get(key);
  if (response === "timed out") return response;
  if (response !== undefined && response !== null)
    return response.action === "accept" ? (response.content as { value: string }).value : response.action;
  const event = row.events.get(key);
  return event === undefined || event === null ? undefined : JSON.parse(event);
}

/** What was sent and acknowledged is in the journal, unless it came first to somebody else or too late. */
function judgeSent({ plan, answers, events, cancelSentAt }: Driven, row: Row): string[] {
  const faults: string[] = [];
  const finishedAt = row.finishedAt ?? Infinity;
  // A cancel closes the questions of a handler that is then resumed to clean up.
  const closedAt = plan.tool === "unwinding" ? Math.min(finishedAt, cancelSentAt ?? Infinity) : finishedAt;

  function check(key: string, sent: readonly Sent[], has: boolean): void {
    const first = sent.findIndex(({ acknowledgedAt, kept }) => acknowledgedAt !== null && kept);
    if (!has) {
      const { acknowledgedAt } = sent[first] ?? { acknowledgedAt: null };
      if (acknowledgedAt !== null && acknowledgedAt < closedAt) faults.push(`what was sent for ${key} is lost`);
      return;
    }
    // The first one that was acknowledged counts, or one before it whose acknowledgement got lost.
    const possible = sent.slice(0, first < 0 ? undefined : first + 1).map(({ value }) => value);
    if (!possible.includes(String(journaled(row, key))))
      faults.push(`${key} is ${String(journaled(row, key))}, and should be one of ${possible.join(" | ")}`);
  }

  for (const [key, sent] of answers) {
    if (row.responses.get(key) === "timed out") faults.push(...judgeTimeout(key, sent, plan.script, row));
    else check(key, sent, (row.responses.get(key) ?? null) !== null);
  }
  for (const [key, sent] of events) {
    check(key, sent, (row.events.get(key) ?? null) !== null);
    if (sent.some(({ kept, acknowledgedAt }) => !kept && acknowledgedAt! < finishedAt))
      faults.push(`the event ${key} was turned away before its task was over`);
  }
  return faults;
}

/** A question may only have timed out when its time was over, and when nothing was acknowledged before. */
function judgeTimeout(key: string, sent: readonly Sent[], script: Script, row: Row): string[] {
  const ask = flatten(script.operations).find((one) => one.do === "ask" && one.keys.includes(key));
  if (ask?.do !== "ask" || ask.timeoutMs === null) return [`${key} timed out without a timeout`];
  const before = JSON.parse(row.steps.get(`${ask.keys[0]} before`)?.value ?? '"0"') as string;
  const earliest = parseInt(before, 10) + ask.timeoutMs - clockSlackMs;
  return sent.some(({ acknowledgedAt }) => acknowledgedAt !== null && acknowledgedAt < earliest)
    ? [`what was sent for ${key} in time is lost to its timeout`]
    : [];
}

/** What the store told workers that it has, it has. */
function judgeWrites(row: Row, history: TaskHistory | undefined): string[] {
  const faults: string[] = [];
  for (const { key, value } of history?.recorded ?? [])
    if (row.steps.get(key)?.value !== value) faults.push(`the record of ${key} was taken and is lost`);
  const [end, ...others] = history?.finished ?? [];
  if (others.length > 0) faults.push("it was finished twice");
  if (end === undefined) return faults;
  const { status, result = null, error = null } = end.outcome;
  if (end.epoch !== row.epoch) faults.push(`it was finished by epoch ${end.epoch}, and has ${row.epoch}`);
  if (status !== row.status || result !== row.result || error !== row.error)
    faults.push("its end is not the one that was written");
  return faults;
}
