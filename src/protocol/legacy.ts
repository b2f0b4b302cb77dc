import { isObject } from "./json.ts";
import type { DetailedTask, WireTask } from "./wire.ts";

/** The protocol whose core has tasks. */
export const legacyProtocol = "2025-11-25";

/** Names the task that a message is about (2025-11-25, "Tasks", "Related Task Metadata"). */
export const relatedTaskKey = "io.modelcontextprotocol/related-task";

/** A task as protocol 2025-11-25 has it ("Tasks", "Task"). Times are ISO 8601, lengths milliseconds. */
export interface LegacyTask {
  readonly _meta?: Readonly<Record<string, unknown>>;
  readonly taskId: string;
  readonly status: DetailedTask["status"];
  readonly statusMessage?: string;
  readonly createdAt: string;
  readonly lastUpdatedAt: string;
  readonly ttl: number | null;
  readonly pollInterval?: number;
}

const longestMessage = 200;

/** The `_meta` of a message about a task. */
export function related(taskId: string): Readonly<Record<string, unknown>> {
  return { [relatedTaskKey]: { taskId } };
}

/** A task in its older form. There, a tool's error is a task that failed ("Task Execution Errors"). */
export function legacyTask(task: WireTask | DetailedTask): LegacyTask {
  const { taskId, createdAt, lastUpdatedAt, ttlMs, pollIntervalMs } = task;
  const result = "result" in task ? task.result : {};
  const failed = result.isError === true;
  const statusMessage = task.statusMessage ?? (failed ? said(result) : undefined);
  const about = "_meta" in task && task._meta !== undefined ? { _meta: task._meta } : {};
  return {
    taskId,
    status: failed ? "failed" : task.status,
    ...(statusMessage === undefined ? {} : { statusMessage }),
    createdAt,
    lastUpdatedAt,
    ttl: ttlMs,
    ...(pollIntervalMs === undefined ? {} : { pollInterval: pollIntervalMs }),
    ...about,
  };
}

/**
 * A tool's result in its older form, where structured content is always an object (2025-11-25, "Tools", "Structured
 * Content"). What is none is wrapped as `{ result }`, as the SDK does it, and so is everything of a tool whose output
 * schema is of something else: it is listed in the same wrapping.
 */
export function legacyResult<R extends { readonly structuredContent?: unknown }>(result: R, wrapped: boolean): R {
  const { structuredContent: value } = result;
  if (value === undefined) return result;
  return isObject(value) && !wrapped ? result : { ...result, structuredContent: { result: value } };
}

/** The first words of a tool's error. */
function said({ content }: Readonly<Record<string, unknown>>): string | undefined {
  const first = (Array.isArray(content) ? content[0] : undefined) as { text?: unknown } | undefined;
  return typeof first?.text === "string" ? first.text.slice(0, longestMessage).toWellFormed() : undefined;
}
