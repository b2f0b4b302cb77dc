import type { RpcError } from "../errors.ts";
import type { InputRequests } from "./input.ts";
import { progressKey, type Progress } from "./progress.ts";
import { isTerminal, type TaskStatus } from "./status.ts";

/** The fields that every task has on the wire (Tasks extension, "Tasks"). Times are ISO 8601, lengths milliseconds. */
export interface WireTask {
  taskId: string;
  status: TaskStatus;
  statusMessage?: string;
  createdAt: string;
  lastUpdatedAt: string;
  ttlMs: number | null;
  pollIntervalMs?: number;
}

/** A task with what its status carries: the answer to `tasks/get`, less `resultType`, and each notification. */
export type DetailedTask = WireTask & { readonly _meta?: Readonly<Record<string, unknown>> } & (
    | { status: "working" | "cancelled" }
    | { status: "input_required"; inputRequests: InputRequests }
    | { status: "completed"; result: Record<string, unknown> }
    | { status: "failed"; error: RpcError }
  );

/** What this module needs to know of a task. Payloads are the JSON texts that the store keeps. */
export interface TaskFacts {
  readonly id: string;
  readonly status: TaskStatus;
  readonly statusMessage: string | null;
  readonly progress: Progress | null;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly turnedAt: number;
  readonly ttlMs: number | null;
  readonly inputRequests: InputRequests;
  readonly result: string | null;
  readonly error: string | null;
}

/** The shortest poll interval that a client is told, unless an author fixes it, in milliseconds. */
export const shortestPoll = 1_000;
const longestPoll = 30_000;

/**
 * How long a client should wait before it asks again: a tenth of the time since the last change of status, from one
 * to thirty seconds. A finished task always says the same.
 */
export function pollInterval(task: TaskFacts, now: number): number {
  if (isTerminal(task.status)) return shortestPoll;
  return Math.round(Math.min(longestPoll, Math.max(shortestPoll, (now - task.turnedAt) / 10)));
}

/** The fields common to every answer about a task. */
export function wireTask(task: TaskFacts, pollIntervalMs: number): WireTask {
  return {
    taskId: task.id,
    status: task.status,
    ...(task.statusMessage === null ? {} : { statusMessage: task.statusMessage }),
    createdAt: new Date(task.createdAt).toISOString(),
    lastUpdatedAt: new Date(task.updatedAt).toISOString(),
    ttlMs: task.ttlMs,
    pollIntervalMs,
  };
}

/** The task with the payload of its status (Tasks extension, "Task Polling" and "Task Status Notifications"). */
export function detailedTask(task: TaskFacts, pollIntervalMs: number): DetailedTask {
  const about = task.progress === null ? {} : { _meta: { [progressKey]: task.progress } };
  const common = { ...wireTask(task, pollIntervalMs), ...about };
  switch (task.status) {
    case "working":
    case "cancelled":
      return { ...common, status: task.status };
    case "input_required":
      return { ...common, status: task.status, inputRequests: task.inputRequests };
    case "completed":
      return { ...common, status: task.status, result: JSON.parse(task.result ?? "{}") as Record<string, unknown> };
    case "failed":
      return { ...common, status: task.status, error: JSON.parse(task.error ?? "{}") as RpcError };
  }
}

/** What an answer has beside its method's own fields. */
export interface Stamp {
  readonly resultType: "complete";
  readonly _meta?: Readonly<Record<string, unknown>>;
}

/**
 * {@link detailedTask} as JSON text, stamped, with its fields in the order in which the SDK would write them: a task that
 * is over is answered with the same bytes whoever answers. What the store keeps as text goes in as it is: a large result
 * is not parsed and written anew for each who reads it.
 */
export function detailedText(task: TaskFacts, pollIntervalMs: number, stamp: Stamp): string {
  const { progress } = task;
  const about = progress === null ? {} : { _meta: { [progressKey]: progress, ...stamp._meta } };
  const head = JSON.stringify({ ...wireTask(task, pollIntervalMs), ...about });
  const { resultType, _meta } = stamp;
  const tail = JSON.stringify({ resultType, ...(progress !== null || _meta === undefined ? {} : { _meta }) });
  return `${head.slice(0, -1)}${payloadText(task)},${tail.slice(1)}`;
}

function payloadText({ status, inputRequests, result, error }: TaskFacts): string {
  switch (status) {
    case "working":
    case "cancelled":
      return "";
    case "input_required":
      return `,"inputRequests":${JSON.stringify(inputRequests)}`;
    case "completed":
      return `,"result":${result ?? "{}"}`;
    case "failed":
      return `,"error":${error ?? "{}"}`;
  }
}
