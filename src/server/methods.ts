import { ProtocolError, type McpServer, type ServerContext } from "@modelcontextprotocol/server";
import { z } from "zod";
import { channels } from "../channels.ts";
import type { Engine } from "../engine/engine.ts";
import { asTaskError, codes, TaskError, type RpcError } from "../errors.ts";
import { tasksRequired, type ClientCapabilities } from "../protocol/capabilities.ts";
import type { DetailedTask, Stamp } from "../protocol/wire.ts";

/** Who makes a request, and what it declared on this very request. */
export interface Caller {
  readonly owner: string;
  readonly client: ClientCapabilities;
}

/** The params of a request, as they came. */
export type Params = Readonly<Record<string, unknown>>;

/** Answers `tasks/get` (Tasks extension, "Task Polling"). Changes nothing. */
export const getTask = answering("tasks/get", async (engine, caller, params): Promise<DetailedTask> => {
  const id = taskIdFor(caller, params);
  return engine.describe(await engine.read(id, caller.owner), caller.client);
});

/** The same as JSON text, with what the server says in each answer. */
export const getTaskText = answering("tasks/get", async (engine, caller, params, stamp: Stamp): Promise<string> => {
  const id = taskIdFor(caller, params);
  return engine.describeText(await engine.read(id, caller.owner), caller.client, stamp);
});

/** Answers `tasks/update` (Tasks extension, "Task Input"). What fits no open request is ignored. */
export const updateTask = answering("tasks/update", async (engine, caller, params): Promise<object> => {
  const id = taskIdFor(caller, params);
  const { inputResponses } = params;
  if (typeof inputResponses !== "object" || inputResponses === null || Array.isArray(inputResponses))
    throw new TaskError("INVALID_PARAMS", { detail: "inputResponses is an object of answers by key." });
  await engine.answer(id, caller.owner, inputResponses as Params);
  return {};
});

/** Answers `tasks/cancel` (Tasks extension, "Task Cancellation"). A finished task stays as it is. */
export const cancelTask = answering("tasks/cancel", async (engine, caller, params): Promise<object> => {
  await engine.cancel(taskIdFor(caller, params), caller.owner);
  return {};
});

/**
 * The task ids that a `subscriptions/listen` asks for, each once. Throws what the request is to be refused with: which
 * of the ids exist plays no part in that.
 */
export function wantedTasks(caller: Caller, taskIds: unknown, limit: number): string[] {
  requireTasks(caller);
  if (!Array.isArray(taskIds) || !taskIds.every((id) => typeof id === "string"))
    throw new TaskError("INVALID_PARAMS", { detail: "notifications.taskIds is an array of strings." });
  const wanted = [...new Set<string>(taskIds)];
  if (wanted.length > limit)
    throw new TaskError("TOO_LARGE", { detail: `notifications.taskIds may name ${limit} tasks.` });
  return wanted;
}

/** What a caller is told of a failure. The server's own faults are reported, and their cause stays here. */
export function answerTo(thrown: unknown, onError: (error: TaskError) => void): RpcError {
  const error = asTaskError(thrown);
  if (error.rpc === codes.INTERNAL.rpc && error.code !== "SHUTTING_DOWN") onError(error);
  return error.toRpc();
}

/** The status of an error that a handler answers with, over HTTP, where nothing was sent before (core specification, "Streamable HTTP"). */
export function statusOf({ code }: RpcError): number {
  return code === codes.EXTENSION_REQUIRED.rpc ? 400 : 200;
}

/** A method that tells whoever listens how it was answered. */
export function answering<R, C = Caller, E = Engine, More extends readonly unknown[] = []>(
  method: string,
  answer: (engine: E, caller: C, params: Params, ...more: More) => Promise<R>,
) {
  async function told(...args: Parameters<typeof answer>): Promise<R> {
    const began = performance.now();
    const tell = (error: string | null) => channels.answered.publish({ method, error, ms: performance.now() - began });
    try {
      const result = await answer(...args);
      tell(null);
      return result;
    } catch (thrown) {
      tell(asTaskError(thrown).code);
      throw thrown;
    }
  }
  return (...args: Parameters<typeof answer>): Promise<R> =>
    channels.answered.hasSubscribers ? told(...args) : answer(...args);
}

/** Params are checked by the methods themselves: their texts are ours, and no value of a caller's is in them. */
const anyParams = z.looseObject({});

/** Answers a method that the SDK doesn't know. */
export function setMethod(
  { server }: McpServer,
  name: string,
  onError: (error: TaskError) => void,
  method: (ctx: ServerContext) => Promise<object>,
): void {
  server.setRequestHandler(name, { params: anyParams }, async (_params, ctx) => {
    try {
      return { ...(await method(ctx)) };
    } catch (thrown) {
      const { code, message, data } = answerTo(thrown, onError);
      throw new ProtocolError(code, message, data);
    }
  });
}

/** The gate comes before the id, so that who may not ask learns nothing about ids. */
function taskIdFor(caller: Caller, params: Params): string {
  requireTasks(caller);
  return idOf(params);
}

/** The id of the task that a request names. */
export function idOf({ taskId }: Params): string {
  if (typeof taskId !== "string") throw new TaskError("INVALID_PARAMS", { detail: "taskId is a string." });
  return taskId;
}

function requireTasks({ client }: Caller): void {
  if (!client.tasks) throw new TaskError("EXTENSION_REQUIRED", { data: tasksRequired });
}
