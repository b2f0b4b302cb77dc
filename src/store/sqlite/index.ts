import type { DatabaseSync } from "node:sqlite";
import { systemClock, type Clock } from "../../clock.ts";
import { TaskError } from "../../errors.ts";
import type { TaskStore } from "../store.ts";
import * as attempts from "./attempts.ts";
import { claim, nextDue } from "./claim.ts";
import { createHints } from "./hints.ts";
import { createLivenessCheck, holderName } from "./holders.ts";
import { checkInPlace, openDatabase } from "./open.ts";
import { prepareStatements } from "./statements.ts";
import { sweep } from "./sweep.ts";
import * as tasks from "./tasks.ts";
import { createWrites } from "./writes.ts";

/** How the store behaves beyond its file. */
export interface SqliteOptions {
  /** What tells the time. All processes that share the file must agree on it. */
  readonly clock?: Clock;
  /** How long a verb tries again while other processes are in its way, in milliseconds. Default 10 000. */
  readonly busyMs?: number;
}

/**
 * A task store in one SQLite file (`":memory:"` for none), to be shared by any number of processes of one machine. The
 * file is made if it isn't there, for its owner's eyes only. Throws `STORE_UNREADABLE`, `STORE_NEWER` or `STORE_BUSY`;
 * verbs throw `STORE_UNAVAILABLE`, `STORE_BUSY` or `STORE_CLOSED`. Closing finishes the writes under way.
 */
export function sqlite(file: string, options: SqliteOptions = {}): TaskStore {
  const { clock = systemClock, busyMs = 10_000 } = options;
  const db = openDatabase(file);
  const sql = prepare(db);
  const hints = createHints(sql);
  const { write, read, close } = createWrites(db, sql, { clock, busyMs, check: checkInPlace(file) }, hints.committed);
  const findDead = createLivenessCheck();
  const now = () => Math.trunc(clock.now());
  let closing: Promise<void> | null = null;

  return {
    create: (task, liveLimit) => write((tx) => tasks.create(tx, task, liveLimit)),
    get: (id, owner) => read(() => tasks.get(sql, now(), id, owner)),
    answer: (id, owner, responses, refused) => write((tx) => tasks.answer(tx, id, owner, responses, refused)),
    send: (id, key, value) => write((tx) => tasks.send(tx, id, key, value)),
    requestCancel: (id, owner, graceMs) => write((tx) => tasks.requestCancel(tx, id, owner, graceMs)),
    watch: (listener) => hints.watch(listener),
    sweep: () => write((tx) => sweep(tx, findDead)),
    secret: (name, value) => write(({ sql: { keepSecret } }) => String(keepSecret.get({ name, value })?.value)),
    page: (owner, after, limit) => read(() => tasks.page(sql, now(), owner, after, limit)),
    list: (filter) => read(() => tasks.list(sql, filter)),
    census: () => read(() => moment(db, () => tasks.census(sql, now()))),

    claim: (request) => write((tx) => claim(tx, request, holderName(request.worker), findDead)),
    nextDue: () => read(() => nextDue(sql, now())),
    renew: (worker, held, leaseMs) => write((tx) => attempts.renew(tx, holderName(worker), held, leaseMs)),
    startStep: (attempt, key) => write((tx) => attempts.startStep(tx, attempt, key)),
    recordStep: (attempt, key, record) => write((tx) => attempts.recordStep(tx, attempt, key, record)),
    journal: (attempt) => read(() => moment(db, () => attempts.journal(sql, attempt))),
    setStatus: (attempt, message, progress) => write((tx) => attempts.setStatus(tx, attempt, message, progress)),
    park: (attempt, waits, hold) => write((tx) => attempts.park(tx, attempt, waits, hold)),
    finish: (attempt, outcome) => write((tx) => attempts.finish(tx, attempt, outcome)),
    release: (attempt, how) => write((tx) => attempts.release(tx, attempt, how)),

    [Symbol.asyncDispose]() {
      closing ??= close().then(() => {
        hints.close();
        db.close();
      });
      return closing;
    },
  };
}

/** A file that lost a table or a page shows here. */
function prepare(db: DatabaseSync): ReturnType<typeof prepareStatements> {
  try {
    const sql = prepareStatements(db);
    sql.findAny.get({ id: "" });
    sql.nextDue.all();
    return sql;
  } catch (thrown) {
    db.close();
    throw new TaskError("STORE_UNREADABLE", { cause: thrown });
  }
}

/** Runs reads in one transaction: what other processes commit meanwhile shows in all of them or in none. */
function moment<T>(db: DatabaseSync, look: () => T): T {
  db.exec("BEGIN");
  try {
    return look();
  } finally {
    if (db.isTransaction) db.exec("COMMIT");
  }
}
