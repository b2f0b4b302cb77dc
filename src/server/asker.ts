import type { ClientCapabilities } from "../protocol/capabilities.ts";
import { fitFor, unfit, type InputRequest, type InputRequests, type InputResponse } from "../protocol/input.ts";
import type { Task } from "../store/store.ts";
import { again } from "./before.ts";
import type { Pushes, Send } from "./push.ts";

/** Puts the questions of one task to one client. */
export interface Asker {
  /** Takes the task as it is now: asks what is new, and takes back what has been answered elsewhere. */
  see(task: Task): void;
  /** Aborts when what is still open can't be answered by this client. */
  readonly stuck: AbortSignal;
  /** Takes back all that is still asked. */
  stop(): void;
}

/** How a task's questions reach a client. */
export interface AskerOptions {
  readonly send: Send;
  readonly client: ClientCapabilities;
  /** Whether the client knows the task: its questions then name it. */
  readonly known: boolean;
}

/** So often a question is asked whose answers don't fit. */
const mostRounds = 3;

/** An asker of this client. What it answers goes to the task; what it can't give stays open for others. */
export function createAsker(pushes: Pushes, { send, client, known }: AskerOptions): Asker {
  const asked = new Map<string, AbortController>();
  const stuck = new AbortController();
  const refused = new Set<string>();
  let open: readonly string[] = [];

  function check(): void {
    if (open.length > 0 && open.every((key) => refused.has(key))) stuck.abort();
  }

  async function put({ id, owner }: Task, key: string, request: InputRequest, signal: AbortSignal): Promise<void> {
    let form = request;
    for (let round = 0; round < mostRounds; round++) {
      const question = { owner, task: id, key, request: form, about: known ? id : null };
      const given = await pushes.ask(send, question, signal);
      if (given === null) break;
      if (unfit(request, given) === null) return;
      form = again(request, given);
    }
    refused.add(key);
    check();
  }

  function start(task: Task, key: string, request: InputRequest): void {
    const controller = new AbortController();
    asked.set(key, controller);
    put(task, key, request, controller.signal).catch(() => {
      // What was answered could not be kept, so it is asked again at the next look, which takes a store that works.
      if (!controller.signal.aborted) asked.delete(key);
    });
  }

  return {
    see(task) {
      open = Object.keys(task.inputRequests);
      const fit = fitFor(client, task.inputRequests);
      for (const [key, controller] of asked) if (!Object.hasOwn(task.inputRequests, key)) controller.abort();
      for (const key of open) if (!Object.hasOwn(fit, key)) refused.add(key);
      for (const [key, request] of Object.entries(fit)) if (!asked.has(key)) start(task, key, request);
      check();
    },
    stuck: stuck.signal,
    stop() {
      for (const controller of asked.values()) controller.abort();
    },
  };
}

/** Whom questions before a task are put to. */
export interface AskOptions {
  readonly send: Send;
  readonly owner: string;
  /** Takes the questions back. */
  readonly signal: AbortSignal;
  /** Does the same, when the server stops. */
  readonly stop: AbortSignal;
}

/** Asks a client all of these at once; null when it answers one of them with an error. */
export async function askAll(
  pushes: Pushes,
  requests: InputRequests,
  { send, owner, signal, stop }: AskOptions,
): Promise<Readonly<Record<string, InputResponse>> | null> {
  const failed = new AbortController();
  const any = AbortSignal.any([signal, stop, failed.signal]);
  const asked = Object.entries(requests).map(async ([key, request]) => {
    const given = await pushes.ask(send, { owner, task: null, key, request, about: null }, any);
    if (given === null) failed.abort();
    return [key, given] as const;
  });
  const settled = await Promise.allSettled(asked);
  signal.throwIfAborted();
  stop.throwIfAborted();
  const answers: Record<string, InputResponse> = {};
  for (const one of settled) {
    if (one.status === "rejected" || one.value[1] === null) return null;
    const [key, given] = one.value;
    answers[key] = given;
  }
  return answers;
}
