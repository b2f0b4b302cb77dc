import { type ClientRequest, Agent as HttpAgent, type IncomingMessage, request as httpRequest } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import { Readable } from "node:stream";

/**
 * A `fetch` for streams that may be silent for hours. Node's own gives up on a response after 300 s without a byte, and
 * comments are the only bytes that a quiet stream has. Each request has a connection of its own: one that was kept and is
 * being closed would leave it unclear whether the server got the request. Follows no redirects.
 */
export async function longFetch(url: URL | string, init: RequestInit = {}): Promise<Response> {
  const { signal } = init;
  signal?.throwIfAborted();
  const target = new URL(url);
  const headers = Object.fromEntries(new Headers(init.headers));
  const [open, Agent] = target.protocol === "https:" ? [httpsRequest, HttpsAgent] : [httpRequest, HttpAgent];
  // Not announced as closing: proxies pass that on where they shouldn't.
  const agent = new Agent({ keepAlive: true });
  const outgoing = open(target, { method: init.method ?? "GET", headers, agent });
  const stop = () => outgoing.destroy(signal?.reason as Error);
  signal?.addEventListener("abort", stop);
  outgoing.once("close", () => {
    signal?.removeEventListener("abort", stop);
    agent.destroy();
  });
  const incoming = await answerTo(outgoing, init.body as string | undefined);
  const { statusCode = 500, statusMessage = "" } = incoming;
  const empty = [204, 205, 304].includes(statusCode);
  if (empty) incoming.resume();
  const body = empty ? null : (Readable.toWeb(incoming) as ReadableStream);
  return new Response(body, { status: statusCode, statusText: statusMessage, headers: headersOf(incoming) });
}

function answerTo(outgoing: ClientRequest, body: string | undefined): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    outgoing.once("response", resolve);
    // It stays: a connection that breaks later shows as an error of the body.
    outgoing.on("error", reject);
    outgoing.end(body);
  });
}

function headersOf({ rawHeaders }: IncomingMessage): Headers {
  const headers = new Headers();
  for (let at = 0; at < rawHeaders.length; at += 2) headers.append(rawHeaders[at] ?? "", rawHeaders[at + 1] ?? "");
  return headers;
}
