import { randomUUID } from "node:crypto";
import type { Pool, PoolConfig } from "pg";
import type { Clock } from "../../clock.ts";
import { TaskError } from "../../errors.ts";
import { cleanMessage, failure, memoryMs } from "../rules.ts";
import type {
  Attempt,
  Claim,
  ClaimRequest,
  NewTask,
  Outcome,
  Renewal,
  StepRecord,
  Swept,
  Task,
  TaskStore,
} from "../store.ts";
import { createConnections, quoteName, within } from "./connections.ts";
import { storeError } from "./failures.ts";
import { createHints } from "./hints.ts";
import { createLines } from "./lines.ts";
import { migrate } from "./migrations.ts";
import {
  decodeName,
  encodeName,
  toCensus,
  toClaim,
  toFound,
  toJournal,
  toTask,
  type ClaimRow,
  type CountRow,
  type FoundRow,
  type JournalRow,
  type TaskRow,
} from "./rows.ts";
import { createVerbs, effectOf } from "./verbs.ts";

/** How the store behaves beyond its database. Lengths are milliseconds. */
export interface PostgresOptions {
  /** The schema that holds everything. Default `mcp_tasks`. */
  readonly schema?: string;
  /** Connections of the pool at most, besides the one that listens. Default 10. */
  readonly connections?: number;
  /** How long a connection or an answer may take before a verb fails. Default 10 000. */
  readonly timeoutMs?: number;
  /** Whether statements are prepared, once for each connection. Default true, until a pooler turns out not to have them. */
  readonly prepare?: boolean;
  /** Whether to make and to update the schema. Default true; else the role needs no right to change it. */
  readonly migrate?: boolean;
  /**
   * Where changes of other processes are heard of: a direct connection, by default one more to the same place. Behind a
   * pooler that shares sessions give another URL: nothing can be heard there, and polling is what remains.
   */
  readonly listen?: boolean | string;
  /** How often to look for changes while none can be heard. Default 500. */
  readonly pollMs?: number;
  /** How often to look in spite of what is heard, for a notification can get lost. Default 2 000. */
  readonly recheckMs?: number;
  /** More settings for `pg`: TLS, keep-alive, `application_name` and so on. */
  readonly pg?: PoolConfig;
  /** What tells the time instead of the database. For tests: processes whose clocks differ must not use their own. */
  readonly clock?: Clock;
}

/**
 * A task store in a Postgres database, to be shared by any number of processes on any number of machines. Connects at
 * its first verb, and makes its schema then. Verbs throw `STORE_UNAVAILABLE` while the database can't be reached,
 * `STORE_ANSWER_LOST` when the connection was cut while it worked, `STORE_UNREADABLE`, `STORE_NEWER`, `STORE_BUSY` or
 * `STORE_CLOSED`. Closing finishes the verbs under way; a pool that was given stays open.
 */
export function postgres(urlOrPool: string | Pool, options: PostgresOptions = {}): TaskStore {
  const { clock, timeoutMs = 10_000, listen = true, pollMs = 500, recheckMs = 2_000 } = options;
  const name = options.schema ?? "mcp_tasks";
  const schema = quoteName(name);
  const { connections: most = 10, prepare: named = true, pg = {} } = options;
  const settings = { connections: most, timeoutMs, prepare: named, pg };
  const connections = createConnections(urlOrPool, settings);
  const direct = typeof listen === "string" ? createConnections(listen, settings) : connections;
  const hints = createHints({
    channel: name,
    open: listen === false ? null : () => direct.open("mcp-tasks listen"),
    notify: (payload) => connections.run("SELECT pg_notify($1, $2)", [name, payload], "reads"),
    pollMs,
    recheckMs,
  });
  const inLine = createLines();
  const verbs = createVerbs(schema);
  const pending = new Set<Promise<unknown>>();
  const lostClaims = new Map<string, string>();
  let prepared: Promise<void> | null = null;
  let closing: Promise<void> | null = null;

  async function prepare(): Promise<void> {
    const client = connections.open("mcp-tasks migrate");
    client.on("error", () => {});
    try {
      await client.connect();
      await migrate(client, schema, options.migrate ?? true);
    } catch (thrown) {
      prepared = null;
      throw storeError(thrown);
    } finally {
      void client.end().catch(() => {});
    }
  }

  /** One verb on a prepared schema, with the instant that counts as now. */
  async function call<R>(verb: keyof typeof verbs, ...values: unknown[]): Promise<R[]> {
    // A migration goes on for as long as it takes; whoever waits for it doesn't.
    await within((prepared ??= prepare()), timeoutMs).catch((thrown: unknown) => {
      throw storeError(thrown);
    });
    const now = clock === undefined ? null : Math.trunc(clock.now());
    return await connections.run<R>(verbs[verb], [now, ...values], effectOf(verb));
  }

  /** Whatever is asked for before the store closes is carried out. */
  async function open<T>(action: () => Promise<T>): Promise<T> {
    if (closing !== null) throw new TaskError("STORE_CLOSED");
    const running = action();
    pending.add(running);
    try {
      return await running;
    } finally {
      pending.delete(running);
    }
  }

  /** A verb of any replica that may change a task. */
  const change = (id: string, verb: "answer" | "request_cancel", ...values: unknown[]) =>
    open(() =>
      inLine(id, async () => {
        const found = toFound(await call<TaskRow>(verb, encodeName(id), ...values));
        if (typeof found === "object") hints.changed([id]);
        return found;
      }),
    );

  /** A write of an attempt. `told`: it is of interest to others. */
  const write = (attempt: Attempt, told: boolean, verb: AttemptVerb, ...values: unknown[]) =>
    open(() =>
      inLine(attempt.taskId, async () => {
        const [row] = await call<Record<string, boolean>>(verb, encodeName(attempt.taskId), attempt.epoch, ...values);
        const done = row?.[verb] === true;
        if (done && told) hints.changed([attempt.taskId]);
        return done;
      }),
    );

  return {
    create: (task, liveLimit) => open(() => inLine(task.id, () => create(task, liveLimit))),
    get: (id, owner) =>
      open(async () => {
        const [row] = await call<FoundRow>("get", encodeName(id), encodeName(owner));
        return row?.found === "here" ? toTask(row) : (row?.found ?? undefined);
      }),
    answer: (id, owner, responses, refused) =>
      change(
        id,
        "answer",
        encodeName(owner),
        Object.keys(responses).map(encodeName),
        Object.values(responses).map((response) => JSON.stringify(response)),
        refused === null ? null : cleanMessage(refused),
      ),
    send: (id, key, value) =>
      open(() =>
        inLine(id, async () => {
          const [row] = await call<{ send: boolean }>("send", encodeName(id), encodeName(key), value);
          if (row?.send === true) hints.changed([id]);
          return row?.send === true;
        }),
      ),
    requestCancel: (id, owner, graceMs) => change(id, "request_cancel", encodeName(owner), graceMs),
    watch: (listener) => hints.watch(listener),
    sweep: () => open(sweep),
    secret: (name, value) =>
      open(async () => {
        const [row] = await call<{ value: string }>("secret", name, value);
        return row?.value ?? value;
      }),
    page: (owner, after, limit) =>
      open(async () => {
        const { createdAt, id } = after ?? { createdAt: Number.MAX_SAFE_INTEGER, id: "" };
        return (await call<TaskRow>("page", encodeName(owner), createdAt, encodeName(id), limit)).map(toTask);
      }),
    list: (filter) =>
      open(async () => {
        const given = [filter.status, filter.tool, filter.owner, filter.before];
        const names = given.map((name) => (name === undefined ? null : encodeName(name)));
        return (await call<TaskRow>("list", ...names, filter.limit)).map(toTask);
      }),
    census: () => open(async () => toCensus(await call<CountRow>("census"))),

    claim: (request) => open(() => claim(request)),
    nextDue: () =>
      open(async () => {
        const [row] = await call<{ next_due: number | null }>("next_due");
        return row?.next_due ?? null;
      }),
    renew: (worker, attempts, leaseMs) => open(() => renew(worker, attempts, leaseMs)),
    startStep: (attempt, key) => write(attempt, false, "start_step", encodeName(key)),
    recordStep: (attempt, key, record) => write(attempt, false, "record_step", encodeName(key), ...stepValues(record)),
    journal: ({ taskId, epoch }) =>
      open(async () => {
        const [row] = await call<JournalRow>("journal", encodeName(taskId), epoch);
        return row === undefined ? null : toJournal(row);
      }),
    setStatus: (attempt, message, progress) =>
      write(
        attempt,
        true,
        "set_status",
        message === null ? null : cleanMessage(message),
        progress === null ? null : JSON.stringify(progress),
      ),
    park: (attempt, { inputs, events, timers }, hold) =>
      write(
        attempt,
        true,
        "park",
        inputs.map(({ key }) => encodeName(key)),
        inputs.map(({ request }) => JSON.stringify(request)),
        inputs.map(({ timeoutMs }) => timeoutMs ?? null),
        inputs.map(({ key, since = key }) => encodeName(since)),
        events.map(({ key }) => encodeName(key)),
        events.map(({ timeoutMs }) => timeoutMs ?? null),
        timers.map(({ key }) => encodeName(key)),
        timers.map(({ dueInMs }) => dueInMs),
        hold,
      ),
    finish: (attempt, outcome) => write(attempt, true, "finish", ...outcomeValues(outcome)),
    release: (attempt, { delayMs, spend }) => write(attempt, true, "release", delayMs, spend, failures),

    [Symbol.asyncDispose]() {
      closing ??= close();
      return closing;
    },
  };

  async function create(task: NewTask, liveLimit: number | null): Promise<Task> {
    const { reuse } = task;
    const [row] = await call<TaskRow>(
      reuse === null ? "create_task" : "create_once",
      ...[task.id, task.owner, task.tool, task.version, task.queue].map(encodeName),
      ...[task.priority, task.timeoutMs, task.keepMs, task.attempts, task.recovery, task.unwind],
      ...[JSON.stringify(task.client), task.auth, task.answers, task.args, liveLimit],
      ...(reuse === null ? [] : [encodeName(reuse.key), reuse.call, reuse.scope]),
    );
    if (row === undefined) throw new TaskError("TOO_MANY_TASKS");
    if (row.status === "mismatch") throw new TaskError("IDEMPOTENCY_MISMATCH");
    const created = toTask(row);
    if (created.id === task.id) hints.changed([task.id]);
    return created;
  }

  async function claim({ worker, tools, queues, ownerLimit, count, leaseMs }: ClaimRequest): Promise<Claim[]> {
    const lost = await claimAgain(worker, leaseMs);
    if (lost.length > 0) return lost;
    // Each claim holds under a name of its own, by which its leases are found if its answer gets lost.
    const holder = `${encodeName(worker)}\x1f${randomUUID()}`;
    const rows = await call<ClaimRow>(
      "claim",
      tools.map(({ name: tool }) => encodeName(tool)),
      tools.map(({ version }) => encodeName(version)),
      tools.map(({ limit }) => limit),
      ...[queues.map(encodeName), ownerLimit, count, holder, leaseMs, batch, failures],
    ).catch((thrown: unknown) => {
      if ((thrown as TaskError).code === "STORE_ANSWER_LOST") lostClaims.set(worker, holder);
      throw thrown;
    });
    hints.changed((rows[0]?.changed ?? []).map(decodeName));
    return toClaims(rows);
  }

  /** What the worker's last claim took, if its answer got lost: nobody else would run it before the leases are over. */
  async function claimAgain(worker: string, leaseMs: number): Promise<Claim[]> {
    const holder = lostClaims.get(worker);
    if (holder === undefined) return [];
    const rows = await call<ClaimRow>("claim_again", holder, leaseMs);
    lostClaims.delete(worker);
    return toClaims(rows);
  }

  async function renew(worker: string, attempts: readonly Attempt[], leaseMs: number): Promise<Renewal> {
    const key = ({ taskId, epoch }: Attempt) => `${epoch} ${taskId}`;
    const ask = (some: readonly Attempt[], waiting: boolean) =>
      call<RenewalRow>(
        "renew",
        encodeName(worker),
        some.map(({ taskId }) => encodeName(taskId)),
        some.map(({ epoch }) => epoch),
        leaseMs,
        waiting,
      );
    const held = new Map<string, RenewalRow>();
    const keep = (row: RenewalRow) => held.set(key({ taskId: decodeName(row.id), epoch: row.epoch }), row);
    const rows = await ask(attempts, false);
    for (const row of rows) {
      // Another verb is at that one, perhaps to take it away. One at a time: a single connection may wait.
      if (row.renewed) keep(row);
      else for (const waited of await ask([{ taskId: decodeName(row.id), epoch: row.epoch }], true)) keep(waited);
    }
    const named = attempts.map(({ taskId, epoch }) => ({ taskId, epoch }));
    return {
      lost: named.filter((attempt) => !held.has(key(attempt))),
      cancelled: named.filter((attempt) => held.get(key(attempt))?.cancelRequested === true),
    };
  }

  /** Two statements: what ends tasks waits for claims, what deletes them doesn't. */
  async function sweep(): Promise<Swept> {
    const [ended] = await call<{ changed: string[]; timed_out: number; cancelled: number; more: boolean }>(
      "sweep",
      batch,
      failures,
    );
    hints.changed((ended?.changed ?? []).map(decodeName));
    const [over] = await call<{ purged: string[]; more: boolean }>("purge", batch, memoryMs(0));
    return {
      timedOut: ended?.timed_out ?? 0,
      cancelled: ended?.cancelled ?? 0,
      purged: (over?.purged ?? []).map(decodeName),
      more: ended?.more === true || over?.more === true,
    };
  }

  async function close(): Promise<void> {
    await Promise.allSettled(pending);
    await hints.close();
    await connections.close();
    if (direct !== connections) await direct.close();
  }
}

interface RenewalRow {
  readonly id: string;
  readonly epoch: number;
  readonly cancelRequested: boolean;
  /** False: another verb has it locked. */
  readonly renewed: boolean;
}

const toClaims = (rows: readonly ClaimRow[]): Claim[] =>
  rows.flatMap((row) => (row.id === null ? [] : toClaim({ ...row, id: row.id })));

type AttemptVerb = "start_step" | "record_step" | "set_status" | "park" | "finish" | "release";

/** A verb ends, requeues and deletes so many tasks at most: what is over waits for the next one. */
const batch = 500;

/** The ends that the store makes by itself, as `sql/postgres/0002_verbs.sql` takes them: it puts the number for NaN. */
const failures = [failure("TIMED_OUT"), failure("INTERRUPTED"), failure("ATTEMPTS_EXHAUSTED", Number.NaN)].flatMap(
  (outcome) => (outcome.status === "failed" ? [outcome.error, outcome.statusMessage] : []),
);

function stepValues(record: StepRecord): unknown[] {
  switch (record.state) {
    case "started":
      return ["started", null, record.wakeAt];
    case "done":
      return ["done", record.value, null];
    case "failed":
      return ["failed", record.error, null];
  }
}

function outcomeValues(outcome: Outcome): unknown[] {
  const message = "statusMessage" in outcome && outcome.statusMessage !== null ? outcome.statusMessage : null;
  const payload = outcome.status === "completed" ? outcome.result : outcome.status === "failed" ? outcome.error : null;
  return [outcome.status, message === null ? null : cleanMessage(message), payload];
}
