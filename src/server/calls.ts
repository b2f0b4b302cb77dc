import type { JSONRPCMessage, RequestId } from "@modelcontextprotocol/server";

/** A call that another request of its session can cancel. */
export interface OpenCall {
  /** Aborts as soon as nobody waits for it, for whatever reason. */
  readonly signal: AbortSignal;
  /** The call is answered. */
  leave(): void;
}

/** Whose call it is: a session's id alone doesn't prove who sends it. */
export interface Origin {
  readonly session: string;
  readonly owner: string;
}

/** The open calls of sessions: over HTTP, a cancellation comes as a request of its own, to a server of its own. */
export interface OpenCalls {
  /** `left` aborts when the request's own connection is gone. */
  enter(from: Origin, id: RequestId, left: AbortSignal): OpenCall;
  /** Cancels what a `notifications/cancelled` from there names. */
  hear(from: Origin, message: JSONRPCMessage): void;
}

export function createOpenCalls(): OpenCalls {
  const open = new Map<string, AbortController>();
  const keyOf = ({ session, owner }: Origin, id: unknown) => JSON.stringify([session, owner, id]);

  return {
    enter(from, id, left) {
      const key = keyOf(from, id);
      const controller = new AbortController();
      const gone = () => controller.abort(left.reason);
      // AbortSignal.any would keep a kilobyte more for as long as the call is open.
      if (left.aborted) gone();
      else left.addEventListener("abort", gone);
      open.set(key, controller);
      return {
        signal: controller.signal,
        leave() {
          left.removeEventListener("abort", gone);
          if (open.get(key) === controller) open.delete(key);
        },
      };
    },
    hear(from, message) {
      if (!("method" in message) || message.method !== "notifications/cancelled") return;
      const { requestId, reason } = message.params ?? {};
      open.get(keyOf(from, requestId))?.abort(reason);
    },
  };
}
