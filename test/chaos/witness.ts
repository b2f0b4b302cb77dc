import { randomUUID } from "node:crypto";
import type { Attempt, TaskStore } from "../../src/store/store.ts";
import type { Append } from "./log.ts";

/** The same store, with a line for each claim, and two for each write of a worker: that it begins, and what came of it. */
export function witness(store: TaskStore, append: Append): TaskStore {
  const self = randomUUID().slice(0, 8);
  let writes = 0;

  async function write(verb: string, { taskId, epoch }: Attempt, detail: unknown, run: () => Promise<boolean>) {
    const name = `${self} ${++writes}`;
    append(["begin", name, taskId, epoch, verb, detail]);
    const taken = await run();
    append(["end", name, taken]);
    return taken;
  }

  return {
    ...store,
    async claim(request) {
      const claims = await store.claim(request);
      for (const { taskId, epoch } of claims) append(["claim", taskId, epoch]);
      return claims;
    },
    startStep: (attempt, key) => write("startStep", attempt, key, () => store.startStep(attempt, key)),
    recordStep: (attempt, key, record) =>
      write("recordStep", attempt, { key, record }, () => store.recordStep(attempt, key, record)),
    setStatus: (attempt, message, progress) =>
      write("setStatus", attempt, message, () => store.setStatus(attempt, message, progress)),
    park: (attempt, waits, hold) => write("park", attempt, null, () => store.park(attempt, waits, hold)),
    finish: (attempt, outcome) => write("finish", attempt, outcome, () => store.finish(attempt, outcome)),
    release: (attempt, how) => write("release", attempt, how, () => store.release(attempt, how)),
  };
}
