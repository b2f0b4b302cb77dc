import type { InputResponse } from "../protocol/input.ts";
import type { DetailedTask } from "../protocol/wire.ts";
import type { Context } from "./context.ts";
import { openDatabase } from "./database.ts";
import { usage } from "./exit.ts";
import { openRemote } from "./remote.ts";

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

/** The source that the options name. */
export async function openSource(context: Context): Promise<TaskSource> {
  const { db, url, stdio, server } = context.options;
  if (db === undefined) return await openRemote(context, { listen: false, asks: false });
  if ([url, stdio, server].some((way) => way !== undefined)) throw usage("--db stands in place of a server.");
  return openDatabase(context, { mustExist: true });
}
