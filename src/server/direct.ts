import {
  createMcpHandler,
  type AuthInfo,
  type CreateMcpHandlerOptions,
  type JSONRPCMessage,
  type McpRequestContext,
  type McpServer,
  type RequestId,
  type Transport,
} from "@modelcontextprotocol/server";
import { TaskError } from "../errors.ts";
import type { TaskTool } from "../tool.ts";
import { isEventStream } from "./body.ts";
import { statusOf } from "./methods.ts";
import type { Outlet } from "./outlet.ts";
import type { PlainCall } from "./plain.ts";
import type { Detour, TaskServers } from "./server.ts";
import { answered } from "./swap.ts";

/**
 * Answers plain calls of task tools. The SDK lets them through, or refuses them; the answer doesn't pass it again, so that
 * a call that is held keeps no server, no transport and no web stream for as long as it waits.
 */
export interface DirectCalls {
  /** `taken`: the outlet gets the answer. A `Response` is the SDK's refusal. Undefined: it takes no more. */
  answer(
    call: PlainCall,
    request: Request,
    outlet: Outlet,
    auth: AuthInfo | undefined,
  ): Promise<"taken" | Response | undefined>;
  /** Leaves the calls that are still open without an answer. */
  close(): Promise<void>;
}

/** A call on its way through the SDK. */
interface OpenCall {
  readonly tool: TaskTool;
  readonly id: RequestId;
  readonly outlet: Outlet;
  readonly taken: () => void;
  answer?: Parameters<Detour["take"]>[0];
}

export function directCalls(servers: TaskServers, options: CreateMcpHandlerOptions): DirectCalls {
  const open = new WeakMap<Request, OpenCall>();

  async function factory(context: McpRequestContext) {
    const call = context.requestInfo === undefined ? undefined : open.get(context.requestInfo);
    if (call === undefined) return await servers.factory(context);
    const detour: Detour = { outlet: call.outlet, take: (answer) => void (call.answer = answer) };
    const mcp = await servers.callee(call.tool, context, detour);
    tap(mcp, call, context.era === "legacy");
    return mcp;
  }
  const entry = createMcpHandler(factory, options);

  return {
    async answer({ tool, message }, request, outlet, auth) {
      const { promise, resolve } = Promise.withResolvers<"taken">();
      const { id } = message as { id: RequestId };
      open.set(request, { tool, id, outlet, taken: () => resolve("taken") });
      const asked = { parsedBody: message, ...(auth === undefined ? {} : { authInfo: auth }) };
      try {
        const response = await Promise.race([promise, entry.fetch(request, asked)]);
        if (response === "taken" || !isEventStream(response)) return response;
        // Older protocols answer by a stream in any case; what comes on it, comes here.
        outlet.stream();
        return "taken";
      } catch {
        return undefined;
      }
    },
    close: () => entry.close(),
  };
}

/**
 * Takes what a server sends in its one exchange, before its transport makes a response of it. Of the current protocol,
 * refusals are left to that: it knows their status.
 */
function tap(mcp: McpServer, call: OpenCall, isLegacy: boolean): void {
  const { id, outlet } = call;
  const connect = mcp.connect.bind(mcp);
  mcp.connect = (transport: Transport) => {
    const send = transport.send.bind(transport);
    const close = () => void transport.close();
    // The request may have no signal of its own.
    outlet.signal.addEventListener("abort", close, { once: true });
    transport.send = async (message, options) => {
      const isAnswer = !("method" in message);
      if (!isAnswer && options?.relatedRequestId !== id) return await send(message, options);
      const isRefusal = "error" in message && call.answer === undefined && !outlet.isStream();
      if (isRefusal && !isLegacy) return await send(message, options);
      if (isLegacy) outlet.stream();
      if (!isAnswer) return outlet.send(message);
      end(outlet, id, message, call.answer);
      call.taken();
      outlet.signal.removeEventListener("abort", close);
      queueMicrotask(close);
    };
    return connect(transport);
  };
}

/** On its own, so that nothing of the server is kept while the answer is waited for. */
function end(outlet: Outlet, id: RequestId, message: JSONRPCMessage, answer: OpenCall["answer"]): void {
  if (answer === undefined) return outlet.end(message, 200);
  answer
    .then((given) => {
      if (given !== null) outlet.end(answered(message, id, given), "error" in given ? statusOf(given.error) : 200);
    })
    // What can't be written, for one. Nobody else waits for this, and the client would wait for ever.
    .catch(() => outlet.end(answered(message, id, { error: new TaskError("INTERNAL").toRpc() }), 200));
}
