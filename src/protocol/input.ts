import { z } from "zod";
import type { ClientCapabilities } from "./capabilities.ts";

/** One request that a server makes of a client while a task runs (multi-round-trip requests, 2026-07-28). */
export interface InputRequest {
  readonly method: "elicitation/create" | "sampling/createMessage" | "roots/list";
  readonly params?: Readonly<Record<string, unknown>>;
}

/** Outstanding requests by key. A key names one request in the whole life of a task. */
export type InputRequests = Readonly<Record<string, InputRequest>>;

/** A client's answer to one request: an elicitation result, a sampling result or a list of roots. */
export type InputResponse = Readonly<Record<string, unknown>>;

/** The capabilities object that a client would have to declare to get this request, or null if it may get it. */
export function missingFor(request: InputRequest, client: ClientCapabilities): Record<string, unknown> | null {
  switch (request.method) {
    case "elicitation/create": {
      const mode = request.params?.mode === "url" ? "url" : "form";
      return client.elicitation[mode] ? null : { elicitation: { [mode]: {} } };
    }
    case "sampling/createMessage":
      if (!client.sampling.basic) return { sampling: {} };
      return client.sampling.tools || !usesTools(request) ? null : { sampling: { tools: {} } };
    case "roots/list":
      return client.roots ? null : { roots: {} };
  }
}

const usesTools = ({ params }: InputRequest) => params?.tools !== undefined || params?.toolChoice !== undefined;

/** Those of these requests that a client may be sent. */
export function fitFor(client: ClientCapabilities, requests: InputRequests): InputRequests {
  return Object.fromEntries(Object.entries(requests).filter(([, request]) => missingFor(request, client) === null));
}

const fields = z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.array(z.string())]));
// As a whole: what is wrong with a field would be told under its name, which is the caller's.
const formContent = z.custom(
  (value) => fields.safeParse(value).success,
  "Holds only text, numbers, booleans, lists of text",
);
const elicitResult = z.looseObject({
  action: z.enum(["accept", "decline", "cancel"]),
  content: formContent.optional(),
});
const samplingResult = z.looseObject({
  role: z.enum(["user", "assistant"]),
  content: z.union([z.looseObject({ type: z.string() }), z.array(z.looseObject({ type: z.string() }))]),
  model: z.string(),
});
const rootsResult = z.looseObject({ roots: z.array(z.looseObject({ uri: z.string() })) });

/** The first complaint of a schema about a value, or null. Says where, and never what the value was. */
function complaint(schema: z.ZodType, value: unknown, at: string): string | null {
  const parsed = schema.safeParse(value);
  if (parsed.success) return null;
  const [issue] = parsed.error.issues;
  return `${[at, ...(issue?.path ?? [])].join(".")}: ${issue?.message ?? "is not valid"}`;
}

/** Far from what any part of the stack bears that walks a value by recursion: writing, sorting, checking. */
const mostLevels = 1_000;

/** Whether JSON that was read can be worked with: reading knows no depth, and everything after it does. */
export function isShallow(json: unknown, levels = mostLevels): boolean {
  if (typeof json !== "object" || json === null) return true;
  if (levels === 0) return false;
  for (const part of Array.isArray(json) ? json : Object.values(json)) if (!isShallow(part, levels - 1)) return false;
  return true;
}

/**
 * Why a response doesn't fit its request, in words for whoever answered, or null if it does (core specification,
 * "Elicitation", "Sampling", "Roots"). Content is checked against the requested schema, and only goes with `accept`.
 */
export function unfit(request: InputRequest, response: unknown): string | null {
  if (!isShallow(response)) return "result: is nested too deeply";
  if (request.method === "sampling/createMessage") return complaint(samplingResult, response, "result");
  if (request.method === "roots/list") return complaint(rootsResult, response, "result");
  const shape = complaint(elicitResult, response, "result");
  if (shape !== null) return shape;
  const { action, content } = response as z.infer<typeof elicitResult>;
  if (action !== "accept") return content === undefined ? null : "result.content: goes only with the action accept";
  if (request.params?.mode === "url") return content === undefined ? null : "result.content: a URL takes none";
  const schema = request.params?.requestedSchema as z.core.JSONSchema.JSONSchema;
  if (content === undefined && (schema.required?.length ?? 0) > 0) return "result.content: is missing";
  return complaint(z.fromJSONSchema(schema), content ?? {}, "content");
}
