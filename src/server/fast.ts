import { SERVER_INFO_META_KEY, type AuthInfo, type RequestId } from "@modelcontextprotocol/server";
import { channels } from "../channels.ts";
import type { Engine } from "../engine/engine.ts";
import { TaskError, type RpcError } from "../errors.ts";
import type { Stamp } from "../protocol/wire.ts";
import { answerTo, cancelTask, getTaskText, statusOf, updateTask, type Caller, type Params } from "./methods.ts";
import type { TextAnswer } from "./outlet.ts";
import type { PlainMethod, PlainTaskRequest } from "./plain.ts";
import { pollLimiter, type PollLimit } from "./poll-limit.ts";
import { Recent } from "./recent.ts";
import type { ServerParts } from "./server.ts";

/** Answers plain requests about tasks without the SDK, as it would, and limits polls whoever answers them. */
export interface Fast {
  /** Answers a plain request, unless nobody knows yet what the server says of itself to this owner. Never rejects. */
  answer(request: PlainTaskRequest, auth: AuthInfo | undefined): Promise<TextAnswer | undefined>;
  /** The refusal of a message that the SDK is to answer, if it is a poll that comes too soon. */
  refuse(message: object, auth: AuthInfo | undefined): TextAnswer | undefined;
  /** Notes what the SDK's answer to a plain request says of the server. */
  learn(answer: Response, auth: AuthInfo | undefined): Promise<void>;
}

type TextMethod = (engine: Engine, caller: Caller, params: Params, stamp: Stamp) => Promise<string>;

const stamped = (method: typeof updateTask): TextMethod => {
  return async (engine, caller, params, stamp) =>
    JSON.stringify({ ...(await method(engine, caller, params)), ...stamp });
};

const methods: Readonly<Record<PlainMethod, TextMethod>> = {
  "tasks/get": getTaskText,
  "tasks/update": stamped(updateTask),
  "tasks/cancel": stamped(cancelTask),
};

/** Owners whose server's name is remembered. */
const mostStamps = 10_000;

/** The server that a factory makes is known by its answers only, so each owner's first one is left to the SDK. */
export function fastAnswers(parts: ServerParts, limit: PollLimit | null, now: () => number): Fast {
  const polls = limit === null ? null : pollLimiter(limit, parts.engine.shortestPollMs, now);
  const stamps = new Recent<string, Stamp>(mostStamps);

  /** Undefined where the author's function throws: the SDK's way reports that. */
  function ownerOf(auth: AuthInfo | undefined): string | undefined {
    try {
      return parts.owner(auth);
    } catch {
      return undefined;
    }
  }

  function refuse(owner: string, taskId: unknown, id: RequestId | null): TextAnswer | undefined {
    const retryAfterMs = polls?.wait(owner, taskId) ?? 0;
    if (retryAfterMs === 0) return undefined;
    const error = new TaskError("RATE_LIMITED", { data: { retryAfterMs } });
    if (channels.answered.hasSubscribers) channels.answered.publish({ method: "tasks/get", error: error.code, ms: 0 });
    return { ...failed(429, error.toRpc(), id), retryAfterSeconds: Math.ceil(retryAfterMs / 1_000) };
  }

  return {
    async answer({ id, method, params, client }, auth) {
      const owner = ownerOf(auth);
      const stamp = owner === undefined ? undefined : stamps.get(owner);
      if (owner === undefined || stamp === undefined) return undefined;
      const refusal = method === "tasks/get" ? refuse(owner, params.taskId, id) : undefined;
      if (refusal !== undefined) return refusal;
      try {
        const result = await methods[method](parts.engine, { owner, client }, params, stamp);
        return { status: 200, text: `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${result}}` };
      } catch (thrown) {
        const error = answerTo(thrown, parts.onError);
        return failed(statusOf(error), error, id);
      }
    },

    refuse(message, auth) {
      const { method, params } = message as { method?: unknown; params?: { taskId?: unknown } | null };
      const owner = ownerOf(auth);
      const id = requestIdOf(message);
      if (method !== "tasks/get" || id === null || owner === undefined) return undefined;
      return refuse(owner, params?.taskId, id);
    },

    async learn(answer, auth) {
      const owner = ownerOf(auth);
      if (owner === undefined || answer.headers.get("content-type") !== "application/json") return;
      const { result } = (await answer.clone().json()) as { result?: { _meta?: Params } };
      if (result === undefined) return;
      const serverInfo = result._meta?.[SERVER_INFO_META_KEY];
      const named = serverInfo === undefined ? {} : { _meta: { [SERVER_INFO_META_KEY]: serverInfo } };
      stamps.set(owner, { resultType: "complete", ...named });
    },
  };
}

function failed(status: number, error: RpcError, id: RequestId | null): TextAnswer {
  return { status, text: JSON.stringify({ jsonrpc: "2.0", id, error }) };
}

/** The id to answer with: null where none can be read. */
export function requestIdOf(message: object): RequestId | null {
  const { id } = message as { id?: unknown };
  return typeof id === "string" || typeof id === "number" ? id : null;
}
