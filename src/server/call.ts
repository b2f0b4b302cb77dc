import { CLIENT_INFO_META_KEY, type AuthInfo, type CallToolResult } from "@modelcontextprotocol/server";
import { TaskError } from "../errors.ts";
import { capabilitiesKey, readCapabilities } from "../protocol/capabilities.ts";
import { readIdempotencyKey } from "../protocol/idempotency.ts";
import { legacyResult, legacyTask } from "../protocol/legacy.ts";
import { readTrace } from "../protocol/trace.ts";
import type { TaskTool } from "../tool.ts";
import { readHost, type HostInfo, type Limits } from "./hosts.ts";
import type { Incoming } from "./incoming.ts";
import { answerTo, type Caller, type Params } from "./methods.ts";
import type { Generation } from "./policy.ts";
import { progressTo } from "./progress.ts";
import { reply, type Call, type Reply, type ReplyParts, type Terms } from "./reply.ts";
import { isListedWrapped } from "./schemas.ts";
import type { Answer } from "./swap.ts";

/** What answering the calls of a server takes. */
export interface CallParts extends ReplyParts {
  readonly owner: (auth: AuthInfo | undefined) => string;
  readonly limits: (host: HostInfo | undefined) => Limits;
  readonly onError: (error: TaskError) => void;
  /** Names the connection, where that is one client's. */
  readonly connection: string;
  /** Aborts when the server stops. */
  readonly stop: AbortSignal;
}

/** Whoever makes a request of protocol 2026-07-28. */
export function callerOf({ owner }: Pick<CallParts, "owner">, { auth, params }: Incoming): Caller {
  return { owner: owner(auth), client: readCapabilities(envelopeOf(params)[capabilitiesKey]) };
}

function envelopeOf(params: Params): Params {
  return (params._meta as Params | undefined) ?? {};
}

/** The terms of a call in protocol 2026-07-28. */
export function currentTerms(parts: CallParts, tool: TaskTool, incoming: Incoming): Terms {
  const { owner, client } = callerOf(parts, incoming);
  const host = readHost(envelopeOf(incoming.params)[CLIENT_INFO_META_KEY]);
  const generation = client.tasks ? "declared" : "rounds";
  const { signal } = incoming;
  return { owner, client, tool, generation, limits: parts.limits(host), push: null, signal, leave() {} };
}

/** What a call brings that was made before (core specification, "Multi Round-Trip Requests"). */
export type Round = Pick<Call, "inputResponses" | "requestState">;

/** Answers a call of a tool. Null: whoever made it has left, and hears nothing. Never rejects. */
export function answerCall(
  parts: CallParts,
  incoming: Incoming,
  round: Round,
  terms: (incoming: Incoming) => Terms,
): Promise<Answer | null> {
  try {
    const { leave, ...circumstances } = terms(incoming);
    try {
      const call = { ...callOf(parts, incoming, circumstances), ...(circumstances.push === null ? round : noRound) };
      return follow(parts, call, incoming.signal, leave);
    } catch (thrown) {
      leave();
      throw thrown;
    }
  } catch (thrown) {
    return Promise.resolve({ error: answerTo(thrown, parts.onError) });
  }
}

/** Where clients are asked while their call is open, none is made again. */
const noRound: Round = { inputResponses: {}, requestState: undefined };

function callOf(
  { connection, stop }: CallParts,
  incoming: Incoming,
  terms: Omit<Terms, "leave">,
): Omit<Call, keyof Round> {
  const { params, auth, http, send } = incoming;
  return {
    ...terms,
    args: params.arguments,
    idempotencyKey: readIdempotencyKey(params._meta),
    // The owner is who sends, wherever from; nobody in particular is told from others by a connection of their own.
    sender: terms.owner === "" ? (http ? null : connection) : "",
    auth,
    trace: readTrace(params._meta),
    progress: progressTo(send, params),
    stop,
  };
}

/** Holds nothing of the request but the call, for as long as that takes. `left` aborts when whoever made it is gone. */
async function follow(parts: CallParts, call: Call, left: AbortSignal, leave: () => void): Promise<Answer | null> {
  try {
    return answerOf(await reply(parts, call), call);
  } catch (thrown) {
    // Their leaving is no fault of ours.
    if (left.aborted && thrown === left.reason) return null;
    // A call that was taken back by another request is still answered: that ends its stream.
    const taken = call.signal.aborted && thrown === call.signal.reason;
    return { error: taken ? new TaskError("CANCELLED").toRpc() : answerTo(thrown, parts.onError) };
  } finally {
    leave();
  }
}

/** A reply as it goes over the wire, less what the server says of itself in each answer. */
function answerOf(given: Reply, { generation, tool }: Call): Answer {
  switch (given.kind) {
    case "result":
      return { result: resultFor(generation, tool, given.result) };
    case "handle":
      return { result: { ...markOf(generation), ...given.result } };
    case "round": {
      const asks = Object.keys(given.requests).length === 0 ? {} : { inputRequests: given.requests };
      return { result: { resultType: "input_required", ...asks, requestState: given.state } };
    }
    case "task":
      return {
        result: generation === "augmented" ? { task: legacyTask(given.task) } : { resultType: "task", ...given.task },
      };
    case "error":
      return { error: given.error };
  }
}

function resultFor(generation: Generation, tool: TaskTool, result: CallToolResult): object {
  const mark = markOf(generation);
  return mark === null ? legacyResult(result, isListedWrapped(tool)) : { ...mark, ...result };
}

/** What says that a result is a whole one, in the protocol that has such marks. */
function markOf(generation: Generation): { readonly resultType: "complete" } | null {
  return generation === "declared" || generation === "rounds" ? { resultType: "complete" } : null;
}
