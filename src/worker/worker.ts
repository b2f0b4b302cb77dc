import { randomUUID } from "node:crypto";
import type { Clock } from "../clock.ts";
import { asTaskError, TaskError } from "../errors.ts";
import type { Engine } from "../engine/engine.ts";
import type { Claim } from "../store/store.ts";
import type { TaskTool } from "../tool.ts";
import { startAttempt, type RunningAttempt } from "./attempt.ts";
import { failed } from "./result.ts";
import type { ValueLimits } from "./values.ts";

/** What a worker is made of. Lengths are milliseconds. */
export interface WorkerParts {
  readonly engine: Engine;
  readonly tools: readonly TaskTool[];
  readonly clock: Clock;
  readonly onError: (error: TaskError) => void;
  /** Handlers that run at once. */
  readonly concurrency: number;
  readonly queues: readonly string[];
  readonly ownerLimit: number | null;
  /** How long a claimed task is this worker's without a sign of life. */
  readonly leaseMs: number;
  /** How long running handlers may go on when the worker closes. */
  readonly drainMs: number;
  readonly limits: ValueLimits;
}

/** A worker in this process. */
export interface Worker extends AsyncDisposable {
  /** Claims nothing more, lets running handlers finish for a while and hands the rest back. */
  close(): Promise<void>;
}

/** The longest that a lost hint can go unnoticed. */
const idleMs = 1_000;

/** How long a handler has between being told to stop at the end of the drain and being left behind. */
const stopMs = 1_000;

/** Work outside of steps that takes less is not worth a word. */
const noticeableMs = 50;

/** How long a task on its last attempt keeps others on theirs from beginning. */
const suspectMs = 3_000;

/** The next death of its process is the end of such a task. One that kills its process must not take others along. */
const isLastChance = (claim: Claim, tool: TaskTool) => claim.attempt > 1 && claim.attempt >= tool.attempts;

/** Starts a worker: it claims tasks as they become due and runs their handlers. */
export function startWorker(parts: WorkerParts): Worker {
  const { engine, clock, onError, leaseMs } = parts;
  const name = randomUUID();
  const verbs = engine.attempts;
  const tools = new Map(parts.tools.map((tool) => [`${tool.name}@${tool.version}`, tool]));
  const running = new Map<string, RunningAttempt>();
  /** Handlers that run, and ends of handlers that are being stored. */
  let handlers = 0;
  let ends = 0;
  const warned = new Set<string>();
  let closing: Promise<void> | null = null;
  let pulling = false;
  let pulled = Promise.resolve();
  let again = false;
  let cancelWake = () => {};
  let cancelRenewal = () => {};
  let suspectUntil = 0;

  const request = (count: number) => ({
    worker: name,
    tools: parts.tools.map((tool) => ({ name: tool.name, version: tool.version, limit: tool.concurrency })),
    queues: parts.queues,
    ownerLimit: parts.ownerLimit,
    count,
    leaseMs,
  });

  function wake(): void {
    again = true;
    if (!pulling && closing === null && free() > 0) pulled = pull();
  }

  /** Places: one that ends makes room already, but ends that can't be stored don't pile up. */
  const free = () => Math.min(parts.concurrency, 2 * parts.concurrency - ends) - handlers;

  async function pull(): Promise<void> {
    pulling = true;
    cancelWake();
    let waitMs = idleMs;
    try {
      while (again && closing === null && free() > 0) {
        // Attempts that end together free their places together.
        await new Promise<void>((resolve) => setImmediate(resolve));
        if (closing !== null) return;
        again = false;
        const count = free();
        const claims = await verbs.claim(request(count));
        if (closing !== null) return await handBack(claims);
        for (const claim of claims) start(claim);
        // Whoever got less than they asked for got all there was. What a hint said meanwhile is looked for again.
        if (claims.length >= count) again = true;
        else waitMs = Math.min(idleMs, (await verbs.nextDue()) ?? idleMs);
      }
    } catch (thrown) {
      if (closing === null) onError(asTaskError(thrown, "STORE_UNAVAILABLE"));
    } finally {
      pulling = false;
    }
    if (closing === null) cancelWake = clock.after(waitMs, wake);
  }

  function start(claim: Claim): void {
    const tool = tools.get(`${claim.task.tool}@${claim.task.version}`);
    if (tool === undefined) return;
    if (isLastChance(claim, tool)) {
      if (clock.now() < suspectUntil)
        return void verbs.release(claim, { delayMs: suspectMs, spend: false }).catch(() => {});
      suspectUntil = clock.now() + suspectMs;
    }
    const onUnstepped = (ms: number) => warnOfUnstepped(tool.name, ms);
    let ending = false;
    const onEnding = () => {
      ending = true;
      handlers -= 1;
      ends += 1;
      wake();
    };
    handlers += 1;
    const attempt = startAttempt({ claim, tool, verbs, clock, onError, onUnstepped, onEnding, limits: parts.limits });
    running.set(claim.taskId, attempt);
    const stopWatching = engine.watch(claim.taskId, () => void look(attempt));
    void attempt.done.then(() => {
      stopWatching();
      if (running.get(claim.taskId) === attempt) running.delete(claim.taskId);
      if (ending) ends -= 1;
      else handlers -= 1;
      wake();
    });
  }

  function warnOfUnstepped(tool: string, ms: number): void {
    if (ms < noticeableMs || warned.has(tool)) return;
    warned.add(tool);
    const detail = `The tool is "${tool}", and the work took ${ms} ms.`;
    onError(new TaskError("UNSTEPPED_WORK", { detail }));
  }

  /** A hint about a running task: was it cancelled, or has something come that its handler holds on for? */
  async function look(attempt: RunningAttempt): Promise<void> {
    // What it hears of then is its own end.
    if (!attempt.look()) return;
    try {
      const task = await engine.read(attempt.claim.taskId, attempt.claim.task.owner);
      if (task.epoch !== attempt.claim.epoch) attempt.abort(new TaskError("LEASE_LOST"));
      else if (task.cancelRequested) attempt.abort(new TaskError("CANCELLED"));
    } catch {
      // The next renewal finds out.
    }
  }

  async function renew(): Promise<void> {
    try {
      const held = [...running.values()].map(({ claim }) => ({ taskId: claim.taskId, epoch: claim.epoch }));
      if (held.length > 0) {
        const { lost, cancelled } = await verbs.renew(name, held, leaseMs);
        for (const { taskId, epoch } of lost) abort(taskId, epoch, "LEASE_LOST");
        for (const { taskId, epoch } of cancelled) abort(taskId, epoch, "CANCELLED");
        // A hint may have been lost: what handlers hold on for is looked for again.
        for (const attempt of running.values()) attempt.look();
      }
    } catch (thrown) {
      onError(asTaskError(thrown, "STORE_UNAVAILABLE"));
    }
    if (closing === null || running.size > 0) cancelRenewal = clock.after(leaseMs / 3, () => void renew());
  }

  function abort(taskId: string, epoch: number, code: "LEASE_LOST" | "CANCELLED"): void {
    const attempt = running.get(taskId);
    if (attempt?.claim.epoch === epoch) attempt.abort(new TaskError(code));
  }

  async function drain(): Promise<void> {
    stopWatching();
    cancelWake();
    await pulled;
    const idle = () => Promise.all([...running.values()].map(({ done }) => done));
    await within(idle(), parts.drainMs);
    for (const attempt of running.values()) attempt.abort(new TaskError("SHUTTING_DOWN"));
    await within(idle(), stopMs);
    await leaveBehind([...running.values()].map(({ claim }) => claim));
    cancelRenewal();
  }

  /** Their handlers heed nothing and may go on for ever: what must never run twice ends here, the rest is handed back. */
  async function leaveBehind(claims: readonly Claim[]): Promise<void> {
    const mayRunAgain = ({ task }: Claim) => tools.get(`${task.tool}@${task.version}`)?.recovery !== "fail";
    const interrupted = failed(new TaskError("INTERRUPTED").toRpc());
    const ended = claims.filter((claim) => !mayRunAgain(claim)).map((claim) => verbs.finish(claim, interrupted));
    await Promise.allSettled([...ended, handBack(claims.filter(mayRunAgain))]);
    for (const attempt of running.values()) attempt.abort(new TaskError("LEASE_LOST"));
  }

  /** At once and without spending an attempt; what this fails for is taken over when its lease runs out. */
  async function handBack(claims: readonly Claim[]): Promise<void> {
    await Promise.allSettled(claims.map((claim) => verbs.release(claim, { delayMs: 0, spend: false })));
  }

  function within(work: Promise<unknown>, ms: number): Promise<unknown> {
    let cancel = () => {};
    const late = new Promise<void>((resolve) => (cancel = clock.after(ms, resolve)));
    return Promise.race([work, late]).finally(cancel);
  }

  const stopWatching = engine.watchAll(wake);
  cancelRenewal = clock.after(leaseMs / 3, () => void renew());
  wake();
  const close = () => (closing ??= drain());
  return { close, [Symbol.asyncDispose]: close };
}
