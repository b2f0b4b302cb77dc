import type { CallToolResult } from "@modelcontextprotocol/client";
import { type Clock, type Duration, milliseconds } from "../clock.ts";
import { TaskError } from "../errors.ts";
import type { Audience, Ended, Follower, TaskSnapshot } from "./follower.ts";

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
   * the server has not said whether there is a task, and the other as its cause.
   */
  readonly deadline?: Duration;
  /**
   * Keeps the task in the log when it is over, until {@link TaskClient.forget}. By default it leaves the log on the turn
   * of the event loop after its outcome was handed over: what the host does with that at once comes first. A call whose
   * answer was lost (`MAY_HAVE_STARTED`), or that was aborted before it came, stays in the log as well, and the next
   * `resumeAll` tells it once more.
   */
  readonly keep?: boolean;
}

/** A tool call on its way. Iterating gives its snapshots: each change once, the newest wins, the last one is final. */
export interface TaskRun extends AsyncIterable<TaskSnapshot> {
  /** Undefined when the server answered with the result at once, or when a crash came before its answer. */
  readonly taskId: string | undefined;
  /** The tool that was called. Undefined for a task that was resumed by its id. */
  readonly tool: string | undefined;
  /**
   * The tool's result, a tool's own error (`isError`) included. Rejects with a {@link TaskError}: `TASK_FAILED` with
   * the server's code, message and data; `CANCELLED`, `DEADLINE_PASSED`, `DETACHED`; `TASK_NOT_FOUND`,
   * `TASK_EXPIRED`, `INPUT_FAILED`, `REFUSED`, `EXTENSION_REQUIRED`, `INVALID_RESPONSE`, `OTHER_SERVER`, each with
   * `data.taskId`; `MAY_HAVE_STARTED` for a call that a crash cut off. Polls that fail in passing are repeated and end
   * nothing; `CONNECTION_LOST` is a client that has been closed.
   */
  result(): Promise<CallToolResult>;
  /**
   * Settles this run as `CANCELLED` now and asks the server to stop the task; rejects if the server can't be told, and
   * the task then stays in the log.
   */
  cancel(): Promise<void>;
  /** Ends the waiting with `DETACHED`; the task goes on. */
  detach(): void;
}

/** A run that was over before it began: a result that came at once, or an error. */
export function settledRun(tool: string, outcome: CallToolResult | TaskError, taken = () => {}): TaskRun {
  const take = () => {
    taken();
    if (outcome instanceof TaskError) throw outcome;
    return outcome;
  };
  return {
    taskId: undefined,
    tool,
    result: async () => take(),
    cancel: async () => {},
    detach() {},
    // oxlint-disable-next-line require-yield -- no task, no snapshots
    async *[Symbol.asyncIterator]() {
      if (outcome instanceof TaskError) take();
    },
  };
}

/** What a run needs of its client. */
export interface RunHost {
  readonly clock: Clock;
  readonly onError: (error: unknown) => void;
  /** The one follower of this task. */
  follower(): Follower;
  /** Asks the server to stop the task, and then forgets it. */
  cancel(): Promise<void>;
  /** The outcome was handed over: there is nothing to come back for. */
  forget(): void;
}

/**
 * One caller's side of a task. It follows it from the first `result()` or iteration, or at once where there is
 * `onUpdate`; others may follow the same task beside it.
 */
export class FollowedRun implements TaskRun, Audience {
  readonly taskId: string;
  readonly tool: string | undefined;
  readonly #host: RunHost;
  readonly #options: FollowOptions;
  readonly #deadlineAt: number | undefined;
  readonly #outcome = Promise.withResolvers<CallToolResult>();
  readonly #onAbort = () => this.#aborted();
  #begun = false;
  #ended: Ended | undefined;
  /** Whether somebody gets the outcome: it may be a process's last chance. */
  #wanted = false;
  #snapshot: TaskSnapshot | undefined;
  #version = 0;
  #change = Promise.withResolvers<void>();
  #cancelling: Promise<void> | undefined;
  #leave = () => {};
  #stopDeadline = () => {};

  constructor(host: RunHost, taskId: string, tool: string | undefined, options: FollowOptions) {
    const { signal, deadline, onUpdate } = options;
    this.taskId = taskId;
    this.tool = tool;
    this.#host = host;
    this.#options = options;
    this.#deadlineAt = deadline === undefined ? undefined : host.clock.now() + milliseconds(deadline);
    // Whoever never asks for the result must not be told of it as an unhandled rejection.
    this.#outcome.promise.catch(() => {});
    signal?.addEventListener("abort", this.#onAbort);
    if (signal?.aborted === true) this.#aborted();
    if (onUpdate !== undefined) this.#begin();
  }

  result(): Promise<CallToolResult> {
    this.#begin();
    this.#handOver();
    return this.#outcome.promise;
  }

  async cancel(): Promise<void> {
    if (this.#ended?.final === true) return;
    this.#end(this.#unfinished("CANCELLED"));
    await (this.#cancelling ??= this.#host.cancel());
  }

  detach(): void {
    this.#end(this.#unfinished("DETACHED"));
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<TaskSnapshot, void, undefined> {
    this.#begin();
    for (let seen = 0; ;) {
      if (this.#snapshot !== undefined && this.#version > seen) {
        seen = this.#version;
        yield this.#snapshot;
      } else if (this.#ended === undefined) await this.#change.promise;
      else {
        this.#handOver();
        if (this.#ended.unseen) throw this.#ended.outcome as TaskError;
        return;
      }
    }
  }

  changed(snapshot: TaskSnapshot): void {
    this.#snapshot = snapshot;
    this.#version += 1;
    this.#announce();
    try {
      this.#options.onUpdate?.(snapshot);
    } catch (error) {
      this.#host.onError(error);
    }
  }

  ended(ended: Ended): void {
    this.#end(ended);
  }

  #begin(): void {
    if (this.#begun || this.#ended !== undefined) return;
    this.#begun = true;
    const { clock } = this.#host;
    if (this.#deadlineAt !== undefined) {
      const passed = () => this.#end({ ...this.#unfinished("DEADLINE_PASSED"), unseen: true });
      this.#stopDeadline = clock.after(Math.max(0, this.#deadlineAt - clock.now()), passed);
    }
    const follower = this.#host.follower();
    this.#leave = follower.join(this);
    if (follower.snapshot !== undefined) this.changed(follower.snapshot);
    if (this.#options.onUpdate !== undefined) this.#wanted = true;
  }

  #unfinished(code: "CANCELLED" | "DETACHED" | "DEADLINE_PASSED", cause?: unknown): Ended {
    const outcome = new TaskError(code, { data: { taskId: this.taskId }, cause });
    return { outcome, final: false, unseen: false };
  }

  #aborted(): void {
    const { signal, onAbort = "cancel" } = this.#options;
    const isCancel = onAbort === "cancel" && this.#ended === undefined;
    this.#end(this.#unfinished(onAbort === "cancel" ? "CANCELLED" : "DETACHED", signal?.reason));
    if (!isCancel) return;
    this.#cancelling = this.#host.cancel();
    this.#cancelling.catch(this.#host.onError);
  }

  #announce(): void {
    this.#change.resolve();
    this.#change = Promise.withResolvers();
  }

  /** Settles the run, once; whatever comes later changes nothing. */
  #end(ended: Ended): void {
    if (this.#ended !== undefined) return;
    this.#ended = ended;
    this.#leave();
    this.#stopDeadline();
    this.#options.signal?.removeEventListener("abort", this.#onAbort);
    const { outcome } = ended;
    if (outcome instanceof TaskError) this.#outcome.reject(outcome);
    else this.#outcome.resolve(outcome);
    this.#announce();
    if (this.#wanted) this.#handOver();
  }

  #handOver(): void {
    this.#wanted = true;
    if (this.#ended?.final === true && this.#options.keep !== true) this.#host.forget();
  }
}
