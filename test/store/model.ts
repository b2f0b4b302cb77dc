import assert from "node:assert/strict";
import { isTerminal } from "../../src/protocol/status.ts";
import { cleanMessage, failure, instant, lateValue, memoryMs, ttl } from "../../src/store/rules.ts";
import type { InputRequest, InputResponse } from "../../src/protocol/input.ts";
import type {
  Attempt,
  Claim,
  ClaimRequest,
  Journal,
  NewTask,
  Outcome,
  Place,
  Progress,
  Renewal,
  StepRecord,
  Swept,
  Task,
  TaskStore,
  Waits,
} from "../../src/store/store.ts";

/** What a task store does, in the plainest words: all of it in memory, one verb after the other. */

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

interface ModelTask {
  readonly made: NewTask;
  readonly seen: Mutable<Omit<Task, "activation" | "ttlMs" | "inputRequests">>;
  activation: { readonly due: number } | { until: number; readonly worker: string } | null;
  deadline: number | null;
  cancelBy: number | null;
  finishedAt: number | null;
  strikes: number;
  readonly steps: Map<string, StepRecord>;
  readonly inputs: Map<string, ModelInput>;
  readonly events: Map<string, ModelEvent>;
  /** When to look next whether a wait has timed out. */
  waitUntil: number | null;
}

interface ModelInput {
  readonly request: InputRequest;
  response: InputResponse | "timed out" | null;
  open: boolean;
  until: number | null;
}

interface ModelEvent {
  value: string | null;
  awaited: boolean;
  until: number | null;
}

export interface Model {
  now: number;
  /** In the order of creation. */
  tasks: ModelTask[];
  gone: { id: string; owner: string; until: number }[];
  /** The newest task with each key of an owner. */
  keys: Map<string, string>;
}

export const emptyModel = (now: number): Model => ({ now, tasks: [], gone: [], keys: new Map() });

/** A verb and its arguments. */
export type Call = {
  [V in keyof TaskStore]: TaskStore[V] extends (...args: infer A) => unknown ? { verb: V; args: A } : never;
}[Exclude<keyof TaskStore, "watch" | "census" | "secret" | typeof Symbol.asyncDispose>];

/** Carries a verb out and checks what the store answered. */
export function apply(model: Model, { verb, args }: Call, got: unknown): void {
  if (verb === "claim") for (const step of claimSteps(args[0], got as readonly Claim[])) step(model);
  else assert.deepEqual(got, (verbs[verb] as (model: Model, ...rest: unknown[]) => unknown)(model, ...args), verb);
}

/** One atomic step of a verb: does what the verb does, and checks its part of the answer. */
export type Step = (model: Model) => void;

/** The steps of a verb where tasks are taken one by one, in each order that they may have. */
export function stepsOf(call: Call, got: unknown): readonly (readonly Step[])[] {
  if (call.verb === "sweep") {
    const { purged, more, ...ended } = got as Swept;
    return [
      [
        (model) => assert.deepEqual({ ...ended, more }, { ...endDue(model), more: false }),
        (model) => assert.deepEqual(purged, purge(model)),
      ],
    ];
  }
  if (call.verb === "claim") return [claimSteps(call.args[0], got as readonly Claim[])];
  if (call.verb === "renew") {
    const [worker, attempts, leaseMs] = call.args;
    const { lost, cancelled } = got as Renewal;
    const steps = attempts.map((attempt): Step => (model) => {
      const expected = verbs.renew(model, worker, [attempt], leaseMs);
      assert.deepEqual(
        [lost.filter(same(attempt)), cancelled.filter(same(attempt))].map(({ length }) => length > 0),
        [expected.lost.length > 0, expected.cancelled.length > 0],
      );
    });
    return permutations(steps);
  }
  return [[(model) => apply(model, call, got)]];
}

const same = (attempt: Attempt) => (other: Attempt) => other.taskId === attempt.taskId && other.epoch === attempt.epoch;

function permutations<T>(items: readonly T[]): T[][] {
  if (items.length === 0) return [[]];
  return items.flatMap((item, at) => permutations(items.toSpliced(at, 1)).map((rest) => [item, ...rest]));
}

export function tasksOf(model: Model): Task[] {
  return model.tasks.map(visible).toReversed();
}

function visible(task: ModelTask): Task {
  const { made, seen, finishedAt, inputs } = task;
  const open = seen.status === "input_required" ? [...inputs].filter(([, { open }]) => open) : [];
  return {
    ...seen,
    activation: task.activation === null ? null : isLeased(task) ? "leased" : "queued",
    ttlMs: ttl({ createdAt: seen.createdAt, finishedAt, timeoutMs: made.timeoutMs, keepMs: made.keepMs }),
    inputRequests: Object.fromEntries(open.map(([key, { request }]) => [key, request])),
  };
}

function journalOf({ steps, inputs, events }: ModelTask): Journal {
  return {
    steps: Object.fromEntries(steps),
    inputs: Object.fromEntries([...inputs].map(([key, { request, response }]) => [key, { request, response }])),
    events: Object.fromEntries(
      [...events].flatMap(([key, { value }]) => (value === null ? [] : [[key, value === lateValue ? null : value]])),
    ),
  };
}

const isLeased = (task: ModelTask) => task.activation !== null && "until" in task.activation;

function leased(model: Model, { taskId, epoch }: Attempt): ModelTask | undefined {
  return model.tasks.find((task) => task.seen.id === taskId && task.seen.epoch === epoch && isLeased(task));
}

function find(model: Model, id: string, owner: string): ModelTask | "expired" | undefined {
  const task = model.tasks.find(({ seen }) => seen.id === id && seen.owner === owner);
  if (task === undefined) return model.gone.some((one) => one.id === id && one.owner === owner) ? "expired" : undefined;
  return isOver(model, task) ? "expired" : task;
}

const purgeAt = ({ finishedAt, made }: ModelTask) => (finishedAt ?? Infinity) + (made.keepMs ?? Infinity);

const isOver = (model: Model, task: ModelTask) => purgeAt(task) <= model.now;

function reveal(model: Model, { seen }: ModelTask, change: Partial<Task>): void {
  const before = seen.status;
  Object.assign(seen, change);
  seen.rev += 1;
  seen.updatedAt = model.now;
  if (seen.status !== before) seen.turnedAt = model.now;
}

function end(model: Model, task: ModelTask, outcome: Outcome, byStore: boolean): void {
  const { statusMessage, ...rest } = { statusMessage: null, ...outcome };
  reveal(model, task, { ...rest, ...(statusMessage === null ? {} : { statusMessage: cleanMessage(statusMessage) }) });
  Object.assign(task, { finishedAt: model.now, activation: null, deadline: null, cancelBy: null });
  if (byStore) task.seen.epoch += 1;
}

const cancelled: Outcome = { status: "cancelled", statusMessage: null };

function queue(model: Model, task: ModelTask, due = 0): void {
  task.activation = { due: due > model.now ? due : 0 };
}

/** Queues a task that waits, unless somebody is at it, or it pauses after a failure. */
function wake(model: Model, task: ModelTask): void {
  const pauses = task.activation !== null && "due" in task.activation && task.activation.due > 0 && task.strikes > 0;
  if (task.activation === null || ("due" in task.activation && !pauses)) queue(model, task);
}

const isOpen = ({ inputs }: ModelTask) => [...inputs.values()].some(({ open }) => open);
const wasLate = ({ inputs, events }: ModelTask) =>
  [...inputs.values()].some(({ response }) => response === "timed out") ||
  [...events.values()].some(({ value }) => value === lateValue);

/** Ends those waits of a task whose timeout has passed. */
function endLateOf(model: Model, task: ModelTask): { inputs: number; events: number } {
  const isLate = ({ until }: { until: number | null }) => until !== null && until <= model.now;
  const inputs = [...task.inputs.values()].filter((input) => input.open && isLate(input));
  for (const input of inputs) Object.assign(input, { response: "timed out", open: false });
  const waiting = () => [...task.events.values()].filter(({ awaited, value }) => awaited && value === null);
  const events = waiting().filter(isLate);
  for (const event of events) event.value = lateValue;
  const instants = [...[...task.inputs.values()].filter(({ open }) => open), ...waiting()].flatMap(
    ({ until }) => until ?? [],
  );
  task.waitUntil = instants.length === 0 ? null : Math.min(...instants);
  return { inputs: inputs.length, events: events.length };
}

function endLate(model: Model): void {
  for (const task of model.tasks) {
    if (task.finishedAt === null && task.waitUntil !== null && task.waitUntil <= model.now) endLateAt(model, task);
  }
}

function endLateAt(model: Model, task: ModelTask): void {
  const { inputs, events } = endLateOf(model, task);
  if (inputs + events === 0) return;
  wake(model, task);
  if (task.seen.status === "input_required" && !isOpen(task))
    reveal(model, task, { status: "working", statusMessage: null });
  else if (inputs > 0) reveal(model, task, {});
}

function recover(model: Model): number {
  let ended = 0;
  for (const task of model.tasks) {
    if (task.activation === null || !("until" in task.activation) || task.activation.until > model.now) continue;
    if (task.seen.cancelRequested) {
      end(model, task, cancelled, true);
      ended += 1;
    } else if (task.made.recovery === "fail") end(model, task, failure("INTERRUPTED"), true);
    else if (task.strikes >= task.made.attempts) end(model, task, failure("ATTEMPTS_EXHAUSTED", task.strikes), true);
    else queue(model, task);
  }
  return ended;
}

function timeOut(model: Model): number {
  const late = model.tasks.filter(({ deadline }) => deadline !== null && deadline <= model.now);
  for (const task of late) end(model, task, failure("TIMED_OUT"), true);
  return late.length;
}

function endDue(model: Model) {
  const timedOut = timeOut(model);
  const late = model.tasks.filter(({ cancelBy }) => cancelBy !== null && cancelBy <= model.now);
  for (const task of late) end(model, task, cancelled, true);
  const recovered = recover(model);
  endLate(model);
  return { timedOut, cancelled: late.length + recovered };
}

function purge(model: Model): string[] {
  const over = model.tasks.filter((task) => isOver(model, task)).toSorted((a, b) => purgeAt(a) - purgeAt(b));
  model.tasks = model.tasks.filter((task) => !over.includes(task));
  for (const { made } of over)
    model.gone.push({ id: made.id, owner: made.owner, until: model.now + memoryMs(made.keepMs ?? 0) });
  model.gone = model.gone.filter(({ until }) => until > model.now);
  return over.map(({ seen }) => seen.id);
}

/** Which of several tasks a claim takes is partly the store's choice: what it took must be allowed, and enough. */
function claimSteps(request: ClaimRequest, claims: readonly Claim[]): readonly Step[] {
  return [
    promote,
    ...claims.map(
      (claimed): Step =>
        (model) =>
          take(model, request, claimed),
    ),
    (model) => assert.ok(claims.length === request.count || free(model, request).length === 0, "nothing was left over"),
  ];
}

function promote(model: Model): void {
  timeOut(model);
  recover(model);
  endLate(model);
  for (const task of model.tasks)
    if (task.activation !== null && "due" in task.activation) queue(model, task, task.activation.due);
}

/** What a claim may take. */
function free(model: Model, request: ClaimRequest): ModelTask[] {
  const running = model.tasks.filter(isLeased);
  return model.tasks.filter(({ made, activation }) => {
    const kind = request.tools.find(({ name, version }) => name === made.tool && version === made.version);
    const count = (same: (other: NewTask) => boolean) => running.filter((task) => same(task.made)).length;
    return (
      activation !== null &&
      "due" in activation &&
      activation.due === 0 &&
      kind !== undefined &&
      request.queues.includes(made.queue) &&
      (kind.limit === null || count(({ tool }) => tool === made.tool) < kind.limit) &&
      (request.ownerLimit === null || count(({ owner }) => owner === made.owner) < request.ownerLimit)
    );
  });
}

function take(model: Model, request: ClaimRequest, claimed: Claim): void {
  const candidates = free(model, request);
  const task = candidates.find(({ seen }) => seen.id === claimed.taskId);
  assert.ok(task !== undefined, "what was claimed was free");
  const { priority, owner } = task.made;
  assert.equal(priority, Math.max(...candidates.map(({ made }) => made.priority)), "the highest priority goes first");
  assert.equal(
    task,
    candidates.find(({ made }) => made.priority === priority && made.owner === owner),
    "the oldest goes first",
  );
  task.activation = { until: model.now + request.leaseMs, worker: request.worker };
  task.seen.epoch += 1;
  task.strikes += 1;
  for (const event of task.events.values()) event.awaited = false;
  const { id, args, answers, client, auth } = task.made;
  assert.deepEqual(claimed, {
    taskId: id,
    epoch: task.seen.epoch,
    task: visible(task),
    args,
    answers,
    client,
    auth,
    attempt: task.strikes,
    deadline: task.deadline,
    now: model.now,
    journal: journalOf(task),
  } satisfies Claim);
}

const verbs = {
  create(model: Model, made: NewTask, liveLimit: number | null): Task | string {
    const { reuse } = made;
    const name = JSON.stringify([made.owner, reuse?.key]);
    const known = reuse === null ? undefined : model.tasks.find(({ seen }) => seen.id === model.keys.get(name));
    if (reuse !== null && known !== undefined) {
      const { seen, finishedAt } = known;
      const stands = reuse.scope === "kept" ? !isOver(model, known) : finishedAt === null && !seen.cancelRequested;
      if (stands) return known.made.reuse?.call === reuse.call ? visible(known) : "IDEMPOTENCY_MISMATCH";
    }
    const live = model.tasks.filter(({ seen, finishedAt }) => seen.owner === made.owner && finishedAt === null).length;
    if (liveLimit !== null && live >= liveLimit) return "TOO_MANY_TASKS";
    const { id, owner, tool, version } = made;
    const task: ModelTask = {
      made,
      seen: {
        id,
        owner,
        tool,
        version,
        status: "working",
        statusMessage: null,
        progress: null,
        createdAt: model.now,
        updatedAt: model.now,
        turnedAt: model.now,
        rev: 1,
        epoch: 0,
        cancelRequested: false,
        result: null,
        error: null,
      },
      activation: { due: 0 },
      deadline: made.timeoutMs === null ? null : model.now + made.timeoutMs,
      cancelBy: null,
      finishedAt: null,
      strikes: 0,
      steps: new Map(),
      inputs: new Map(),
      events: new Map(),
      waitUntil: null,
    };
    model.tasks.push(task);
    if (reuse !== null) model.keys.set(name, id);
    return visible(task);
  },

  get(model: Model, id: string, owner: string) {
    const task = find(model, id, owner);
    return typeof task === "object" ? visible(task) : task;
  },

  answer(model: Model, id: string, owner: string, responses: Record<string, InputResponse>, refused: string | null) {
    const task = find(model, id, owner);
    if (typeof task !== "object") return task;
    if (task.seen.status !== "input_required") return visible(task);
    const isTaken = ({ open, until }: ModelInput) => open && (until ?? Infinity) > model.now;
    const taken = Object.keys(responses).filter((key) => task.inputs.has(key) && isTaken(task.inputs.get(key)!));
    for (const key of taken) Object.assign(task.inputs.get(key)!, { response: responses[key], open: false });
    const isLate =
      taken.length < Object.keys(responses).length &&
      [...task.inputs.values()].some(({ open, until }) => open && (until ?? Infinity) <= model.now);
    const ended = isLate ? endLateOf(model, task) : { inputs: 0, events: 0 };
    const moved = taken.length + ended.inputs + ended.events > 0;
    const done = !isOpen(task);
    if (done || (moved && wasLate(task))) wake(model, task);
    if (done) {
      reveal(model, task, { status: "working", statusMessage: null });
    } else if (refused !== null) reveal(model, task, { statusMessage: cleanMessage(refused) });
    else if (moved) reveal(model, task, {});
    return visible(task);
  },

  send(model: Model, id: string, key: string, value: string): boolean {
    const task = model.tasks.find(({ seen }) => seen.id === id);
    if (task === undefined || isTerminal(task.seen.status)) return false;
    const event = task.events.get(key) ?? { value: null, awaited: false, until: null };
    task.events.set(key, event);
    if (event.value !== null || (event.until ?? Infinity) <= model.now) {
      endLateAt(model, task);
      return true;
    }
    event.value = value;
    if (event.awaited && (task.seen.status === "working" || wasLate(task))) wake(model, task);
    return true;
  },

  requestCancel(model: Model, id: string, owner: string, graceMs: number) {
    const task = find(model, id, owner);
    if (typeof task !== "object") return task;
    if (isTerminal(task.seen.status) || task.seen.cancelRequested) return visible(task);
    task.seen.cancelRequested = true;
    if (task.activation !== null && "until" in task.activation && task.activation.until > model.now) {
      task.cancelBy = model.now + graceMs;
      reveal(model, task, {});
    } else end(model, task, cancelled, true);
    return visible(task);
  },

  sweep: (model: Model) => ({ ...endDue(model), purged: purge(model), more: false }),

  page(model: Model, owner: string, after: Place | null, limit: number): Task[] {
    const sorted = model.tasks
      .filter((task) => task.seen.owner === owner && !isOver(model, task))
      .map(visible)
      .toSorted((a, b) => b.createdAt - a.createdAt || (a.id < b.id ? 1 : -1));
    const past = (task: Task, place: Place) =>
      task.createdAt < place.createdAt || (task.createdAt === place.createdAt && task.id < place.id);
    return sorted.filter((task) => after === null || past(task, after)).slice(0, limit);
  },
  list: (model: Model) => tasksOf(model),

  nextDue(model: Model): number | null {
    const instants = model.tasks.flatMap(({ activation, waitUntil, finishedAt }) => {
      const timeouts = waitUntil === null || finishedAt !== null ? [] : [waitUntil];
      if (activation === null) return timeouts;
      if ("until" in activation) return [...timeouts, activation.until];
      return activation.due === 0 ? timeouts : [...timeouts, activation.due];
    });
    return instants.length === 0 ? null : Math.max(0, Math.min(...instants) - model.now);
  },

  renew(model: Model, worker: string, attempts: readonly Attempt[], leaseMs: number) {
    const held = (attempt: Attempt) => {
      const { activation = null } = leased(model, attempt) ?? {};
      return activation !== null && "until" in activation && activation.worker === worker ? activation : null;
    };
    for (const attempt of attempts) Object.assign(held(attempt) ?? {}, { until: model.now + leaseMs });
    return {
      lost: attempts.filter((attempt) => held(attempt) === null),
      cancelled: attempts.filter((attempt) => held(attempt) !== null && leased(model, attempt)?.seen.cancelRequested),
    };
  },

  startStep(model: Model, attempt: Attempt, key: string): boolean {
    const task = leased(model, attempt);
    if (task !== undefined && !task.steps.has(key)) task.steps.set(key, { state: "started", wakeAt: null });
    return task !== undefined;
  },

  recordStep(model: Model, attempt: Attempt, key: string, record: StepRecord): boolean {
    const task = leased(model, attempt);
    if (task === undefined) return false;
    if ((task.steps.get(key)?.state ?? "started") === "started") task.steps.set(key, record);
    if (record.state !== "failed") task.strikes = 0;
    return true;
  },

  journal(model: Model, attempt: Attempt): Journal | null {
    const task = leased(model, attempt);
    return task === undefined ? null : journalOf(task);
  },

  setStatus(model: Model, attempt: Attempt, message: string | null, progress: Progress | null): boolean {
    const task = leased(model, attempt);
    if (task === undefined) return false;
    const statusMessage = message === null ? null : cleanMessage(message);
    const same = statusMessage === task.seen.statusMessage && progress?.progress === task.seen.progress?.progress;
    if (!same) reveal(model, task, { statusMessage, progress });
    return true;
  },

  park(model: Model, attempt: Attempt, waits: Waits, hold: boolean): boolean {
    const task = leased(model, attempt);
    if (task === undefined) return false;
    if (task.seen.cancelRequested) {
      end(model, task, cancelled, false);
      return true;
    }
    task.strikes = 0;
    if (!hold) {
      for (const input of task.inputs.values()) input.open = false;
      for (const event of task.events.values()) event.awaited = false;
    }
    const until = (timeoutMs: number | undefined) => (timeoutMs === undefined ? null : instant(model.now, timeoutMs));
    let asked = false;
    for (const { key, request, timeoutMs, since = key } of waits.inputs) {
      const input = task.inputs.get(key) ?? { request, response: null, open: false, until: null };
      if (input.response === null && !input.open) {
        asked = true;
        input.open = true;
        if (timeoutMs !== undefined) input.until ??= task.inputs.get(since)?.until ?? until(timeoutMs);
      }
      task.inputs.set(key, input);
    }
    for (const { key, timeoutMs } of waits.events) {
      const event = task.events.get(key) ?? { value: null, awaited: true, until: null };
      event.awaited = true;
      event.until ??= until(timeoutMs);
      task.events.set(key, event);
    }
    const rings = waits.timers.map(({ key, dueInMs }) => {
      const step = task.steps.get(key);
      if (step !== undefined && step.state !== "started") return 0;
      const wakeAt = (step?.wakeAt ?? 0) > model.now ? step!.wakeAt! : instant(model.now, dueInMs);
      task.steps.set(key, { state: "started", wakeAt });
      return wakeAt;
    });
    endLateOf(model, task);
    const open = isOpen(task);
    const status = open ? "input_required" : "working";
    if (!hold) {
      const answered = waits.inputs.filter(({ key }) => task.inputs.get(key)?.response !== null).length;
      const came = waits.events.some(({ key }) => task.events.get(key)?.value !== null);
      const total = waits.inputs.length + waits.events.length + rings.length;
      task.activation = null;
      if (open && !wasLate(task)) {
        /* Whatever else comes, its questions are first. */
      } else if (came || total === 0 || (open ? answered > 0 : waits.inputs.length > 0)) queue(model, task);
      else if (rings.length > 0) queue(model, task, Math.min(...rings));
    }
    if (asked || status !== task.seen.status) reveal(model, task, { status });
    return true;
  },

  finish(model: Model, attempt: Attempt, outcome: Outcome): boolean {
    const task = leased(model, attempt);
    if (task !== undefined) end(model, task, outcome, false);
    return task !== undefined;
  },

  release(model: Model, attempt: Attempt, { delayMs, spend }: { delayMs: number; spend: boolean }): boolean {
    const task = leased(model, attempt);
    if (task === undefined) return false;
    task.strikes = spend ? Math.max(1, task.strikes) : Math.max(0, task.strikes - 1);
    if (spend) for (const [key, { state }] of task.steps) if (state === "failed") task.steps.delete(key);
    if (task.seen.cancelRequested) end(model, task, cancelled, false);
    else if (task.strikes >= task.made.attempts) end(model, task, failure("ATTEMPTS_EXHAUSTED", task.strikes), false);
    else queue(model, task, model.now + delayMs);
    return true;
  },
};
