import type { InputRequest, InputResponse } from "../protocol/input.ts";
import type { DetailedTask } from "../protocol/wire.ts";

/** Answers a question. Undefined: not wanted. */
export type Respond = (request: InputRequest) => Promise<InputResponse | undefined>;

/** Where tasks are looked after: a server, or its own database. */
export interface TaskSource extends AsyncDisposable {
  /** The whole id of the task that this text means. */
  identify(text: string): Promise<string>;
  read(id: string): Promise<DetailedTask>;
  /** Answers one question; resolves with the task after it. */
  answer(id: string, key: string, response: InputResponse): Promise<DetailedTask>;
  /**
   * Answers the next question of a task that asks, and doesn't show what: a server of 2025-11-25 tells it only to who
   * answers. Resolves with the task after it; gives up on a server that asks nothing in time, unless a person waits.
   */
  answerNext(task: DetailedTask, respond: Respond, byHand: boolean): Promise<DetailedTask>;
  /** Asks for the end of a task, and waits for it if told to. */
  cancel(id: string, wait: boolean): Promise<DetailedTask>;
}
