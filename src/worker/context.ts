import { AsyncLocalStorage } from "node:async_hooks";
import type { CreateMessageResult, Root } from "@modelcontextprotocol/server";
import { z } from "zod";
import { milliseconds, type Clock, type Duration } from "../clock.ts";
import { TaskError } from "../errors.ts";
import type { AttemptVerbs } from "../engine/attempts.ts";
import { formSchema } from "../protocol/form.ts";
import { missingFor, type InputRequest, type InputResponse } from "../protocol/input.ts";
import type { Claim, StepRecord } from "../store/store.ts";
import type {
  Elicit,
  ElicitAnswer,
  ElicitOptions,
  PollOptions,
  StepContext,
  StepOptions,
  TaskContext,
  WaitOptions,
} from "../tool.ts";
import { createKeys, lookUp, type KeyKind } from "./keys.ts";
import { createReplay } from "./replay.ts";
import type { Reporter } from "./report.ts";
import { messageOf } from "./result.ts";
import { failure, keepFailure, recallFailure, recallOnce, tries } from "./steps.ts";
import { keepStep, recallStep, type ValueLimits } from "./values.ts";
import { refusal, type Awaited, type WaitList } from "./waits.ts";

/** What a handler's context stands on. */
export interface ContextOptions {
  readonly claim: Claim;
  readonly verbs: AttemptVerbs;
  readonly signal: AbortSignal;
  readonly clock: Clock;
  readonly reporter: Reporter;
  readonly waits: WaitList;
  readonly limits: ValueLimits;
  /** Whether only the client that made the call may be asked. */
  readonly onlyCaller: boolean;
  /** Called when a write shows that the attempt is no longer ours. */
  readonly lost: () => void;
}

/** A question that is answered by accepting or declining it. */
const yesOrNo = z.object({});

/** The attempt whose step is running. A wait in there would wait for ever: nothing parks before the step ends. */
const inStep = new AsyncLocalStorage<Claim>();

/** What the handler of an attempt that has ended gets: it goes no further. One for all would keep each of them. */
const nowhere = () => new Promise<never>(() => {});

/** The `task` of one attempt: answers from the journal what is recorded there, and does the rest. */
export function createContext(options: ContextOptions): TaskContext {
  const { claim, verbs, signal, clock, reporter, waits, limits } = options;
  const { journal } = claim;
  const keys = createKeys();
  const replay = createReplay(journal, reporter);

  /** Goes on once a write is durable; an attempt that lost its lease goes nowhere. */
  async function durable(write: Promise<boolean>): Promise<void> {
    if (await write) return;
    options.lost();
    await nowhere();
  }

  /**
   * Runs a step and records how it ended; of a poll, undefined is no end, unless it was the last look. All of it before
   * the attempt may park: what the handler does next belongs to it.
   */
  async function run(
    key: string,
    fn: (step: StepContext) => unknown,
    how: StepOptions & { readonly look?: "one of many" | "last" },
  ): Promise<unknown> {
    if (!waits.begin()) return nowhere();
    const end = (record: StepRecord) => durable(verbs.recordStep(claim, key, record));
    try {
      if (how.once === true) await durable(verbs.startStep(claim, key));
      const outcome = await attemptStep(key, fn, how);
      if ("thrown" in outcome) {
        if (!signal.aborted) await end(how.once === true ? keepFailure(outcome.thrown) : failure(outcome.thrown));
        throw outcome.thrown;
      }
      if (how.look === undefined || outcome.value !== undefined) await end({ state: "done", value: outcome.text });
      else if (how.look === "last") {
        const late = timedOut(key);
        await end(keepFailure(late));
        throw late;
      }
      return outcome.value;
    } finally {
      waits.end();
    }
  }

  async function attemptStep(key: string, fn: (step: StepContext) => unknown, how: StepOptions) {
    try {
      return await keepStep(
        limits,
        claim,
        key,
        await inStep.run(claim, () => tries(fn, how, `${claim.taskId}:${key}`, signal, clock)),
      );
    } catch (thrown) {
      // What is recorded of it has a limit, too, and a replay throws what was thrown here.
      const kept = thrown instanceof TaskError || Buffer.byteLength(messageOf(thrown)) <= limits.maxStepBytes;
      return { thrown: kept ? thrown : new TaskError("STEP_TOO_LARGE") };
    }
  }

  /** A name is in use until what has its key is over. */
  async function named<T>(kind: KeyKind, name: string, work: (key: string) => Promise<T>): Promise<T> {
    const key = keys.take(kind, name);
    try {
      return await work(key);
    } finally {
      keys.settle(kind, key);
    }
  }

  function wait(what: Awaited): Promise<unknown> {
    // What a step wakes, another task for instance, runs in its surroundings, too.
    if (inStep.getStore() !== claim) return waits.add(what);
    throw new TaskError("MISUSE", { detail: "A step can't wait for input, an event or a time: wait outside of it." });
  }

  /** A recorded value. It may lie in a folder, and nothing parks before the handler has gone on with it. */
  async function recall(text: string): Promise<unknown> {
    if (!waits.begin()) return nowhere();
    try {
      return await recallStep(limits, text);
    } finally {
      waits.end();
    }
  }

  /** How a step or poll ended, if that is recorded; throws what it threw. */
  async function ended(known: StepRecord | undefined): Promise<{ readonly value: unknown } | null> {
    if (known?.state === "done") {
      const failedOnce = recallOnce(known.value);
      if (failedOnce !== null) throw replay.use(failedOnce);
      return { value: replay.use(await recall(known.value)) };
    }
    if (known?.state === "failed") throw replay.use(recallFailure(known.error));
    return null;
  }

  function step<T>(name: string, fn: (step: StepContext) => T | Promise<T>, how: StepOptions = {}): Promise<T> {
    return named("step", name, async (key) => {
      const known = lookUp(journal.steps, key);
      const before = await ended(known);
      if (before !== null) return before.value as T;
      if (known !== undefined && how.once === true)
        throw replay.use(new TaskError("STEP_INTERRUPTED", { detail: `Its key: "${key}".` }));
      signal.throwIfAborted();
      replay.live();
      return (await run(key, fn, how)) as T;
    });
  }

  /** Asks, for so long at most. With the same `limit`, what is asked again is asked within the time of the first. */
  function input(name: string, request: InputRequest, limit: Limit): Promise<InputResponse> {
    return named("input", name, async (key) => {
      const known = lookUp(journal.inputs, key)?.response ?? null;
      const { timeoutMs, since = key } = limit;
      limit.since = since;
      if (known !== null) return inTime(replay.use(known), key);
      const missing = options.onlyCaller ? missingFor(request, claim.client) : null;
      if (missing !== null) throw new TaskError("INPUT_UNSUPPORTED", { data: { requiredCapabilities: missing } });
      signal.throwIfAborted();
      replay.live();
      const response = (await wait({ kind: "input", key, request, timeoutMs, since })) as InputResponse | "timed out";
      return inTime(response, key);
    });
  }

  /** What JSON Schema can't say is checked here; an answer that fails is asked for again, under a new key. */
  async function raw<S extends z.ZodObject>(name: string, ask: ElicitOptions<S>): Promise<ElicitAnswer<z.output<S>>> {
    const limit = limited(ask);
    let message = ask.message;
    for (;;) {
      const params =
        "url" in ask
          ? { mode: "url", message, url: ask.url }
          : { mode: "form", message, requestedSchema: formSchema(ask.schema) };
      const response = await input(name, { method: "elicitation/create", params }, limit);
      const action = response.action as ElicitAnswer<unknown>["action"];
      if (action !== "accept" || "url" in ask) return { action };
      const parsed = await ask.schema.safeParseAsync(response.content ?? {});
      if (parsed.success) return { action, content: parsed.data };
      message = `${ask.message} (${parsed.error.issues[0]?.message ?? "The last answer was not valid"})`;
    }
  }

  const elicit: Elicit = Object.assign(
    async (name: string, ask: ElicitOptions<z.ZodObject>) => {
      const { action, content } = await raw(name, ask);
      if (action !== "accept") throw refusal(action);
      return content as never;
    },
    { raw },
  );

  async function timer(key: string, dueInMs: number): Promise<void> {
    signal.throwIfAborted();
    replay.live();
    await wait({ kind: "timer", key, dueInMs });
  }

  /** When the timer of a sleep or poll rings, in milliseconds; null where none is set. */
  function dueIn(known: StepRecord | undefined): number | null {
    return known?.state === "started" && known.wakeAt !== null ? known.wakeAt - claim.now : null;
  }

  function sleep(name: string, duration: Duration): Promise<void> {
    return named("step", name, async (key) => {
      const left = dueIn(lookUp(journal.steps, key));
      if (left === null || left > 0) await timer(key, left ?? milliseconds(duration));
      replay.use(undefined);
    });
  }

  function poll<T>(
    name: string,
    how: PollOptions,
    fn: (step: StepContext) => T | undefined | Promise<T | undefined>,
  ): Promise<T> {
    return named("step", name, async (key) => {
      // Its timeout is that of an event that nobody sends.
      const limit = how.timeout === undefined ? null : keys.take("event", `${key}#timeout`);
      let over = limit !== null && lookUp(journal.events, limit) === null;
      if (over) replay.use(null);
      const known = lookUp(journal.steps, key);
      const before = await ended(known);
      if (before !== null) return before.value as T;
      let late: Promise<boolean> | null = null;
      // At least a moment: a poll without a pause would let nobody else work.
      for (let pauseMs = over ? 0 : (dueIn(known) ?? 0); ; pauseMs = Math.max(1, milliseconds(how.every))) {
        if (pauseMs > 0) {
          const rung = timer(key, pauseMs).then(() => false);
          if (limit !== null) late ??= wait({ kind: "event", key: limit, ...limited(how) }).then(() => true);
          over = await (late === null ? rung : Promise.race([rung, late]));
        }
        signal.throwIfAborted();
        replay.live();
        const found = await run(key, fn, { look: over ? "last" : "one of many" });
        if (found !== undefined) return found as T;
      }
    });
  }

  function event<T>(name: string, options: WaitOptions = {}): Promise<T> {
    return named("event", name, async (key) => {
      const { timeoutMs } = limited(options);
      let text = lookUp(journal.events, key);
      if (text === undefined) {
        signal.throwIfAborted();
        replay.live();
        text = (await wait({ kind: "event", key, timeoutMs })) as string | null;
      }
      return JSON.parse(inTime(replay.use(text), key)) as T;
    });
  }

  return {
    id: claim.taskId,
    attempt: claim.attempt,
    owner: claim.task.owner,
    auth: JSON.parse(claim.auth) as unknown,
    answers: JSON.parse(claim.answers) as Record<string, unknown>,
    signal,
    async report(message, progress) {
      reporter.report(message, progress ?? null);
    },
    step: noticed(step),
    elicit: Object.assign(noticed<Elicit>(elicit as never), { raw: noticed<Elicit["raw"]>(raw as never) }),
    approve: noticed(async (name, message, how) => {
      const { action } = await raw(name, { ...how, message, schema: yesOrNo });
      if (action !== "accept") throw refusal(action);
    }),
    sample: noticed(async (name, params, how) => {
      const request: InputRequest = { method: "sampling/createMessage", params: { ...params } };
      return (await input(name, request, limited(how))) as unknown as CreateMessageResult;
    }),
    roots: noticed(async (name, how) => (await input(name, { method: "roots/list" }, limited(how))).roots as Root[]),
    sleep: noticed(sleep),
    poll: noticed(poll),
    event: noticed(event),
  };
}

/** How long an answer may take since the request with the key `since` was first asked. */
interface Limit {
  readonly timeoutMs: number | undefined;
  since?: string;
}

function limited({ timeout }: WaitOptions = {}): Limit {
  return { timeoutMs: timeout === undefined ? undefined : milliseconds(timeout) };
}

/** What came, unless nothing did. */
function inTime<T>(came: T | "timed out" | null, key: string): T {
  if (came === null || came === "timed out") throw timedOut(key);
  return came;
}

const timedOut = (key: string) => new TaskError("WAIT_TIMED_OUT", { detail: `Its key: "${key}".` });

/** A promise that a handler forgot to await must not end the process of everybody's tasks when it is rejected. */
function noticed<F extends (...args: never[]) => Promise<unknown>>(verb: F): F {
  return ((...args: Parameters<F>) => {
    const promise = verb(...args);
    promise.catch(() => {});
    return promise;
  }) as F;
}
