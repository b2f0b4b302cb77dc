import { TaskError } from "../errors.ts";
import { createEngine, type Engine } from "../engine/engine.ts";
import { readCapabilities } from "../protocol/capabilities.ts";
import type { InputRequest } from "../protocol/input.ts";
import { isTerminal } from "../protocol/status.ts";
import type { DetailedTask } from "../protocol/wire.ts";
import { manualClock, type ManualClock } from "../store/contract/manual-clock.ts";
import { sqlite } from "../store/sqlite/index.ts";
import type { Claim, Task, TaskStore } from "../store/store.ts";
import { newTaskOf, type TaskTool } from "../tool.ts";
import { startAttempt } from "../worker/attempt.ts";
import { createMortal, type Crash, type Mortal } from "./mortal.ts";
import { watchHandler, type Observed } from "./observe.ts";

/**
 * What a handler is given while it is tried, by the name of the wait: the accepted content of a form, true or false
 * for an approval, a whole elicitation result (`{ action: … }`), a sampling or roots result, or the value of an event.
 * A wait with a timeout and without an answer times out.
 */
export type Answers = Readonly<Record<string, unknown>>;

/** What {@link replayEverywhere} found. Everything but `points` and `task` is empty for a handler that replays well. */
export interface ReplayReport {
  /** How many interruptions were tried. */
  readonly points: number;
  /** How the task ended when nothing interrupted it. */
  readonly task: DetailedTask;
  /** Steps that ran more than once although they are not `once` and did not use their idempotency key. */
  readonly ranTwice: readonly string[];
  /** Names of steps and waits that came in another order, or only sometimes, when the handler ran again. */
  readonly changedKeys: readonly string[];
  /** Waits that were reached only after asynchronous work outside of any step: that work runs again at each attempt. */
  readonly unstepped: readonly { readonly before: string; readonly ms: number }[];
  /** Interruptions after which the task ended otherwise: the write (1 is the first) and whether it was still made. */
  readonly different: readonly { readonly write: number; readonly made: boolean; readonly task: DetailedTask }[];
}

const leaseMs = 60_000;

/** What a client can do that declared everything. */
const everything = readCapabilities({
  elicitation: { form: {}, url: {} },
  sampling: { tools: {} },
  roots: {},
  extensions: { "io.modelcontextprotocol/tasks": {} },
});

/**
 * Runs a tool's handler once undisturbed, and then once for each point at which its process could die: before and
 * after each write that it makes to the store. Real engine and store, a clock that is moved instead of waited for.
 * Throws `MISUSE` for a wait without an answer or timeout, and for tools with `recovery: "fail"`.
 */
export async function replayEverywhere(tool: TaskTool, args: unknown, answers: Answers = {}): Promise<ReplayReport> {
  if (tool.recovery === "fail")
    throw new TaskError("MISUSE", { detail: 'A tool with recovery "fail" is never run again.' });
  const plain = await run(tool, args, answers, null);
  const different: ReplayReport["different"][number][] = [];
  const observed: Observed[] = [...plain.observed];
  for (let write = 1; write <= plain.writes; write++) {
    for (const made of [false, true]) {
      const disturbed = await run(tool, args, answers, { write, made });
      observed.push(...disturbed.observed);
      if (ending(disturbed.task) !== ending(plain.task)) different.push({ write, made, task: disturbed.task });
    }
  }
  const names = plain.observed.at(-1)?.names ?? [];
  return {
    points: plain.writes * 2,
    task: plain.task,
    ranTwice: unique(observed.flatMap(({ repeatedWithoutKey }) => [...repeatedWithoutKey])),
    changedKeys: unique(observed.flatMap((attempt) => attempt.names.filter((name, at) => names[at] !== name))),
    unstepped: longestEach(observed.flatMap(({ unstepped }) => unstepped)),
    different,
  };
}

async function run(tool: TaskTool, args: unknown, answers: Answers, crash: Crash | null) {
  const clock = manualClock();
  await using store = sqlite(":memory:", { clock });
  await using engine = createEngine({ store, clock });
  const ran = new Map<string, number>();
  const observed: Observed[] = [];
  const mortal = createMortal(store, crash);
  const world = createWorld(engine, store, clock, answers, mortal.awaited);
  const { id } = await engine.create({
    ...newTaskOf(tool),
    ...{ client: everything, owner: "", args: JSON.stringify(args), answers: "{}", auth: "null" },
    ...{ timeoutMs: null, attempts: Math.max(2, tool.attempts) },
  });
  for (;;) {
    const task = await engine.read(id, "");
    if (isTerminal(task.status)) return { task: engine.describe(task), writes: mortal.writes(), observed };
    const [claim] = await claimNext(store, tool);
    if (claim === undefined) {
      await world.moveOn(task);
      continue;
    }
    const handler = watchHandler(tool, claim.taskId, ran);
    observed.push(handler.observed);
    const died = await attempt(handler.tool, claim, mortal, clock);
    if (died) clock.advance(leaseMs + 1);
  }
}

function claimNext(store: TaskStore, tool: TaskTool): Promise<readonly Claim[]> {
  const tools = [{ name: tool.name, version: tool.version, limit: null }];
  return store.claim({ worker: "kit", tools, queues: [tool.queue], ownerLimit: null, count: 1, leaseMs });
}

/** Runs one attempt. True: its process died. */
async function attempt(tool: TaskTool, claim: Claim, mortal: Mortal, clock: ManualClock): Promise<boolean> {
  const failures: TaskError[] = [];
  const onError = (error: TaskError) => void failures.push(error);
  const limits = { maxResultBytes: 4 << 20, maxStepBytes: 1 << 20, blobs: null };
  const { verbs, died } = mortal.live();
  const running = startAttempt({
    claim,
    tool,
    verbs,
    clock,
    onError,
    onUnstepped: () => {},
    onEnding: () => {},
    limits,
  });
  const dead = await Promise.race([running.done.then(() => false), died.then(() => true)]);
  const [failure] = failures;
  if (failure !== undefined) throw failure;
  return dead;
}

/** Gives a waiting task what it waits for: answers, time, or events. */
function createWorld(
  engine: Engine,
  store: TaskStore,
  clock: ManualClock,
  answers: Answers,
  awaited: () => readonly string[],
) {
  const sent = new Set<string>();

  /** Gives the answers that there are. False: there are none. */
  async function answer(task: Task): Promise<boolean> {
    const known = Object.entries(task.inputRequests).filter(([key]) => Object.hasOwn(answers, key));
    if (known.length === 0) return false;
    const responses = Object.fromEntries(known.map(([key, request]) => [key, respond(request, answers[key])]));
    await engine.answer(task.id, task.owner, responses);
    const { inputRequests, statusMessage } = await engine.read(task.id, task.owner);
    if (known.some(([key]) => Object.hasOwn(inputRequests, key)))
      throw new TaskError("MISUSE", { detail: statusMessage ?? "" });
    return true;
  }

  /** Sends the events that it waits for, where there are any. False: there are none. */
  async function send(task: Task): Promise<boolean> {
    const keys = awaited().filter((key) => Object.hasOwn(answers, key) && !sent.has(key));
    for (const key of keys) {
      sent.add(key);
      await engine.send(task.id, key, answers[key]);
    }
    return keys.length > 0;
  }

  return {
    /** Time passes last: what has no answer may have a timeout. */
    async moveOn(task: Task): Promise<void> {
      const given = [await answer(task), await send(task)];
      if (given.includes(true)) return;
      const due = await store.nextDue();
      if (due !== null) return clock.advance(due);
      const [key] = Object.keys(task.inputRequests);
      const detail =
        key === undefined ? "The handler waits for an event that has no answer." : `There is no answer for "${key}".`;
      throw new TaskError("MISUSE", { detail });
    },
  };
}

function respond(request: InputRequest, answer: unknown): unknown {
  if (request.method !== "elicitation/create") return answer;
  if (typeof answer === "boolean") return answer ? { action: "accept", content: {} } : { action: "decline" };
  const isResult = typeof answer === "object" && answer !== null && "action" in answer;
  return isResult ? answer : { action: "accept", content: answer };
}

/** What the JSON of an end says, without the times, which a crash moves. */
function ending(task: DetailedTask): string {
  const { status } = task;
  return JSON.stringify([status, "result" in task ? task.result : null, "error" in task ? task.error : null]);
}

function unique(names: readonly string[]): string[] {
  return [...new Set(names)];
}

function longestEach(found: ReplayReport["unstepped"]): ReplayReport["unstepped"] {
  const longest = new Map<string, number>();
  for (const { before, ms } of found) longest.set(before, Math.max(ms, longest.get(before) ?? 0));
  return [...longest].map(([before, ms]) => ({ before, ms }));
}
