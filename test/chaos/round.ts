import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { checkIntegrity, lookForBroken, readRows, type Row } from "./database.ts";
import { startDriver, type Driven } from "./driver.ts";
import { startFleet, type Fleet, type Post } from "./fleet.ts";
import { readHistory, type History } from "./history.ts";
import { readLog } from "./log.ts";
import { createRandom, type Random } from "./random.ts";
import { createPlans, flatten } from "./script.ts";
import { judge } from "./verdict.ts";

export interface RoundOptions {
  readonly seed: number;
  readonly tasks: number;
  /** How many kills, stops and drains there are. */
  readonly blows: number;
  /** A folder for what the rounds leave behind; a round that found something keeps its own in there. */
  readonly folder: string;
}

/** What happened in a round, in numbers. */
export interface Counts {
  tasks: number;
  /** Tasks whose handle never arrived. */
  unacknowledged: number;
  completed: number;
  failed: number;
  cancelled: number;
  kills: number;
  /** Workers that a poisonous task killed. */
  poisoned: number;
  stops: number;
  drains: number;
  restarts: number;
  answers: number;
  events: number;
  cancels: number;
  polls: number;
  /** Looks at the database in between, each of which found the invariants kept. */
  looks: number;
  attempts: number;
  stepsRecorded: number;
  stepsExecuted: number;
  onceExecuted: number;
  refusedWrites: number;
  zombieWrites: number;
}

export interface RoundReport {
  readonly counts: Counts;
  readonly errors: Record<string, number>;
  readonly violations: string[];
}

const workers = 3;
const leaseMs = 1_000;
const graceMs = 500;
/** When nothing gets done for so long, the next blow comes anyway. */
const longestCalmMs = 800;
/** How long after the last blow everything may take. */
const patienceMs = 45_000;

/** One round: processes on a fresh file, tasks of all kinds, blows, and the verdict. Everything it started is gone after it. */
export async function runRound({ seed, tasks, blows, folder }: RoundOptions): Promise<RoundReport> {
  const home = join(folder, `round-${seed}`);
  const database = join(home, "tasks.db");
  const log = join(home, "log");
  const own = join(home, "own");
  // What is wrong for a while is wrong at each look.
  const violations = new Set<string>();
  const complain = (text: string) => void violations.add(`seed ${seed}: ${text}`);
  await mkdir(own, { recursive: true });
  await using fleet = startFleet(
    { database, log, folder: own, leaseMs, graceMs, concurrency: 24 },
    workers,
    join(folder, "cache"),
    complain,
  );
  await within(fleet.ready(), 20_000, "the processes did not start");
  await using driver = startDriver({ plans: createPlans(seed, tasks), front: fleet.front, complain });
  await using watcher = watchInvariants(database, complain);
  await strike(fleet, createRandom(seed).branch(-1), blows, driver.done);
  await driver.finished(patienceMs);
  await within(driver.readAll(), 30_000, "the tasks could not be read");
  await driver.stop();
  const looks = await watcher.stop();
  await within(fleet.close(), 15_000, "the processes did not end");

  const rows = readRows(database);
  const history = readHistory(readLog(log));
  history.violations.forEach(complain);
  const integrity = checkIntegrity(database);
  if (integrity !== "ok") complain(`the database is damaged: ${integrity}`);
  for (const text of lookForBroken(database) ?? ["the database could not be read"]) complain(`at the end: ${text}`);
  if (driver.driven.length < tasks) complain(`only ${driver.driven.length} of ${tasks} tasks were taken`);
  for (const task of driver.driven) {
    const evidence = { task, row: rows.get(task.taskId), history: history.tasks.get(task.taskId), graceMs };
    for (const fault of judge(evidence))
      complain(`${task.taskId} (${task.plan.script.tag}, ${task.plan.tool}): ${fault}`);
  }
  if (violations.size === 0) await rm(home, { recursive: true, force: true });
  return {
    counts: count(driver.driven, fleet, rows, history, looks),
    errors: history.errors,
    violations: violations.size === 0 ? [] : [...violations, `seed ${seed}: its files are in ${home}`],
  };
}

/**
 * Kills, stops and drains. When they come is seeded by how much of the work is done, so that a slow machine takes as
 * many blows on the way as a fast one. The first few make sure that each kind happens.
 */
async function strike(fleet: Fleet, random: Random, blows: number, done: () => number): Promise<void> {
  const kinds = {
    kill: (post: Post) => post.kill(),
    freeze: (post: Post) => post.freeze(random.between(leaseMs * 1.2, leaseMs * 2)),
    front: () => fleet.front.kill(),
    drain: (post: Post) => post.drain(),
    all: () => fleet.workers.forEach((each) => each.kill()),
  };
  const draw = (): keyof typeof kinds => {
    const at = random.next();
    if (at < 0.4) return "kill";
    if (at < 0.7) return "freeze";
    if (at < 0.84) return "front";
    return at < 0.96 ? "drain" : "all";
  };
  const planned = (["kill", "freeze", "front", "drain", "freeze", "kill", "freeze", "front", "freeze"] as const).slice(
    0,
    blows,
  );
  const list = [...planned, ...Array.from({ length: blows - planned.length }, draw)].map((kind) => ({
    kind,
    at: random.next() * 0.85,
    post: random.pick(fleet.workers),
    // Now and then one that is just starting, or stopped, is hit; most blows are for those who work.
    blind: random.chance(0.15),
  }));
  for (const { kind, at, post, blind } of list.toSorted((a, b) => a.at - b.at)) {
    const patience = Date.now() + longestCalmMs;
    while (done() < at && Date.now() < patience) await pause(10);
    const target = kind === "front" ? fleet.front : post;
    while (!blind && !target.working() && Date.now() < patience + longestCalmMs) await pause(10);
    kinds[kind](target);
    await pause(random.between(0, 150));
  }
  // The last one that was stopped must have its chance to write as a zombie.
  await pause(leaseMs * 2);
}

interface Watcher extends AsyncDisposable {
  /** Tells how often it looked. */
  stop(): Promise<number>;
}

/** Looks at the database now and then from outside: the invariants hold between any two transactions. */
function watchInvariants(database: string, complain: (text: string) => void): Watcher {
  const stopping = new AbortController();
  let looks = 0;
  async function watch(): Promise<void> {
    while (!stopping.signal.aborted) {
      const found = lookForBroken(database);
      if (found !== null) looks += 1;
      for (const text of found ?? []) complain(`in between: ${text}`);
      await pause(100, undefined, { signal: stopping.signal }).catch(() => {});
    }
  }
  const watching = watch();
  async function stop(): Promise<number> {
    stopping.abort();
    await watching;
    return looks;
  }
  return { stop, [Symbol.asyncDispose]: async () => void (await stop()) };
}

async function within(work: Promise<unknown>, ms: number, late: string): Promise<void> {
  const timer = new AbortController();
  const timeout = pause(ms, undefined, { signal: timer.signal }).then(() => Promise.reject(new Error(late)));
  try {
    await Promise.race([work, timeout]);
  } finally {
    timer.abort();
    timeout.catch(() => {});
  }
}

function count(
  driven: readonly Driven[],
  fleet: Fleet,
  rows: ReadonlyMap<string, Row>,
  history: History,
  looks: number,
): Counts {
  const known = driven.flatMap(({ taskId }) => rows.get(taskId) ?? []);
  const ended = (status: string) => known.filter((row) => row.status === status).length;
  const sum = (numbers: readonly number[]) => numbers.reduce((a, b) => a + b, 0);
  const logged = [...history.tasks.values()];
  const acknowledged = (lists: Iterable<readonly { acknowledgedAt: number | null }[]>) =>
    [...lists].flat().filter(({ acknowledgedAt }) => acknowledgedAt !== null).length;
  const runsOf = (task: Driven) => history.tasks.get(task.taskId)?.ran;
  return {
    tasks: driven.length,
    unacknowledged: rows.size - known.length,
    completed: ended("completed"),
    failed: ended("failed"),
    cancelled: ended("cancelled"),
    ...fleet.counts,
    poisoned: sum(logged.map(({ deaths }) => deaths)),
    answers: sum(driven.map(({ answers }) => acknowledged(answers.values()))),
    events: sum(driven.map(({ events }) => acknowledged(events.values()))),
    cancels: driven.filter(({ cancelledAt }) => cancelledAt !== null).length,
    polls: sum(driven.map(({ polls }) => polls)),
    looks,
    attempts: sum(logged.map(({ claimed }) => claimed.size)),
    stepsRecorded: sum(
      [...rows.values()].map(({ steps }) => [...steps.values()].filter(({ state }) => state === "done").length),
    ),
    stepsExecuted: sum(logged.map(({ ran }) => sum([...ran.values()].map(({ length }) => length)))),
    onceExecuted: sum(
      driven.flatMap((task) =>
        flatten(task.plan.script.operations).map((o) =>
          o.do === "once" ? (runsOf(task)?.get(o.key)?.length ?? 0) : 0,
        ),
      ),
    ),
    refusedWrites: history.refused,
    zombieWrites: history.zombies,
  };
}
