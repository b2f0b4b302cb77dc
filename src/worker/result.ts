import { CallToolResultV2Schema } from "@modelcontextprotocol/ext-tasks/core/v2";
import { ProtocolError } from "@modelcontextprotocol/server";
import { codes, TaskError, type RpcError } from "../errors.ts";
import { isObject } from "../protocol/json.ts";
import type { Outcome } from "../store/store.ts";
import type { TaskTool } from "../tool.ts";

/** A tool error: the call worked, what it did failed (core specification, "Error Handling" of tools). */
export function toolError(text: string): Outcome {
  const result = { resultType: "complete", content: [{ type: "text", text: text.toWellFormed() }], isError: true };
  return { status: "completed", result: JSON.stringify(result) };
}

/** The end of a task by a JSON-RPC error. */
export function failed({ code, message, data }: RpcError): Outcome {
  const error = data === undefined ? { code, message } : { code, message, data };
  return { status: "failed", error: serialize(error) ?? JSON.stringify({ code, message }), statusMessage: message };
}

/** JSON text, or null for what JSON can't hold. */
export function serialize(value: unknown): string | null {
  try {
    return JSON.stringify(value) ?? null;
  } catch {
    return null;
  }
}

/**
 * How a task ends whose handler returned `value`: what the call would have been answered with, checked as it will be
 * read by others. What is no tool result fails the task; what doesn't fit the output schema is a tool error, as the
 * SDK has it for every tool. Never rejects: a value may throw at whoever reads it, and so may a schema.
 */
export async function outcomeOfReturn(tool: TaskTool, value: unknown): Promise<Outcome> {
  try {
    return await checked(tool, value);
  } catch {
    return failed(new TaskError("INVALID_RESULT").toRpc());
  }
}

async function checked(tool: TaskTool, value: unknown): Promise<Outcome> {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return failed(new TaskError("INVALID_RESULT").toRpc());
  const text = serialize(withContent({ ...value, resultType: "complete" }));
  if (text === null) return failed(new TaskError("RESULT_NOT_JSON").toRpc());
  const result: unknown = JSON.parse(text);
  if (!CallToolResultV2Schema.safeParse(result).success) return failed(new TaskError("INVALID_RESULT").toRpc());
  const { structuredContent, isError } = result as { structuredContent?: unknown; isError?: boolean };
  if (tool.outputSchema !== undefined && isError !== true) {
    const misfit = await outputMisfit(tool, structuredContent);
    if (misfit !== null) return toolError(`Output validation error: ${misfit}`);
  }
  return { status: "completed", result: text };
}

/**
 * Structured content without any other also goes out as text, for clients that read nothing else. What is no object does
 * so wherever no text says anything, as the SDK has it for every tool: many clients can't read it at all.
 */
function withContent(result: Record<string, unknown>): Record<string, unknown> {
  const { content = [], structuredContent: value } = result;
  if (value === undefined || !Array.isArray(content)) return result;
  const says = isObject(value) ? result.content !== undefined : content.some((block: unknown) => isText(block));
  return says
    ? result
    : { ...result, content: [...(content as unknown[]), { type: "text", text: serialize(value) ?? "" }] };
}

function isText(block: unknown): boolean {
  return isObject(block) && block.type === "text";
}

async function outputMisfit(tool: TaskTool, structuredContent: unknown): Promise<string | null> {
  if (structuredContent === undefined)
    return `Tool ${tool.name} has an output schema but no structured content was provided`;
  const parsed = await tool.outputSchema?.safeParseAsync(structuredContent);
  if (parsed === undefined || parsed.success) return null;
  const [issue] = parsed.error.issues;
  return `Invalid structured content for tool ${tool.name}: ${[...(issue?.path ?? [])].join(".")}: ${issue?.message ?? ""}`;
}

/** How a task ends whose handler threw: a `ProtocolError` fails it, anything else is a tool error. */
export function outcomeOfThrow(thrown: unknown): Outcome {
  if (thrown instanceof ProtocolError) {
    // Types are no proof: a code that JSON-RPC doesn't know would make the whole task unreadable for its client.
    const code = Number.isSafeInteger(thrown.code) ? thrown.code : codes.INTERNAL.rpc;
    return failed({ code, message: thrown.message, data: thrown.data });
  }
  if (thrown instanceof TaskError && thrown.code === "INPUT_UNSUPPORTED") return failed(thrown.toRpc());
  return toolError(messageOf(thrown));
}

/** Whether trying again can help: not after a JSON-RPC error or a person's no, which the handler let through. */
export function isToolError(thrown: unknown): boolean {
  if (thrown instanceof TaskError) return thrown.code === "STEP_TIMED_OUT";
  return !(thrown instanceof ProtocolError);
}

/** What a thrown value says, whatever it is. */
export function messageOf(thrown: unknown): string {
  try {
    const text = thrown instanceof Error ? thrown.message : typeof thrown === "string" ? thrown : "";
    return text === "" ? "The tool failed without saying why." : text;
  } catch {
    return "The tool failed without saying why.";
  }
}
