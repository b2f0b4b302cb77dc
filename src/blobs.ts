import { createHash, randomUUID } from "node:crypto";
import { mkdir, open, readdir, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";

/** Where values live that are too large for the store: one text a task and key. */
export interface Blobs {
  /** Keeps a text; it is durable when this returns. The name finds it again. */
  keep(taskId: string, key: string, text: string): Promise<string>;
  /** The text kept under a name, or null if there is none. */
  read(name: string): Promise<string | null>;
  /** The name of what is kept for a task and key. */
  nameOf(taskId: string, key: string): string;
  /** Deletes all that is kept for these tasks. */
  drop(taskIds: readonly string[]): Promise<void>;
}

/** Blobs as files of a folder that all front ends and workers share. Files can be read by their owner alone. */
export function blobFolder(folder: string): Blobs {
  // A key may hold anything; a file's name may not.
  const nameOf = (taskId: string, key: string) =>
    `${taskId}.${createHash("sha256").update(key).digest("hex").slice(0, 32)}.json`;

  return {
    nameOf,
    async keep(taskId, key, text) {
      const name = nameOf(taskId, key);
      await mkdir(folder, { recursive: true, mode: 0o700 });
      // Written aside and then renamed: whoever finds the name finds all of it.
      const draft = join(folder, `${name}.${randomUUID()}.tmp`);
      const file = await open(draft, "w", 0o600);
      try {
        await file.writeFile(text);
        await file.sync();
      } finally {
        await file.close();
      }
      await rename(draft, join(folder, name));
      await syncFolder(folder);
      return name;
    },
    async read(name) {
      try {
        return await readFile(join(folder, name), "utf8");
      } catch (thrown) {
        if ((thrown as NodeJS.ErrnoException).code === "ENOENT") return null;
        throw thrown;
      }
    },
    async drop(taskIds) {
      const gone = new Set(taskIds);
      const names = await readdir(folder).catch(() => []);
      const over = names.filter((name) => gone.has(name.slice(0, name.indexOf("."))));
      await Promise.all(over.map((name) => rm(join(folder, name), { force: true })));
    },
  };
}

/** The new name is durable once the folder is. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
