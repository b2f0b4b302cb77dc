import { RELATED_TASK_META_KEY } from "@modelcontextprotocol/client";
import { TaskError, asTaskError } from "../errors.ts";
import type { InputResponse } from "../protocol/input.ts";
import type { Connection, TaskMethod } from "./connection.ts";
import { type Report, modernised, readReport, readTask } from "./replies.ts";

/** What can be asked of a server about a task, whatever generation of tasks it speaks. */
export interface TaskMethods {
  /** `attended`: what the task asks may be asked here, where reading it is what brings the question. */
  get(taskId: string, attended: boolean, signal?: AbortSignal): Promise<Report>;
  answer(taskId: string, key: string, answer: InputResponse, signal?: AbortSignal): Promise<void>;
  cancel(taskId: string, signal?: AbortSignal): Promise<void>;
}

type Send = (method: TaskMethod, params: object, signal?: AbortSignal, timeoutMs?: number) => Promise<unknown>;

/** The methods that the server at the other end has, each time anew: the client may be connected to another one. */
export function methodsOf(
  connection: Connection,
  requestTimeoutMs: number,
  onError: (error: unknown) => void,
): TaskMethods {
  const send: Send = (method, params, signal, timeoutMs = requestTimeoutMs) =>
    connection.task(method, { ...params }, { timeoutMs, ...(signal === undefined ? {} : { signal }) });
  const [modern, legacy] = [modernMethods(send), legacyMethods(send, onError)];
  const chosen = () => (connection.legacy ? legacy : modern);
  return {
    get: (...args) => chosen().get(...args),
    answer: (...args) => chosen().answer(...args),
    cancel: (...args) => chosen().cancel(...args),
  };
}

/** The Tasks extension ("Task Polling", "Task Input", "Task Cancellation"). */
function modernMethods(send: Send): TaskMethods {
  return {
    get: async (taskId, _attended, signal) => readTask(await send("tasks/get", { taskId }, signal), taskId),
    async answer(taskId, key, answer, signal) {
      await send("tasks/update", { taskId, inputResponses: { [key]: answer } }, signal);
    },
    async cancel(taskId, signal) {
      await send("tasks/cancel", { taskId }, signal);
    },
  };
}

/** As long as a timer can be: a task of 2025-11-25 gives its result when it is over. */
const untilOver = 2 ** 31 - 1;

/**
 * Tasks of 2025-11-25. Their result is a request of its own, which waits for it, and which carries the server's
 * questions: these come as ordinary requests to the SDK's client and have no keys.
 */
function legacyMethods(send: Send, onError: (error: unknown) => void): TaskMethods {
  const waiting = new Map<string, Promise<Record<string, unknown>>>();

  function resultOf(taskId: string, signal?: AbortSignal): Promise<Record<string, unknown>> {
    const begun = waiting.get(taskId);
    if (begun !== undefined) return begun;
    const asked = send("tasks/result", { taskId }, signal, untilOver) as Promise<Record<string, unknown>>;
    waiting.set(taskId, asked);
    const forget = () => waiting.delete(taskId);
    asked.then(forget, forget);
    return asked;
  }

  /** What the task came to, as a task of today has it: there, a tool's own error is a result as well. */
  async function outcomeOf(taskId: string, status: unknown, signal?: AbortSignal): Promise<object> {
    try {
      const { _meta = {}, ...result } = await resultOf(taskId, signal);
      const { [RELATED_TASK_META_KEY]: _, ...meta } = _meta as Record<string, unknown>;
      return { status: "completed", result: Object.keys(meta).length > 0 ? { ...result, _meta: meta } : result };
    } catch (thrown) {
      const error = asTaskError(thrown);
      if (status !== "failed" || error.code !== "CALL_FAILED") throw error;
      return { error: error.toRpc() };
    }
  }

  return {
    async get(taskId, attended, signal) {
      const task = modernised(await send("tasks/get", { taskId }, signal));
      const { status } = task;
      // The server's questions wait for somebody who waits for the result, and are given away to them.
      if (status === "input_required" && attended)
        resultOf(taskId, signal).catch((error: unknown) => signal?.aborted === true || onError(error));
      const isOver = status === "completed" || status === "failed";
      const outcome = isOver ? await outcomeOf(taskId, status, signal) : {};
      const requests = status === "input_required" ? { inputRequests: {} } : {};
      return readReport({ ...task, ...requests, ...outcome }, taskId);
    },
    async answer(taskId) {
      throw new TaskError("REFUSED", { detail: "A task of 2025-11-25 asks by requests.", data: { taskId } });
    },
    async cancel(taskId, signal) {
      await send("tasks/cancel", { taskId }, signal);
    },
  };
}
