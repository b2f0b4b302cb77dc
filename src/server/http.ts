import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import {
  createMcpHandler,
  hostHeaderValidationResponse,
  isJsonContentType,
  localhostAllowedHostnames,
  localhostAllowedOrigins,
  originValidationResponse,
  type AuthInfo,
  type JSONRPCRequest,
  type McpServerFactory,
} from "@modelcontextprotocol/server";
import { asTaskError, requireWhole, TaskError } from "../errors.ts";
import { capabilitiesKey, readCapabilities, tasksProtocol } from "../protocol/capabilities.ts";
import { nodeAdapter } from "./adapter.ts";
import { failure, isEventStream, readBody } from "./body.ts";
import { fastAnswers, requestIdOf } from "./fast.ts";
import { directCalls } from "./direct.ts";
import type { Known, Place } from "./fast-node.ts";
import { streamLimits } from "./listen.ts";
import { stoppable } from "./listener.ts";
import { answerTo, statusOf, wantedTasks, type Params } from "./methods.ts";
import { plainReader } from "./plain.ts";
import type { PollLimit } from "./poll-limit.ts";
import { createPulse } from "./pulse.ts";
import { taskServers, type ServerParts } from "./server.ts";
import { introducedBy, newSession, readSession, sessionHeader } from "./session.ts";
import { taskStreams } from "./sse.ts";
import { toResponse, webOutlet } from "./web-outlet.ts";

/** How tasks are served over Streamable HTTP. */
export interface ServeOptions {
  /**
   * Says who sends a request, as the SDK's `requireBearerAuth(…)` does. A `Response` is sent as it is; undefined is
   * nobody in particular. When it throws, the request is answered 503, and may be sent again.
   */
  readonly authenticate?: (
    request: Request,
  ) => Promise<AuthInfo | Response | undefined> | AuthInfo | Response | undefined;
  /**
   * Host names that requests may be sent to, without ports. `listen()` takes those of localhost unless told otherwise;
   * `fetch` and `node` check only what is given here, and leave the rest to what is around them.
   */
  readonly allowedHosts?: readonly string[];
  /** Host names of web pages that may send requests, without ports. Checked like `allowedHosts`. */
  readonly allowedOrigins?: readonly string[];
  /** The largest request, in bytes. Default 4 MiB. */
  readonly maxBodyBytes?: number;
  /** Subscriptions, and waits of older clients for results, that one authenticated owner may have open. Default 100. */
  readonly maxStreamsPerOwner?: number;
  /** As many that may be open in all. Default 1 024. */
  readonly maxStreams?: number;
  /** Tasks that one subscription may name. Default 1 000. */
  readonly maxTaskIds?: number;
  /** How often one owner may poll one task, or null for as often as they like. More is answered with 429. */
  readonly pollLimit?: PollLimit | null;
  /** The pause between two comments on an open stream, in milliseconds; 0 sends none. Default 15 000. */
  readonly keepAliveMs?: number;
}

/** What whoever runs the server knows of a request already. */
export interface FetchOptions {
  /** Who it is from; `authenticate` is then not asked. */
  readonly authInfo?: AuthInfo;
  /** Its body, where something else has read and parsed it. */
  readonly parsedBody?: unknown;
}

/** A server of its own. */
export interface Listening {
  /** Where clients connect to. */
  readonly url: string;
  readonly port: number;
  close(): Promise<void>;
}

/** Serves MCP with tasks, on whatever serves HTTP. */
export interface TaskHandler {
  /** For servers of web-standard requests: Hono, Deno, Bun. */
  fetch(request: Request, options?: FetchOptions): Promise<Response>;
  /** For `node:http`, and for Express, whose `req.auth` and `req.body` are used. */
  node(request: IncomingMessage, response: ServerResponse): void;
  /** Serves `/mcp` on a server of its own. By default on 127.0.0.1, and a free port. Rejects with Node's own error. */
  listen(options?: { readonly port?: number; readonly host?: string }): Promise<Listening>;
  /** Ends streams with their last answer and open calls without one, and stops listening. Tasks go on. */
  close(): Promise<void>;
}

const headerMismatch = -32020;
const sessionNotFound = { code: -32001, message: "No such session. Introduce yourself again with initialize." };
const path = "/mcp";

/**
 * Serves tasks over Streamable HTTP (core specification, "Transports"). The factory makes a server for each request,
 * except for plain `tasks/get`, `tasks/update` and `tasks/cancel`: after an owner's first one these need no server, and
 * are answered in the name of the one that answered the first. The server of a plain call of a task's tool has of our
 * tools only that, and is not kept while the call waits. Throws `MISUSE` for a limit that makes no sense.
 */
export function serve(parts: ServerParts, factory: McpServerFactory, options: ServeOptions = {}): TaskHandler {
  const { maxBodyBytes = 4 * 1024 * 1024, maxTaskIds = 1_000, maxStreams = 1_024, keepAliveMs = 15_000 } = options;
  const { maxStreamsPerOwner = 100 } = options;
  requireWhole(0, { maxTaskIds, maxStreamsPerOwner, keepAliveMs });
  requireWhole(1, { maxBodyBytes, maxStreams });
  const { pollLimit = {} } = options;
  requireWhole(1, { ...pollLimit });
  const limits = streamLimits(maxStreamsPerOwner, maxStreams);
  const servers = taskServers(parts, factory, limits);
  const handling = { keepAliveMs, maxSubscriptions: maxStreams, maxRequestBodySize: maxBodyBytes };
  const sdk = createMcpHandler(servers.factory, handling);
  const direct = directCalls(servers, handling);
  const plain = plainReader(parts.tools, maxBodyBytes);
  const fast = fastAnswers(parts, pollLimit, () => parts.clock.now());
  const pulse = createPulse(keepAliveMs);
  const streams = taskStreams(parts.engine, pulse, parts.onError);
  const listeners = new Set<ReturnType<typeof stoppable>>();
  let closing: Promise<void> | undefined;

  function wrongPlace(request: Request, hosts: readonly string[] | undefined, origins: readonly string[] | undefined) {
    return (
      (hosts && hostHeaderValidationResponse(request, [...hosts])) ??
      (origins && originValidationResponse(request, [...origins]))
    );
  }

  async function answer(request: Request, known: Known): Promise<Response> {
    if (closing !== undefined) return failure(503, new TaskError("SHUTTING_DOWN").toRpc());
    const auth = "auth" in known ? known.auth : await authenticate(request);
    if (auth instanceof Response) return auth;
    const authInfo = auth === undefined ? {} : { authInfo: auth };
    if (namesLostSession(request)) return failure(404, sessionNotFound);
    // What isn't a JSON request is the SDK's to refuse.
    if (request.method !== "POST" || !isJsonContentType(request.headers.get("content-type")))
      return sdk.fetch(request, authInfo);
    const parsedBody = known.body ?? (await readBody(request, maxBodyBytes));
    if (parsedBody instanceof Response) return parsedBody;
    // JSON, but no message: the SDK says so.
    if (typeof parsedBody !== "object" || parsedBody === null) return sdk.fetch(request, { ...authInfo, parsedBody });
    const badHeader = ["mcp-method", "mcp-name"].find((name) => !fitsHeader(request.headers.get(name)));
    if (badHeader !== undefined) {
      const message = `The header ${badHeader} may hold visible ASCII only. Encode what it stands for as =?base64?...?=`;
      return failure(400, { code: headerMismatch, message }, requestIdOf(parsedBody));
    }
    const plainOne = plain.read((name) => request.headers.get(name), parsedBody);
    if (plainOne?.kind === "task") {
      const answered = await fast.answer(plainOne, auth);
      if (answered !== undefined) return toResponse(answered);
    } else if (plainOne !== undefined) {
      const { outlet, response } = webOutlet(request.signal, pulse);
      const answered = await direct.answer(plainOne, request, outlet, auth);
      if (answered !== undefined) return answered === "taken" ? response : answered;
    }
    const refusal = fast.refuse(parsedBody, auth);
    if (refusal !== undefined) return toResponse(refusal);
    const response = await sdk.fetch(request, { ...authInfo, parsedBody });
    try {
      await servers.kept(request);
    } catch (thrown) {
      await response.body?.cancel();
      const error = asTaskError(thrown).toRpc();
      return failure(error.code === -32602 ? 400 : 503, error);
    }
    const { method, params = {} } = parsedBody as Partial<JSONRPCRequest>;
    if (method === "initialize" && response.ok) response.headers.set(sessionHeader, newSession(introducedBy(params)));
    if (plainOne?.kind === "task") await fast.learn(response, auth);
    const taskIds = taskIdsOf(parsedBody);
    return taskIds === undefined || !isEventStream(response)
      ? response
      : listen(request, parsedBody as JSONRPCRequest, taskIds, response, auth);
  }

  async function authenticate(request: Request): Promise<AuthInfo | Response | undefined> {
    try {
      return await options.authenticate?.(request);
    } catch (thrown) {
      return failure(503, answerTo(new TaskError("INTERNAL", { cause: thrown }), parts.onError));
    }
  }

  /** The SDK has answered already, so that it is a valid request of a protocol that knows subscriptions. */
  async function listen(
    request: Request,
    message: JSONRPCRequest,
    wanted: unknown,
    response: Response,
    auth: AuthInfo | undefined,
  ): Promise<Response> {
    const { id, params } = message;
    try {
      const caller = { owner: parts.owner(auth), client: readCapabilities(params?._meta?.[capabilitiesKey]) };
      const taskIds = wantedTasks(caller, wanted, maxTaskIds);
      const released = limits.take(caller.owner);
      return await streams.open({ id, caller, taskIds, answer: response, signal: request.signal, released });
    } catch (thrown) {
      await response.body?.cancel().catch(() => {});
      const error = answerTo(thrown, parts.onError);
      return failure(statusOf(error), error, id);
    }
  }

  async function take(request: Request, known: Known): Promise<Response> {
    try {
      return wrongPlace(request, options.allowedHosts, options.allowedOrigins) ?? (await answer(request, known));
    } catch (thrown) {
      if (closing !== undefined) return failure(503, new TaskError("SHUTTING_DOWN").toRpc());
      return failure(500, answerTo(thrown, parts.onError));
    }
  }

  const adapter = (place: Place, handle = take) =>
    nodeAdapter(
      {
        ...{ plain, fast, direct, pulse, place, closing: () => closing !== undefined, onError: parts.onError },
        authenticate: options.authenticate === undefined ? undefined : authenticate,
      },
      handle,
    );

  async function closeAll(): Promise<void> {
    const stopped = [...listeners].map((listener) => listener.stop());
    await servers.stop();
    await Promise.all([sdk.close(), direct.close()]);
    await streams.close();
    await Promise.all(stopped.map((stop) => stop()));
  }
  const close = () => (closing ??= closeAll());

  return {
    fetch: (request, { authInfo, parsedBody } = {}) =>
      take(request, { ...(authInfo === undefined ? {} : { auth: authInfo }), body: parsedBody }),
    node: adapter({ hosts: options.allowedHosts, origins: options.allowedOrigins, path: undefined }),
    close,
    async listen({ port = 0, host = "127.0.0.1" } = {}) {
      if (closing !== undefined) throw new TaskError("SHUTTING_DOWN");
      const hosts = options.allowedHosts ?? localhostAllowedHostnames();
      const origins = options.allowedOrigins ?? localhostAllowedOrigins();
      const listener = stoppable(
        adapter({ hosts, origins, path }, async (request, known) => {
          const wrong = wrongPlace(request, hosts, origins);
          if (wrong !== undefined) return wrong;
          return new URL(request.url).pathname === path ? take(request, known) : new Response(null, { status: 404 });
        }),
      );
      listener.server.listen(port, host);
      await once(listener.server, "listening");
      listeners.add(listener);
      const address = listener.server.address() as AddressInfo;
      const name = host.includes(":") ? `[${host}]` : host;
      return { url: `http://${name}:${address.port}${path}`, port: address.port, close };
    },
  };
}

/** Node reads raw bytes above ASCII as Latin-1: what came is not what the header's sender meant. */
function fitsHeader(value: string | null): boolean {
  return value === null || /^[\t\x20-\x7e]*$/.test(value);
}

/** The tasks that a message subscribes to, whatever they are, or undefined if it is no such message. */
function taskIdsOf(message: unknown): unknown {
  const { method, params } = message as Partial<JSONRPCRequest>;
  if (method !== "subscriptions/listen") return undefined;
  return (params?.notifications as Params | null | undefined)?.taskIds;
}

/** A session of another server: its client then introduces itself again. The current protocol has no sessions. */
function namesLostSession({ headers }: Request): boolean {
  const session = headers.get(sessionHeader);
  return session !== null && headers.get("mcp-protocol-version") !== tasksProtocol && readSession(session) === null;
}
