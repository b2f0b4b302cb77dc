import { closeSync, openSync, readdirSync, readFileSync, statSync } from "node:fs";
import { resolve } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { TaskError } from "../../errors.ts";
import { isBusy } from "./failures.ts";

/** The same way up from src/ and from dist/: both lie beside sql/ in the package. */
const folder = new URL("../../../sql/sqlite/", import.meta.url);

/** "mcpt", as the first migration writes it. */
const applicationId = 0x6d637074;

const patienceMs = 10_000;

/** Opens a task database, makes it if it isn't there, and brings it up to date. Throws a {@link TaskError}. */
export function openDatabase(file: string): DatabaseSync {
  let db: DatabaseSync | null = null;
  try {
    if (file !== ":memory:") createPrivate(file);
    db = new DatabaseSync(file, { timeout: 0 });
    prepareFile(db);
    return db;
  } catch (thrown) {
    db?.close();
    if (thrown instanceof TaskError) throw thrown;
    throw new TaskError(isBusy(thrown) ? "STORE_BUSY" : "STORE_UNREADABLE", { cause: thrown });
  }
}

/**
 * A check to make before each use of a database: throws `STORE_UNAVAILABLE` once its path leads to another file, or to
 * none. SQLite would go on with the file it has open, and acknowledge what no restart finds again.
 */
export function checkInPlace(file: string): () => void {
  if (file === ":memory:") return () => {};
  const path = resolve(file);
  const identity = () => {
    const found = statSync(path, { bigint: true, throwIfNoEntry: false });
    return found === undefined ? null : `${found.dev} ${found.ino}`;
  };
  const opened = identity();
  return () => {
    if (identity() !== opened)
      throw new TaskError("STORE_UNAVAILABLE", { cause: new Error("The file was moved, removed or replaced.") });
  };
}

/** Makes the file readable to its owner only; SQLite gives its -wal and -shm the same mode. */
function createPrivate(file: string): void {
  try {
    closeSync(openSync(file, "wx", 0o600));
  } catch (thrown) {
    // An existing file is not opened here at all: closing it would drop the locks that this process holds on it.
    if ((thrown as NodeJS.ErrnoException).code !== "EEXIST") throw thrown;
  }
}

function prepareFile(db: DatabaseSync): void {
  const migrations = readMigrations();
  patiently(() => check(db, migrations.length));
  patiently(() => db.exec("PRAGMA journal_mode = WAL"));
  db.exec("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA journal_size_limit = 67108864");
  // Taken even when there is nothing to do: a file that can't be written to is refused now, not at the first task.
  patiently(() => db.exec("BEGIN IMMEDIATE"));
  try {
    for (let version = check(db, migrations.length); version < migrations.length; version++) {
      db.exec(migrations[version] as string);
      db.exec(`PRAGMA user_version = ${version + 1}`);
    }
    // A write of no effect, so that a read-only file or a full disk shows here.
    db.exec("UPDATE change SET last = last");
    db.exec("COMMIT");
  } finally {
    if (db.isTransaction) db.exec("ROLLBACK");
  }
}

/** One statement, so that another process that makes the file right now is seen before or after, not halfway. */
const identity = `
  SELECT
    (SELECT user_version FROM pragma_user_version) AS version,
    (SELECT application_id FROM pragma_application_id) AS application,
    (SELECT count(*) FROM sqlite_schema) AS things`;

/** The file's version. Throws for one that is newer than this code, and for a database that is none of ours. */
function check(db: DatabaseSync, newest: number): number {
  const found = db.prepare(identity).get() as { version: number; application: number; things: number };
  if (found.application !== applicationId && (found.version !== 0 || found.things > 0))
    throw new TaskError("STORE_UNREADABLE", { cause: new Error("This is another program's database.") });
  if (found.version > newest) throw new TaskError("STORE_NEWER");
  return found.version;
}

/** The migrations in their order; the n-th takes a file from version n-1 to n. */
function readMigrations(): string[] {
  const names = readdirSync(folder).filter((name) => /^\d{4}_\w+\.sql$/.test(name));
  return names.toSorted().map((name) => readFileSync(new URL(name, folder), "utf8"));
}

/**
 * Tries again while another connection is in the way. Blocks, which only opening may do; a busy timeout would not
 * help, for SQLite doesn't wait when it switches to WAL.
 */
function patiently<T>(action: () => T): T {
  const pause = new Int32Array(new SharedArrayBuffer(4));
  for (const end = performance.now() + patienceMs; ;) {
    try {
      return action();
    } catch (thrown) {
      if (!isBusy(thrown) || performance.now() > end) throw thrown;
      Atomics.wait(pause, 0, 0, 2 + Math.random() * 8);
    }
  }
}
