import { TaskError } from "../errors.ts";
import { sqlite } from "../store/sqlite/index.ts";
import type { TaskStore } from "../store/store.ts";
import { usage } from "./exit.ts";
import type { CommonOptions } from "./options.ts";
import { databaseFile } from "./target.ts";

/** Whether `--db` names a Postgres database, and not a file. */
export const isPostgres = ({ db = "" }: CommonOptions) => /^postgres(ql)?:\/\//.test(db);

/** Opens the store that `--db` names. Postgres needs the package `pg`, which not everybody installs. */
export async function openStore(options: CommonOptions, mustExist: boolean): Promise<TaskStore> {
  if (!isPostgres(options)) return sqlite(databaseFile(options, mustExist));
  const { postgres } = await import("../store/postgres/index.ts").catch((cause: unknown) => {
    if ((cause as NodeJS.ErrnoException).code !== "ERR_MODULE_NOT_FOUND") throw cause;
    throw usage("--db: Postgres needs the package pg, which is not installed.", "npm install pg");
  });
  const store = postgres(options.db ?? "");
  try {
    // A store that can't be reached is told now, and not by the first command that happens to need it.
    await store.list({ limit: 1 });
    return store;
  } catch (thrown) {
    await store[Symbol.asyncDispose]();
    throw thrown instanceof TaskError ? thrown : new TaskError("STORE_UNAVAILABLE", { cause: thrown });
  }
}
