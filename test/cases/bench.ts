import { McpServer, type AuthInfo } from "@modelcontextprotocol/server";
import type { TaskError } from "../../src/errors.ts";
import { createTasks, type ServeOptions, type Tasks, type TasksOptions, type WorkOptions } from "../../src/index.ts";
import { sqlite } from "../../src/store/sqlite/index.ts";
import type { TaskStore } from "../../src/store/store.ts";
import type { TaskTool } from "../../src/tool.ts";
import { wire, type Wire, type WireOptions } from "../wire/client.ts";

/** How a bench differs from the usual one. */
export interface BenchOptions {
  readonly file?: string;
  readonly tasks?: Partial<TasksOptions>;
  readonly serve?: ServeOptions;
  /** `false`: no worker here. */
  readonly work?: WorkOptions | false;
}

/** A server, a worker and a store with tools of a test's own, over real HTTP. */
export interface Bench extends AsyncDisposable {
  readonly url: string;
  readonly store: TaskStore;
  readonly tasks: Tasks;
  readonly errors: TaskError[];
  wire(options?: WireOptions): Wire;
}

export async function bench(tools: readonly TaskTool[], options: BenchOptions = {}): Promise<Bench> {
  const store = sqlite(options.file ?? ":memory:");
  const errors: TaskError[] = [];
  // A case is about tasks, however quick their work is.
  const reply = { grace: 0 };
  const tasks = createTasks({ store, tools, reply, onError: (error) => void errors.push(error), ...options.tasks });
  const { url } = await tasks.serve(() => new McpServer({ name: "cases", version: "1.0.0" }), options.serve).listen();
  if (options.work !== false) await tasks.work({ drain: 0, ...options.work });
  return {
    url,
    store,
    tasks,
    errors,
    wire: (how) => wire(url, how),
    async [Symbol.asyncDispose]() {
      await tasks.close();
      await store[Symbol.asyncDispose]();
    },
  };
}

/** Knows who sends a token; others and nobody are refused. */
export function authenticate(tokens: Readonly<Record<string, { iss?: string; sub: string }>>) {
  return (request: Request): AuthInfo | Response => {
    const token = request.headers.get("authorization")?.replace(/^Bearer /, "");
    const found = token === undefined || !Object.hasOwn(tokens, token) ? undefined : tokens[token];
    if (token === undefined || found === undefined)
      return new Response(null, { status: 401, headers: { "www-authenticate": "Bearer" } });
    return { token, clientId: "cases", scopes: [], extra: { ...found } };
  };
}

/** A tool result of one text. */
export const text = (value: unknown) => ({ content: [{ type: "text" as const, text: String(value) }] });
