import { setTimeout } from "node:timers/promises";
import type { TaskStore } from "mcp-tasks";
import type { Farm } from "./farm.ts";

export interface OrphanOptions {
  readonly farm: Farm;
  readonly store: TaskStore;
  readonly everyMs: number;
  readonly signal: AbortSignal;
  readonly onError: (error: unknown) => void;
}

/**
 * Cancels jobs whose task is over, until the signal aborts. Handlers cancel what they can, but a cancelled task has only
 * seconds for it, one that times out has none, and a call to start a job may arrive after all that. Whatever happened,
 * and whichever process saw it: a job that runs for a finished task is not wanted.
 *
 * The farm shows an account its own jobs. Use one account for one store: to another's tasks, these jobs are orphans.
 */
export async function cancelOrphans({ farm, store, everyMs, signal, onError }: OrphanOptions): Promise<void> {
  while (!signal.aborted) {
    try {
      // The jobs first: a task that is not there afterwards can't be one that is yet to come.
      for (const { id, labels } of await farm.running()) if (await isOver(store, labels)) await farm.cancel(id);
    } catch (error) {
      onError(error);
    }
    await setTimeout(everyMs, undefined, { signal }).catch(() => {});
  }
}

async function isOver(store: TaskStore, { task, owner }: Readonly<Record<string, string>>): Promise<boolean> {
  if (task === undefined || owner === undefined) return false;
  const found = await store.get(task, owner);
  return typeof found !== "object" || ["completed", "failed", "cancelled"].includes(found.status);
}
