import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import { validateHostHeader, validateOriginHeader, type AuthInfo } from "@modelcontextprotocol/server";
import type { DirectCalls } from "./direct.ts";
import type { Fast } from "./fast.ts";
import { nodeOutlet, writeAnswer } from "./node-outlet.ts";
import { written, type HeaderValue, type PlainReader } from "./plain.ts";
import type { Pulse } from "./pulse.ts";

/** Where requests are taken from. Undefined: from anywhere. */
export interface Place {
  readonly hosts: readonly string[] | undefined;
  readonly origins: readonly string[] | undefined;
  readonly path: string | undefined;
}

/** What a request brings along, or what was found out about it on the way: then nobody has to ask again. */
export interface Known {
  readonly auth?: AuthInfo | Response | undefined;
  readonly body?: unknown;
  /** The answer itself, to be sent. */
  readonly response?: Response;
}

export interface FastNodeOptions {
  readonly plain: PlainReader;
  readonly fast: Fast;
  readonly direct: DirectCalls;
  readonly pulse: Pulse;
  readonly place: Place;
  readonly authenticate: ((request: Request) => Promise<AuthInfo | Response | undefined>) | undefined;
  readonly closing: () => boolean;
}

/** Passes a request on, with what is known of it, and with its body if that was read. */
export type Next = (known: Known, rawBody?: Buffer) => void;

/**
 * Answers plain requests at the level of `node:http`: a web-standard request and response for each would cost more than
 * the rest together. Whatever is not plain is passed on, also when it turns out late.
 */
export function fastNode({ plain, fast, direct, pulse, place, authenticate, closing }: FastNodeOptions) {
  const isInPlace = placeCheck(place);

  return async (incoming: IncomingMessage, outgoing: ServerResponse, brought: Known, next: Next): Promise<void> => {
    const headers = headersOf(incoming);
    const header: HeaderValue = (name) => headers?.[name] as string | undefined;
    if (headers === undefined || closing() || !isInPlace(incoming, headers) || plain.length(header) === undefined)
      return next(brought);
    const read = brought.body === undefined ? bodyOf(incoming) : null;
    if (read === undefined) return next(brought);
    const raw = (await read) ?? undefined;
    const message = raw === undefined ? brought.body : parsed(raw);
    const plainOne = plain.read(header, message);
    if (plainOne === undefined) return next(brought, raw);
    let { auth } = brought;
    if (!("auth" in brought) && authenticate !== undefined) {
      const body = raw ?? written(message);
      if (body === undefined) return next(brought);
      auth = await authenticate(toRequest(incoming, headers.host, body));
    }
    const known = { ...brought, auth };
    if (auth instanceof Response) return next(known, raw);
    if (plainOne.kind === "task") {
      const answer = await fast.answer(plainOne, auth);
      return answer === undefined ? next(known, raw) : writeAnswer(outgoing, answer);
    }
    const outlet = nodeOutlet(incoming, outgoing, pulse);
    const answer = await direct.answer(plainOne, toRequest(incoming, headers.host), outlet, auth);
    if (answer !== "taken") next(answer === undefined ? known : { response: answer }, raw);
  };
}

/** The headers, or undefined if one of them came twice: of some, Node keeps the first and drops the others. */
function headersOf({ headers, rawHeaders }: IncomingMessage): IncomingHttpHeaders | undefined {
  return Object.keys(headers).length * 2 === rawHeaders.length ? headers : undefined;
}

/** Hosts in any other form, IPv6 for one, are left to those who know all forms. */
const plainHost = /^[a-z0-9.-]+(?::[1-5]?\d{1,4})?$/;
const plainPath = /^\/[\w/-]*$/;

/** What the adapter and the checks of host and origin would let through. */
function placeCheck({ hosts, origins, path }: Place) {
  let good: string | undefined;
  /** Most requests name the same host as the one before. */
  const isGood = (host: string) => {
    if (host === good) return true;
    if (!plainHost.test(host) || (hosts !== undefined && !validateHostHeader(host, [...hosts]).ok)) return false;
    good = host;
    return true;
  };
  return ({ method, url = "", httpVersionMajor }: IncomingMessage, { host = "", origin }: IncomingHttpHeaders) =>
    method === "POST" &&
    httpVersionMajor === 1 &&
    (path === undefined ? plainPath.test(url) : url === path) &&
    isGood(host) &&
    (origin === undefined || origins === undefined || validateOriginHeader(origin, [...origins]).ok);
}

/** The body as bytes, or undefined if somebody else reads it. Never, if the client goes away: nobody waits then. */
function bodyOf(incoming: IncomingMessage): Promise<Buffer> | undefined {
  if (incoming.readableDidRead || incoming.readableEncoding !== null || "rawBody" in incoming) return undefined;
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    const take = (chunk: Buffer) => void chunks.push(chunk);
    const end = () => {
      // The request may be open for long, and would keep the bytes.
      incoming.off("data", take).off("end", end);
      resolve(Buffer.concat(chunks));
    };
    incoming.on("data", take).on("end", end);
  });
}

function parsed(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString());
  } catch {
    return undefined;
  }
}

/**
 * For who authenticates, the body is there once more, as a signature may be over it. No signal: one that follows another
 * is held weakly, and what hangs on it survives until the next full collection.
 */
function toRequest(
  { url, rawHeaders, socket }: IncomingMessage,
  host: string | undefined,
  body?: Buffer | string,
): Request {
  const scheme = "encrypted" in socket ? "https" : "http";
  const headers: [name: string, value: string][] = [];
  for (let n = 0; n < rawHeaders.length; n += 2) headers.push([rawHeaders[n] ?? "", rawHeaders[n + 1] ?? ""]);
  return new Request(`${scheme}://${host}${url}`, { method: "POST", headers, ...(body === undefined ? {} : { body }) });
}
