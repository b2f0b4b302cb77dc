import type { InputResponse } from "../protocol/input.ts";
import type { DetailedTask } from "../protocol/wire.ts";

/** Where tasks are looked after: a server, or its own database. */
export interface TaskSource extends AsyncDisposable {
  /** The whole id of the task that this text means. */
  identify(text: string): Promise<string>;
  read(id: string): Promise<DetailedTask>;
  /** Answers one question; resolves with the task after it. */
  answer(id: string, key: string, response: InputResponse): Promise<DetailedTask>;
  /** Asks for the end of a task, and waits for it if told to. */
  cancel(id: string, wait: boolean): Promise<DetailedTask>;
}
