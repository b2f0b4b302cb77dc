import { setTimeout as pause } from "node:timers/promises";
import { capabilitiesKey, tasksExtension, tasksProtocol } from "../../src/protocol/capabilities.ts";
import { events, frames, type Fields, type Frames, type Message, type Reply } from "./messages.ts";
import { checkAnswer, checkNotification } from "./shapes.ts";

export type { Fields, Frames, Message, Reply } from "./messages.ts";

/** Declares Tasks and every kind of input. */
export const everything = {
  elicitation: { form: {}, url: {} },
  sampling: { tools: {} },
  roots: {},
  extensions: { [tasksExtension]: {} },
};

/** Declares every kind of input, but not Tasks. */
export const withoutTasks = { elicitation: { form: {}, url: {} }, sampling: { tools: {} }, roots: {} };

/** How one request differs from the usual one. */
export interface RequestOptions {
  /** Headers to set; null leaves one out. */
  readonly headers?: Readonly<Record<string, string | null>>;
  readonly capabilities?: unknown;
  /** More keys of `_meta`. */
  readonly meta?: Readonly<Record<string, unknown>>;
  /** Sent as the body in place of the message. */
  readonly raw?: string;
  readonly id?: string | number;
  readonly signal?: AbortSignal;
}

/** Who speaks, and as what. */
export interface WireOptions {
  readonly token?: string;
  readonly capabilities?: unknown;
  readonly protocol?: string;
  /** How long `until` waits in all, in milliseconds. Default 10 000. */
  readonly patience?: number;
}

/** Carries messages to a server: HTTP or stdio. */
export interface Channel {
  send(message: Message, options: RequestOptions): Promise<Reply>;
  open(message: Message, options: RequestOptions): Promise<Frames>;
}

/**
 * A client that knows the protocol and nothing else: it sends what it is told and shows what came. Whatever passes
 * through is checked against the official schemas of the extension.
 */
export interface Wire {
  request(method: string, params?: Record<string, unknown>, options?: RequestOptions): Promise<Reply>;
  call(tool: string, args?: Record<string, unknown>, options?: RequestOptions): Promise<Reply>;
  /** Calls a tool and gives the id of its task. Rejects if it became none. */
  start(tool: string, args?: Record<string, unknown>, options?: RequestOptions): Promise<string>;
  get(taskId: string, options?: RequestOptions): Promise<Reply>;
  update(taskId: string, inputResponses: unknown, options?: RequestOptions): Promise<Reply>;
  cancel(taskId: string, options?: RequestOptions): Promise<Reply>;
  /** Subscribes to tasks, or to whatever a filter of its own names. */
  listen(taskIds: readonly string[] | Record<string, unknown>, options?: RequestOptions): Promise<Frames>;
  /** Reads the task until it has one of these states; terminal ones when none is named. */
  until(taskId: string, ...status: string[]): Promise<Fields>;
  /** Reads the task until it is as wanted. */
  untilTask(taskId: string, wanted: (task: Fields) => boolean): Promise<Fields>;
}

const named: Record<string, "name" | "uri" | "taskId"> = {
  "tools/call": "name",
  "prompts/get": "name",
  "resources/read": "uri",
  "tasks/get": "taskId",
  "tasks/update": "taskId",
  "tasks/cancel": "taskId",
};

/** Bodies of untold length: the server then leaves `tasks/*` to the SDK. The project "sdk" runs tests that way. */
const untold = process.env.MCP_TASKS_TEST_UNTOLD === "1";

/** The value of an `Mcp-Name` header (core specification, "Value Encoding"). */
export function headerValue(value: string): string {
  const plain = /^[!-~](?:[ -~]*[!-~])?$/.test(value) && !value.startsWith("=?base64?");
  return plain ? value : `=?base64?${Buffer.from(value).toString("base64")}?=`;
}

/** A client of the server at this address. */
export function wire(url: string | URL, options: WireOptions = {}): Wire {
  return createWire(httpChannel(String(url), options), options);
}

/** The verbs over any channel. */
export function createWire(channel: Channel, options: WireOptions): Wire {
  const { protocol = tasksProtocol, capabilities = everything, patience = 10_000 } = options;
  let lastId = 0;

  function message(method: string, params: Record<string, unknown>, how: RequestOptions): Message {
    const envelope = {
      "io.modelcontextprotocol/protocolVersion": protocol,
      "io.modelcontextprotocol/clientInfo": { name: "wire", version: "1" },
      [capabilitiesKey]: "capabilities" in how ? how.capabilities : capabilities,
    };
    const id = how.id ?? ++lastId;
    return { jsonrpc: "2.0", id, method, params: { ...params, _meta: { ...envelope, ...how.meta } } };
  }

  async function request(method: string, params: Record<string, unknown> = {}, how: RequestOptions = {}) {
    const reply = await channel.send(message(method, params, how), how);
    checkAnswer(method, reply.body);
    reply.before.forEach(checkNotification);
    return reply;
  }
  const call: Wire["call"] = (name, args = {}, how) => request("tools/call", { name, arguments: args }, how);
  /** Tests poll more often than a client should, and then wait as they are told. */
  async function get(taskId: string, how?: RequestOptions): Promise<Reply> {
    const reply = await request("tasks/get", { taskId }, how);
    if (reply.status !== 429) return reply;
    await pause((reply.body.error?.data as { readonly retryAfterMs: number }).retryAfterMs);
    return get(taskId, how);
  }

  async function untilTask(taskId: string, wanted: (task: Fields) => boolean): Promise<Fields> {
    const end = Date.now() + patience;
    for (;;) {
      const { body } = await get(taskId);
      if (body.result === undefined) throw new Error(`tasks/get failed: ${JSON.stringify(body.error)}`);
      if (wanted(body.result)) return body.result;
      if (Date.now() > end) throw new Error(`the task stayed ${JSON.stringify(body.result)}`);
      await pause(15);
    }
  }

  return {
    request,
    call,
    get,
    async start(tool, args, how) {
      const { body } = await call(tool, args, how);
      const { resultType, taskId } = body.result ?? {};
      if (resultType !== "task" || taskId === undefined) throw new Error(`no task came: ${JSON.stringify(body)}`);
      return taskId;
    },
    update: (taskId, inputResponses, how) => request("tasks/update", { taskId, inputResponses }, how),
    cancel: (taskId, how) => request("tasks/cancel", { taskId }, how),
    async listen(wanted, how = {}) {
      const notifications = Array.isArray(wanted) ? { taskIds: wanted as string[] } : wanted;
      return await channel.open(message("subscriptions/listen", { notifications }, how), how);
    },
    until: (taskId, ...status) =>
      untilTask(taskId, (task) =>
        (status.length > 0 ? status : ["completed", "failed", "cancelled"]).includes(task.status ?? ""),
      ),
    untilTask,
  };
}

function httpChannel(url: string, { token, protocol = tasksProtocol }: WireOptions): Channel {
  async function post(message: Message, how: RequestOptions, signal?: AbortSignal): Promise<Response> {
    const { method = "", params = {} } = message;
    const name = named[method] === undefined ? undefined : (params as Record<string, unknown>)[named[method]];
    const headers: Record<string, string | null> = {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "mcp-protocol-version": protocol,
      "mcp-method": method,
      ...(typeof name === "string" ? { "mcp-name": headerValue(name) } : {}),
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...Object.fromEntries(Object.entries(how.headers ?? {}).map(([key, value]) => [key.toLowerCase(), value])),
    };
    const sent = Object.entries(headers).filter((entry): entry is [string, string] => entry[1] !== null);
    const body = how.raw ?? JSON.stringify(message);
    return await fetch(url, {
      method: "POST",
      headers: Object.fromEntries(sent),
      ...(untold ? { body: new Blob([body]).stream(), duplex: "half" as const } : { body }),
      signal: signal ?? how.signal ?? null,
    });
  }

  return {
    async send(message, how) {
      const response = await post(message, how);
      const { status, headers } = response;
      if (!headers.get("content-type")?.includes("text/event-stream"))
        return { status, headers, body: parse(await response.text()), before: [] };
      const all = await Array.fromAsync(events(response.body!));
      const body = all.find(({ id, method }) => method === undefined && id === message.id);
      if (body === undefined) throw new Error(`the stream ended without an answer: ${JSON.stringify(all)}`);
      return { status, headers, body, before: all.slice(0, all.indexOf(body)) };
    },

    async open(message, how) {
      const controller = new AbortController();
      how.signal?.addEventListener("abort", () => controller.abort(), { once: true });
      const response = await post(message, how, controller.signal);
      const streams = response.headers.get("content-type")?.includes("text/event-stream") === true;
      const source = streams ? checked(events(response.body!), controller.signal) : one(parse(await response.text()));
      return frames(source, { id: message.id!, status: response.status, stop: () => controller.abort() });
    },
  };
}

function parse(text: string): Message {
  try {
    return (text === "" ? {} : JSON.parse(text)) as Message;
  } catch {
    throw new Error(`the answer is no JSON: ${text.slice(0, 200)}`);
  }
}

async function* one(message: Message): AsyncGenerator<Message> {
  yield message;
}

/** Checks what passes. An end of our own making is an end; any other cut is an error. */
async function* checked(source: AsyncIterable<Message>, closed: AbortSignal): AsyncGenerator<Message> {
  try {
    for await (const message of source) {
      checkNotification(message);
      yield message;
    }
  } catch (error) {
    if (!closed.aborted) throw error;
  }
}
