import { createEngine, type Engine } from "../engine/engine.ts";
import { TaskError } from "../errors.ts";
import { isTerminal } from "../protocol/status.ts";
import type { Task, TaskStore } from "../store/store.ts";
import type { Context } from "./context.ts";
import { CliError, exits, nothingAsked, usage } from "./exit.ts";
import type { TaskSource } from "./source.ts";
import { openStore } from "./store.ts";
import { findId, oneLine } from "./text.ts";

/** A server's own database: an operator sees the tasks of every owner. */
export interface Database extends TaskSource {
  readonly store: TaskStore;
}

const page = 500;

/** Opens the database that `--db` names. */
export async function openDatabase({ options, line }: Context, how: { mustExist: boolean }): Promise<Database> {
  const store = await openStore(options, how.mustExist);
  const engine = createEngine({ store });
  const owners = new Map<string, string>();

  /** Notes whose each task is, newest first, until this one was seen. */
  async function look(until: string): Promise<void> {
    for (let before: string | undefined; ;) {
      const tasks = await store.list({ limit: page, ...(before === undefined ? {} : { before }) });
      for (const { id, owner } of tasks) owners.set(id, owner);
      before = tasks.at(-1)?.id;
      if (tasks.length < page || owners.has(until)) return;
    }
  }

  async function ownerOf(id: string): Promise<string> {
    if (!owners.has(id)) await look(id);
    const owner = owners.get(id);
    if (owner === undefined) throw new TaskError("TASK_NOT_FOUND", { data: { taskId: id } });
    return owner;
  }

  const read = async (id: string) => engine.describe(await engine.read(id, await ownerOf(id)));

  return {
    store,
    async identify(text) {
      await look(text);
      const found = findId(text, [...owners.keys()]);
      if (found === null) throw usage(`"${oneLine(text)}" is the beginning of several ids.`, line("ls"));
      if (found !== undefined) return found;
      const message = `No task here has the id "${oneLine(text)}", or one that begins with it.`;
      throw new CliError(exits.unknownTask, "TASK_NOT_FOUND", message, { taskId: text, next: line("ls") });
    },
    read,
    async answer(id, key, response) {
      await engine.answer(id, await ownerOf(id), { [key]: response });
      return await read(id);
    },
    async answerNext({ taskId }) {
      throw nothingAsked(taskId, line);
    },
    async cancel(id, wait) {
      const owner = await ownerOf(id);
      await engine.cancel(id, owner);
      if (wait) engine.expire();
      return engine.describe(wait ? await ended(engine, id, owner) : await engine.read(id, owner));
    },
    async [Symbol.asyncDispose]() {
      await engine[Symbol.asyncDispose]();
      await store[Symbol.asyncDispose]();
    },
  };
}

async function ended(engine: Engine, id: string, owner: string): Promise<Task> {
  for (;;) {
    const changed = Promise.withResolvers<void>();
    const stop = engine.watch(id, changed.resolve);
    try {
      const task = await engine.read(id, owner);
      if (isTerminal(task.status)) return task;
      await changed.promise;
    } finally {
      stop();
    }
  }
}
