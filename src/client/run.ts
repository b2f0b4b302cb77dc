import type { CallToolResult } from "@modelcontextprotocol/client";
import { type Clock, type Duration, milliseconds } from "../clock.ts";
import { TaskError, asTaskError } from "../errors.ts";
import { isTerminal } from "../protocol/status.ts";
import type { DetailedTask, WireTask } from "../protocol/wire.ts";
import { Answers } from "./answers.ts";
import { askedToWait, isPassing, taskError } from "./failures.ts";
import type { InputHandlers } from "./input.ts";
import { backoff, defaultInterval, interval } from "./pace.ts";
import { type Report, readResult, readTask } from "./replies.ts";

/** A task as it stood at one moment. */
export type TaskSnapshot = DetailedTask & {
  /** Keys of outstanding requests that no handler of this client answers: the task waits for somebody else. */
  readonly unhandledInput: readonly string[];
};

/** How a task is followed. */
export interface FollowOptions {
  /** Told each change once; of changes that come faster than they can be read, the newest. */
  readonly onUpdate?: (snapshot: TaskSnapshot) => void;
  /** Ends the waiting at once. What becomes of the task is for {@link FollowOptions.onAbort} to say. */
  readonly signal?: AbortSignal;
  /** What an abort means: `"cancel"`, the default, asks the server to stop the task; `"detach"` lets it go on. */
  readonly onAbort?: "cancel" | "detach";
  /**
   * How long to wait at most. It ends the waiting with `DEADLINE_PASSED`, never the task; with `MAY_HAVE_STARTED` while
   * the server has not said whether there is a task.
   */
  readonly deadline?: Duration;
}

/** A tool call on its way. Iterating gives its snapshots: each change once, the newest wins, the last one is final. */
export interface TaskRun extends AsyncIterable<TaskSnapshot> {
  /** Undefined when the server answered with the result at once. */
  readonly taskId: string | undefined;
  /**
   * The tool's result, a tool's own error (`isError`) included. Rejects with a {@link TaskError}: `TASK_FAILED` with
   * the server's code, message and data; `CANCELLED`, `DEADLINE_PASSED`, `DETACHED`; `TASK_NOT_FOUND`,
   * `TASK_EXPIRED`, `INPUT_FAILED`, `REFUSED`, `EXTENSION_REQUIRED`, `INVALID_RESPONSE`, each with `data.taskId`.
   * Polls that fail in passing are repeated and end nothing; `CONNECTION_LOST` is a client that has been closed.
   */
  result(): Promise<CallToolResult>;
  /** Asks the server to stop the task and settles this run as `CANCELLED` now; rejects if the server can't be told. */
  cancel(): Promise<void>;
  /** Ends the waiting with `DETACHED`; the task goes on. */
  detach(): void;
}

/** What a run needs of its client. */
export interface RunHost {
  readonly clock: Clock;
  readonly input: InputHandlers;
  readonly onError: (error: unknown) => void;
  send(
    method: "tasks/get" | "tasks/update",
    params: Readonly<Record<string, unknown>>,
    signal: AbortSignal,
  ): Promise<unknown>;
  cancel(taskId: string): Promise<void>;
  /** There is nothing to come back for: the task is over, or the server doesn't know it. */
  forget(taskId: string): void;
  /** Has changes of this task pushed, if the server does that; the returned function ends it. */
  watch(run: WatchedRun): () => void;
}

/** The side of a run that pushed changes come in by. */
export interface WatchedRun {
  readonly taskId: string;
  /** Takes a report that was pushed. */
  accept(report: Report): void;
  /** Looks at the task within so many milliseconds, if that isn't sooner anyway. */
  hurry(withinMs: number): void;
  /** Ends the waiting. */
  detach(): void;
  /** Whether changes are being pushed now: then polling is only the safety net. */
  pushed: boolean;
}

/** How often a task is looked at whose changes are pushed: a push that was lost costs this many milliseconds. */
const safetyNet = 30_000;

/** A run that was over before it began: the server answered with the result at once. */
export function finishedRun(result: CallToolResult): TaskRun {
  return {
    taskId: undefined,
    result: async () => result,
    cancel: async () => {},
    detach() {},
    // oxlint-disable-next-line require-yield -- no task, no snapshots
    async *[Symbol.asyncIterator]() {},
  };
}

/** How a run ended: `over` is final for the task as well, `left` is not, `failed` makes iterating throw too. */
type Ended = { how: "over" | "left" } | { how: "failed"; error: TaskError };

/** Follows one task to its end. It begins with the first `result()` or iteration, or at once where there is `onUpdate`. */
export class FollowedTask implements TaskRun, WatchedRun {
  readonly taskId: string;
  pushed = false;
  readonly #host: RunHost;
  readonly #options: FollowOptions;
  readonly #deadlineAt: number | undefined;
  readonly #answers: Answers;
  readonly #outcome = Promise.withResolvers<CallToolResult>();
  readonly #onAbort = () => this.#aborted();
  /** Aborted when the run settles; one for each request in flight, so that nothing gathers on a long one. */
  readonly #inFlight = new Set<AbortController>();
  #begun = false;
  #ended: Ended | undefined;
  #snapshot: TaskSnapshot | undefined;
  #fingerprint = "";
  #version = 0;
  #pushes = 0;
  #change = Promise.withResolvers<void>();
  #pollHint: unknown;
  #ttlMs: number | null = null;
  #heardAt: number;
  /** The longest that the next wait may be, where it was shortened before it began. */
  #soon = Number.POSITIVE_INFINITY;
  #wake: ((withinMs: number) => void) | undefined;
  #stopWatching = () => {};
  #stopDeadline = () => {};

  constructor(
    host: RunHost,
    taskId: string,
    seed: { task: WireTask; pollHint: unknown } | undefined,
    options: FollowOptions,
  ) {
    this.taskId = taskId;
    this.#host = host;
    this.#options = options;
    this.#heardAt = host.clock.now();
    this.#deadlineAt = options.deadline === undefined ? undefined : host.clock.now() + milliseconds(options.deadline);
    this.#answers = new Answers({
      taskId,
      input: host.input,
      send: async (key, answer) => {
        await this.#request("tasks/update", { taskId, inputResponses: { [key]: answer } });
      },
      // The interval in force was for the state before the answer.
      onSent: () => this.hurry(defaultInterval),
      onError: (error) => this.#ended ?? host.onError(error),
      onFailure: (error) => this.#fail(error),
    });
    // Whoever never asks for the result must not be told of it as an unhandled rejection.
    this.#outcome.promise.catch(() => {});
    this.#seed(seed);
    options.signal?.addEventListener("abort", this.#onAbort);
    if (options.signal?.aborted === true) this.#aborted();
    if (options.onUpdate !== undefined) this.#begin();
  }

  result(): Promise<CallToolResult> {
    this.#begin();
    return this.#outcome.promise;
  }

  async cancel(): Promise<void> {
    if (this.#ended?.how === "over") return;
    this.#end({ how: "over" }, new TaskError("CANCELLED", { data: { taskId: this.taskId } }));
    this.#ended = { how: "over" };
    this.#host.forget(this.taskId);
    await this.#host.cancel(this.taskId);
  }

  detach(): void {
    this.#end({ how: "left" }, new TaskError("DETACHED", { data: { taskId: this.taskId } }));
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<TaskSnapshot, void, undefined> {
    this.#begin();
    for (let seen = 0; ;) {
      if (this.#snapshot !== undefined && this.#version > seen) {
        seen = this.#version;
        yield this.#snapshot;
      } else if (this.#ended === undefined) await this.#change.promise;
      else if (this.#ended.how === "failed") throw this.#ended.error;
      else return;
    }
  }

  accept(report: Report): void {
    this.#pushes += 1;
    this.#accept(report, true);
  }

  #accept({ task, pollHint }: Report, overtaken: boolean): void {
    if (this.#ended !== undefined) return;
    // A poll and a push can overtake each other. Nothing else is judged by a server's clock, and no final state ever.
    const older = Date.parse(task.lastUpdatedAt) < Date.parse(this.#snapshot?.lastUpdatedAt ?? "");
    if (overtaken && older && !isTerminal(task.status)) return;
    this.#pollHint = pollHint;
    this.#ttlMs = task.ttlMs;
    this.#heardAt = this.#host.clock.now();
    this.#answers.see(task.status === "input_required" ? task.inputRequests : {});
    this.#publish(task);
    if (isTerminal(task.status)) this.#finish(task);
  }

  hurry(withinMs: number): void {
    if (this.#wake === undefined) this.#soon = Math.min(this.#soon, withinMs);
    else this.#wake(withinMs);
  }

  #seed(seed: { task: WireTask; pollHint: unknown } | undefined): void {
    if (seed === undefined) return;
    this.#pollHint = seed.pollHint;
    this.#ttlMs = seed.task.ttlMs;
    // Any other state has a payload that only a reading shows.
    if (seed.task.status === "working") this.#publish({ ...seed.task, status: "working" });
  }

  #begin(): void {
    if (this.#begun || this.#ended !== undefined) return;
    this.#begun = true;
    const { clock } = this.#host;
    if (this.#deadlineAt !== undefined) {
      const passed = () => this.#fail(new TaskError("DEADLINE_PASSED", { data: { taskId: this.taskId } }));
      this.#stopDeadline = clock.after(Math.max(0, this.#deadlineAt - clock.now()), passed);
    }
    this.#stopWatching = this.#host.watch(this);
    void this.#follow(this.#snapshot === undefined ? 0 : interval(this.#pollHint));
  }

  async #follow(first: number): Promise<void> {
    for (let wait = first, failures = 0; ;) {
      await this.#pause(Math.min(wait, this.#soon));
      if (this.#ended !== undefined) return;
      this.#soon = Number.POSITIVE_INFINITY;
      try {
        const pushes = this.#pushes;
        const answer = await this.#request("tasks/get", { taskId: this.taskId });
        this.#accept(readTask(answer, this.taskId), this.#pushes > pushes);
        failures = 0;
        wait = this.#usualWait();
      } catch (thrown) {
        if (this.#ended !== undefined) return;
        const error = asTaskError(thrown);
        if (!isPassing(error)) return this.#fail(taskError(error, this.taskId));
        this.#host.onError(error);
        if (this.#ttlIsOver())
          return this.#fail(new TaskError("TASK_EXPIRED", { data: { taskId: this.taskId }, cause: error }));
        failures += 1;
        const asked = askedToWait(error);
        wait = asked === undefined ? backoff(failures, interval(this.#pollHint)) : interval(asked);
      }
    }
  }

  #usualWait(): number {
    const told = interval(this.#pollHint);
    return this.pushed ? Math.max(told, safetyNet) : told;
  }

  /** Only asked when the server can't be reached. Counted from what we heard last: clocks of two machines differ. */
  #ttlIsOver(): boolean {
    return this.#ttlMs !== null && this.#host.clock.now() - this.#heardAt > this.#ttlMs;
  }

  #pause(ms: number): Promise<void> {
    const { clock } = this.#host;
    return new Promise((resolve) => {
      let takeBack = () => {};
      let due = Number.POSITIVE_INFINITY;
      const wake = (withinMs: number) => {
        if (clock.now() + withinMs >= due) return;
        takeBack();
        due = clock.now() + withinMs;
        if (withinMs > 0) takeBack = clock.after(withinMs, () => wake(Number.NEGATIVE_INFINITY));
        else {
          this.#wake = undefined;
          resolve();
        }
      };
      this.#wake = wake;
      wake(ms);
    });
  }

  async #request(method: "tasks/get" | "tasks/update", params: Readonly<Record<string, unknown>>): Promise<unknown> {
    const controller = new AbortController();
    this.#inFlight.add(controller);
    try {
      return await this.#host.send(method, params, controller.signal);
    } finally {
      this.#inFlight.delete(controller);
    }
  }

  #publish(task: DetailedTask): void {
    const snapshot: TaskSnapshot = { ...task, unhandledInput: this.#answers.unhandled };
    // The interval is about polling, not about the task.
    const { pollIntervalMs: _, ...shown } = snapshot;
    const fingerprint = JSON.stringify(shown);
    if (fingerprint === this.#fingerprint) return;
    this.#fingerprint = fingerprint;
    this.#snapshot = snapshot;
    this.#version += 1;
    this.#announce();
    try {
      this.#options.onUpdate?.(snapshot);
    } catch (error) {
      this.#host.onError(error);
    }
  }

  #announce(): void {
    this.#change.resolve();
    this.#change = Promise.withResolvers();
  }

  #finish(task: DetailedTask): void {
    const { taskId } = this;
    if (task.status === "completed") {
      try {
        this.#end({ how: "over" }, readResult(task.result, taskId));
      } catch (error) {
        this.#fail(asTaskError(error));
      }
    } else if (task.status === "failed")
      this.#end({ how: "over" }, new TaskError("TASK_FAILED", { answer: task.error }));
    else this.#end({ how: "over" }, new TaskError("CANCELLED", { data: { taskId } }));
  }

  #aborted(): void {
    const { signal, onAbort = "cancel" } = this.#options;
    const options = { data: { taskId: this.taskId }, cause: signal?.reason };
    if (onAbort === "detach") return this.#end({ how: "left" }, new TaskError("DETACHED", options));
    if (this.#ended !== undefined) return;
    this.#end({ how: "over" }, new TaskError("CANCELLED", options));
    this.#host.cancel(this.taskId).catch(this.#host.onError);
  }

  #fail(error: TaskError): void {
    this.#end({ how: "failed", error }, error);
  }

  /** Settles the run, once; whatever comes later changes nothing. */
  #end(ended: Ended, outcome: CallToolResult | TaskError): void {
    if (this.#ended !== undefined) return;
    this.#ended = ended;
    this.#stopDeadline();
    this.#stopWatching();
    const gone = outcome instanceof TaskError && ["TASK_NOT_FOUND", "TASK_EXPIRED"].includes(outcome.code);
    if (ended.how === "over" || gone) this.#host.forget(this.taskId);
    this.#options.signal?.removeEventListener("abort", this.#onAbort);
    this.#answers.stop();
    for (const controller of this.#inFlight) controller.abort();
    if (outcome instanceof TaskError) this.#outcome.reject(outcome);
    else this.#outcome.resolve(outcome);
    this.#announce();
    this.#wake?.(Number.NEGATIVE_INFINITY);
  }
}
