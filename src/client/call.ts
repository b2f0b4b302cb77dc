import type { CallToolRequestParams } from "@modelcontextprotocol/client";
import { type Clock, milliseconds } from "../clock.ts";
import { TaskError, asTaskError } from "../errors.ts";
import { idempotencyKey } from "../protocol/idempotency.ts";
import type { InputRequests, InputResponse } from "../protocol/input.ts";
import type { Connection } from "./connection.ts";
import { callError } from "./failures.ts";
import { type InputHandlers, ask, askerFor } from "./input.ts";
import type { CallRecord } from "./ledger.ts";
import { type CallReply, readCall } from "./replies.ts";
import { sendUntilAnswered } from "./repeat.ts";
import type { FollowOptions } from "./run.ts";

/** The tool to call, as the SDK's client takes it. */
export type ToolCall = Pick<CallToolRequestParams, "name" | "arguments" | "_meta">;

/** What sending a call takes. */
export interface CallHost {
  readonly connection: Connection;
  readonly clock: Clock;
  readonly input: InputHandlers;
  readonly onError: (error: unknown) => void;
  /** How long the call may stay unanswered before it counts as lost. */
  readonly timeoutMs: number;
  /** Given a result that comes when nobody waits for it any more, on transports where one still can. */
  readonly late: (result: unknown) => void;
}

/** A server that asks, on one call, more often than this before it starts, is going round in circles. */
const mostRounds = 20;

/**
 * Sends a call, answers what is asked before it starts, and resolves with what it then becomes. The record says at each
 * moment whether a crash would leave anybody in doubt.
 */
export async function placeCall(
  host: CallHost,
  call: ToolCall,
  record: CallRecord,
  options: FollowOptions,
): Promise<Exclude<CallReply, { kind: "input" }>> {
  const { clock, connection } = host;
  const { signal, onAbort = "cancel", deadline } = options;
  const scope = new AbortController();
  const key = record.entry.idempotencyKey;
  // By the key, whoever leaves before the answer can still find out what became of the call.
  const about = key === undefined ? {} : { data: { idempotencyKey: key } };
  const stop = () =>
    scope.abort(new TaskError(onAbort === "cancel" ? "CANCELLED" : "DETACHED", { ...about, cause: signal?.reason }));
  if (signal?.aborted === true) stop();
  signal?.addEventListener("abort", stop);
  const pass = () => scope.abort(new TaskError("DEADLINE_PASSED"));
  const takeBack = deadline === undefined ? () => {} : clock.after(milliseconds(deadline), pass);
  try {
    const generation = connection.modern ? "today" : (await connection.isLegacyTask(call.name)) ? "legacy" : "never";
    const meta = key === undefined ? {} : { _meta: { ...call._meta, [idempotencyKey]: key } };
    const first = { ...call, ...meta, ...(generation === "legacy" ? { task: {} } : {}) };
    let params: CallToolRequestParams & Record<string, unknown> = first;
    for (let round = 0; round < mostRounds; round += 1) {
      scope.signal.throwIfAborted();
      const sendOnce = () => send(host, params, generation, scope.signal);
      const reply =
        key === undefined ? await sendOnce() : await sendUntilAnswered({ clock, signal: scope.signal, key }, sendOnce);
      if (reply.kind !== "input") return reply;
      await record.write({ state: "asking" }).catch(host.onError);
      const inputResponses = await answer(host, reply.requests, scope.signal);
      const state = reply.state === undefined ? {} : { requestState: reply.state };
      params = { ...first, inputResponses, ...state };
      await record.write({ state: "calling" });
    }
    throw new TaskError("INVALID_RESPONSE", { detail: `It asked for input more than ${mostRounds} times.` });
  } finally {
    takeBack();
    signal?.removeEventListener("abort", stop);
  }
}

async function send(
  { connection, timeoutMs, late }: CallHost,
  params: CallToolRequestParams,
  generation: Parameters<typeof readCall>[1],
  signal: AbortSignal,
): Promise<CallReply> {
  try {
    return readCall(await connection.callTool(params, { signal, timeoutMs, late }), generation);
  } catch (thrown) {
    const error = callError(asTaskError(thrown));
    if (!signal.aborted) throw error;
    const cause = signal.reason as TaskError;
    // A deadline says nothing of what became of the call; whoever aborted it has said enough.
    throw cause.code === "DEADLINE_PASSED" && error.code === "MAY_HAVE_STARTED"
      ? new TaskError("MAY_HAVE_STARTED", { cause })
      : cause;
  }
}

/** Answers what the server asks before the call starts; here nothing can be left open for somebody else. */
async function answer(
  { input, onError }: CallHost,
  requests: InputRequests,
  signal: AbortSignal,
): Promise<Record<string, InputResponse>> {
  const answers = Object.entries(requests).map(async ([key, request]) => {
    const asker = askerFor(input, request);
    const given = asker && (await ask(asker, request, { key, taskId: undefined, signal }, onError));
    if (given !== undefined) return [key, given] as const;
    const detail = asker === undefined ? "There is no handler for it." : "Its handler left it open.";
    throw new TaskError("INPUT_UNSUPPORTED", { detail, data: { key } });
  });
  const stopped = Promise.withResolvers<never>();
  const stop = () => stopped.reject(signal.reason);
  signal.addEventListener("abort", stop);
  try {
    return Object.fromEntries(await Promise.race([Promise.all(answers), stopped.promise]));
  } finally {
    signal.removeEventListener("abort", stop);
  }
}
