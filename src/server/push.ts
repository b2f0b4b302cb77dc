import { randomBytes } from "node:crypto";
import type { AuthInfo, JSONRPCMessage } from "@modelcontextprotocol/server";
import type { Engine } from "../engine/engine.ts";
import type { TaskError } from "../errors.ts";
import type { ClientCapabilities } from "../protocol/capabilities.ts";
import { fitFor, unfit, type InputRequest, type InputRequests, type InputResponse } from "../protocol/input.ts";
import { related } from "../protocol/legacy.ts";
import type { Task } from "../store/store.ts";
import { again } from "./before.ts";
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

/** Puts the questions of one task to one client. */
export interface Asker {
  /** Takes the task as it is now: asks what is new, and takes back what has been answered elsewhere. */
  see(task: Task): void;
  /** Aborts when what is still open can't be answered by this client. */
  readonly stuck: AbortSignal;
  /** Takes back all that is still asked. */
  stop(): void;
}

/** So often an answer that doesn't fit is asked for again. */
const rounds = 3;

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

/** Asks a client all of these at once; null when it answers one of them with an error. */
export async function askAll(
  pushes: Pushes,
  send: Send,
  owner: string,
  requests: InputRequests,
  signal: AbortSignal,
): Promise<Readonly<Record<string, InputResponse>> | null> {
  const failed = new AbortController();
  const any = AbortSignal.any([signal, failed.signal]);
  const asked = Object.entries(requests).map(async ([key, request]) => {
    const given = await pushes.ask(send, { owner, task: null, key, request, about: null }, any);
    if (given === null) failed.abort();
    return [key, given] as const;
  });
  const settled = await Promise.allSettled(asked);
  signal.throwIfAborted();
  const answers = settled.flatMap((one) =>
    one.status === "fulfilled" && one.value[1] !== null ? [[one.value[0], one.value[1]] as const] : [],
  );
  return answers.length === settled.length ? Object.fromEntries(answers) : null;
}

/** How a task's questions reach a client. */
export interface AskerOptions {
  readonly send: Send;
  readonly client: ClientCapabilities;
  /** Whether the client knows the task: its questions then name it. */
  readonly known: boolean;
}

/** An asker of this client. What it answers goes to the task; what it can't give stays open for others. */
export function createAsker(parts: PushParts, pushes: Pushes, { send, client, known }: AskerOptions): Asker {
  const asked = new Map<string, AbortController>();
  const stuck = new AbortController();
  const refused = new Set<string>();
  let open: readonly string[] = [];

  function refuse(key: string): void {
    refused.add(key);
    check();
  }

  function check(): void {
    if (open.length > 0 && open.every((key) => refused.has(key))) stuck.abort();
  }

  async function put(task: Task, key: string, request: InputRequest, signal: AbortSignal): Promise<void> {
    const { id, owner } = task;
    let form = request;
    for (let round = 0; round < rounds; round++) {
      const question = { owner, task: id, key, request: form, about: known ? id : null };
      const given = await pushes.ask(send, question, signal);
      if (given === null) break;
      if (unfit(request, given) === null) return await parts.engine.answer(id, owner, single(key, given));
      form = again(request, given);
    }
    refuse(key);
  }

  return {
    see({ inputRequests, ...task }) {
      for (const [key, controller] of asked) if (!Object.hasOwn(inputRequests, key)) controller.abort();
      const fit = fitFor(client, inputRequests);
      open = Object.keys(inputRequests);
      for (const key of open) if (!Object.hasOwn(fit, key)) refused.add(key);
      for (const [key, request] of Object.entries(fit)) {
        if (asked.has(key)) continue;
        const controller = new AbortController();
        asked.set(key, controller);
        put({ ...task, inputRequests }, key, request, controller.signal).catch((thrown: unknown) => {
          if (controller.signal.aborted) return;
          answerTo(thrown, parts.onError);
          refuse(key);
        });
      }
      check();
    },
    stuck: stuck.signal,
    stop() {
      for (const controller of asked.values()) controller.abort();
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
function single(key: string, given: InputResponse): Readonly<Record<string, InputResponse>> {
  return Object.fromEntries([[key, given]]);
}
