import { once } from "node:events";
import {
  createServer,
  request as forward,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";

/** A message that a client sent, as it left. */
export interface Captured {
  readonly method: string;
  readonly id: string | number | undefined;
  readonly params: Record<string, unknown> & { _meta?: Record<string, unknown> };
  readonly headers: IncomingHttpHeaders;
}

/** Stands between a client and a server and writes down what the client says. */
export interface Proxy extends AsyncDisposable {
  readonly url: string;
  readonly captured: readonly Captured[];
  of(method: string): readonly Captured[];
}

/** Passes everything on to a server and back, unchanged. */
export async function captureProxy(target: string): Promise<Proxy> {
  const captured: Captured[] = [];
  async function pass(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks);
    if (body.length > 0) {
      const { method, id, params } = JSON.parse(body.toString()) as Captured;
      captured.push({ method, id, params, headers: incoming.headers });
    }
    const { host: _, ...headers } = incoming.headers;
    const onward = forward(target, { method: incoming.method ?? "GET", headers }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 500, answer.headers);
      outgoing.flushHeaders();
      answer.pipe(outgoing);
    });
    onward.on("error", () => outgoing.destroy());
    outgoing.on("close", () => onward.destroy());
    onward.end(body);
  }
  const server = createServer((incoming, outgoing) => void pass(incoming, outgoing));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    captured,
    of: (method) => captured.filter((one) => one.method === method),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}
