import type { IncomingMessage, ServerResponse } from "node:http";
import { HttpOutlet, streamHeaders, type Outlet, type TextAnswer, type Writer } from "./outlet.ts";
import type { Pulse } from "./pulse.ts";

const nodeWriter: Writer<ServerResponse> = {
  begin(outgoing) {
    // Whoever wants the connection to end with the answer gets it so (RFC 9112, section 9.6).
    const { shouldKeepAlive } = outgoing;
    outgoing.writeHead(200, shouldKeepAlive ? streamHeaders : { ...streamHeaders, connection: "close" });
    outgoing.flushHeaders();
  },
  write: (outgoing, text) => void outgoing.write(text),
  finish: (outgoing) => void outgoing.end(),
  whole: writeAnswer,
  hasRoom: (outgoing) => !outgoing.writableNeedDrain,
  isTaken: (outgoing, begun) => outgoing.writableEnded || (outgoing.headersSent && !begun),
};

/** An outlet for a response of `node:http`. */
export function nodeOutlet({ socket }: IncomingMessage, outgoing: ServerResponse, pulse: Pulse): Outlet {
  const outlet = new HttpOutlet(outgoing, nodeWriter, pulse);
  const leave = () => void outlet.leave();
  if (outgoing.destroyed || socket.destroyed) leave();
  else outgoing.on("close", leave);
  if (outgoing.socket === null) {
    // It is behind another one on its connection: of those, Node 22 doesn't say when the connection is gone.
    socket.setMaxListeners(0).once("close", leave);
    outgoing.once("close", () => socket.off("close", leave));
  }
  return outlet;
}

export function writeAnswer(outgoing: ServerResponse, { status, text, retryAfterSeconds }: TextAnswer): void {
  if (retryAfterSeconds !== undefined) outgoing.setHeader("retry-after", retryAfterSeconds);
  outgoing.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(text) });
  outgoing.end(text);
}
