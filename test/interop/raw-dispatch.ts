import type { JSONRPCMessage, RequestId, Transport } from "@modelcontextprotocol/client";
import type { RawClientDispatch } from "@modelcontextprotocol/ext-tasks/client";

type Dispatch = RawClientDispatch;
type Reply = Awaited<ReturnType<Dispatch>>;

/**
 * The channel that the official Tasks client wants beside the SDK's: requests and answers as they are. It shares the
 * transport of a connected client, whose own ids are numbers; these are strings.
 */
export function rawDispatch(transport: Transport): Dispatch {
  const waiting = new Map<RequestId, (reply: Reply) => void>();
  const deliver = transport.onmessage;
  let lastId = 0;

  transport.onmessage = (message, extra) => {
    const settle = "id" in message && !("method" in message) ? waiting.get(message.id!) : undefined;
    if (settle === undefined) return deliver?.(message, extra);
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
      const { headers } = options.context ?? {};
      await transport.send(message, headers === undefined ? {} : { headers });
      return await promise;
    } finally {
      waiting.delete(id);
      options.signal?.removeEventListener("abort", abort);
    }
  };
}
