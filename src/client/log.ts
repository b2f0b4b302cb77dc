import { createHash, randomUUID } from "node:crypto";
import { mkdir, open, readFile, readdir, rename, rm } from "node:fs/promises";
import path from "node:path";
import { z } from "zod";

/** One task that somebody waits for. */
export interface LoggedTask {
  readonly taskId: string;
  /** The tool that was called. */
  readonly tool: string;
  /** Milliseconds since the Unix epoch. */
  readonly startedAt: number;
}

/** Remembers over a crash which tasks of one server are waited for (Tasks extension, "Task Polling"). */
export interface TaskLog {
  /** Durable once it resolves. */
  add(task: LoggedTask): Promise<void>;
  /** Does nothing where there is no such task. */
  remove(taskId: string): Promise<void>;
  /** All tasks, oldest first. */
  list(): Promise<LoggedTask[]>;
}

const logged = z.object({ taskId: z.string(), tool: z.string(), startedAt: z.number() });
const suffix = ".json";

/** A server's task ids may be of any form and length, and may be all that it takes to read a task. */
const nameOf = (taskId: string) => createHash("sha256").update(taskId).digest("hex") + suffix;

/**
 * A {@link TaskLog} in a folder of its own, one small file a task, readable by this user only. Use one folder for each
 * server: an id says nothing about where it is from. Processes may share a folder.
 */
export function fileLog(folder: string): TaskLog {
  const fileOf = (taskId: string) => path.join(folder, nameOf(taskId));
  return {
    async add(task) {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      const file = fileOf(task.taskId);
      const draft = `${file}.${randomUUID()}`;
      await using handle = await open(draft, "w", 0o600);
      await handle.writeFile(JSON.stringify(task));
      await handle.sync();
      await rename(draft, file);
      await syncFolder(folder);
    },
    async remove(taskId) {
      await rm(fileOf(taskId), { force: true });
    },
    async list() {
      const names = await readdir(folder).catch(() => []);
      const files = names.filter((name) => name.endsWith(suffix));
      const read = await Promise.all(
        files.map((name) => readFile(path.join(folder, name), "utf8").catch(() => "null")),
      );
      return read.flatMap(parse).toSorted((a, b) => a.startedAt - b.startedAt);
    },
  };
}

/** A file that something else has damaged costs its own task only. */
function parse(text: string): LoggedTask[] {
  try {
    return [logged.parse(JSON.parse(text))];
  } catch {
    return [];
  }
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
