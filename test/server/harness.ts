import { McpServer, type AuthInfo } from "@modelcontextprotocol/server";
import { z } from "zod";
import { createEngine, type Engine, type EngineOptions } from "../../src/engine/engine.ts";
import { channels } from "../../src/channels.ts";
import type { TaskError } from "../../src/errors.ts";
import { capabilitiesKey, tasksExtension } from "../../src/protocol/capabilities.ts";
import { systemClock } from "../../src/clock.ts";
import { limitsFor, type ReplyOptions } from "../../src/server/hosts.ts";
import { createSeal, newSecret } from "../../src/server/seal.ts";
import { serve, type Listening, type ServeOptions, type TaskHandler } from "../../src/server/http.ts";
import type { ServerParts } from "../../src/server/server.ts";
import { sqlite } from "../../src/store/sqlite/index.ts";
import type { Claim, Outcome, Task } from "../../src/store/store.ts";
import { taskTool } from "../../src/tool.ts";

const never = () => {
  throw new Error("No worker runs here: a test plays its part");
};

export const tools = [
  taskTool({
    name: "optional",
    inputSchema: z.object({ text: z.string(), count: z.number().default(1) }),
    run: never,
  }),
  taskTool({ name: "required", task: { support: "required" }, run: never }),
  taskTool({ name: "brief", task: { keep: 1 }, run: never }),
  taskTool({
    name: "typed",
    outputSchema: z.object({ url: z.string() }),
    run: never,
  }),
  taskTool({ name: "each", task: { reuse: false }, run: never }),
  taskTool({
    name: "asks_first",
    task: { support: "required" },
    before: {
      name: { message: "Who are you?", schema: z.object({ name: z.string().min(2) }) },
      size: { message: "How many?", schema: z.object({ size: z.int().min(1).default(3) }) },
    },
    run: never,
  }),
];

/** The capabilities of a client that knows tasks. */
export const declared = { elicitation: {}, extensions: { [tasksExtension]: {} } };

/** One server over HTTP, with the engine beneath it in reach. */
export interface Served extends AsyncDisposable {
  readonly engine: Engine;
  readonly handler: TaskHandler;
  readonly listening: Listening;
  readonly errors: TaskError[];
  /** How many servers the factory has made. */
  made(): number;
  /** The parts, for another server over the same tasks. */
  readonly parts: ServerParts;
  /** Sends a request of protocol 2026-07-28. */
  send(method: string, params?: object, options?: SendOptions): Promise<Response>;
  /** Sends one and reads its JSON answer. */
  call(method: string, params?: object, options?: SendOptions): Promise<Answer>;
  /** Creates a task through the wire and returns its id. */
  create(tool?: string, args?: object, options?: SendOptions): Promise<string>;
  /** Takes the next task, as a worker would. */
  claim(): Promise<Claim>;
  finish(claim: Claim, outcome: Outcome): Promise<void>;
  /** Every task, newest first. */
  tasks(): Promise<readonly Task[]>;
}

export interface SendOptions {
  readonly id?: string | number;
  readonly capabilities?: object;
  readonly headers?: Record<string, string>;
  readonly token?: string;
  readonly signal?: AbortSignal;
  /** Another server over the same tasks. */
  readonly url?: string;
}

/** What came over the wire; expectations say what it should be. */
// oxlint-disable-next-line typescript/no-explicit-any
export type Json = any;

export interface Answer {
  readonly status: number;
  readonly body: {
    readonly id: unknown;
    readonly result?: Readonly<Record<string, Json>>;
    readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown };
  };
}

export const parameters = (params: object, capabilities: object) => ({
  ...params,
  _meta: {
    ...("_meta" in params && typeof params._meta === "object" ? params._meta : {}),
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
    [capabilitiesKey]: capabilities,
  },
});

/** The result of a tool as a worker stores it. */
export const completed = (text: string, more: object = {}): Outcome => ({
  status: "completed",
  result: JSON.stringify({ resultType: "complete", content: [{ type: "text", text }], ...more }),
});

export const question = (message: string) => ({
  method: "elicitation/create" as const,
  params: {
    mode: "form",
    message,
    requestedSchema: { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"] },
  },
});

export const factory = () => {
  const mcp = new McpServer({ name: "test", version: "1.0.0" });
  mcp.registerTool("plain", { inputSchema: z.object({ name: z.string() }) }, ({ name }) => ({
    content: [{ type: "text", text: `Hello, ${name}!` }],
  }));
  return mcp;
};

/** A token is the name of whoever has it. */
export const authenticate = (request: Request): AuthInfo | Response => {
  const token = request.headers.get("authorization")?.replace("Bearer ", "");
  if (token === undefined) return new Response("no token", { status: 401 });
  if (token === "outage") throw new Error("the auth server at 10.0.0.1 is down");
  return { token, clientId: token, scopes: [] };
};

export async function open(
  options: ServeOptions = {},
  engineOptions: Partial<EngineOptions> = {},
  reply: ReplyOptions = { grace: 0 },
  more: Partial<ServerParts> = {},
): Promise<Served> {
  const { clock = systemClock } = engineOptions;
  const store = engineOptions.store ?? sqlite(":memory:", { clock });
  const engine = createEngine({ ...engineOptions, store });
  const errors: TaskError[] = [];
  const parts: ServerParts = {
    engine,
    clock,
    seal: createSeal(clock, () => store.secret("state", newSecret())),
    limits: limitsFor(reply),
    tools,
    owner: (auth) => auth?.clientId ?? "",
    blobs: null,
    companions: true,
    answerAt: (taskId) => `at the desk, with ${taskId}`,
    keepAuth: (auth) => (auth === undefined ? null : { who: auth.clientId }),
    onError: (error) => void errors.push(error),
    ...more,
  };
  let made = 0;
  const handler = serve(
    parts,
    () => {
      made += 1;
      return factory();
    },
    options,
  );
  const listening = await handler.listen();

  function send(method: string, params: object = {}, how: SendOptions = {}): Promise<Response> {
    const { taskId, name } = params as { taskId?: unknown; name?: unknown };
    const mirrored = taskId ?? name;
    return fetch(how.url ?? listening.url, {
      method: "POST",
      headers: {
        accept: "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": method,
        ...(typeof mirrored === "string" ? { "mcp-name": mirrored } : {}),
        ...(how.token === undefined ? {} : { authorization: `Bearer ${how.token}` }),
        ...how.headers,
      },
      body: JSON.stringify({
        jsonrpc: "2.0",
        id: how.id ?? 1,
        method,
        params: parameters(params, how.capabilities ?? declared),
      }),
      signal: how.signal ?? null,
    });
  }

  async function call(method: string, params?: object, how?: SendOptions): Promise<Answer> {
    const response = await send(method, params, how);
    return { status: response.status, body: (await response.json()) as Answer["body"] };
  }

  return {
    engine,
    handler,
    listening,
    errors,
    made: () => made,
    parts,
    send,
    call,
    async create(tool = "required", args = {}, how = {}) {
      const { body } = await call("tools/call", { name: tool, arguments: args }, how);
      if (body.result?.resultType !== "task") throw new Error(`No task: ${JSON.stringify(body)}`);
      return body.result.taskId as string;
    },
    async claim() {
      const [claim] = await engine.attempts.claim({
        worker: "test",
        tools: tools.map(({ name, version }) => ({ name, version, limit: null })),
        queues: ["default"],
        ownerLimit: null,
        count: 1,
        leaseMs: 60_000,
      });
      if (claim === undefined) throw new Error("Nothing to claim");
      return claim;
    },
    async finish(claim, outcome) {
      if (!(await engine.attempts.finish(claim, outcome))) throw new Error("The lease was lost");
    },
    tasks: () => store.list({ limit: 100 }),
    async [Symbol.asyncDispose]() {
      await handler.close();
      await engine[Symbol.asyncDispose]();
      await store[Symbol.asyncDispose]();
    },
  };
}

/** Reads an event stream message by message; comments are counted. */
export function events(response: Response) {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  const ready: Json[] = [];
  let text = "";
  const seen = { comments: 0 };
  return {
    seen,
    /** The next message, or undefined at the end of the stream. */
    async next(): Promise<Json> {
      while (ready.length === 0) {
        const { value, done } = await reader.read();
        if (done) return undefined;
        text += value;
        const frames = text.split("\n\n");
        text = frames.pop()!;
        for (const frame of frames) {
          const data = frame.split("\n").find((line) => line.startsWith("data: "));
          if (data === undefined) seen.comments += 1;
          else ready.push(JSON.parse(data.slice(6)));
        }
      }
      return ready.shift();
    },
    cancel: () => reader.cancel(),
  };
}

/** Resolves when a task has been created. */
export const nextTask = () =>
  new Promise<void>((resolve) => {
    const begun = () => {
      channels.created.unsubscribe(begun);
      resolve();
    };
    channels.created.subscribe(begun);
  });

/** Waits until `look` gives something else than undefined or false. */
export async function eventually<T>(look: () => Promise<T> | T): Promise<Exclude<T, undefined | false>> {
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) return found as Exclude<T, undefined | false>;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
