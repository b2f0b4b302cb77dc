import { SdkHttpError } from "@modelcontextprotocol/client";
import { z } from "zod";
import { type RpcError, TaskError } from "../errors.ts";

/** What the error of a request that got no result says in its `data`, beside the caller's own facts. */
export interface FailureData {
  readonly status?: number;
  readonly retryAfterMs?: number;
  readonly sent?: boolean;
  /** Nobody has connected the client, or it was closed: that doesn't pass by itself. */
  readonly closed?: boolean;
  readonly taskId?: string;
}

const rpcAnswer = z.object({
  error: z.object({ code: z.int(), message: z.string(), data: z.unknown().optional() }),
});

/** Where a connection was never made: what was to be sent has reached nobody. */
const neverConnected = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"];

function reachedNobody(thrown: unknown): boolean {
  for (let error = thrown; error instanceof Error; error = error.cause) {
    if (neverConnected.includes((error as NodeJS.ErrnoException).code ?? "")) return true;
    if (error instanceof AggregateError && error.errors.every(reachedNobody)) return true;
  }
  return false;
}

/** The JSON-RPC error in a refusal's body, if it holds one. */
function errorInBody(text: unknown): RpcError | undefined {
  if (typeof text !== "string") return undefined;
  try {
    const { data } = rpcAnswer.safeParse(JSON.parse(text));
    return data === undefined ? undefined : data.error;
  } catch {
    return undefined;
  }
}

/** A task id that an invalid answer shows: whoever reads the error can still look after that task. */
export function visibleTask(result: unknown): string | undefined {
  if (typeof result !== "object" || result === null) return undefined;
  const { taskId, task } = result as { taskId?: unknown; task?: { taskId?: unknown } };
  const found = taskId ?? task?.taskId;
  return typeof found === "string" ? found : undefined;
}

/** An answer that breaks the protocol, with the task's id where one can be seen. */
export function invalid(result: unknown, detail: string, code: "INVALID_RESPONSE" | "NOT_A_TASK" = "INVALID_RESPONSE") {
  const taskId = visibleTask(result);
  return new TaskError(code, { detail, ...(taskId === undefined ? {} : { data: { taskId } }) });
}

/**
 * Why a request has no result: the server's own error (`CALL_FAILED`), a refusal by HTTP status (`REFUSED`), an answer
 * that the SDK could not read (`INVALID_RESPONSE`), or none at all (`CONNECTION_LOST`).
 */
export function failureOf(
  thrown: unknown,
  sent: boolean,
  reply: { result: unknown } | { error: RpcError } | undefined,
): TaskError {
  if (thrown instanceof TaskError) return thrown;
  if (reply !== undefined && "error" in reply) {
    return new TaskError("CALL_FAILED", { answer: reply.error, cause: thrown });
  }
  if (reply !== undefined) return invalid(reply.result, "It could not be read as the result of this method.");
  if (SdkHttpError.isInstance(thrown)) {
    const { status } = thrown;
    const answer = status < 500 ? errorInBody(thrown.data.text) : undefined;
    return answer === undefined
      ? new TaskError("REFUSED", { detail: `The HTTP status is ${status}.`, data: { status }, cause: thrown })
      : new TaskError("CALL_FAILED", { answer, cause: thrown });
  }
  if (thrown instanceof Error && ["UnauthorizedError", "InsufficientScopeError"].includes(thrown.name)) {
    return new TaskError("REFUSED", { detail: "It asks for authorization.", data: { status: 401 }, cause: thrown });
  }
  return new TaskError("CONNECTION_LOST", { data: { sent: sent && !reachedNobody(thrown) }, cause: thrown });
}

const factsOf = (error: TaskError): FailureData => error.data ?? {};

/** Whether the same request may well succeed a little later. */
export function isPassing(error: TaskError): boolean {
  if (error.code === "CONNECTION_LOST") return factsOf(error).closed !== true;
  if (error.code === "CALL_FAILED") return error.rpc === -32603;
  const { status = 0 } = factsOf(error);
  return error.code === "REFUSED" && (status === 408 || status === 425 || status === 429 || status >= 500);
}

/** The wait that a refusal asked for, in milliseconds. */
export const askedToWait = (error: TaskError): number | undefined => factsOf(error).retryAfterMs;

/**
 * The error of a `tools/call`. Whatever doesn't prove that the call reached no tool is `MAY_HAVE_STARTED`: by the protocol
 * alone no server can tell a repeated call from a second one.
 */
export function callError(error: TaskError): TaskError {
  const { status = 0, sent = false } = factsOf(error);
  const unclear =
    (error.code === "CONNECTION_LOST" && sent) ||
    (error.code === "REFUSED" && (status === 404 || status === 408 || status >= 500));
  return unclear
    ? new TaskError("MAY_HAVE_STARTED", { cause: error, ...(status === 0 ? {} : { data: { status } }) })
    : error;
}

/** The error that ends the waiting for a task, of the failure of a `tasks/*` request. It carries the task's id. */
export function taskError(error: TaskError, taskId: string): TaskError {
  const options = { data: { ...factsOf(error), taskId }, cause: error };
  if (error.code === "REFUSED") return new TaskError("REFUSED", { ...options, detail: statusText(error) });
  if (error.code !== "CALL_FAILED")
    return factsOf(error).taskId === taskId ? error : new TaskError(error.code, options);
  const about = { data: { taskId }, cause: error };
  if (error.rpc === -32602)
    return new TaskError(/expired/i.test(error.message) ? "TASK_EXPIRED" : "TASK_NOT_FOUND", about);
  if (error.rpc === -32021) return new TaskError("EXTENSION_REQUIRED", about);
  return new TaskError("REFUSED", { ...about, detail: `It answered with the error ${error.rpc}.` });
}

const statusText = (error: TaskError) => `The HTTP status is ${factsOf(error).status}.`;
