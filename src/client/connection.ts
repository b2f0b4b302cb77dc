import type {
  CallToolRequestParams,
  Client,
  JSONRPCMessage,
  RequestId,
  RequestOptions,
  Transport,
  TransportSendOptions,
} from "@modelcontextprotocol/client";
import { z } from "zod";
import type { Clock } from "../clock.ts";
import { type RpcError, TaskError } from "../errors.ts";
import { capabilitiesKey, tasksExtension } from "../protocol/capabilities.ts";
import { heedsKeys } from "../protocol/idempotency.ts";
import { isObject } from "../protocol/json.ts";
import { failureOf } from "./failures.ts";
import { KnownTools } from "./tools.ts";
import { type ServerIdentity, makePatient, serverOf } from "./transport.ts";

/** A request of ours on its way, and what came back before the SDK's client looked at it. */
interface Flight {
  readonly method: string;
  sent: boolean;
  reply: { result: unknown } | { error: RpcError } | undefined;
  /** Set once nobody waits for the reply any more: takes a result that comes nevertheless. */
  late?: (result: unknown) => void;
  /** Gives up: the reply's stream has ended without it. */
  cut(): void;
}

/** How one request is sent. Times are milliseconds. */
export interface SendOptions {
  readonly signal?: AbortSignal;
  readonly timeoutMs: number;
  /** Given a result that comes after the signal has aborted, on transports where one still can. */
  readonly late?: (result: unknown) => void;
}

/** What came back: a plain result, checked and shaped by the SDK, or something else as it came. */
export interface Answer {
  readonly plain: boolean;
  readonly value: unknown;
}

/** A notification that the server sent, as it came. */
export interface Notification {
  readonly method: string;
  readonly params?: Readonly<Record<string, unknown>>;
}

/** What a {@link Connection} is told. */
export interface ConnectionOptions {
  readonly clock: Clock;
  /** The host's own name for the server's address. */
  readonly address: string | undefined;
  /** Declared on our own requests, beside the extension. */
  readonly capabilities: Record<string, unknown>;
  readonly onNotification: (notification: Notification) => void;
}

/** The methods that are about one task. The last is of 2025-11-25. */
export type TaskMethod = "tasks/get" | "tasks/update" | "tasks/cancel" | "tasks/result";

/** The SDK refuses every result that it doesn't know; this stands in for such a one while we keep the real one. */
const placeholder = { resultType: "complete", content: [], isError: true };
const anything = z.unknown();
const longestTimeout = 2 ** 31 - 1;

/** Messages that carry the declaration already: a second `TaskClient` on the same client leaves them alone. */
const declared = new WeakSet<object>();

/**
 * The request with the extension in its envelope (and the rest of `ours`, where nothing is declared for that), or
 * without the extension. A request without an envelope stays as it is.
 */
function declaring(message: JSONRPCMessage, ours: Record<string, unknown> | null): JSONRPCMessage {
  const params = "params" in message ? message.params : undefined;
  const meta = isObject(params) && isObject(params._meta) ? params._meta : undefined;
  const capabilities = meta?.[capabilitiesKey];
  if (declared.has(message) || !isObject(capabilities)) return message;
  const { [tasksExtension]: _, ...others } = isObject(capabilities.extensions) ? capabilities.extensions : {};
  const extensions = ours === null ? others : { ...others, [tasksExtension]: {} };
  const copy = {
    ...message,
    params: { ...params, _meta: { ...meta, [capabilitiesKey]: { ...ours, ...capabilities, extensions } } },
  } as JSONRPCMessage;
  if (ours !== null) declared.add(copy);
  return copy;
}

/**
 * Requests of ours over an SDK client, whatever its transport. The SDK keeps what it does well (ids, envelope, headers,
 * authorization, closing); we look over its transport's shoulder for the three things it hides: a result that is a
 * task, a stream that ended before its answer, and the notifications about tasks.
 */
export class Connection {
  readonly client: Client;
  readonly tools = new KnownTools();
  readonly #address: string | undefined;
  readonly #clock: Clock;
  readonly #capabilities: Record<string, unknown>;
  readonly #onNotification: (notification: Notification) => void;
  readonly #flights = new Map<RequestId, Flight>();
  /** Which flight a message belongs to is told by an option that the SDK hands through: nothing of it is sent. */
  readonly #owners = new WeakMap<object, Flight>();
  #hooked: Transport | undefined;
  #listed: Promise<unknown> | undefined;

  constructor(client: Client, options: ConnectionOptions) {
    this.client = client;
    this.#clock = options.clock;
    this.#address = options.address;
    this.#capabilities = options.capabilities;
    this.#onNotification = options.onNotification;
  }

  /** Whether this connection's protocol has the extension at all. */
  get modern(): boolean {
    return this.client.getProtocolEra() === "modern";
  }

  /** Whether the server is of 2025-11-25 or before. */
  get legacy(): boolean {
    return this.client.getProtocolEra() === "legacy";
  }

  /** The server at the other end. Throws `CONNECTION_LOST` where there is none. */
  get server(): ServerIdentity {
    return serverOf(this.client, this.hook(), this.#address);
  }

  /** Attaches to the client's transport, if that is a new one. Throws `CONNECTION_LOST` where there is none. */
  hook(): Transport {
    const transport = this.client.transport;
    if (transport === undefined) throw new TaskError("CONNECTION_LOST", { data: { sent: false, closed: true } });
    if (transport === this.#hooked) return transport;
    this.#hooked = transport;
    this.#flights.clear();
    this.#listed = undefined;
    this.tools.clear();
    makePatient(transport);
    const send = transport.send.bind(transport);
    const deliver = transport.onmessage;
    transport.send = (message, options) => this.#send(message, options, send);
    transport.onmessage = (message, extra) => {
      const passed = this.#receive(message);
      if (passed !== undefined) deliver?.(passed, extra);
    };
    return transport;
  }

  /** Whether the server takes a call of this tool that is made again with the same key for the same call. */
  heedsKeys(tool: string): boolean {
    return this.modern && heedsKeys(this.client.getServerCapabilities()?.extensions, tool);
  }

  /** Whether a server of 2025-11-25 takes calls of this tool as tasks. It is asked for its tools once a connection. */
  async isLegacyTask(tool: string): Promise<boolean> {
    if (!this.legacy || this.client.getServerCapabilities()?.tasks?.requests?.tools?.call === undefined) return false;
    this.hook();
    this.#listed ??= this.client.listTools();
    await this.#listed.catch((error: unknown) => {
      this.#listed = undefined;
      throw failureOf(error, false, undefined);
    });
    return this.tools.mayBeTask(tool);
  }

  /**
   * Calls a tool once. Its result, or whatever else was answered, as it came; fails with `CALL_FAILED`, `REFUSED`,
   * `CONNECTION_LOST` (`data.sent` says whether the server may have got it) or `INVALID_RESPONSE`.
   */
  async callTool(params: CallToolRequestParams, options: SendOptions): Promise<Answer> {
    // By the SDK's callTool rather than its request: it also mirrors arguments into headers and checks the output.
    return await this.#fly("tools/call", options, (rest) => this.client.callTool(params, rest));
  }

  /** Sends a request about a task. The raw result; errors as for {@link callTool}. */
  async task(method: TaskMethod, params: Readonly<Record<string, unknown>>, options: SendOptions): Promise<unknown> {
    return (await this.#fly(method, options, (rest) => this.client.request({ method, params }, anything, rest))).value;
  }

  async #fly(
    method: string,
    { signal, timeoutMs, late }: SendOptions,
    launch: (options: RequestOptions) => Promise<unknown>,
  ): Promise<Answer> {
    this.hook();
    const controller = new AbortController();
    const flight: Flight = { method, sent: false, reply: undefined, cut: () => controller.abort() };
    // A controller and a listener for each request, both gone with it: nothing gathers on the caller's signal.
    const stop = () => controller.abort();
    if (signal?.aborted === true) stop();
    signal?.addEventListener("abort", stop);
    const takeBack = this.#clock.after(timeoutMs, stop);
    const owner = () => {};
    this.#owners.set(owner, flight);
    try {
      const value = await launch({ signal: controller.signal, timeout: longestTimeout, onresumptiontoken: owner });
      const { reply } = flight;
      // A plain result is the SDK's to check and shape; whatever else came is ours.
      return reply !== undefined && "result" in reply && !this.#plain(reply.result, method)
        ? { plain: false, value: reply.result }
        : { plain: true, value };
    } catch (error) {
      throw failureOf(error, flight.sent, flight.reply);
    } finally {
      takeBack();
      signal?.removeEventListener("abort", stop);
      this.#settle(flight, late);
    }
  }

  /** Forgets a flight, unless its answer may still come over a channel that all requests share. */
  #settle(flight: Flight, late: ((result: unknown) => void) | undefined): void {
    const mayCome = late !== undefined && flight.reply === undefined && this.#hooked?.hasPerRequestStream !== true;
    if (mayCome) flight.late = late;
    else for (const [id, other] of this.#flights) if (other === flight) this.#flights.delete(id);
  }

  #plain(result: unknown, method: string): boolean {
    if (method !== "tools/call") return false;
    const { resultType: kind, task } = isObject(result) ? result : {};
    return this.modern ? kind === "complete" : kind !== "task" && !isObject(task);
  }

  async #send(message: JSONRPCMessage, options: TransportSendOptions | undefined, send: Transport["send"]) {
    const flight = options?.onresumptiontoken && this.#owners.get(options.onresumptiontoken);
    if (flight !== undefined && "id" in message && message.id !== undefined) {
      flight.sent = true;
      flight.reply = undefined;
      this.#flights.set(message.id, flight);
      return await send(declaring(message, this.#capabilities), { ...options, onRequestStreamEnd: () => flight.cut() });
    }
    const { method } = message as Partial<Notification>;
    // A reading of a task that nobody needs any more is let run out: this notification has no place around tasks.
    if (method === "notifications/cancelled" && this.#isTaskFlight(message)) return;
    // The SDK's own callTool can't take a task for an answer, so it doesn't ask for one.
    if (method === "tools/call") return await send(declaring(message, null), options);
    return await send(method === "subscriptions/listen" ? declaring(message, this.#capabilities) : message, options);
  }

  #isTaskFlight(message: JSONRPCMessage): boolean {
    const id = "params" in message && isObject(message.params) ? message.params.requestId : undefined;
    return this.#flights.get(id as RequestId)?.method.startsWith("tasks/") === true;
  }

  /** Notes what came; returns what the SDK shall see of it. */
  #receive<T extends JSONRPCMessage>(message: T): T | undefined {
    if ("method" in message) {
      if (!("id" in message)) this.#onNotification(message as Notification);
      return message;
    }
    const flight = message.id === undefined ? undefined : this.#flights.get(message.id);
    if (flight === undefined) {
      if ("result" in message) this.tools.note(message.result);
      return message;
    }
    flight.reply = "result" in message ? { result: message.result } : { error: (message as { error: RpcError }).error };
    if (flight.late !== undefined) {
      this.#flights.delete(message.id as RequestId);
      if ("result" in message) flight.late(message.result);
      return undefined;
    }
    if (!("result" in message) || this.#plain(message.result, flight.method)) return message;
    return { ...message, result: placeholder };
  }
}
