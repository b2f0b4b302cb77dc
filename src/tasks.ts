import type { AuthInfo, McpServerFactory } from "@modelcontextprotocol/server";
import { milliseconds, onceIn, systemClock, type Clock, type Duration } from "./clock.ts";
import { blobFolder, type Blobs } from "./blobs.ts";
import { createEngine } from "./engine/engine.ts";
import { isStoreAway, requireWhole, TaskError } from "./errors.ts";
import { limitsFor, type ReplyOptions } from "./server/hosts.ts";
import { createSeal, newSecret } from "./server/seal.ts";
import { serve, type ServeOptions, type TaskHandler } from "./server/http.ts";
import { serveStdio, type StdioHandle, type StdioOptions } from "./server/stdio.ts";
import type { TaskStore } from "./store/store.ts";
import type { TaskTool } from "./tool.ts";
import { startWorker, type Worker } from "./worker/worker.ts";

/** What tasks are made of. Only `store` and `tools` are needed. */
export interface TasksOptions {
  /** Where tasks live: `sqlite(file)` of `mcp-tasks/sqlite`, for instance. */
  readonly store: TaskStore;
  readonly tools: readonly TaskTool[];
  /**
   * Names the owner of what a request with this auth creates. By default issuer and subject (`extra.iss`,
   * `extra.sub`), or the client id where there is no subject. Never called without auth: then the owner is `""` and a
   * task belongs to whoever knows its id.
   */
  readonly owner?: (auth: AuthInfo) => string;
  /** What a handler may see of the caller's auth, as `task.auth`: JSON, and never a token. By default nothing. */
  readonly keepAuth?: (auth: AuthInfo) => unknown;
  /** How long a running handler may go on after a cancel. Default `"10s"`. */
  readonly cancelGrace?: Duration;
  /** Fixes the poll interval that clients are told. By default it follows a task's age, from one to thirty seconds. */
  readonly pollInterval?: Duration;
  /**
   * A folder for results and step values that are too large for the store, shared by all that use the store. A client
   * gets a `resource_link` to such a result, and its owner can read it. Without it they end a task with a tool error.
   */
  readonly blobs?: string;
  /**
   * Whether clients without the Tasks extension are offered the tools `task_wait`, `task_cancel` and, where a tool allows
   * it, `task_respond`, to go on with a call that was answered with a handle. Default true.
   */
  readonly companions?: boolean;
  /** Tells such a client where a person answers what a model may not: words or a URL. By default this package's CLI. */
  readonly answerAt?: (taskId: string) => string;
  /** Unfinished tasks that one owner may have at once, or null for any number. Default 10 000. */
  readonly liveTasksPerOwner?: number | null;
  /** How long calls wait for the end of their task, by what their client can do. */
  readonly reply?: ReplyOptions;
  /**
   * What seals the state of a call that its client carries: the same for all replicas, at least 32 bytes. By default one
   * is made and kept in the store.
   */
  readonly stateKey?: Uint8Array;
  /**
   * Told of what goes wrong where nobody is left to answer to. While the store is away it is told so every ten seconds
   * (`STORE_UNAVAILABLE`, `STORE_BUSY`, `STORE_ANSWER_LOST`: each), however many calls that fails.
   */
  readonly onError?: (error: TaskError) => void;
  readonly clock?: Clock;
}

/** How often the same outage of the store is told of, in milliseconds. */
const outageMs = 10_000;

/** How a worker works. */
export interface WorkOptions {
  /** Handlers that run at once in this process. Default 10. */
  readonly concurrency?: number;
  /** Queues to take tasks from. Default `["default"]`. */
  readonly queues?: readonly string[];
  /** Tasks of one owner that run at once over all workers, or null for any number (the default). */
  readonly ownerConcurrency?: number | null;
  /** After how long without a sign of life this worker's tasks are taken over. Default `"15s"`. */
  readonly lease?: Duration;
  /** How long running handlers may go on when the worker closes, before they are stopped and handed back. Default `"5s"`. */
  readonly drain?: Duration;
  /** The largest result that the store keeps, in bytes of JSON. Default 4 MiB. */
  readonly maxResultBytes?: number;
  /** The largest value of a step that the store keeps, in bytes of JSON. Default 1 MiB. */
  readonly maxStepBytes?: number;
}

/** One set of tools on one store: front ends and workers of it run here, elsewhere, or both. */
export interface Tasks extends AsyncDisposable {
  /** Serves Streamable HTTP. The factory makes a server for each request; the tools are added to it. */
  serve(factory: McpServerFactory, options?: ServeOptions): TaskHandler;
  /** Serves standard input and output. When the client hangs up, everything here closes. */
  serveStdio(factory: McpServerFactory, options?: StdioOptions): StdioHandle;
  /** Starts a worker in this process. */
  work(options?: WorkOptions): Promise<Worker>;
  /**
   * Gives an event its value (anything that JSON holds); the handler gets it from `task.event(key)`. The first value
   * for a key is kept, also when it comes before it is awaited. False: no such task, or it is finished.
   */
  send(taskId: string, key: string, value: unknown): Promise<boolean>;
  /** Closes servers and drains workers that were started here. The store stays open: close it after this. */
  close(): Promise<void>;
}

/**
 * Ties tools, store, front ends and workers together. Throws `MISUSE` when two tools share name and version, or when a
 * number makes no sense.
 */
export function createTasks(options: TasksOptions): Tasks {
  const { store, tools, clock = systemClock } = options;
  const onError = outagesOnce(options.onError ?? (() => {}), clock);
  checkDistinct(tools);
  if (options.stateKey !== undefined) requireWhole(32, { "stateKey.length": options.stateKey.byteLength });
  requireWhole(0, { liveTasksPerOwner: options.liveTasksPerOwner });
  const blobs = options.blobs === undefined ? null : blobFolder(options.blobs);
  const engine = createEngine({
    store,
    clock,
    onError,
    onPurged: (taskIds) => blobs?.drop(taskIds),
    ...(options.cancelGrace === undefined ? {} : { cancelGraceMs: milliseconds(options.cancelGrace) }),
    ...(options.pollInterval === undefined ? {} : { pollMs: milliseconds(options.pollInterval) }),
    ...(options.liveTasksPerOwner === undefined ? {} : { liveTasksPerOwner: options.liveTasksPerOwner }),
  });
  engine.expire();
  const nameOwner = options.owner ?? defaultOwner;
  const parts = {
    engine,
    clock,
    seal: createSeal(clock, async () => options.stateKey ?? (await store.secret("state", newSecret()))),
    limits: limitsFor(options.reply ?? {}),
    tools,
    blobs,
    onError,
    companions: options.companions ?? true,
    answerAt: options.answerAt ?? defaultAnswerAt,
    owner: (auth: AuthInfo | undefined) => (auth === undefined ? "" : nameOwner(auth)),
    keepAuth: (auth: AuthInfo | undefined) => (auth === undefined ? null : (options.keepAuth?.(auth) ?? null)),
  };
  const open = new Set<{ close(): Promise<void> }>();
  let closing: Promise<void> | null = null;

  function begin<T extends { close(): Promise<void> }>(start: () => T): T {
    if (closing !== null) throw new TaskError("SHUTTING_DOWN");
    const part = start();
    open.add(part);
    return part;
  }

  async function closeAll(): Promise<void> {
    await Promise.allSettled([...open].map((part) => part.close()));
    await engine[Symbol.asyncDispose]();
  }
  const close = () => (closing ??= closeAll());

  return {
    serve: (factory, how) => begin(() => serve(parts, factory, how)),
    serveStdio(factory, how) {
      const handle = begin(() => serveStdio(parts, factory, how));
      void handle.closed.then(close);
      return handle;
    },
    work: async (how = {}) => begin(() => startWorker({ engine, tools, clock, onError, ...settings(how, blobs) })),
    send: (taskId, key, value) => engine.send(taskId, key, value),
    close,
    [Symbol.asyncDispose]: close,
  };
}

/** An outage fails all that needs the store at the same time, and again and again: whoever knows of one knows of all. */
function outagesOnce(onError: (error: TaskError) => void, clock: Clock): (error: TaskError) => void {
  const isDue = onceIn(outageMs, clock);
  return (error) => {
    if (!isStoreAway(error) || isDue(error.code)) onError(error);
  };
}

/** What a worker is told, checked and completed. */
function settings(how: WorkOptions, blobs: Blobs | null) {
  const { concurrency = 10, ownerConcurrency = null, maxResultBytes = 4 << 20, maxStepBytes = 1 << 20 } = how;
  const leaseMs = milliseconds(how.lease ?? "15s");
  requireWhole(1, { concurrency, ownerConcurrency, lease: leaseMs, maxResultBytes, maxStepBytes });
  return {
    concurrency,
    queues: how.queues ?? ["default"],
    ownerLimit: ownerConcurrency,
    leaseMs,
    drainMs: milliseconds(how.drain ?? "5s"),
    limits: { maxResultBytes, maxStepBytes, blobs },
  };
}

function checkDistinct(tools: readonly TaskTool[]): void {
  const seen = new Set<string>();
  for (const { name, version } of tools) {
    const id = `${name}@${version}`;
    if (seen.has(id)) throw new TaskError("MISUSE", { detail: `Two tools are called ${id}.` });
    seen.add(id);
  }
}

const defaultAnswerAt = (taskId: string) =>
  `it can be answered in any client with the Tasks extension, for instance by "npx mcp-tasks answer ${taskId}" with --url.`;

/** Who a token speaks for outlives the token: a refreshed one is the same owner, another issuer's never is. */
function defaultOwner({ clientId, extra }: AuthInfo): string {
  const { iss, sub } = extra ?? {};
  return typeof sub === "string"
    ? JSON.stringify([typeof iss === "string" ? iss : null, sub])
    : JSON.stringify([clientId]);
}
