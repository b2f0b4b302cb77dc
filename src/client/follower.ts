import type { CallToolResult } from "@modelcontextprotocol/client";
import type { Clock } from "../clock.ts";
import { TaskError, asTaskError } from "../errors.ts";
import type { InputResponse } from "../protocol/input.ts";
import { isTerminal } from "../protocol/status.ts";
import { type Progress, readProgress } from "../protocol/progress.ts";
import type { DetailedTask, WireTask } from "../protocol/wire.ts";
import { Answers } from "./answers.ts";
import { askedToWait, isPassing, taskError } from "./failures.ts";
import type { InputHandlers } from "./input.ts";
import type { CallRecord } from "./ledger.ts";
import type { Watched } from "./listen.ts";
import { Alarm, backoff, defaultInterval, interval } from "./pace.ts";
import { type Report, readResult } from "./replies.ts";

/** A task as it stood at one moment. */
export type TaskSnapshot = DetailedTask & {
  /** Keys of outstanding requests that no handler of this client answers: the task waits for somebody else. */
  readonly unhandledInput: readonly string[];
  /** How far it has come, where its server says so in numbers (`task.report` of this package). */
  readonly progress?: Progress;
};

/** A task as it was reported, and who nobody here answers. */
export function snapshotOf({ _meta, ...task }: DetailedTask, unhandledInput: readonly string[]): TaskSnapshot {
  const progress = readProgress(_meta);
  return { ...task, ...(progress === undefined ? {} : { progress }), unhandledInput };
}

/** How the following of a task ended. */
export interface Ended {
  readonly outcome: CallToolResult | TaskError;
  /** There is nothing to come back for: the task is over, or the server doesn't know it. */
  readonly final: boolean;
  /** The outcome is an error that no snapshot shows. */
  readonly unseen: boolean;
}

/** Who is told what becomes of a task. */
export interface Audience {
  changed(snapshot: TaskSnapshot): void;
  ended(ended: Ended): void;
}

/** What a follower needs of its client. */
export interface FollowerHost {
  readonly clock: Clock;
  readonly input: InputHandlers;
  readonly claims: Set<string>;
  readonly onError: (error: unknown) => void;
  record(taskId: string): Promise<CallRecord>;
  get(record: CallRecord, signal: AbortSignal): Promise<Report>;
  answer(record: CallRecord, key: string, answer: InputResponse, signal: AbortSignal): Promise<void>;
  /** Checks a result against what the tool promises. Throws `INVALID_RESPONSE`. */
  check(record: CallRecord, result: CallToolResult): void;
  /** Has changes of this task pushed, if the server does that; the returned function ends it. */
  watch(follower: Watched): () => void;
  /** Nobody follows the task by this follower any more. */
  stopped(taskId: string): void;
}

/** What is known of a task before it is first read: the server's answer to the call. */
export interface Seed {
  readonly task: WireTask;
  readonly pollHint: unknown;
}

/** How often a task is looked at whose changes are pushed: a push that was lost costs this many milliseconds. */
const safetyNet = 30_000;

/** Follows one task for all that wait for it: from the first who joins until it is over or the last one has left. */
export class Follower implements Watched {
  readonly taskId: string;
  snapshot: TaskSnapshot | undefined;
  readonly #host: FollowerHost;
  readonly #audience = new Set<Audience>();
  readonly #stopped = new AbortController();
  readonly #alarm: Alarm;
  #answers: Answers | undefined;
  #record: CallRecord | undefined;
  #stopWatching = () => {};
  #begun = false;
  #pushed = false;
  #pushes = 0;
  #fingerprint = "";
  #pollHint: unknown;
  #ttlMs: number | null = null;
  #heardAt: number;

  constructor(host: FollowerHost, taskId: string, seed: Seed | undefined) {
    this.taskId = taskId;
    this.#host = host;
    this.#alarm = new Alarm(host.clock);
    this.#heardAt = host.clock.now();
    if (seed === undefined) return;
    this.#pollHint = seed.pollHint;
    this.#ttlMs = seed.task.ttlMs;
    // Any other state has a payload that only a reading shows.
    if (seed.task.status === "working") this.#publish({ ...seed.task, status: "working" });
  }

  /** Tells somebody what happens from now on, until the returned function is called. */
  join(audience: Audience): () => void {
    this.#audience.add(audience);
    if (!this.#begun) void this.#follow();
    return () => {
      this.#audience.delete(audience);
      if (this.#audience.size === 0) this.#stop();
    };
  }

  /** Sends everybody away. The task goes on. */
  dismiss(): void {
    this.#end({ outcome: new TaskError("DETACHED", { data: { taskId: this.taskId } }), final: false, unseen: false });
  }

  hurry(withinMs: number): void {
    this.#alarm.within(withinMs);
  }

  accept(report: Report): void {
    this.#pushes += 1;
    this.#accept(report, true);
  }

  pushing(pushed: boolean): void {
    // What happened between the last look and the acknowledgement was not pushed, nor is what happens from now on.
    if (pushed !== this.#pushed) this.hurry(pushed ? 0 : defaultInterval);
    this.#pushed = pushed;
  }

  async #follow(): Promise<void> {
    this.#begun = true;
    const { signal } = this.#stopped;
    let record: CallRecord;
    try {
      record = await this.#host.record(this.taskId);
    } catch (error) {
      return this.#fail(taskError(asTaskError(error), this.taskId));
    }
    if (signal.aborted) return;
    this.#prepare(record);
    this.#stopWatching = this.#host.watch(this);
    for (let wait = this.snapshot === undefined ? 0 : interval(this.#pollHint), failures = 0; ;) {
      await this.#alarm.wait(wait);
      if (signal.aborted) return;
      try {
        const pushes = this.#pushes;
        this.#accept(await this.#host.get(record, signal), this.#pushes > pushes);
        failures = 0;
        wait = this.#usualWait();
      } catch (thrown) {
        if (signal.aborted) return;
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

  #prepare(record: CallRecord): void {
    const { taskId } = this;
    const { input, claims, answer, onError } = this.#host;
    this.#record = record;
    this.#answers = new Answers({
      taskId,
      input,
      record,
      claims,
      send: (key, response) => answer(record, key, response, this.#stopped.signal),
      // The interval in force was for the state before the answer.
      onSent: () => this.hurry(defaultInterval),
      onLeftOpen: () => this.snapshot !== undefined && this.#publish(this.snapshot),
      onError: (error) => this.#stopped.signal.aborted || onError(error),
      onFailure: (error) => this.#fail(error),
    });
  }

  #accept({ task, pollHint }: Report, overtaken: boolean): void {
    if (this.#stopped.signal.aborted) return;
    // A poll and a push can overtake each other. Nothing else is judged by a server's clock, and no final state ever.
    const older = Date.parse(task.lastUpdatedAt) < Date.parse(this.snapshot?.lastUpdatedAt ?? "");
    if (overtaken && older && !isTerminal(task.status)) return;
    this.#pollHint = pollHint;
    this.#ttlMs = task.ttlMs;
    this.#heardAt = this.#host.clock.now();
    this.#answers?.see(task.status === "input_required" ? task.inputRequests : {});
    if (task.status !== this.#record?.entry.state)
      this.#record?.write({ state: task.status }).catch(this.#host.onError);
    this.#publish(task);
    if (isTerminal(task.status)) this.#finish(task);
  }

  #usualWait(): number {
    const told = interval(this.#pollHint);
    return this.#pushed ? Math.max(told, safetyNet) : told;
  }

  /** Only asked when the server can't be reached. Counted from what we heard last: clocks of two machines differ. */
  #ttlIsOver(): boolean {
    return this.#ttlMs !== null && this.#host.clock.now() - this.#heardAt > this.#ttlMs;
  }

  #publish(task: DetailedTask): void {
    const snapshot = snapshotOf(task, this.#answers?.unhandled ?? []);
    // The interval is about polling, not about the task.
    const { pollIntervalMs: _, ...shown } = snapshot;
    const fingerprint = JSON.stringify(shown);
    if (fingerprint === this.#fingerprint) return;
    this.#fingerprint = fingerprint;
    this.snapshot = snapshot;
    for (const audience of this.#audience) audience.changed(snapshot);
  }

  #finish(task: DetailedTask): void {
    const { taskId } = this;
    const over = { final: true, unseen: false };
    if (task.status === "failed") this.#end({ ...over, outcome: new TaskError("TASK_FAILED", { answer: task.error }) });
    else if (task.status !== "completed") {
      this.#end({ ...over, outcome: new TaskError("CANCELLED", { data: { taskId } }) });
    } else {
      try {
        const outcome = readResult(task.result, taskId);
        if (this.#record !== undefined) this.#host.check(this.#record, outcome);
        this.#end({ ...over, outcome });
      } catch (error) {
        this.#end({ outcome: asTaskError(error), final: true, unseen: true });
      }
    }
  }

  #fail(error: TaskError): void {
    const final = error.code === "TASK_NOT_FOUND" || error.code === "TASK_EXPIRED";
    this.#end({ outcome: error, final, unseen: true });
  }

  /** Tells everybody, once; whatever comes later changes nothing. */
  #end(ended: Ended): void {
    if (this.#stopped.signal.aborted) return;
    const audience = [...this.#audience];
    this.#audience.clear();
    this.#stop();
    for (const one of audience) one.ended(ended);
  }

  #stop(): void {
    if (this.#stopped.signal.aborted) return;
    this.#stopped.abort();
    this.#stopWatching();
    this.#answers?.stop();
    this.#host.stopped(this.taskId);
    this.#alarm.within(0);
  }
}
