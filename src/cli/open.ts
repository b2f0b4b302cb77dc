import type { Context } from "./context.ts";
import { openDatabase } from "./database.ts";
import { usage } from "./exit.ts";
import { openRemote } from "./remote.ts";
import type { TaskSource } from "./source.ts";

/** The source that the options name. */
export async function openSource(context: Context): Promise<TaskSource> {
  const { db, url, stdio, server } = context.options;
  if (db === undefined) return await openRemote(context, { listen: false, asks: false });
  if ([url, stdio, server].some((way) => way !== undefined)) throw usage("--db stands in place of a server.");
  return await openDatabase(context, { mustExist: true });
}
