import type { JSONRPCMessage, RequestId, Transport } from "@modelcontextprotocol/client";
import type { RawClientDispatch } from "@modelcontextprotocol/ext-tasks/client";

type Dispatch = RawClientDispatch;
type Reply = Awaited<ReturnType<Dispatch>>;

/** Every message that passed, in order: what to look at when a client and the server don't understand each other. */
export type Traffic = { readonly from: "client" | "server"; readonly message: JSONRPCMessage }[];

/**
 * The channel that the official Tasks client wants beside the SDK's: requests and answers as they are. It shares the
 * transport of a connected client, whose own ids are numbers; these are strings.
 */
export function rawDispatch(transport: Transport, traffic: Traffic = []): Dispatch {
  const waiting = new Map<RequestId, (reply: Reply) => void>();
  const deliver = transport.onmessage;
  let lastId = 0;

  transport.onmessage = (message, extra) => {
    const settle = "id" in message && !("method" in message) ? waiting.get(message.id!) : undefined;
    if (settle === undefined) return deliver?.(message, extra);
    traffic.push({ from: "server", message });
    settle(
      "result" in message
        ? { kind: "result", result: message.result as never }
        : { kind: "error", error: (message as unknown as { error: never }).error },
    );
  };

  return async (request, options = {}) => {
    const id = `raw-${++lastId}`;
    const message = { jsonrpc: "2.0", id, ...(request as object) } as JSONRPCMessage;
    const { promise, resolve, reject } = Promise.withResolvers<Reply>();
    const abort = () => reject(options.signal!.reason as Error);
    waiting.set(id, resolve);
    options.signal?.addEventListener("abort", abort);
    try {
      options.signal?.throwIfAborted();
      traffic.push({ from: "client", message });
      const { headers } = options.context ?? {};
      await transport.send(message, headers === undefined ? {} : { headers });
      return await promise;
    } finally {
      waiting.delete(id);
      options.signal?.removeEventListener("abort", abort);
    }
  };
}
