import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { lookForBroken, readRows, type Database, type Databases, type Row } from "./database.ts";
import { startDriver, type Driven } from "./driver.ts";
import { startFleet, type Fleet } from "./fleet.ts";
import { readHistory, type History } from "./history.ts";
import { excerpt, openLog, readLog } from "./log.ts";
import { createRandom } from "./random.ts";
import { createPlans, flatten } from "./script.ts";
import { strike } from "./strike.ts";
import { describe, judge } from "./verdict.ts";

export interface RoundOptions {
  readonly databases: Databases;
  readonly seed: number;
  readonly tasks: number;
  /** How many times something is done to the processes, their network or the database. */
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
  /** Ways to the database that were cut, and that were held up. */
  cuts: number;
  stalls: number;
  /** Ends of the database. */
  crashes: number;
  restarts: number;
  answers: number;
  /** Questions that nobody answered in time. */
  timeouts: number;
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
  /** What is known of the first few tasks that were not as they must be, for a person to read. */
  readonly stories: string[];
}

const workers = 3;
const leaseMs = 1_000;
const graceMs = 500;
/** How long after the last blow everything may take. */
const patienceMs = 45_000;
const mostStories = 3;

/** One round: processes on a fresh database, tasks of all kinds, blows, and the verdict. Everything it started is gone after it. */
export async function runRound({ databases, seed, tasks, blows, folder }: RoundOptions): Promise<RoundReport> {
  const home = join(folder, `round-${seed}`);
  const log = join(home, "log");
  const own = join(home, "own");
  // What is wrong for a while is wrong at each look.
  const violations = new Set<string>();
  const complain = (text: string) => void violations.add(`seed ${seed}: ${text}`);
  await mkdir(own, { recursive: true });
  await using database = await databases.fresh(home);
  const ways = (count: number) => Promise.all(Array.from({ length: count }, () => database.connect()));
  await using fleet = startFleet({
    settings: { log, folder: own, leaseMs, graceMs, concurrency: 24 },
    workers: await ways(workers),
    fronts: await ways(database.fronts),
    cache: join(folder, "cache"),
    complain,
  });
  await within(fleet.ready(), 20_000, "the processes did not start");
  await using driver = startDriver({ plans: createPlans(seed, tasks), fronts: fleet.fronts, complain });
  await using watcher = watchInvariants(database, complain);
  const random = createRandom(seed).branch(-1);
  const append = openLog(log);
  const crashes = await strike({ fleet, database, random, blows, leaseMs, done: driver.done, append });
  await driver.finished(patienceMs);
  await within(driver.readAll(), 30_000, "the tasks could not be read");
  await driver.stop();
  const looks = await watcher.stop();
  await within(fleet.close(), 15_000, "the processes did not end");

  const rows = await readRows(database);
  const history = readHistory(readLog(log));
  history.violations.forEach(complain);
  const integrity = await database.checkIntegrity();
  if (integrity !== "ok") complain(`the database is damaged: ${integrity}`);
  for (const text of (await lookForBroken(database)) ?? ["the database could not be read"])
    complain(`at the end: ${text}`);
  const taken = driver.driven.length + driver.results();
  if (taken < tasks) complain(`only ${taken} of ${tasks} tasks were taken`);
  for (const task of driver.driven) {
    const evidence = { task, row: rows.get(task.taskId), history: history.tasks.get(task.taskId), graceMs };
    for (const fault of judge(evidence))
      complain(`${task.taskId} (${task.plan.script.tag}, ${task.plan.tool}): ${fault}`);
  }
  const stories = driver.driven
    .filter(({ taskId }) => [...violations].some((text) => text.includes(taskId)))
    .slice(0, mostStories)
    .map((task) => tell(task, rows.get(task.taskId), log));
  if (violations.size === 0) await rm(home, { recursive: true, force: true });
  return {
    counts: { ...count(driver.driven, fleet, rows, history), crashes, looks },
    errors: history.errors,
    stories,
    violations: violations.size === 0 ? [] : [...violations, `seed ${seed}: its files are in ${home}`],
  };
}

/** What was meant with a task, what is left of it, what its client saw, and what happened, line by line. */
function tell({ plan, taskId, terminal, answers, events }: Driven, row: Row | undefined, log: string): string {
  const sent = JSON.stringify([...answers, ...events]);
  const lines = [
    JSON.stringify(plan),
    row === undefined ? "no row" : describe(row),
    `read: ${terminal}`,
    `sent: ${sent}`,
  ];
  return [`task ${taskId}`, ...lines, ...excerpt(log, taskId)].join("\n  ");
}

interface Watcher extends AsyncDisposable {
  /** Tells how often it looked. */
  stop(): Promise<number>;
}

/** Looks at the database now and then from outside: the invariants hold between any two transactions. */
function watchInvariants(database: Database, complain: (text: string) => void): Watcher {
  const stopping = new AbortController();
  let looks = 0;
  async function watch(): Promise<void> {
    while (!stopping.signal.aborted) {
      const found = await lookForBroken(database);
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
): Omit<Counts, "crashes" | "looks"> {
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
    timeouts: sum(
      known.map(({ responses }) => [...responses.values()].filter((response) => response === "timed out").length),
    ),
    events: sum(driven.map(({ events }) => acknowledged(events.values()))),
    cancels: driven.filter(({ cancelledAt }) => cancelledAt !== null).length,
    polls: sum(driven.map(({ polls }) => polls)),
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
