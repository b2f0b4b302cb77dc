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
  | {
      readonly kind: "asking";
      readonly requests: InputRequests;
      /** The answers that were taken, for the next round. */
      readonly kept: Readonly<Record<string, unknown>>;
    }
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
 * earlier rounds are checked like any other: the tool may have another version by now.
 */
export async function gather(
  questions: readonly Question[],
  responses: Readonly<Record<string, unknown>>,
  earlier: Readonly<Record<string, unknown>>,
): Promise<Gathered> {
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
    if (unfit(request, response) !== null) {
      requests[wireKey] = again(request, response);
      continue;
    }
    const { action, content } = response as { action: string; content: unknown };
    if (action !== "accept") return { kind: "refused", code: action === "decline" ? "DECLINED" : "INPUT_CANCELLED" };
    const parsed = await schema.safeParseAsync(content);
    if (!parsed.success) {
      requests[wireKey] = remark(request, parsed.error.issues[0]?.message ?? "The last answer was not valid");
      continue;
    }
    answers[key] = parsed.data;
    kept[key] = { action, content };
  }
  return Object.keys(requests).length === 0 ? { kind: "answered", answers } : { kind: "asking", requests, kept };
}

/** So often a client is asked at most: one that answers by itself might never learn. */
const mostRounds = 8;

/** Asks by requests of our own, in protocols whose calls don't come again with the answers. `ask`: null is an error. */
export async function gatherByAsking(
  questions: readonly Question[],
  ask: (requests: InputRequests) => Promise<Readonly<Record<string, unknown>> | null>,
): Promise<Exclude<Gathered, { kind: "asking" }>> {
  let gathered = await gather(questions, {}, {});
  for (let round = 0; gathered.kind === "asking" && round < mostRounds; round++) {
    const responses = await ask(gathered.requests);
    if (responses === null) break;
    gathered = await gather(questions, responses, gathered.kept);
  }
  return gathered.kind === "asking" ? { kind: "refused", code: "INPUT_CANCELLED" } : gathered;
}

/** The same question once more, with what was wrong about this answer. */
export function again(request: InputRequest, response: unknown): InputRequest {
  const complaint = unfit(request, response);
  return complaint === null ? request : remark(request, complaint);
}

function remark(request: InputRequest, complaint: string): InputRequest {
  // Only a question has words for a person.
  if (request.method !== "elicitation/create") return request;
  return { ...request, params: { ...request.params, message: `${String(request.params?.message)} (${complaint})` } };
}
