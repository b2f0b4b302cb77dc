import {
  CallToolResultV2Schema,
  CancelTaskResultV2Schema,
  CreateTaskResultV2Schema,
  GetTaskResultV2Schema,
  TaskStatusNotificationV2Schema,
  UpdateTaskResultV2Schema,
} from "@modelcontextprotocol/ext-tasks/core/v2";
import { z } from "zod";
import type { Fields, Message } from "./messages.ts";

const iso = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;
const results: Record<string, z.ZodType> = {
  "tasks/get": GetTaskResultV2Schema,
  "tasks/update": UpdateTaskResultV2Schema,
  "tasks/cancel": CancelTaskResultV2Schema,
};
/** What the payload of a status may be called, and nothing else: the official schemas let further ones pass. */
const payloads: Record<string, string | null> = {
  working: null,
  input_required: "inputRequests",
  completed: "result",
  failed: "error",
  cancelled: null,
};

function fit(schema: z.ZodType, value: unknown, what: string): void {
  const { error } = schema.safeParse(value);
  if (error !== undefined) throw new Error(`${what} breaks the official schema: ${z.prettifyError(error)}`);
}

function checkTask(task: Fields, what: string): void {
  const { status = "", createdAt = "", lastUpdatedAt = "", ttlMs, pollIntervalMs } = task;
  for (const time of [createdAt, lastUpdatedAt])
    if (!iso.test(time)) throw new Error(`${what}: ${JSON.stringify(time)} is not an ISO 8601 instant`);
  if (Date.parse(lastUpdatedAt) < Date.parse(createdAt)) throw new Error(`${what}: changed before it was created`);
  for (const ms of [ttlMs, pollIntervalMs])
    if (typeof ms === "number" && (!Number.isInteger(ms) || ms < 0)) throw new Error(`${what}: ${ms} is no length`);
  for (const name of ["inputRequests", "result", "error"] as const)
    if (Object.hasOwn(task, name) !== (payloads[status] === name))
      throw new Error(`${what}: a task that is ${status} ${Object.hasOwn(task, name) ? "has" : "lacks"} ${name}`);
  if (task.result !== undefined) fit(CallToolResultV2Schema, task.result, `the result in ${what}`);
}

/** Throws unless an answer to this method has the form that the extension gives it. Errors pass. */
export function checkAnswer(method: string, { result }: Message): void {
  if (result === undefined) return;
  if (method === "tools/call" && result.resultType === "task") {
    fit(CreateTaskResultV2Schema, result, "a CreateTaskResult");
    if ("task" in result) throw new Error("a CreateTaskResult wraps its task");
    for (const name of ["inputRequests", "result", "error"])
      if (name in result) throw new Error(`a CreateTaskResult holds ${name}`);
    checkTask({ ...result, status: "working" }, "a CreateTaskResult");
    return;
  }
  if (result.resultType === "task") throw new Error(`${method} was answered with a task`);
  const schema = results[method];
  if (schema === undefined) return;
  fit(schema, result, `the answer to ${method}`);
  if (method === "tasks/get") return checkTask(result, "the answer to tasks/get");
  const extra = Object.keys(result).filter((name) => name !== "resultType" && name !== "_meta");
  if (extra.length > 0) throw new Error(`the acknowledgement of ${method} holds ${extra.join(", ")}`);
}

/** Throws unless a notification about a task has the form that the extension gives it. Others pass. */
export function checkNotification(message: Message): void {
  if (message.method !== "notifications/tasks") return;
  fit(TaskStatusNotificationV2Schema, message, "a notifications/tasks");
  if ("resultType" in (message.params ?? {})) throw new Error("a notifications/tasks holds a resultType");
  checkTask(message.params ?? {}, "a notifications/tasks");
}
