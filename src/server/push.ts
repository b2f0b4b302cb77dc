import { randomBytes } from "node:crypto";
import type { AuthInfo, JSONRPCMessage } from "@modelcontextprotocol/server";
import type { Engine } from "../engine/engine.ts";
import { asTaskError, codes, TaskError } from "../errors.ts";
import type { InputRequest, InputResponse } from "../protocol/input.ts";
import { related } from "../protocol/legacy.ts";
import { answerTo } from "./methods.ts";

/** What asking clients takes. */
export interface PushParts {
  readonly engine: Engine;
  readonly owner: (auth: AuthInfo | undefined) => string;
  readonly onError: (error: TaskError) => void;
}

/** Sends a message to a client, on the stream of a call that it has open. */
export type Send = (message: JSONRPCMessage) => Promise<void>;

/** The requests that are sent to clients of older protocols, which ask for nothing by themselves. */
export interface Pushes {
  /**
   * Takes a response to a request of ours, in whatever process it was made; undefined: it is to none. Resolves when the
   * task has it, or when it is clear that no task will; rejects when the store failed, and the question is still open.
   */
  take(message: JSONRPCMessage, auth: AuthInfo | undefined): Promise<void> | undefined;
  /**
   * Sends one request and waits for its response, which the task has by then if it fits; null is an error. Rejects with
   * the signal's reason, and when the response could not be kept.
   */
  ask(send: Send, question: Question, signal: AbortSignal): Promise<InputResponse | null>;
}

/** What is asked, and for whom. */
export interface Question {
  readonly owner: string;
  /** The task that waits for it, or null for a question before the task. */
  readonly task: string | null;
  readonly key: string;
  readonly request: InputRequest;
  /** The task that the client is told of: one that it knows. */
  readonly about: string | null;
}

/** A request that is not answered yet. */
interface Asked {
  readonly owner: string;
  readonly resolve: (given: InputResponse | null) => void;
  readonly reject: (error: unknown) => void;
}

/** A question before a task has no other place than the call that asked it. */
async function heard(here: Asked | undefined): Promise<void> {
  if (here === undefined) throw new TaskError("INVALID_PARAMS", { detail: "Nobody here waits for this response." });
}

/**
 * A request's id says which question of which task it puts, so that the response may come to any process that has the
 * store. The process that asked comes first, for it can ask again.
 */
export function createPushes({ engine, owner, onError }: PushParts): Pushes {
  const waiting = new Map<string, Asked>();

  /** What doesn't count is no failure: the task is another owner's, or gone. */
  async function keep(task: string, who: string, key: string, given: InputResponse): Promise<void> {
    try {
      // `fromEntries` defines its property, so that even a key named `__proto__` is an ordinary one.
      await engine.answer(task, who, Object.fromEntries([[key, given]]));
    } catch (thrown) {
      if (answerTo(thrown, onError).code === codes.INTERNAL.rpc) throw asTaskError(thrown);
    }
  }

  return {
    take(message, auth) {
      if ("method" in message) return undefined;
      const to = readId(message.id);
      if (to === null) return undefined;
      const who = owner(auth);
      const id = message.id as string;
      const given = "result" in message ? (message.result as InputResponse) : null;
      const here = waiting.get(id)?.owner === who ? waiting.get(id) : undefined;
      // From here on it is answered, and nothing to take back when the task goes on.
      if (here !== undefined) waiting.delete(id);
      const kept =
        to.task === null ? heard(here) : given === null ? Promise.resolve() : keep(to.task, who, to.key, given);
      kept.then(() => here?.resolve(given), here?.reject ?? (() => {}));
      return kept;
    },

    async ask(send, { owner: who, task, key, request, about }, signal) {
      signal.throwIfAborted();
      const id = newId(task, key);
      const { promise, resolve, reject } = Promise.withResolvers<InputResponse | null>();
      const left = () => {
        reject(signal.reason as Error);
        const params = { requestId: id, ...metaOf(about) };
        // Who is gone doesn't hear it.
        if (waiting.has(id)) send({ jsonrpc: "2.0", method: "notifications/cancelled", params }).catch(() => {});
      };
      waiting.set(id, { owner: who, resolve, reject });
      signal.addEventListener("abort", left, { once: true });
      try {
        await send({ jsonrpc: "2.0", id, method: request.method, params: paramsOf(request, id, about) });
        return await promise;
      } finally {
        signal.removeEventListener("abort", left);
        waiting.delete(id);
      }
    },
  };
}

/** In the form of older protocols, where a page to visit has an id of its own. */
function paramsOf({ params = {} }: InputRequest, id: string, about: string | null): Record<string, unknown> {
  const page = params.mode === "url" ? { elicitationId: id } : {};
  return { ...params, ...page, ...metaOf(about) };
}

function metaOf(about: string | null): { readonly _meta?: Readonly<Record<string, unknown>> } {
  return about === null ? {} : { _meta: related(about) };
}

const mark = "mcp-tasks:";

function newId(task: string | null, key: string): string {
  return mark + JSON.stringify([randomBytes(12).toString("base64url"), task, key]);
}

function readId(id: unknown): { readonly task: string | null; readonly key: string } | null {
  if (typeof id !== "string" || !id.startsWith(mark)) return null;
  try {
    const [, task, key] = JSON.parse(id.slice(mark.length)) as unknown[];
    return (typeof task === "string" || task === null) && typeof key === "string" ? { task, key } : null;
  } catch {
    return null;
  }
}
