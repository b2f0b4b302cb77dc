import type { z } from "zod";
import { formSchema } from "../protocol/form.ts";
import { unfit, type InputRequest, type InputRequests } from "../protocol/input.ts";
import type { TaskTool } from "../tool.ts";

/** A question that a tool asks on the call itself. */
interface Question {
  readonly key: string;
  /** Its key on the wire. The prefix keeps this phase apart from the keys of the task that follows. */
  readonly wireKey: string;
  readonly request: InputRequest;
  readonly schema: z.ZodObject;
}

/** Where a call stands: all answered, some still to ask, or refused by whoever was asked. */
export type Gathered =
  | { readonly kind: "answered"; readonly answers: Readonly<Record<string, unknown>> }
  | { readonly kind: "asking"; readonly requests: InputRequests; readonly state: string }
  | { readonly kind: "refused"; readonly code: "DECLINED" | "INPUT_CANCELLED" };

const known = new WeakMap<TaskTool, readonly Question[]>();

/** The questions of a tool. Throws `MISUSE` for one that no form can ask. */
export function questionsOf(tool: TaskTool): readonly Question[] {
  const found = known.get(tool);
  if (found !== undefined) return found;
  const questions = Object.entries(tool.before).map(([key, { message, schema }]) => ({
    key,
    wireKey: `before:${key}`,
    request: {
      method: "elicitation/create" as const,
      params: { mode: "form", message, requestedSchema: formSchema(schema) },
    },
    schema,
  }));
  known.set(tool, questions);
  return questions;
}

/**
 * Takes what a call brought for the questions before it (core specification, "Multi Round-Trip Requests"). Answers of
 * earlier rounds come back in `state`, which the client could have changed: they are checked like any other.
 */
export async function gather(
  questions: readonly Question[],
  responses: Readonly<Record<string, unknown>>,
  state: unknown,
): Promise<Gathered> {
  const earlier = readState(state);
  const answers: Record<string, unknown> = {};
  const kept: Record<string, unknown> = {};
  const requests: Record<string, InputRequest> = {};
  for (const question of questions) {
    const { key, wireKey, request, schema } = question;
    const response = Object.hasOwn(responses, wireKey)
      ? responses[wireKey]
      : Object.hasOwn(earlier, key)
        ? earlier[key]
        : undefined;
    if (response === undefined) {
      requests[wireKey] = request;
      continue;
    }
    const complaint = unfit(request, response);
    if (complaint !== null) {
      requests[wireKey] = again(request, complaint);
      continue;
    }
    const { action, content } = response as { action: string; content: unknown };
    if (action !== "accept") return { kind: "refused", code: action === "decline" ? "DECLINED" : "INPUT_CANCELLED" };
    const parsed = await schema.safeParseAsync(content);
    if (!parsed.success) {
      requests[wireKey] = again(request, parsed.error.issues[0]?.message ?? "The last answer was not valid");
      continue;
    }
    answers[key] = parsed.data;
    kept[key] = { action, content };
  }
  return Object.keys(requests).length === 0
    ? { kind: "answered", answers }
    : { kind: "asking", requests, state: JSON.stringify(kept) };
}

/** The same question once more, with what was wrong about the last answer. */
function again(request: InputRequest, complaint: string): InputRequest {
  return { ...request, params: { ...request.params, message: `${String(request.params?.message)} (${complaint})` } };
}

function readState(state: unknown): Readonly<Record<string, unknown>> {
  if (typeof state !== "string") return {};
  try {
    const read: unknown = JSON.parse(state);
    return typeof read === "object" && read !== null && !Array.isArray(read) ? (read as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
