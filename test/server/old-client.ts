import { events, type Json } from "./harness.ts";

/** A client of protocol 2025-11-25, or one before it, that sends what it is told, over HTTP. */
export interface OldClient {
  readonly session: string | null;
  /** Answers of `initialize`. */
  readonly hello: Json;
  /** Sends a message and gives the response as it comes. */
  post(message: object, options?: PostOptions): Promise<Response>;
  /** Sends a request and gives its answer. */
  call(method: string, params?: object, options?: PostOptions): Promise<Json>;
  /** Sends a request and gives its stream. */
  stream(method: string, params?: object, options?: PostOptions): Promise<ReturnType<typeof events>>;
  /** Answers a request of the server. */
  respond(request: Json, result: object, options?: PostOptions): Promise<number>;
}

export interface PostOptions {
  readonly id?: string | number;
  readonly url?: string;
  readonly session?: string | null;
  readonly token?: string;
  readonly signal?: AbortSignal;
}

export const everyInput = { elicitation: { form: {}, url: {} }, sampling: { tools: {} }, roots: {} };

/** Introduces itself, and sends its session along from then on. */
export async function oldClient(
  url: string,
  capabilities: object = everyInput,
  token?: string,
  name = "old",
  protocol = "2025-11-25",
): Promise<OldClient> {
  let session: string | null = null;
  let lastId = 0;

  async function post(message: object, how: PostOptions = {}): Promise<Response> {
    const who = how.token ?? token;
    const named = how.session === undefined ? session : how.session;
    return await fetch(how.url ?? url, {
      method: "POST",
      headers: {
        accept: "application/json, text/event-stream",
        "content-type": "application/json",
        // Before, nobody named it.
        ...(protocol < "2025-06-18" ? {} : { "mcp-protocol-version": protocol }),
        ...(named === null ? {} : { "mcp-session-id": named }),
        ...(who === undefined ? {} : { authorization: `Bearer ${who}` }),
      },
      body: JSON.stringify({ jsonrpc: "2.0", ...message }),
      signal: how.signal ?? null,
    });
  }
  const request = (method: string, params: object, how: PostOptions) =>
    post({ id: how.id ?? ++lastId, method, params }, how);

  async function call(method: string, params: object = {}, how: PostOptions = {}): Promise<Json> {
    const response = await request(method, params, how);
    if (response.headers.get("content-type")?.includes("json") === true) return await response.json();
    const stream = events(response);
    for (;;) {
      const message = await stream.next();
      if (message === undefined) throw new Error(`${method} was not answered`);
      if (message.method === undefined) return message;
    }
  }

  const clientInfo = { name, version: "1" };
  const first = await request("initialize", { protocolVersion: protocol, capabilities, clientInfo }, {});
  session = first.headers.get("mcp-session-id");
  const hello = await events(first).next();
  await post({ method: "notifications/initialized" });
  return {
    session,
    hello,
    post,
    call,
    stream: async (method, params = {}, how = {}) => events(await request(method, params, how)),
    respond: async ({ id }, result, how) => (await post({ id, result }, how)).status,
  };
}
