import type { CreateMessageResult, Root } from "@modelcontextprotocol/server";
import { z } from "zod";
import { milliseconds, type Clock } from "../clock.ts";
import { TaskError } from "../errors.ts";
import type { AttemptVerbs } from "../engine/engine.ts";
import { formSchema } from "../protocol/form.ts";
import { missingFor, type InputRequest, type InputResponse } from "../protocol/input.ts";
import type { Claim, StepRecord } from "../store/store.ts";
import type { Elicit, ElicitAnswer, ElicitOptions, StepContext, StepOptions, TaskContext } from "../tool.ts";
import { createKeys } from "./keys.ts";
import { createReplay } from "./replay.ts";
import type { Reporter } from "./report.ts";
import { failure, recallFailure, tries } from "./steps.ts";
import { keepStep, recallStep, type ValueLimits } from "./values.ts";
import { refusal, type WaitList } from "./waits.ts";

/** What a handler's context stands on. */
export interface ContextOptions {
  readonly claim: Claim;
  readonly verbs: AttemptVerbs;
  readonly signal: AbortSignal;
  readonly clock: Clock;
  readonly reporter: Reporter;
  readonly waits: WaitList;
  readonly limits: ValueLimits;
  /** Called when a write shows that the attempt is no longer ours. */
  readonly lost: () => void;
}

/** A question that is answered by accepting or declining it. */
const yesOrNo = z.object({});

/** The promise of an attempt that has ended: its handler goes no further. */
const never = new Promise<never>(() => {});

/** The `task` of one attempt: answers from the journal what is recorded there, and does the rest. */
export function createContext(options: ContextOptions): TaskContext {
  const { claim, verbs, signal, clock, reporter, waits, limits } = options;
  const { journal } = claim;
  const keys = createKeys();
  const replay = createReplay(journal, reporter);

  /** Goes on once a record is durable; an attempt that lost its lease goes nowhere. */
  async function recorded(key: string, entry: StepRecord): Promise<void> {
    if (await verbs.recordStep(claim, key, entry)) return;
    options.lost();
    await never;
  }

  async function run(key: string, fn: (step: StepContext) => unknown, how: StepOptions): Promise<unknown> {
    waits.begin();
    try {
      if (how.once === true && !(await verbs.startStep(claim, key))) {
        options.lost();
        await never;
      }
      const outcome = await attemptStep(key, fn, how);
      if ("thrown" in outcome) {
        if (signal.aborted) throw outcome.thrown;
        await recorded(key, failure(outcome.thrown));
        throw outcome.thrown;
      }
      await recorded(key, { state: "done", value: outcome.text });
      return outcome.value;
    } finally {
      waits.end();
    }
  }

  async function attemptStep(key: string, fn: (step: StepContext) => unknown, how: StepOptions) {
    try {
      return await keepStep(limits, claim.taskId, key, await tries(fn, how, `${claim.taskId}:${key}`, signal, clock));
    } catch (thrown) {
      return { thrown };
    }
  }

  async function step<T>(name: string, fn: (step: StepContext) => T | Promise<T>, how: StepOptions = {}): Promise<T> {
    const key = keys.take("step", name);
    try {
      const known = journal.steps[key];
      if (known?.state === "done") return replay.use(await recallStep(limits, known.value)) as T;
      if (known?.state === "failed") throw replay.use(recallFailure(known.error));
      if (known?.state === "started" && how.once === true)
        throw new TaskError("STEP_INTERRUPTED", { detail: `It is "${key}".` });
      signal.throwIfAborted();
      replay.live();
      return (await run(key, fn, how)) as T;
    } finally {
      keys.settle("step", key);
    }
  }

  async function input(name: string, request: InputRequest): Promise<InputResponse> {
    const key = keys.take("input", name);
    const known = journal.inputs[key]?.response ?? null;
    if (known !== null) {
      keys.settle("input", key);
      return replay.use(known);
    }
    const missing = missingFor(request, claim.client);
    if (missing !== null) throw new TaskError("INPUT_UNSUPPORTED", { data: { requiredCapabilities: missing } });
    signal.throwIfAborted();
    replay.live();
    const { promise, resolve, reject } = Promise.withResolvers<InputResponse>();
    waits.add({ kind: "input", key, request, resolve, reject });
    const response = await promise;
    keys.settle("input", key);
    return response;
  }

  /** What JSON Schema can't say is checked here; an answer that fails is asked for again, under a new key. */
  async function raw<S extends z.ZodObject>(name: string, ask: ElicitOptions<S>): Promise<ElicitAnswer<z.output<S>>> {
    let message = ask.message;
    for (;;) {
      const params =
        "url" in ask
          ? { mode: "url", message, url: ask.url }
          : { mode: "form", message, requestedSchema: formSchema(ask.schema) };
      const response = await input(name, { method: "elicitation/create", params });
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
    replay.live();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    waits.add({ kind: "timer", key, dueInMs, resolve, reject });
    await promise;
  }

  async function sleep(name: string, duration: Parameters<TaskContext["sleep"]>[1]): Promise<void> {
    const key = keys.take("step", name);
    const known = journal.steps[key];
    const wakeAt = known?.state === "started" ? known.wakeAt : null;
    if (wakeAt === null || wakeAt > claim.now) {
      signal.throwIfAborted();
      await timer(key, wakeAt === null ? milliseconds(duration) : wakeAt - claim.now);
    }
    replay.use(undefined);
    keys.settle("step", key);
  }

  async function poll<T>(
    name: string,
    { every }: { every: Parameters<TaskContext["sleep"]>[1] },
    fn: (step: StepContext) => T | undefined | Promise<T | undefined>,
  ): Promise<T> {
    const key = keys.take("step", name);
    const known = journal.steps[key];
    if (known?.state === "done") {
      keys.settle("step", key);
      return replay.use(await recallStep(limits, known.value)) as T;
    }
    const wakeAt = known?.state === "started" ? known.wakeAt : null;
    for (let pauseMs = wakeAt === null ? 0 : wakeAt - claim.now; ; pauseMs = milliseconds(every)) {
      signal.throwIfAborted();
      if (pauseMs > 0) await timer(key, pauseMs);
      signal.throwIfAborted();
      replay.live();
      const found = await look(key, fn);
      if (found !== undefined) return found;
    }
  }

  async function look<T>(
    key: string,
    fn: (step: StepContext) => T | undefined | Promise<T | undefined>,
  ): Promise<T | undefined> {
    waits.begin();
    try {
      const value = await fn({ key: `${claim.taskId}:${key}`, signal });
      if (value === undefined) return undefined;
      const kept = await keepStep(limits, claim.taskId, key, value);
      await recorded(key, { state: "done", value: kept.text });
      keys.settle("step", key);
      return kept.value as T;
    } finally {
      waits.end();
    }
  }

  async function event<T>(name: string): Promise<T> {
    const key = keys.take("event", name);
    let text = journal.events[key];
    if (text === undefined) {
      signal.throwIfAborted();
      replay.live();
      const { promise, resolve, reject } = Promise.withResolvers<string>();
      waits.add({ kind: "event", key, resolve, reject });
      text = await promise;
    }
    keys.settle("event", key);
    return replay.use(JSON.parse(text)) as T;
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
    step,
    elicit,
    async approve(name, message) {
      const { action } = await raw(name, { message, schema: yesOrNo });
      if (action !== "accept") throw new TaskError("DECLINED");
    },
    sample: async (name, params) =>
      (await input(name, {
        method: "sampling/createMessage",
        params: { ...params },
      })) as unknown as CreateMessageResult,
    roots: async (name) => (await input(name, { method: "roots/list" })).roots as Root[],
    sleep,
    poll,
    event,
  };
}
