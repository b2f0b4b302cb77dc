import { type CallToolResult, isCallToolResult } from "@modelcontextprotocol/client";
import {
  CreateTaskResultV2Schema,
  DetailedTaskV2Schema,
  InputRequestV2Schema,
  InputRequiredCallToolResultV2Schema,
} from "@modelcontextprotocol/ext-tasks/core/v2";
import type { InputRequests } from "../protocol/input.ts";
import { isObject } from "../protocol/json.ts";
import type { DetailedTask, WireTask } from "../protocol/wire.ts";
import type { Answer } from "./connection.ts";
import { invalid } from "./failures.ts";

/** What a `tools/call` may be answered with (Tasks extension, "Polymorphic Results"; core, multi-round-trip requests). */
export type CallReply =
  | { readonly kind: "result"; readonly result: CallToolResult }
  | { readonly kind: "task"; readonly task: WireTask; readonly pollHint: unknown }
  | { readonly kind: "input"; readonly requests: InputRequests; readonly state: string | undefined };

/** A task as it was reported, and the poll interval that came with it, which may be any value at all. */
export interface Report {
  readonly task: DetailedTask;
  readonly pollHint: unknown;
}

/**
 * The value with two faults mended that servers really have, and that leave no doubt about the task: a poll interval
 * that is no whole number (we keep it aside and bound it), and a `ttlMs` that is missing or no whole number (then
 * nothing is promised).
 */
function mended(value: unknown): Record<string, unknown> {
  const { pollIntervalMs: _, ttlMs, ...rest } = isObject(value) ? value : {};
  return { ...rest, ttlMs: Number.isInteger(ttlMs) ? ttlMs : null };
}

/** A task of 2025-11-25 as one of today: two of its fields had other names. */
export function modernised(value: unknown): Record<string, unknown> {
  const { ttl, pollInterval, ...rest } = isObject(value) ? value : {};
  return { ...rest, ttlMs: ttl, pollIntervalMs: pollInterval };
}

const hintOf = (value: unknown): unknown => (isObject(value) ? value.pollIntervalMs : undefined);

const withHint = (hint: unknown) => (Number.isInteger(hint) ? { pollIntervalMs: hint as number } : {});

/**
 * Reads the answer to a `tools/call` that may be a task as the extension has it, or as 2025-11-25 had it, or not at all.
 * Throws `NOT_A_TASK` or `INVALID_RESPONSE`, with the id of a task that it shows.
 */
export function readCall({ plain, value: answered }: Answer, mayBeTask: "today" | "legacy" | "never"): CallReply {
  if (plain) return { kind: "result", result: answered as CallToolResult };
  const isLegacy = mayBeTask === "legacy" && isObject(answered) && isObject(answered.task);
  const value = isLegacy ? { ...modernised(answered.task), resultType: "task" } : answered;
  const kind = isObject(value) ? value.resultType : undefined;
  const isTask = kind === "task" || (mayBeTask === "never" && isObject(answered) && isObject(answered.task));
  if (isTask && mayBeTask !== "today" && !isLegacy) {
    throw invalid(value, "This request did not ask for a task.", "NOT_A_TASK");
  }
  if (kind === "task") {
    const parsed = CreateTaskResultV2Schema.safeParse(mended(value));
    if (!parsed.success) throw invalid(value, "It says that it is a task, but lacks what a task has.");
    const { resultType: _, _meta, ...task } = parsed.data;
    const pollHint = hintOf(value);
    return { kind, task: { ...task, ...withHint(pollHint) } as WireTask, pollHint };
  }
  if (kind === "input_required") {
    const parsed = InputRequiredCallToolResultV2Schema.safeParse(value);
    if (!parsed.success) throw invalid(value, "It asks for input, but not in a form that can be answered.");
    const { inputRequests = {}, requestState } = parsed.data;
    return { kind: "input", requests: inputRequests as InputRequests, state: requestState };
  }
  throw invalid(value, kind === undefined ? "It has no resultType." : "Its resultType is not known.");
}

/**
 * Reads the answer to `tasks/get`. Throws `INVALID_RESPONSE` with the task's id.
 *
 * `resultType: "task"` passes here although the specification wants "complete": its own examples show "task", servers
 * copied them, and the answer to this method leaves no doubt about what it is.
 */
export function readTask(value: unknown, taskId: string): Report {
  const kind = isObject(value) ? value.resultType : undefined;
  if (kind !== "complete" && kind !== "task") throw invalid({ taskId }, "The task was answered without a resultType.");
  return readReport(value, taskId);
}

/** Reads a task as `tasks/get` and `notifications/tasks` carry it. Throws `INVALID_RESPONSE` with the task's id. */
export function readReport(value: unknown, taskId: string): Report {
  const { inputRequests, ...rest } = mended(value);
  // Requests are looked at one by one: a kind that we don't know must not hide those that we can answer.
  const requests = rest.status === "input_required" ? { inputRequests: {} } : {};
  const parsed = DetailedTaskV2Schema.safeParse({ ...rest, ...requests });
  if (!parsed.success) throw invalid({ taskId }, "The task lacks what its status demands.");
  if (parsed.data.taskId !== taskId) throw invalid({ taskId }, "Another task was answered than the one asked for.");
  if (parsed.data.status === "input_required" && !isObject(inputRequests)) {
    throw invalid({ taskId }, "The task waits for input, but asks for none.");
  }
  const pollHint = hintOf(value);
  const { _meta } = rest;
  const task = {
    ...parsed.data,
    ...withHint(pollHint),
    ...(isObject(inputRequests) ? { inputRequests } : {}),
    ...(isObject(_meta) ? { _meta } : {}),
  };
  return { task: task as DetailedTask, pollHint };
}

/** Whether an outstanding request is of a kind and form that we know. */
export const isKnownRequest = (request: unknown): boolean => InputRequestV2Schema.safeParse(request).success;

/** The result that a finished task carries, as the call would have returned it. Throws `INVALID_RESPONSE`. */
export function readResult(value: Readonly<Record<string, unknown>>, taskId: string): CallToolResult {
  const { resultType = "complete", ...result } = value;
  if (resultType !== "complete" || !isCallToolResult(result)) {
    throw invalid({ taskId }, "The task completed, but not with a tool's result.");
  }
  return result;
}
