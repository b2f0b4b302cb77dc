import { randomUUID } from "node:crypto";
import { TaskError } from "../errors.ts";

/** Where a `tools/call` says, in its `_meta`, which call it is: made again with the same key, it starts nothing new. */
export const idempotencyKey = "io.github.mcp-tasks/idempotencyKey";

/** Under this name a server says, in `capabilities.extensions`, which of its tools heed such keys. */
export const idempotencyExtension = "io.github.mcp-tasks/idempotency";

/** Visible ASCII. Long enough that nobody guesses one: where nobody is authenticated, a key is all that tells callers apart. */
const form = /^[\x21-\x7e]{22,128}$/;

/** A key that nobody else has. */
export const newIdempotencyKey = (): string => randomUUID();

/** The key in a request's `_meta`, or undefined where there is none. Throws `INVALID_PARAMS` for what can't be one. */
export function readIdempotencyKey(meta: unknown): string | undefined {
  const key = (meta as Readonly<Record<string, unknown>> | null | undefined)?.[idempotencyKey];
  if (key === undefined) return undefined;
  if (typeof key === "string" && form.test(key)) return key;
  throw new TaskError("INVALID_PARAMS", { detail: `${idempotencyKey} has 22 to 128 characters of visible ASCII.` });
}

/** What a server tells of itself: the tools of which a call may be made again. */
export const idempotentTools = (tools: readonly { readonly name: string }[]) => ({
  tools: [...new Set(tools.map(({ name }) => name))],
});

/** Whether a server's capabilities say that this tool heeds keys. */
export function heedsKeys(extensions: Readonly<Record<string, unknown>> | undefined, tool: string): boolean {
  const { tools } = (extensions?.[idempotencyExtension] ?? {}) as { tools?: unknown };
  return Array.isArray(tools) && tools.includes(tool);
}
