import type { AuthInfo } from "@modelcontextprotocol/server";
import type { DirectCalls } from "./direct.ts";
import type { Fast, FastAnswer } from "./fast.ts";
import type { PlainCall, PlainTaskRequest } from "./plain.ts";

/**
 * Answers a plain request, wherever it was read: whatever asks about a task without the SDK, and calls by its shortest
 * way. `request` is made for those that take one. Undefined: the SDK is to answer, by the way of all other requests.
 */
export type PlainAnswers = (
  plain: PlainTaskRequest | PlainCall,
  request: () => Request,
  auth: AuthInfo | undefined,
) => Promise<FastAnswer | Response | undefined>;

export function plainAnswers(fast: Fast, direct: DirectCalls): PlainAnswers {
  return async (plain, request, auth) =>
    plain.kind === "call" ? direct.answer(plain, request(), auth) : fast.answer(plain, auth);
}
