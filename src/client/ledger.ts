import { randomUUID } from "node:crypto";
import { TaskError } from "../errors.ts";
import { digestOf } from "../protocol/digest.ts";
import type { InputResponse } from "../protocol/input.ts";
import type { LoggedTask, TaskLog } from "./log.ts";
import { type ServerIdentity, isSame } from "./transport.ts";

type OnError = (error: unknown) => void;

/** What the log holds of one call, kept up to date. After {@link CallRecord.remove} nothing is written any more. */
export class CallRecord {
  readonly #log: TaskLog;
  #entry: LoggedTask;
  #gone = false;
  #stored: boolean;
  /** What was answered, or taken back, through this record: each entry says it anew, should one before have been lost. */
  readonly #answered = new Set<string>();
  /** Writes of one entry go one after the other, whatever the log does with two at a time. */
  #last: Promise<void> = Promise.resolve();

  constructor(log: TaskLog, entry: LoggedTask, stored: boolean) {
    this.#log = log;
    this.#entry = entry;
    this.#stored = stored;
  }

  /** Whether the log has it, or was told to. */
  get stored(): boolean {
    return this.#stored;
  }

  get entry(): LoggedTask {
    return this.#entry;
  }

  /** Durable once it resolves. */
  write(change: Partial<Omit<LoggedTask, "answers">>): Promise<void> {
    return this.#put({ ...this.#entry, ...change });
  }

  /** Takes note of an answer, or with null of its acknowledgement. */
  answered(key: string, answer: InputResponse | null): Promise<void> {
    this.#answered.add(key);
    return this.#put({ ...this.#entry, answers: { ...this.#entry.answers, [key]: answer } });
  }

  /** What was answered to this key: null if that was acknowledged, undefined if nothing was. */
  answerTo(key: string): InputResponse | null | undefined {
    return Object.hasOwn(this.#entry.answers, key) ? this.#entry.answers[key] : undefined;
  }

  /** Takes back an answer, which then can be given anew. */
  unanswered(key: string): Promise<void> {
    const { [key]: _, ...answers } = this.#entry.answers;
    this.#answered.add(key);
    return this.#put({ ...this.#entry, answers });
  }

  remove(): Promise<void> {
    if (this.#gone || !this.#stored) return this.idle();
    this.#gone = true;
    return this.#next(() => this.#log.remove(this.#entry.call));
  }

  /** Resolves when nothing is being written any more. */
  async idle(): Promise<void> {
    await this.#last.catch(() => {});
  }

  #put(entry: LoggedTask): Promise<void> {
    this.#entry = entry;
    this.#stored = true;
    const keys = [...this.#answered];
    return this.#next(async () => (this.#gone ? undefined : await this.#log.put(entry, keys)));
  }

  #next(action: () => Promise<void>): Promise<void> {
    const done = this.#last.catch(() => {}).then(action);
    this.#last = done;
    done.catch(() => {});
    return done;
  }
}

/** All that this process has to do with one log: clients and handles that share the log share this. */
export class Ledger {
  static readonly #all = new WeakMap<TaskLog, Ledger>();

  /** Questions that somebody in this process is at: none is put twice at a time. */
  readonly claims = new Set<string>();
  readonly #log: TaskLog;
  readonly #records = new Map<string, CallRecord>();
  readonly #searches = new Map<string, Promise<CallRecord>>();

  private constructor(log: TaskLog) {
    this.#log = log;
  }

  static of(log: TaskLog): Ledger {
    const ledger = this.#all.get(log) ?? new Ledger(log);
    this.#all.set(log, ledger);
    return ledger;
  }

  /** Notes that a tool is about to be called. Durable once it resolves; rejects if it can't be, and nothing was sent. */
  async intend(
    server: ServerIdentity,
    { tool, args, idempotencyKey }: { readonly tool: string; readonly args: unknown; readonly idempotencyKey?: string },
    startedAt: number,
  ): Promise<CallRecord> {
    const key = idempotencyKey === undefined ? {} : { idempotencyKey };
    const record = this.#make({ server, tool, digest: digestOf(args), startedAt, ...key }, false);
    await record.write({ state: "calling" });
    return record;
  }

  /**
   * The record of a task of this server, a fresh one if the log has none. Throws `OTHER_SERVER` if it has one that was
   * started on another server.
   */
  async find(server: ServerIdentity, taskId: string, startedAt: number, onError: OnError): Promise<CallRecord> {
    const name = JSON.stringify([server, taskId]);
    const search = this.#searches.get(name) ?? this.#search(server, taskId, startedAt, onError);
    this.#searches.set(name, search);
    try {
      return await search;
    } finally {
      this.#searches.delete(name);
    }
  }

  /** What a process that has ended left of this server, and what was begun here: tasks, and calls nobody knows about. */
  async left(server: ServerIdentity, onError: OnError): Promise<LoggedTask[]> {
    const entries = (await this.#log.list(onError)).filter((one) => isSame(one.server, server));
    const open: LoggedTask[] = [];
    for (const one of entries) {
      const isOurs = this.#records.has(one.call);
      if (one.heldElsewhere === true || (isOurs && one.taskId === null)) continue;
      // The server had asked something first: there was nothing to run yet.
      if (one.state === "asking" && one.taskId === null) await this.#log.remove(one.call).catch(onError);
      else open.push(one);
    }
    return open;
  }

  /** Leaves a call to whoever looks at the log next: this process waits for it no more. */
  async leave(record: CallRecord): Promise<void> {
    await record.idle();
    this.#records.delete(record.entry.call);
  }

  /** Forgets a call, by its name in the log. */
  async remove(call: string): Promise<void> {
    const record = this.#records.get(call);
    await (record === undefined ? this.#log.remove(call) : record.remove());
    this.#records.delete(call);
  }

  /** Resolves when all that was to be written is. */
  async idle(): Promise<void> {
    await Promise.all([...this.#records.values()].map((record) => record.idle()));
  }

  async #search(server: ServerIdentity, taskId: string, startedAt: number, onError: OnError): Promise<CallRecord> {
    for (const record of this.#records.values()) {
      if (record.entry.taskId === taskId && isSame(record.entry.server, server)) return record;
    }
    const entries = await this.#log.list(onError).catch((error: unknown) => (onError(error), []));
    const found = entries.filter((one) => one.taskId === taskId);
    const ours = found.find((one) => isSame(one.server, server));
    if (found.length > 0 && ours === undefined) throw new TaskError("OTHER_SERVER", { data: { taskId } });
    const record = this.#make({ server, startedAt, taskId, ...ours }, ours !== undefined);
    // Whoever had it is gone: now we have it.
    if (ours !== undefined && ours.heldElsewhere !== true) record.write({}).catch(onError);
    return record;
  }

  #make(entry: Partial<LoggedTask> & Pick<LoggedTask, "server" | "startedAt">, stored: boolean): CallRecord {
    const fresh = {
      call: randomUUID(),
      tool: null,
      digest: null,
      taskId: null,
      state: "calling",
      answers: {},
    } as const;
    const record = new CallRecord(this.#log, { ...fresh, ...entry }, stored);
    this.#records.set(record.entry.call, record);
    return record;
  }
}
