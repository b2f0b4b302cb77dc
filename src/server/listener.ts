import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { setTimeout } from "node:timers/promises";

/** A server, and how to stop it: at once for new connections, and after a moment for answers under way. */
export function stoppable(handle: (incoming: IncomingMessage, outgoing: ServerResponse) => void) {
  const { promise: answered, resolve } = Promise.withResolvers<void>();
  let open = 0;
  let stopping = false;
  const settle = () => {
    if (stopping && open === 0) resolve();
  };
  const server = createServer((incoming, outgoing) => {
    open += 1;
    // It closes once in any case, and `once` would keep a wrapper for each.
    outgoing.on("close", () => {
      open -= 1;
      settle();
    });
    handle(incoming, outgoing);
  });
  return {
    server,
    /** The function returned waits for the answers. Connections that carry none are of no use to anybody. */
    stop(): () => Promise<void> {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      return async () => {
        stopping = true;
        settle();
        await Promise.race([answered, setTimeout(1_000, undefined, { ref: false })]);
        server.closeAllConnections();
        await closed;
      };
    },
  };
}
