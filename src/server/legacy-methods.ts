import type { Clock } from "../clock.ts";
import type { Engine } from "../engine/engine.ts";
import { codes, TaskError, type RpcError } from "../errors.ts";
import { isTaskId } from "../protocol/ids.ts";
import { legacyResult, legacyTask, related, type LegacyTask } from "../protocol/legacy.ts";
import { isTerminal } from "../protocol/status.ts";
import type { Place, Task } from "../store/store.ts";
import type { TaskTool } from "../tool.ts";
import { createAsker } from "./asker.ts";
import { answering, idOf, type Caller } from "./methods.ts";
import type { StreamLimits } from "./listen.ts";
import { progressReports, type ProgressReport } from "./progress.ts";
import type { Pushes, Send } from "./push.ts";
import { resultOf } from "./handle.ts";
import { toolError } from "./reply.ts";
import { isListedWrapped } from "./schemas.ts";
import type { Answer } from "./swap.ts";

/** A request that may wait for a task. */
export interface Waiting extends Caller {
  /** Sends a message on its stream. */
  readonly send: Send;
  /** Sends progress, or null where it was not asked for. */
  readonly progress: ((report: ProgressReport) => void) | null;
  /** Aborts when nobody waits for the answer any more. */
  readonly signal: AbortSignal;
  /** Aborts when the server stops. */
  readonly stop: AbortSignal;
}

/** Tasks on one page of `tasks/list`. */
const pageSize = 20;

/** Answers `tasks/get` (2025-11-25, "Getting Tasks"). */
export const getLegacyTask = answering("tasks/get", async (engine, { owner, client }, params): Promise<LegacyTask> => {
  return legacyTask(engine.describe(await engine.read(idOf(params), owner), client));
});

/** What waiting for a result takes. */
export interface ResultParts {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly pushes: Pushes;
  readonly tools: readonly TaskTool[];
  /** Room for whoever waits. */
  readonly streams: StreamLimits;
}

/** Answers `tasks/result` at the task's end, and asks meanwhile what it asks (2025-11-25, "Result Retrieval"). */
export const getResult = answering(
  "tasks/result",
  async (parts: ResultParts, request: Waiting, params): Promise<Answer> => {
    const { owner, client, send, progress } = request;
    const asker = createAsker(parts.pushes, { send, client, known: true });
    const report = progressReports(parts.clock, progress);
    let release: (() => void) | undefined;
    const see = (now: Task) => {
      if (!isTerminal(now.status)) release ??= parts.streams.take(owner);
      asker.see(now);
      report(now);
    };
    try {
      return answerOf(parts.tools, await ended(parts.engine, idOf(params), request, see));
    } finally {
      asker.stop();
      release?.();
    }
  },
);

/** What the call would have been answered with, had it waited. */
function answerOf(tools: readonly TaskTool[], task: Task): Answer {
  const error = task.status === "failed" ? (JSON.parse(task.error ?? "{}") as RpcError) : null;
  // Older protocols don't have this code.
  if (error !== null && error.code !== codes.INPUT_UNSUPPORTED.rpc) return { error };
  const tool = tools.find(({ name }) => name === task.tool);
  const { _meta, ...rest } =
    task.status === "completed"
      ? legacyResult(resultOf(task), tool !== undefined && isListedWrapped(tool))
      : toolError(error === null ? "CANCELLED" : "INPUT_UNSUPPORTED");
  return { result: { ...rest, _meta: { ..._meta, ...related(task.id) } } };
}

/** Answers `tasks/cancel` when the task has ended, for a running handler has its grace (2025-11-25, "Task Cancellation"). */
export const cancelLegacyTask = answering(
  "tasks/cancel",
  async (engine, request: Waiting, params): Promise<LegacyTask> => {
    const { owner } = request;
    const id = idOf(params);
    if (isTerminal((await engine.read(id, owner)).status)) throw new TaskError("TASK_ENDED");
    await engine.cancel(id, owner);
    const task = await ended(engine, id, request);
    if (task.status !== "cancelled") throw new TaskError("TASK_ENDED");
    return legacyTask(engine.describe(task));
  },
);

async function ended(
  engine: Engine,
  id: string,
  { owner, signal, stop }: Waiting,
  see: (task: Task) => void = () => {},
): Promise<Task> {
  const seen = (task: Task) => {
    see(task);
    return isTerminal(task.status);
  };
  const task = await engine.wait(id, owner, { forMs: Infinity, signal, stop, seen });
  if (isTerminal(task.status)) return task;
  throw signal.aborted ? signal.reason : stop.reason;
}

/** Answers `tasks/list` (2025-11-25, "Listing Tasks"), for an owner that is authenticated. */
export const listTasks = answering("tasks/list", async (engine, { owner, client }, { cursor }): Promise<object> => {
  // One more than is shown tells whether there is another page.
  const found = await engine.page(owner, cursor === undefined ? null : readCursor(cursor), pageSize + 1);
  const shown = found.slice(0, pageSize);
  const last = found.length > pageSize ? shown.at(-1) : undefined;
  return {
    tasks: shown.map((task) => legacyTask(engine.describe(task, client))),
    ...(last === undefined ? {} : { nextCursor: cursorAfter(last) }),
  };
});

function cursorAfter({ createdAt, id }: Place): string {
  return Buffer.from(JSON.stringify([createdAt, id])).toString("base64url");
}

function readCursor(cursor: unknown): Place {
  try {
    const [createdAt, id] = JSON.parse(Buffer.from(String(cursor), "base64url").toString()) as unknown[];
    if (Number.isSafeInteger(createdAt) && isTaskId(id)) return { createdAt: createdAt as number, id };
  } catch {
    // Answered below, like whatever else is no cursor.
  }
  throw new TaskError("INVALID_PARAMS", { detail: "cursor is the nextCursor of another page." });
}
