import type { InputContext, InputHandlers } from "../client/index.ts";
import type { InputRequest, InputResponse } from "../protocol/input.ts";
import { type Ask, laterFor } from "./ask.ts";
import type { Respond } from "./source.ts";

/** Answers what a server asks: with what was prepared, or by whoever sits here. */
export interface Responder {
  readonly input: InputHandlers;
  /** Whether a question would find anybody. */
  attended(): boolean;
  /** Answers the question with this key. */
  prepare(key: string, response: InputResponse): void;
  /** Answers the next question of a task that has none. */
  next(give: Respond): NextAnswer;
  /** Resolves when a question that can't be left open has found nobody, since the input has ended: it still waits. */
  readonly unanswered: Promise<void>;
}

/** What becomes of the next question. */
export interface NextAnswer {
  readonly given: boolean;
  /** Rejects where what was to be given does not fit the question. */
  readonly misfit: Promise<never>;
}

const never = new Promise<never>(() => {});

/** `from` is the name of the server that asks. */
export function createResponder(ask: Ask | undefined, from: () => string): Responder {
  const prepared = new Map<string, InputResponse>();
  const unanswered = Promise.withResolvers<void>();
  let respond: Respond | undefined;

  async function put(request: InputRequest, { key, taskId, signal }: InputContext) {
    const later = taskId === undefined ? "stop" : laterFor(key);
    const asked = (await ask?.({ request, from: from(), signal, later })) ?? "open";
    if (asked === "ended" && key === "") {
      unanswered.resolve();
      return await never;
    }
    return typeof asked === "string" ? undefined : asked;
  }

  async function answer(request: InputRequest, context: InputContext) {
    const { key, taskId } = context;
    // A task's question without a key can't be left open; and to dismiss it is an answer, which only a person gives.
    if (taskId !== undefined && key === "") {
      if (respond !== undefined) return await respond(request);
      if (ask === undefined) return await never;
    }
    return prepared.get(key) ?? (await put(request, context));
  }
  const elicit = async (params: object, about: InputContext) =>
    (await answer({ method: "elicitation/create", params: { ...params } }, about)) as Awaited<
      ReturnType<NonNullable<InputHandlers["elicit"]>>
    >;

  return {
    // Declared in any case: somebody may answer later, or elsewhere.
    input: { elicit, visit: elicit },
    attended: () => ask !== undefined || respond !== undefined,
    unanswered: unanswered.promise,
    prepare: (key, response) => void prepared.set(key, response),
    next(give) {
      const misfit = Promise.withResolvers<never>();
      const next = { given: false, misfit: misfit.promise };
      respond = async (request) => {
        const response = await give(request).catch((error: unknown) => (misfit.reject(error), never));
        next.given = true;
        respond = undefined;
        return response;
      };
      return next;
    },
  };
}
