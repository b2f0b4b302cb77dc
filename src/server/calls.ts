import type { JSONRPCMessage, RequestId } from "@modelcontextprotocol/server";

/** A call that another request of its session can cancel. */
export interface OpenCall {
  readonly signal: AbortSignal;
  /** The call is answered. */
  leave(): void;
}

/** The open calls of sessions: over HTTP, a cancellation comes as a request of its own, to a server of its own. */
export interface OpenCalls {
  enter(session: string, id: RequestId): OpenCall;
  /** Cancels what a `notifications/cancelled` of this session names. */
  hear(session: string, message: JSONRPCMessage): void;
}

export function createOpenCalls(): OpenCalls {
  const open = new Map<string, AbortController>();
  const keyOf = (session: string, id: unknown) => JSON.stringify([session, id]);

  return {
    enter(session, id) {
      const key = keyOf(session, id);
      const controller = new AbortController();
      open.set(key, controller);
      return {
        signal: controller.signal,
        leave() {
          if (open.get(key) === controller) open.delete(key);
        },
      };
    },
    hear(session, message) {
      if (!("method" in message) || message.method !== "notifications/cancelled") return;
      const { requestId, reason } = message.params ?? {};
      open.get(keyOf(session, requestId))?.abort(reason);
    },
  };
}
