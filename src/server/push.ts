import { randomBytes } from "node:crypto";
import type { AuthInfo, JSONRPCMessage } from "@modelcontextprotocol/server";
import type { Engine } from "../engine/engine.ts";
import type { TaskError } from "../errors.ts";
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
  /** Takes a response to a request of ours, in whatever process it was made. False: it is to none. */
  take(message: JSONRPCMessage, auth: AuthInfo | undefined): boolean;
  /** Sends one request and waits for its response; null is an error. Rejects with the signal's reason. */
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

/**
 * A request's id says which question of which task it puts, so that the response may come to any process that has the
 * store. The process that asked comes first, for it can ask again.
 */
export function createPushes({ engine, owner, onError }: PushParts): Pushes {
  const waiting = new Map<
    string,
    { readonly owner: string; readonly resolve: (given: InputResponse | null) => void }
  >();

  return {
    take(message, auth) {
      if ("method" in message) return false;
      const to = readId(message.id);
      if (to === null) return false;
      const who = owner(auth);
      const given = "result" in message ? (message.result as InputResponse) : null;
      const here = waiting.get(message.id as string);
      if (here !== undefined && here.owner === who) here.resolve(given);
      else if (given !== null && to.task !== null)
        engine.answer(to.task, who, single(to.key, given)).catch((thrown: unknown) => answerTo(thrown, onError));
      return true;
    },

    async ask(send, { owner: who, task, key, request, about }, signal) {
      signal.throwIfAborted();
      const id = newId(task, key);
      const { promise, resolve, reject } = Promise.withResolvers<InputResponse | null>();
      const left = () => {
        // Who is gone doesn't hear it.
        send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: id } }).catch(() => {});
        reject(signal.reason as Error);
      };
      waiting.set(id, { owner: who, resolve });
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
  return { ...params, ...page, ...(about === null ? {} : { _meta: related(about) }) };
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

/** `Object.fromEntries` defines its property, so that even a key named `__proto__` is an ordinary one. */
export function single(key: string, given: InputResponse): Readonly<Record<string, InputResponse>> {
  return Object.fromEntries([[key, given]]);
}
