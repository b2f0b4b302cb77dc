import type {
  CreateMessageRequestParams,
  CreateMessageResult,
  ElicitRequestFormParams,
  ElicitRequestURLParams,
  ElicitResult,
  ListRootsResult,
} from "@modelcontextprotocol/client";
import { TaskError } from "../errors.ts";
import { type InputRequest, type InputResponse, unfit } from "../protocol/input.ts";
import { isKnownRequest } from "./replies.ts";

/** What a handler learns beside the request itself. */
export interface InputContext {
  /** Names the request in the life of its task, or of its call. */
  readonly key: string;
  /** Undefined while the call is not a task yet, or never becomes one. */
  readonly taskId: string | undefined;
  /** Fires when the answer is no longer wanted: the task ended, somebody else answered, or the tool waits no longer. */
  readonly signal: AbortSignal;
}

type MaybePromise<T> = T | Promise<T>;
/** What a handler gives; undefined leaves a task's question open, for later or for somebody else. */
type Given<T> = MaybePromise<T | undefined>;

/**
 * Who answers what a tool asks. Each handler is to treat its request as it would a direct one: a task is no reason
 * for more trust (Tasks extension, "Security Considerations"). Only kinds that have a handler are declared. Declining is
 * an answer like any other; a handler that returns undefined leaves the question of a task open, as if there were none.
 */
export interface InputHandlers {
  /** Shows a form. A handler that throws answers `{ action: "cancel" }`. */
  readonly elicit?: (request: ElicitRequestFormParams, context: InputContext) => Given<ElicitResult>;
  /** Sends the person to a URL. A handler that throws answers `{ action: "cancel" }`. */
  readonly visit?: (request: ElicitRequestURLParams, context: InputContext) => Given<ElicitResult>;
  /** Asks the model. A handler that throws ends the waiting with `INPUT_FAILED`. */
  readonly sample?: (request: CreateMessageRequestParams, context: InputContext) => Given<CreateMessageResult>;
  /** Lists the roots. A handler that throws ends the waiting with `INPUT_FAILED`. */
  readonly roots?: (context: InputContext) => Given<ListRootsResult>;
}

/** The capabilities that these handlers amount to. */
export function capabilitiesOf(input: InputHandlers) {
  const elicitation = { ...(input.elicit && { form: {} }), ...(input.visit && { url: {} }) };
  return {
    ...((input.elicit || input.visit) && { elicitation }),
    ...(input.sample && { sampling: {} }),
    ...(input.roots && { roots: {} }),
  };
}

type Ask = (context: InputContext) => MaybePromise<unknown>;

/** The handler for a request, bound to it, or undefined if there is none for its kind. */
export function askerFor(input: InputHandlers, request: InputRequest): Ask | undefined {
  if (!isKnownRequest(request)) return undefined;
  const { elicit, visit, sample, roots } = input;
  switch (request.method) {
    case "elicitation/create":
      if (request.params?.mode === "url") {
        return visit && ((context) => visit(request.params as unknown as ElicitRequestURLParams, context));
      }
      return elicit && ((context) => elicit(request.params as unknown as ElicitRequestFormParams, context));
    case "sampling/createMessage":
      return sample && ((context) => sample(request.params as unknown as CreateMessageRequestParams, context));
    case "roots/list":
      return roots && ((context) => roots(context));
  }
}

/**
 * Has a request answered, or left open (undefined). A form or URL whose handler throws is answered as closed without an answer, and `onError`
 * hears of it; any other failing handler, and an answer that doesn't fit its request, is `INPUT_FAILED`.
 */
export async function ask(
  asker: Ask,
  request: InputRequest,
  context: InputContext,
  onError: (error: unknown) => void,
): Promise<InputResponse | undefined> {
  const { key, taskId } = context;
  let answer: unknown;
  try {
    answer = await asker(context);
  } catch (cause) {
    if (request.method !== "elicitation/create") {
      throw new TaskError("INPUT_FAILED", { detail: "Its handler failed.", data: { taskId, key }, cause });
    }
    onError(cause);
    return { action: "cancel" };
  }
  if (answer === undefined) return undefined;
  const complaint = unfit(request, answer);
  if (complaint !== null) throw new TaskError("INPUT_FAILED", { detail: `${complaint}.`, data: { taskId, key } });
  return answer as InputResponse;
}
