import {
  type CallToolResult,
  type Client,
  StreamableHTTPClientTransport,
  type StreamableHTTPClientTransportOptions,
  type Transport,
  type VersionNegotiationOptions,
} from "@modelcontextprotocol/client";
import { type Clock, type Duration, milliseconds, systemClock } from "../clock.ts";
import { TaskError, asTaskError } from "../errors.ts";
import { idempotencyKey, newIdempotencyKey } from "../protocol/idempotency.ts";
import type { InputRequest, InputResponse } from "../protocol/input.ts";
import { type CallHost, type ToolCall, placeCall } from "./call.ts";
import { Connection, type Notification } from "./connection.ts";
import { declare } from "./declare.ts";
import { isPassing, taskError, visibleTask } from "./failures.ts";
import { Follower, type FollowerHost, type Seed, snapshotOf, type TaskSnapshot } from "./follower.ts";
import { patientFetch } from "./http.ts";
import { type InputHandlers, askerFor, capabilitiesOf } from "./input.ts";
import { type CallRecord, Ledger } from "./ledger.ts";
import { Listener } from "./listen.ts";
import { type LoggedTask, type TaskLog, memoryLog } from "./log.ts";
import { type TaskMethods, methodsOf } from "./methods.ts";
import { tellOutagesOnce } from "./outages.ts";
import { backoff, defaultInterval, shortest } from "./pace.ts";
import { FollowedRun, type FollowOptions, type TaskRun, settledRun } from "./run.ts";
import { isSame } from "./transport.ts";

/** What a {@link TaskClient} may be told. */
export interface TaskClientOptions {
  /** Who answers what tools ask, before and during a task. What has no handler is not declared. */
  readonly input?: InputHandlers;
  /**
   * Whether there is anybody to answer at this moment; by default there is where there is a handler. A server of
   * 2025-11-25 gives a question away to whoever waits for the task's result: nobody does while this says no. Elsewhere a
   * handler leaves a question open by itself.
   */
  readonly attended?: () => boolean;
  /** Where to remember calls and answers, for {@link TaskClient.resumeAll} after a crash. By default only in memory. */
  readonly log?: TaskLog;
  /** Names the server's address in the log, where its URL or its command is not what makes it the same server. */
  readonly server?: string;
  /** How long a `tools/call` may stay unanswered before it counts as lost. Default 5 minutes. */
  readonly callTimeout?: Duration;
  /** How long one `tasks/*` request may stay unanswered before it is repeated. Default 30 seconds. */
  readonly pollTimeout?: Duration;
  /** How {@link TaskClient.connect} finds the protocol revision. Default `{ mode: "auto" }`; Tasks need 2026-07-28. */
  readonly versionNegotiation?: VersionNegotiationOptions;
  /** Whether to have changes pushed where the server does that, rather than poll for them. Default true. */
  readonly listen?: boolean;
  /**
   * Told of what goes wrong in passing and ends nothing: a poll that failed, a handler that threw, a damaged record. While
   * the server is away, once in 10 s for each code.
   */
  readonly onError?: (error: unknown) => void;
  readonly clock?: Clock;
}

/** How one request about a task is made. */
export interface AboutOptions {
  /** Ends the waiting for the answer; the request may have come through. */
  readonly signal?: AbortSignal;
}

/** How a task is cancelled. */
export interface CancelOptions extends AboutOptions {
  /** Keeps the task in the log, for whoever wants to see how it ends, until that was handed over. */
  readonly keep?: boolean;
}

const cancelTries = 3;

/** Clients that are given no log of their own: task clients on one connection share what they answered. */
const memories = new WeakMap<Client, TaskLog>();

function memoryOf(client: Client): TaskLog {
  const log = memories.get(client) ?? memoryLog();
  memories.set(client, log);
  return log;
}

/**
 * Calls tools that may become tasks: over any transport, on any server. A server without tasks answers at once, one
 * with tasks is polled or listened to; both give the tool's result (Tasks extension, "Polymorphic Results").
 *
 * The SDK's client stays usable beside it. Its own `callTool` can't take a task, so it goes without the extension.
 */
export class TaskClient {
  readonly client: Client;
  readonly #connection: Connection;
  readonly #methods: TaskMethods;
  readonly #host: FollowerHost;
  readonly #ledger: Ledger;
  readonly #followers = new Map<string, Follower>();
  /** What is still to be taken out of the log. */
  readonly #leaving = new Set<Promise<void>>();
  readonly #callTimeoutMs: number;
  readonly #versionNegotiation: VersionNegotiationOptions;

  constructor(client: Client, options: TaskClientOptions = {}) {
    const { input = {}, clock = systemClock, listen = true, log = memoryOf(client) } = options;
    const onError = tellOutagesOnce(options.onError ?? (() => {}), clock);
    const { attended = () => Object.keys(input).length > 0 } = options;
    const { callTimeout = "5m", pollTimeout = "30s", versionNegotiation = { mode: "auto" } } = options;
    this.client = client;
    this.#ledger = Ledger.of(log);
    this.#callTimeoutMs = milliseconds(callTimeout);
    this.#versionNegotiation = versionNegotiation;
    this.#connection = new Connection(client, {
      clock,
      address: options.server,
      capabilities: capabilitiesOf(input),
      onNotification: (notification) => {
        listener?.receive(notification);
        this.#hint(notification);
      },
    });
    const listener = listen ? new Listener(this.#connection, clock, onError) : undefined;
    const methods = methodsOf(this.#connection, milliseconds(pollTimeout), onError);
    this.#methods = methods;
    this.#host = {
      clock,
      input,
      claims: this.#ledger.claims,
      onError,
      record: (taskId) => this.#record(taskId),
      get: (record, signal) => methods.get(this.#here(record), attended(), signal),
      answer: (record, key, answer, signal) => methods.answer(this.#here(record), key, answer, signal),
      check: ({ entry: { tool, taskId } }, result) => {
        if (tool !== null) this.#connection.tools.check(tool, result, taskId ?? "");
      },
      watch: (follower) => listener?.watch(follower) ?? (() => {}),
      stopped: (taskId) => void this.#followers.delete(taskId),
    };
    if (client.transport === undefined) declare(client, input);
    else this.#connection.hook();
  }

  /**
   * Connects the SDK's client: to a transport, or by Streamable HTTP to a URL. Not needed for one that is connected
   * already, which then has to have been given a `versionNegotiation` of its own.
   */
  async connect(target: Transport | URL | string, options: StreamableHTTPClientTransportOptions = {}): Promise<this> {
    this.client.setVersionNegotiation(this.#versionNegotiation);
    const transport =
      typeof target === "string" || target instanceof URL
        ? new StreamableHTTPClientTransport(new URL(target), { ...options, fetch: patientFetch(options.fetch) })
        : target;
    await this.client.connect(transport);
    this.#connection.hook();
    return this;
  }

  /** Detaches from all tasks, which go on, waits for the log, and closes the SDK's client. */
  async close(): Promise<void> {
    for (const follower of this.#followers.values()) follower.dismiss();
    await Promise.all(this.#leaving);
    await this.#ledger.idle();
    await this.client.close();
  }

  /**
   * Calls a tool and returns its result, however long that takes. A tool's own error is a result with `isError`.
   * Throws a {@link TaskError}: what {@link TaskRun.result} rejects with; `CALL_FAILED` with the server's error;
   * `MAY_HAVE_STARTED` if the answer was lost (the call is sent again only to a server that heeds idempotency keys, with
   * the key that `data.idempotencyKey` then holds); `LOG_UNAVAILABLE` before anything is sent;
   * `NOT_A_TASK`, `INPUT_UNSUPPORTED`.
   */
  async callTool(call: ToolCall, options: FollowOptions = {}): Promise<CallToolResult> {
    return await (await this.start(call, options)).result();
  }

  /**
   * Calls a tool and returns as soon as the server has its result or a task for it, whose id is in the log by then.
   * Throws as {@link TaskClient.callTool}.
   */
  async start(call: ToolCall, options: FollowOptions = {}): Promise<TaskRun> {
    const { signal, onAbort = "cancel", deadline, keep = false } = options;
    const { clock, input, onError } = this.#host;
    const startedAt = clock.now();
    if (signal?.aborted === true) {
      throw new TaskError(onAbort === "cancel" ? "CANCELLED" : "DETACHED", { cause: signal.reason });
    }
    const { server } = this.#connection;
    const intent = { tool: call.name, args: call.arguments, ...this.#keyOf(call) };
    const record = await this.#ledger.intend(server, intent, startedAt);
    // The handle may still come after the abort, and then somebody has to tell the server, or to remember it.
    const late = (result: unknown) => {
      const taskId = visibleTask(result);
      if (taskId === undefined || signal?.aborted !== true) return;
      if (keep || onAbort === "detach") record.write({ taskId, state: "working" }).catch(onError);
      if (onAbort === "cancel") this.cancel(taskId, { keep }).catch(onError);
    };
    const host: CallHost = {
      connection: this.#connection,
      clock,
      input,
      onError,
      timeoutMs: this.#callTimeoutMs,
      late,
    };
    try {
      const reply = await placeCall(host, call, record, options);
      if (reply.kind === "result") {
        this.#forget(record.entry.call);
        return settledRun(call.name, reply.result);
      }
      const { taskId } = reply.task;
      // The server runs it by now: a log that fails must not cost the caller the task.
      await record.write({ taskId, state: "working" }).catch(onError);
      const passed = clock.now() - startedAt;
      const left = deadline === undefined ? {} : { deadline: Math.max(0, milliseconds(deadline) - passed) };
      return this.#follow(taskId, call.name, { ...options, ...left }, reply);
    } catch (error) {
      // Whoever only left may want to know later what became of the call, and so may who keeps what has no outcome yet.
      const { code } = asTaskError(error);
      const hasOutcome = code !== "DETACHED" && !(keep && (code === "CANCELLED" || code === "MAY_HAVE_STARTED"));
      // What was asked first, and is left there, has not begun.
      if (hasOutcome || record.entry.state === "asking") this.#forget(record.entry.call);
      else await this.#ledger.leave(record);
      throw error;
    }
  }

  /** Follows a task that was started earlier, by this process or another. Says nothing about whether it exists. */
  resume(taskId: string, options: FollowOptions = {}): TaskRun {
    return this.#follow(taskId, undefined, options);
  }

  /**
   * Follows what a process that has ended left in the log of this server: its tasks, and its calls that were sent and
   * never answered, whose runs reject with `MAY_HAVE_STARTED`. Calls of other servers, and of processes that are alive,
   * are left alone.
   */
  async resumeAll(options: FollowOptions = {}): Promise<TaskRun[]> {
    const entries = await this.#ledger.left(this.#connection.server, this.#host.onError);
    return entries.map((entry) =>
      entry.taskId === null ? this.#lost(entry) : this.#follow(entry.taskId, entry.tool ?? undefined, options),
    );
  }

  /** Reads a task once. Throws `TASK_NOT_FOUND`, `OTHER_SERVER`, `CONNECTION_LOST` and the like; `DETACHED` on abort. */
  async get(taskId: string, options: AboutOptions = {}): Promise<TaskSnapshot> {
    const { task } = await this.#about(taskId, options, (record, signal) =>
      this.#methods.get(this.#here(record), false, signal),
    );
    const requests = task.status === "input_required" ? Object.entries<InputRequest>(task.inputRequests) : [];
    const unhandled = requests.filter(([, request]) => askerFor(this.#host.input, request) === undefined);
    return snapshotOf(
      task,
      unhandled.map(([key]) => key),
    );
  }

  /** Answers one question of a task, whether or not anybody follows it. Throws as {@link TaskClient.get}. */
  async answer(taskId: string, key: string, answer: InputResponse, options: AboutOptions = {}): Promise<void> {
    const { onError } = this.#host;
    await this.#about(taskId, options, async (record, signal) => {
      if (record.stored) await record.answered(key, answer).catch(onError);
      await this.#methods.answer(this.#here(record), key, answer, signal);
      if (record.stored) await record.answered(key, null).catch(onError);
    });
    this.#followers.get(taskId)?.hurry(defaultInterval);
  }

  /**
   * Asks the server to stop a task, which it may or may not heed (Tasks extension, "Task Cancellation"), and forgets
   * it, unless it is to be kept. Throws `TASK_NOT_FOUND`, or `CONNECTION_LOST` and the like after three tries;
   * `DETACHED` on abort.
   */
  async cancel(taskId: string, options: CancelOptions = {}): Promise<void> {
    const { clock, onError } = this.#host;
    await this.#about(taskId, options, async (record, signal) => {
      for (let tries = 1; ; tries += 1) {
        try {
          await this.#methods.cancel(this.#here(record), signal);
          break;
        } catch (error) {
          if (signal?.aborted === true || !isPassing(asTaskError(error)) || tries === cancelTries) throw error;
          await new Promise<void>((resolve) => clock.after(backoff(tries, defaultInterval), resolve));
        }
      }
      if (options.keep !== true) await this.#ledger.remove(record.entry.call).catch(onError);
    });
  }

  /** Takes a task out of the log. Needed only for those that were followed with `keep`. */
  async forget(taskId: string): Promise<void> {
    const record = await this.#record(taskId);
    await this.#ledger.remove(record.entry.call);
  }

  #follow(taskId: string, tool: string | undefined, options: FollowOptions, seed?: Seed): TaskRun {
    const { clock, onError } = this.#host;
    const host = {
      clock,
      onError,
      follower: () => {
        const follower = this.#followers.get(taskId) ?? new Follower(this.#host, taskId, seed);
        this.#followers.set(taskId, follower);
        return follower;
      },
      cancel: () => this.cancel(taskId, { keep: options.keep === true }),
      forget: () => this.#later(() => this.forget(taskId)),
    };
    return new FollowedRun(host, taskId, tool, options);
  }

  /** The caller's own key or a new one, where the server heeds it. */
  #keyOf({ name, _meta }: ToolCall): { readonly idempotencyKey?: string } {
    if (!this.#connection.heedsKeys(name)) return {};
    const own = _meta?.[idempotencyKey];
    return { idempotencyKey: typeof own === "string" ? own : newIdempotencyKey() };
  }

  #lost({ call, tool, startedAt, idempotencyKey: key }: LoggedTask): TaskRun {
    const detail = "The process that sent it ended before the answer came.";
    const again = key === undefined ? {} : { idempotencyKey: key };
    const error = new TaskError("MAY_HAVE_STARTED", { detail, data: { tool, startedAt, ...again } });
    return settledRun(tool ?? "", error, () => this.#forget(call));
  }

  #record(taskId: string): Promise<CallRecord> {
    const { clock, onError } = this.#host;
    return this.#ledger.find(this.#connection.server, taskId, clock.now(), onError);
  }

  /** The id of a task, for this server only: it may be all that it takes to read the task. Throws `OTHER_SERVER`. */
  #here({ entry: { server, taskId } }: CallRecord): string {
    if (taskId === null || !isSame(server, this.#connection.server)) {
      throw new TaskError("OTHER_SERVER", { data: { taskId } });
    }
    return taskId;
  }

  async #about<T>(
    taskId: string,
    { signal }: AboutOptions,
    action: (record: CallRecord, signal: AbortSignal | undefined) => Promise<T>,
  ): Promise<T> {
    try {
      signal?.throwIfAborted();
      return await action(await this.#record(taskId), signal);
    } catch (error) {
      if (signal?.aborted === true) throw new TaskError("DETACHED", { data: { taskId }, cause: signal.reason });
      throw taskError(asTaskError(error), taskId);
    }
  }

  #forget(call: string): void {
    this.#later(() => this.#ledger.remove(call));
  }

  /** On another turn of the event loop: what the host does at once with what it was given comes first. */
  #later(action: () => Promise<void>): void {
    const turn = new Promise<void>((resolve) => setImmediate(resolve));
    const done = turn
      .then(action)
      .catch(this.#host.onError)
      .finally(() => this.#leaving.delete(done));
    this.#leaving.add(done);
  }

  /** A server of 2025-11-25 may say that a task has changed, but not how: the task is then looked at. */
  #hint({ method, params }: Notification): void {
    if (method !== "notifications/tasks/status" || typeof params?.taskId !== "string") return;
    this.#followers.get(params.taskId)?.hurry(shortest);
  }
}
