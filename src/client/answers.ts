import { TaskError, asTaskError } from "../errors.ts";
import type { InputRequest, InputRequests, InputResponse } from "../protocol/input.ts";
import { isPassing } from "./failures.ts";
import { type InputHandlers, ask, askerFor } from "./input.ts";
import type { CallRecord } from "./ledger.ts";

/** Where one request of a task stands here. */
type Stand =
  | { readonly at: "unhandled" | "sending" | "sent" }
  | { readonly at: "asking"; readonly controller: AbortController }
  /** The answer is known, but its update was lost on the way, or perhaps only the acknowledgement was. */
  | { readonly at: "lost"; readonly answer: InputResponse }
  | { readonly at: "refused"; readonly error: TaskError; seen: number };

/** What {@link Answers} needs of the task it answers for. */
export interface AnswersOptions {
  readonly taskId: string;
  readonly input: InputHandlers;
  /** Keeps the answers over a restart. */
  readonly record: CallRecord;
  /** What others in this process are asking already. */
  readonly claims: Set<string>;
  /** Sends one answer; resolves once it is acknowledged. */
  readonly send: (key: string, answer: InputResponse) => Promise<void>;
  /** An answer went out, or was to: the task should be looked at soon. */
  readonly onSent: () => void;
  /** A question was left open by its handler. */
  readonly onLeftOpen: () => void;
  /** Somebody must be told, but the task can go on. */
  readonly onError: (error: unknown) => void;
  /** A question can't be answered: the waiting is over. */
  readonly onFailure: (error: TaskError) => void;
}

/**
 * Answers what one task asks, each key once, as the answers come. An answer is in the log before it is sent, and stays
 * there until it is acknowledged: so nobody is asked again after a restart, and the same answer goes out again only if
 * its key is still outstanding. What is outstanding is always told by the task itself.
 */
export class Answers {
  readonly #options: AnswersOptions;
  readonly #stands = new Map<string, Stand>();

  constructor(options: AnswersOptions) {
    this.#options = options;
  }

  /** Takes note of all requests that are outstanding now, and of no others. */
  see(outstanding: InputRequests): void {
    for (const [key, stand] of this.#stands) {
      if (Object.hasOwn(outstanding, key)) continue;
      // Somebody else answered, or the question was withdrawn.
      if (stand.at === "asking") {
        stand.controller.abort();
        this.#release(key);
      }
      if (stand.at === "asking" || stand.at === "unhandled") this.#stands.delete(key);
    }
    for (const [key, request] of Object.entries(outstanding)) this.#consider(key, request);
  }

  /** The outstanding keys that nobody here answers. */
  get unhandled(): string[] {
    return [...this.#stands].filter(([, stand]) => stand.at === "unhandled").map(([key]) => key);
  }

  /** The task is over, or nobody waits for it any more: open questions are taken back. */
  stop(): void {
    this.see({});
    for (const key of this.#stands.keys()) this.#release(key);
  }

  #consider(key: string, request: InputRequest): void {
    const stand = this.#stands.get(key);
    if (stand === undefined) this.#begin(key, request);
    else if (stand.at === "lost") void this.#send(key, stand.answer);
    // A look may have begun before the refusal, so it takes a second one to be sure that the question is still open.
    else if (stand.at === "refused" && (stand.seen += 1) > 1) this.#options.onFailure(stand.error);
  }

  #begin(key: string, request: InputRequest): void {
    const { record, input, claims } = this.#options;
    const asker = askerFor(input, request);
    const answer = record.answerTo(key);
    if (answer === null) this.#stands.set(key, { at: "sent" });
    else if (answer === undefined && asker === undefined) this.#stands.set(key, { at: "unhandled" });
    // Where another client of this process is at it and gives up, a later look finds the question free.
    else if (!claims.has(this.#claim(key))) {
      claims.add(this.#claim(key));
      if (answer !== undefined) void this.#send(key, answer);
      else if (asker !== undefined) void this.#ask(key, request, asker);
    }
  }

  async #ask(key: string, request: InputRequest, asker: NonNullable<ReturnType<typeof askerFor>>): Promise<void> {
    const { taskId, record, onError, onFailure, onLeftOpen } = this.#options;
    const controller = new AbortController();
    const { signal } = controller;
    this.#stands.set(key, { at: "asking", controller });
    try {
      const answer = await ask(asker, request, { key, taskId, signal }, (error) => signal.aborted || onError(error));
      if (signal.aborted) return;
      if (answer === undefined) {
        this.#stands.set(key, { at: "unhandled" });
        this.#release(key);
        onLeftOpen();
        return;
      }
      await record.answered(key, answer).catch(onError);
      if (!signal.aborted) await this.#send(key, answer);
    } catch (error) {
      if (!signal.aborted) onFailure(asTaskError(error, "INPUT_FAILED"));
    }
  }

  async #send(key: string, answer: InputResponse): Promise<void> {
    const { taskId, record, send, onSent, onError } = this.#options;
    this.#stands.set(key, { at: "sending" });
    try {
      await send(key, answer);
      this.#stands.set(key, { at: "sent" });
      record.answered(key, null).catch(onError);
    } catch (thrown) {
      const cause = asTaskError(thrown);
      const error = new TaskError("INPUT_FAILED", {
        detail: "The server refused the answer.",
        data: { taskId, key },
        cause,
      });
      if (isPassing(cause)) this.#stands.set(key, { at: "lost", answer });
      else {
        this.#stands.set(key, { at: "refused", error, seen: 0 });
        record.unanswered(key).catch(onError);
      }
      onError(cause);
    }
    onSent();
  }

  #claim(key: string): string {
    const { record, taskId } = this.#options;
    return JSON.stringify([record.entry.server, taskId, key]);
  }

  #release(key: string): void {
    this.#options.claims.delete(this.#claim(key));
  }
}
