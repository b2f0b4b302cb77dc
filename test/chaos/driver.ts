import { setTimeout as pause } from "node:timers/promises";
import { codes } from "../../src/errors.ts";
import { wire, type Fields, type Reply, type Wire } from "../wire/client.ts";
import type { Post } from "./fleet.ts";
import type { Random } from "./random.ts";
import { flatten, type Plan } from "./script.ts";

/** One thing that was said to a task: an answer or an event's value. */
export interface Sent {
  readonly value: string;
  /** When the server said that it has it, or null if nothing came back. */
  acknowledgedAt: number | null;
  /** What the server said of an event: false, that the task is over. */
  kept: boolean;
}

/** What the driver did to an acknowledged task, and saw of it. */
export interface Driven {
  readonly plan: Plan;
  readonly taskId: string;
  /** By key, in the order of sending. */
  readonly answers: Map<string, Sent[]>;
  readonly events: Map<string, Sent[]>;
  /** Keys whose answer was acknowledged. */
  readonly answered: Set<string>;
  /** When its cancel was first sent, and when it was acknowledged. */
  cancelSentAt: number | null;
  cancelledAt: number | null;
  polls: number;
  updatedAt: string;
  /** The first terminal state that came, without the hint when to poll again. */
  terminal: string | null;
}

export interface DriverOptions {
  readonly plans: readonly Plan[];
  /** Each request goes to the next one. */
  readonly fronts: readonly Post[];
  readonly complain: (text: string) => void;
}

export interface Driver extends AsyncDisposable {
  /** Every acknowledged task. */
  readonly driven: readonly Driven[];
  /** How many calls were answered with the result of their task, which nobody need follow. */
  results(): number;
  /** The part of the tasks that are over, from 0 to 1. */
  done(): number;
  /** Resolves when each plan has its task and each task has its end, or after so many milliseconds. */
  finished(withinMs: number): Promise<void>;
  /** Reads every task once more. */
  readAll(): Promise<void>;
  stop(): Promise<void>;
}

const lanes = 4;

/** Errors that blows explain. Whether anything was done is not known. */
const passing = ["STORE_BUSY", "STORE_UNAVAILABLE", "STORE_ANSWER_LOST", "SHUTTING_DOWN"] as const;

function isPassing(message: string): boolean {
  return passing.some((code) => message.startsWith(codes[code].text));
}

/** Creates the tasks of the plans, answers, sends, cancels and polls, over HTTP, for as long as it takes. */
export function startDriver({ plans, fronts, complain }: DriverOptions): Driver {
  const driven: Driven[] = [];
  const nextPoll = new Map<Driven, number>();
  const chores = new Set<Promise<void>>();
  const waiting = [...plans];
  const began = Date.now();
  let stopped = false;
  let turn = 0;
  let results = 0;

  /** Where the next request goes, or null while no front end listens. */
  function nextUrl(): string | null {
    turn += 1;
    const urls = fronts.flatMap((front) => front.url() ?? []);
    return urls[turn % urls.length] ?? null;
  }

  /** The answer to one request; null when it failed in a way that a blow explains, and may have been done. */
  async function ask(send: (wire: Wire, signal: AbortSignal) => Promise<Reply>): Promise<Fields | null> {
    const url = nextUrl();
    if (url === null) return null;
    try {
      const { body } = await send(wire(`${url}/mcp`), AbortSignal.timeout(20_000));
      if (body.result !== undefined) return body.result;
      if (!isPassing(body.error?.message ?? "")) complain(`an error came: ${JSON.stringify(body)}`);
    } catch (thrown) {
      // What fetch throws when the connection breaks, and when time is up.
      if (!(thrown instanceof TypeError) && (thrown as Error).name !== "TimeoutError") complain(String(thrown));
    }
    return null;
  }

  /** Repeats a request until it is answered. The answer is null if the task ends, or we do, first. */
  async function insist<T>(request: () => Promise<T | null>, task?: Driven): Promise<T | null> {
    while (!stopped && (task?.terminal ?? null) === null) {
      const answer = await request();
      if (answer !== null) return answer;
      await pause(40);
    }
    return null;
  }

  function start(chore: () => Promise<void>): void {
    const running = chore().catch((thrown: unknown) => complain(`the driver failed: ${String(thrown)}`));
    chores.add(running);
    void running.finally(() => chores.delete(running));
  }

  async function create(): Promise<void> {
    for (let plan = waiting.shift(); plan !== undefined && !stopped; plan = waiting.shift()) {
      const { tool, script, createAfter } = plan;
      await pause(Math.max(0, began + createAfter - Date.now()));
      const handle = await insist(() => ask((wire, signal) => wire.call(tool, { script }, { signal })));
      if (handle === null) return;
      // The store asked again for a create whose answer was lost, and by then its task had ended.
      if (hasEnded(handle, script.tag)) results += 1;
      else if (handle.resultType !== "task") complain(`no task came of ${script.tag}: ${JSON.stringify(handle)}`);
      else begin(plan, handle.taskId!);
    }
  }

  function begin(plan: Plan, taskId: string): void {
    const task: Driven = {
      plan,
      taskId,
      answers: new Map(),
      events: new Map(),
      answered: new Set(),
      cancelSentAt: null,
      cancelledAt: null,
      polls: 0,
      updatedAt: "",
      terminal: null,
    };
    driven.push(task);
    nextPoll.set(task, Date.now());
    const { random } = plan;
    for (const operation of flatten(plan.script.operations)) {
      if (operation.do !== "event" || operation.key.startsWith("never")) continue;
      const { key } = operation;
      const delay = random.chance(0.2) ? 0 : random.between(0, 2_500);
      start(() => sendEvent(task, key, delay, random.chance(0.2)));
    }
    if (plan.cancelAfter !== null) start(() => cancel(task, plan.cancelAfter!));
  }

  async function sendEvent(task: Driven, key: string, delay: number, twice: boolean): Promise<void> {
    const sent: Sent[] = [];
    task.events.set(key, sent);
    await pause(delay);
    for (let times = twice ? 2 : 1; times > 0; times--) {
      await insist(async () => {
        const one = note(sent, `event ${task.plan.script.tag} ${key} ${sent.length}`);
        const reply = await postEvent(task.taskId, key, one.value);
        if (reply !== null) Object.assign(one, { kept: reply, acknowledgedAt: Date.now() });
        return reply;
      }, task);
    }
  }

  async function postEvent(taskId: string, key: string, value: string): Promise<boolean | null> {
    const url = nextUrl();
    if (url === null) return null;
    try {
      const body = JSON.stringify({ taskId, key, value });
      const response = await fetch(`${url}/event`, { method: "POST", body, signal: AbortSignal.timeout(20_000) });
      const text = await response.text();
      return response.ok ? (JSON.parse(text) as { kept: boolean }).kept : null;
    } catch {
      return null;
    }
  }

  async function cancel(task: Driven, delay: number): Promise<void> {
    await pause(delay);
    await insist(async () => {
      task.cancelSentAt ??= Date.now();
      const answer = await ask((wire, signal) => wire.cancel(task.taskId, { signal }));
      if (answer !== null) task.cancelledAt = Date.now();
      return answer;
    }, task);
  }

  function answerLater(task: Driven, open: readonly string[]): void {
    const { random, script } = task.plan;
    const unanswered = new Set(
      flatten(script.operations).flatMap((o) => (o.do === "ask" && !o.answered ? o.keys : [])),
    );
    const keys = open.filter((key) => !task.answers.has(key) && !unanswered.has(key));
    if (keys.length === 0) return;
    for (const key of keys) task.answers.set(key, []);
    const groups = random.chance(0.5) ? [keys] : keys.map((key) => [key]);
    for (const group of groups) {
      const delay = random.between(0, 500);
      const [wrongFirst, again] = [random.chance(0.1), random.chance(0.15)];
      start(async () => {
        await pause(delay);
        if (wrongFirst) await update(task, Object.fromEntries(group.map((key) => [key, accept(7)])));
        await answer(task, group, random);
        // A second answer to what is answered must change nothing.
        if (again && task.terminal === null) await answer(task, group, random);
      });
    }
  }

  async function answer(task: Driven, keys: readonly string[], random: Random): Promise<void> {
    await insist(async () => {
      const sent = keys.map((key) => {
        const said = task.answers.get(key)!;
        const value = random.chance(0.1) ? "decline" : `answer ${task.plan.script.tag} ${key} ${said.length}`;
        return [key, note(said, value)] as const;
      });
      const responses = sent.map(([key, { value }]) => [key, value === "decline" ? { action: value } : accept(value)]);
      const reply = await update(task, Object.fromEntries(responses));
      if (reply === null) return null;
      for (const [key, one] of sent) {
        one.acknowledgedAt = Date.now();
        task.answered.add(key);
      }
      return reply;
    }, task);
  }

  const accept = (value: unknown) => ({ action: "accept", content: { value } });
  const update = (task: Driven, responses: Record<string, unknown>) =>
    ask((wire, signal) => wire.update(task.taskId, responses, { signal }));

  async function read(task: Driven): Promise<void> {
    const answered = new Set(task.answered);
    const { cancelledAt } = task;
    const state = await ask((wire, signal) => wire.get(task.taskId, { signal }));
    if (state === null) return;
    task.polls += 1;
    const { pollIntervalMs: _, ...rest } = state;
    const { status, lastUpdatedAt = "", inputRequests = {} } = rest;
    const name = `${task.taskId} (${task.plan.script.tag}, ${task.plan.tool})`;
    if (task.terminal !== null && JSON.stringify(rest) !== task.terminal)
      complain(`a final state changed: ${name} from ${task.terminal} to ${JSON.stringify(rest)}`);
    if (lastUpdatedAt < task.updatedAt) complain(`lastUpdatedAt of ${name} went back`);
    task.updatedAt = lastUpdatedAt;
    const asked = Object.keys(inputRequests);
    for (const key of asked.filter((key) => answered.has(key)))
      complain(`${name} asks for ${key} again, whose answer was acknowledged`);
    // A tool that holds its waits learns of a cancel a moment later.
    if (status === "input_required" && cancelledAt !== null && task.plan.tool !== "careful")
      complain(`${name} asks for input although its cancel was acknowledged`);
    if (status === "input_required") answerLater(task, asked);
    else if (status !== "working") task.terminal ??= JSON.stringify(rest);
  }

  async function poll(): Promise<void> {
    while (!stopped) {
      const [due] = [...nextPoll].reduce((a, b) => (b[1] < a[1] ? b : a), [null, Infinity] as [Driven | null, number]);
      if (due === null || nextPoll.get(due)! > Date.now()) {
        await pause(10);
        continue;
      }
      nextPoll.delete(due);
      await read(due);
      nextPoll.set(due, Date.now() + (due.terminal === null ? 150 : 2_000));
      if (fronts.every((front) => front.url() === null)) await pause(30);
    }
  }

  async function stop(): Promise<void> {
    stopped = true;
    await Promise.all(chores);
  }

  for (let lane = 0; lane < lanes; lane++) {
    start(create);
    start(poll);
  }

  return {
    driven,
    results: () => results,
    done: () => driven.filter(({ terminal }) => terminal !== null).length / plans.length,
    async finished(withinMs) {
      const end = Date.now() + withinMs;
      const isOpen = () => driven.length + results < plans.length || driven.some(({ terminal }) => terminal === null);
      while (isOpen() && Date.now() < end) await pause(25);
    },
    async readAll() {
      for (const task of driven) await read(task);
    },
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

function hasEnded({ resultType, structuredContent }: Fields, tag: string): boolean {
  return resultType === "complete" && (structuredContent as { readonly tag?: string } | undefined)?.tag === tag;
}

function note(list: Sent[], value: string): Sent {
  const sent = { value, acknowledgedAt: null, kept: true };
  list.push(sent);
  return sent;
}
