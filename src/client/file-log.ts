import { chmod, mkdir, open, readFile, readdir, rename, rm, stat } from "node:fs/promises";
import { homedir } from "node:os";
import path from "node:path";
import { TaskError } from "../errors.ts";
import { mayLive, thisProcess } from "../liveness.ts";
import { takeLock } from "./lock.ts";
import type { LoggedTask, TaskLog } from "./log.ts";
import { type LogRecord, readLines, writeLine } from "./record-line.ts";

const name = "tasks.log";
/** Where lines that can't be read are kept when the file is written anew. */
const damagedName = "damaged.log";
/** A file is written anew when it is larger than this, and mostly of the past. Bytes. */
const worthwhile = 64 * 1024;
/** How long a writer waits for another process's turn to end, and how often it looks. Milliseconds. */
const patience = 5_000;
const retryAfter = 5;

const opened = new Map<string, FileLog>();

/**
 * A {@link TaskLog} in a folder of its own: a file of one line a record, appended to, synced, readable by this user
 * only. One folder serves many servers and processes: writers take turns, a dead one's turn is taken over, and each
 * call stays with the process that made it for as long as that lives. Writing rejects with `LOG_UNAVAILABLE`.
 */
export function fileLog(folder: string): TaskLog {
  const place = path.resolve(folder.replace(/^~(?=\/|$)/, homedir()));
  const log = opened.get(place) ?? new FileLog(place);
  opened.set(place, log);
  return log;
}

interface Waiting {
  readonly line: string;
  readonly done: PromiseWithResolvers<void>;
}

class FileLog implements TaskLog {
  readonly #folder: string;
  readonly #file: string;
  readonly #holder = thisProcess();
  /** Who had the calls that are not ours, as it was last read. */
  #others = new Map<string, string>();
  #waiting: Waiting[] = [];
  #writing = false;
  /** The size at which the file is worth writing anew. */
  #limit = worthwhile;

  constructor(folder: string) {
    this.#folder = folder;
    this.#file = path.join(folder, name);
  }

  put({ heldElsewhere = false, ...task }: LoggedTask, keys?: readonly string[]): Promise<void> {
    const other = heldElsewhere ? this.#others.get(task.call) : undefined;
    // Whoever looks on takes no call from the process that waits for it.
    const holder = other !== undefined && mayLive(other) ? other : this.#holder;
    return this.#append({ task, holder, ...(keys === undefined ? {} : { keys }) });
  }

  remove(call: string): Promise<void> {
    return this.#append({ gone: call });
  }

  async list(onDamage?: (error: TaskError) => void): ReturnType<TaskLog["list"]> {
    const { records, damaged } = readLines(await this.#read());
    if (damaged.length > 0) {
      onDamage?.(new TaskError("LOG_DAMAGED", { data: { file: this.#file, lines: damaged.map(({ line }) => line) } }));
    }
    const held = [...records.values()].filter(({ holder }) => holder !== this.#holder && mayLive(holder));
    this.#others = new Map(held.map(({ task, holder }) => [task.call, holder]));
    return [...records.values()]
      .map(({ task }) => (this.#others.has(task.call) ? { ...task, heldElsewhere: true } : task))
      .toSorted((a, b) => a.startedAt - b.startedAt);
  }

  async #read(): Promise<string> {
    try {
      return await readFile(this.#file, "utf8");
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code === "ENOENT") return "";
      throw new TaskError("LOG_UNAVAILABLE", { cause });
    }
  }

  #append(record: LogRecord): Promise<void> {
    const done = Promise.withResolvers<void>();
    this.#waiting.push({ line: writeLine(record), done });
    if (!this.#writing) void this.#write();
    return done.promise;
  }

  /** Writes what waits, all that came meanwhile in one go, until nothing does. */
  async #write(): Promise<void> {
    this.#writing = true;
    // Records of one turn of the event loop share a sync.
    await Promise.resolve();
    while (this.#waiting.length > 0) {
      const batch = this.#waiting;
      this.#waiting = [];
      try {
        await this.#store(batch.map(({ line }) => line).join(""));
        for (const { done } of batch) done.resolve();
      } catch (cause) {
        const error = cause instanceof TaskError ? cause : new TaskError("LOG_UNAVAILABLE", { cause });
        for (const { done } of batch) done.reject(error);
      }
    }
    this.#writing = false;
  }

  async #store(lines: string): Promise<void> {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 });
    if (((await stat(this.#folder)).mode & 0o077) !== 0) await chmod(this.#folder, 0o700);
    const giveBack = await this.#turn();
    try {
      const size = await appendTo(this.#file, lines);
      if (size === Buffer.byteLength(lines)) await syncFolder(this.#folder);
      if (size > this.#limit) await this.#rewrite();
    } finally {
      giveBack();
    }
  }

  async #turn(): Promise<() => void> {
    for (const end = performance.now() + patience; ;) {
      const giveBack = takeLock(this.#folder);
      if (giveBack !== undefined) return giveBack;
      if (performance.now() > end) throw new TaskError("LOG_UNAVAILABLE", { detail: "Another process is writing it." });
      await new Promise((resolve) => setTimeout(resolve, retryAfter * (1 + Math.random())));
    }
  }

  /** Leaves out what is over. Nothing is lost on the way: the old file counts until the new one is whole and synced. */
  async #rewrite(): Promise<void> {
    const { records, damaged } = readLines(await this.#read());
    const lines = [...records.values()].map(writeLine).join("");
    if (damaged.length > 0) {
      await appendTo(path.join(this.#folder, damagedName), damaged.map(({ text }) => `${text}\n`).join(""));
    }
    const draft = `${this.#file}.new`;
    await rm(draft, { force: true });
    await appendTo(draft, lines);
    await rename(draft, this.#file);
    await syncFolder(this.#folder);
    this.#limit = Math.max(worthwhile, 4 * lines.length);
    await sweepDrafts(this.#folder);
  }
}

/** Appends and syncs. Resolves with the size of the file after it, in bytes. */
async function appendTo(file: string, lines: string): Promise<number> {
  await using handle = await open(file, "a+", 0o600);
  const { size, mode } = await handle.stat();
  if ((mode & 0o077) !== 0) await handle.chmod(0o600);
  // A writer that died in the middle of a line must not spoil the next one.
  const torn = size > 0 && (await handle.read(Buffer.alloc(1), 0, 1, size - 1)).buffer.toString() !== "\n";
  const bytes = Buffer.from(torn ? `\n${lines}` : lines);
  await handle.appendFile(bytes);
  await handle.sync();
  return size + bytes.length;
}

/** Makes the names in it durable; not every system lets a folder be opened, and those that don't need it less. */
async function syncFolder(folder: string): Promise<void> {
  try {
    await using handle = await open(folder, "r");
    await handle.sync();
  } catch {
    // The file itself is synced.
  }
}

/** A process that died while it took its turn may have left a file. */
async function sweepDrafts(folder: string): Promise<void> {
  for (const one of await readdir(folder)) {
    const file = path.join(folder, one);
    const made = one.startsWith("draft.") ? await stat(file).catch(() => undefined) : undefined;
    if (made !== undefined && Date.now() - made.mtimeMs > 60_000) await rm(file, { force: true });
  }
}
