import { type IncomingMessage, type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tasksExtension } from "../../src/protocol/capabilities.ts";

/** One JSON-RPC message that the client sent, with what came around it. */
export interface Seen {
  readonly method: string;
  readonly id: string | number | undefined;
  readonly params: any;
  readonly headers: IncomingMessage["headers"];
  readonly at: number;
}

/** The way back to the client: one of these per request. */
export interface Reply {
  result(result: unknown): void;
  error(code: number, message: string, data?: unknown): void;
  status(status: number, headers?: Record<string, string>, body?: string): void;
  /** The connection is cut without a byte of answer. */
  reset(): void;
  /** Whatever bytes the test wants, over the raw response. */
  readonly raw: ServerResponse;
}

export type Script = (seen: Seen, reply: Reply) => void;

/** A server on 127.0.0.1 that says only what its test tells it to, and remembers what it was asked. */
export interface FakeServer extends AsyncDisposable {
  readonly url: string;
  readonly seen: Seen[];
  of(method: string): Seen[];
}

const discovered = (extensions: object) => ({
  resultType: "complete",
  supportedVersions: ["2026-07-28"],
  capabilities: { tools: {}, prompts: {}, extensions },
  _meta: { "io.modelcontextprotocol/serverInfo": { name: "fake", version: "1" } },
  ttlMs: 0,
  cacheScope: "private",
});

export async function fakeServer(script: Script, extensions: object = { [tasksExtension]: {} }): Promise<FakeServer> {
  const seen: Seen[] = [];
  const serve = async (request: IncomingMessage, response: ServerResponse) => {
    let body = "";
    for await (const chunk of request) body += String(chunk);
    const message = body === "" ? {} : JSON.parse(body);
    const json = (status: number, value: object) =>
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
    const reply: Reply = {
      result: (result) => json(200, { jsonrpc: "2.0", id: message.id, result: result as object }),
      error: (code, text, data) => json(200, { jsonrpc: "2.0", id: message.id, error: { code, message: text, data } }),
      status: (status, headers = {}, text = "no") => response.writeHead(status, headers).end(text),
      reset: () => request.socket.resetAndDestroy(),
      raw: response,
    };
    if (message.method === "server/discover") {
      reply.result(discovered(extensions));
      return;
    }
    if (message.id === undefined) {
      seen.push({
        method: message.method,
        id: undefined,
        params: message.params,
        headers: request.headers,
        at: Date.now(),
      });
      response.writeHead(202).end();
      return;
    }
    const one = {
      method: message.method,
      id: message.id,
      params: message.params,
      headers: request.headers,
      at: Date.now(),
    };
    seen.push(one);
    script(one, reply);
  };
  const server = createServer((request, response) => void serve(request, response));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/mcp`,
    seen,
    of: (method) => seen.filter((one) => one.method === method),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
