import type { AuthInfo, RequestId, ServerContext } from "@modelcontextprotocol/server";
import type { Outlet } from "./outlet.ts";
import type { Params } from "./methods.ts";
import type { Send } from "./push.ts";
import type { Exchanges } from "./swap.ts";

/** An open request, with nothing of the SDK's server that took it: that may be gone while the request is still open. */
export interface Incoming {
  readonly id: RequestId;
  /** As they came, before the SDK parsed them or took parts out. */
  readonly params: Params;
  readonly auth: AuthInfo | undefined;
  /** Whether it came over HTTP, where a connection says nothing about who sends. */
  readonly http: boolean;
  /** Sends a message on its stream. */
  readonly send: Send;
  /** Aborts when nobody waits for the answer any more. */
  readonly signal: AbortSignal;
}

/** A request as the SDK hands it to its handler. With an outlet, its messages go there. */
export function incomingOf(exchanges: Exchanges, ctx: ServerContext, outlet: Outlet | null = null): Incoming {
  const { id, signal } = ctx.mcpReq;
  return {
    id,
    params: exchanges.params(id),
    auth: ctx.http?.authInfo,
    http: ctx.http !== undefined,
    ...(outlet === null ? { send: (message) => exchanges.send(message, id), signal } : past(outlet)),
  };
}

/** On its own, so that what it returns holds nothing but the outlet. */
function past(outlet: Outlet): Pick<Incoming, "send" | "signal"> {
  return { send: async (message) => outlet.send(message), signal: outlet.signal };
}
