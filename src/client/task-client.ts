import {
  type CallToolRequestParams,
  type CallToolResult,
  type Client,
  StreamableHTTPClientTransport,
  type StreamableHTTPClientTransportOptions,
  type Transport,
  type VersionNegotiationOptions,
} from "@modelcontextprotocol/client";
import { type Clock, type Duration, milliseconds, systemClock } from "../clock.ts";
import { TaskError, asTaskError } from "../errors.ts";
import { tasksExtension } from "../protocol/capabilities.ts";
import type { InputRequests, InputResponse } from "../protocol/input.ts";
import { Connection } from "./connection.ts";
import { callError, isPassing, taskError, visibleTask } from "./failures.ts";
import { patientFetch } from "./http.ts";
import { type InputHandlers, ask, askerFor, capabilitiesOf } from "./input.ts";
import { Listener } from "./listen.ts";
import type { TaskLog } from "./log.ts";
import { backoff, defaultInterval } from "./pace.ts";
import { type CallReply, readCall } from "./replies.ts";
import { FollowedTask, type FollowOptions, type RunHost, type TaskRun, type WatchedRun, finishedRun } from "./run.ts";

/** What a {@link TaskClient} may be told. */
export interface TaskClientOptions {
  /** Who answers what tools ask, before and during a task. What has no handler is not declared. */
  readonly input?: InputHandlers;
  /** Where to remember the tasks that are waited for, for {@link TaskClient.resumeAll} after a crash. */
  readonly log?: TaskLog;
  /** How long a `tools/call` may stay unanswered before it counts as lost. Default 5 minutes. */
  readonly callTimeout?: Duration;
  /** How long one `tasks/*` request may stay unanswered before it is repeated. Default 30 seconds. */
  readonly pollTimeout?: Duration;
  /** How {@link TaskClient.connect} finds the protocol revision. Default `{ mode: "auto" }`; Tasks need 2026-07-28. */
  readonly versionNegotiation?: VersionNegotiationOptions;
  /** Whether to have changes pushed where the server does that, rather than poll for them. Default true. */
  readonly listen?: boolean;
  /** Told of what goes wrong in passing and ends nothing: a poll that failed, a handler that threw. */
  readonly onError?: (error: unknown) => void;
  readonly clock?: Clock;
}

/** The tool to call, as the SDK's client takes it. */
export type ToolCall = Pick<CallToolRequestParams, "name" | "arguments" | "_meta">;

/** A server that asks, on one call, more often than this before it starts, is going round in circles. */
const mostRounds = 20;
const cancelTries = 3;

/**
 * Calls tools that may become tasks: over any transport, on any server. A server without tasks answers at once, one
 * with tasks is polled or listened to; both give the tool's result (Tasks extension, "Polymorphic Results").
 *
 * The SDK's client stays usable beside it. Its own `callTool` can't take a task, so it goes without the extension.
 */
export class TaskClient {
  readonly client: Client;
  readonly #connection: Connection;
  readonly #host: RunHost;
  readonly #log: TaskLog | undefined;
  readonly #followed = new Set<WatchedRun>();
  readonly #callTimeoutMs: number;
  readonly #pollTimeoutMs: number;
  readonly #versionNegotiation: VersionNegotiationOptions;

  constructor(client: Client, options: TaskClientOptions = {}) {
    const { input = {}, clock = systemClock, onError = () => {}, listen = true, log } = options;
    const { callTimeout = "5m", pollTimeout = "30s", versionNegotiation = { mode: "auto" } } = options;
    this.client = client;
    this.#log = log;
    this.#callTimeoutMs = milliseconds(callTimeout);
    this.#pollTimeoutMs = milliseconds(pollTimeout);
    this.#versionNegotiation = versionNegotiation;
    this.#connection = new Connection(client, clock, capabilitiesOf(input), (message) => listener?.receive(message));
    const listener = listen ? new Listener(this.#connection, clock, onError) : undefined;
    this.#host = {
      clock,
      input,
      onError,
      send: (method, params, signal) =>
        this.#connection.task(method, params, { signal, timeoutMs: this.#pollTimeoutMs }),
      cancel: (taskId) => this.cancel(taskId),
      forget: (taskId) => void log?.remove(taskId).catch(onError),
      watch: (run) => {
        const stop = listener?.watch(run);
        this.#followed.add(run);
        return () => {
          this.#followed.delete(run);
          stop?.();
        };
      },
    };
    if (client.transport === undefined) declare(client, input);
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

  /** Detaches from all tasks, which go on, and closes the SDK's client. */
  async close(): Promise<void> {
    for (const run of this.#followed) run.detach();
    await this.client.close();
  }

  /**
   * Calls a tool and returns its result, however long that takes. A tool's own error is a result with `isError`.
   * Throws a {@link TaskError}: what {@link TaskRun.result} rejects with; `CALL_FAILED` with the server's error;
   * `MAY_HAVE_STARTED` if the answer was lost (the call is never sent twice); `NOT_A_TASK`, `INPUT_UNSUPPORTED`.
   */
  async callTool(call: ToolCall, options: FollowOptions = {}): Promise<CallToolResult> {
    return await (await this.start(call, options)).result();
  }

  /** Calls a tool and returns as soon as the server has its result or a task for it. Throws as {@link callTool}. */
  async start(call: ToolCall, options: FollowOptions = {}): Promise<TaskRun> {
    const { clock, onError } = this.#host;
    const startedAt = clock.now();
    const reply = await this.#call(call, options);
    if (reply.kind === "result") return finishedRun(reply.result);
    const { deadline } = options;
    const { taskId } = reply.task;
    // A log that fails must not cost the caller the task.
    await this.#log?.add({ taskId, tool: call.name, startedAt }).catch(onError);
    const passed = clock.now() - startedAt;
    const left = deadline === undefined ? {} : { deadline: Math.max(0, milliseconds(deadline) - passed) };
    return new FollowedTask(this.#host, taskId, reply, { ...options, ...left });
  }

  /** Follows a task that was started earlier, by this process or another. Says nothing about whether it exists. */
  resume(taskId: string, options: FollowOptions = {}): TaskRun {
    return new FollowedTask(this.#host, taskId, undefined, options);
  }

  /** Follows every task of the log: those that were waited for when this or another process ended. */
  async resumeAll(options: FollowOptions = {}): Promise<TaskRun[]> {
    const tasks = (await this.#log?.list()) ?? [];
    return tasks.map(({ taskId }) => this.resume(taskId, options));
  }

  /**
   * Asks the server to stop a task, which it may or may not heed (Tasks extension, "Task Cancellation"). Throws
   * `TASK_NOT_FOUND`, or `CONNECTION_LOST` and the like after three tries.
   */
  async cancel(taskId: string): Promise<void> {
    const { clock } = this.#host;
    for (let tries = 1; ; tries += 1) {
      try {
        await this.#connection.task("tasks/cancel", { taskId }, { timeoutMs: this.#pollTimeoutMs });
        return;
      } catch (thrown) {
        const error = asTaskError(thrown);
        if (!isPassing(error) || tries === cancelTries) throw taskError(error, taskId);
        await new Promise<void>((resolve) => clock.after(backoff(tries, defaultInterval), resolve));
      }
    }
  }

  /** Sends the call, answers what is asked before it starts, and returns what it then becomes. */
  async #call(call: ToolCall, options: FollowOptions): Promise<Exclude<CallReply, { kind: "input" }>> {
    const { signal, onAbort = "cancel", deadline } = options;
    const { clock, onError } = this.#host;
    const scope = new AbortController();
    const stop = () =>
      scope.abort(new TaskError(onAbort === "cancel" ? "CANCELLED" : "DETACHED", { cause: signal?.reason }));
    if (signal?.aborted === true) stop();
    signal?.addEventListener("abort", stop);
    const pass = () => scope.abort(new TaskError("DEADLINE_PASSED"));
    const takeBack = deadline === undefined ? () => {} : clock.after(milliseconds(deadline), pass);
    // The handle may still come after the abort, and then somebody has to tell the server.
    const late = (result: unknown) => {
      const taskId = visibleTask(result);
      if (taskId !== undefined && signal?.aborted === true && onAbort === "cancel") this.cancel(taskId).catch(onError);
    };
    try {
      let params: CallToolRequestParams & Record<string, unknown> = { ...call };
      for (let round = 0; round < mostRounds; round += 1) {
        scope.signal.throwIfAborted();
        const reply = await this.#send(params, scope.signal, late);
        if (reply.kind !== "input") return reply;
        const inputResponses = await this.#answer(reply.requests, scope.signal);
        const state = reply.state === undefined ? {} : { requestState: reply.state };
        params = { ...call, inputResponses, ...state };
      }
      throw new TaskError("INVALID_RESPONSE", { detail: `It asked for input more than ${mostRounds} times.` });
    } finally {
      takeBack();
      signal?.removeEventListener("abort", stop);
    }
  }

  async #send(params: CallToolRequestParams, signal: AbortSignal, late: (result: unknown) => void): Promise<CallReply> {
    const options = { signal, timeoutMs: this.#callTimeoutMs, late };
    try {
      return readCall(await this.#connection.callTool(params, options), this.#connection.modern);
    } catch (thrown) {
      const error = callError(asTaskError(thrown));
      const reason = signal.aborted ? (signal.reason as TaskError) : undefined;
      // A deadline says nothing of what became of the call; whoever aborted it has said enough.
      throw reason === undefined || (reason.code === "DEADLINE_PASSED" && error.code === "MAY_HAVE_STARTED")
        ? error
        : reason;
    }
  }

  /** Answers what the server asks before the call starts; here nothing can be left open for somebody else. */
  async #answer(requests: InputRequests, signal: AbortSignal): Promise<Record<string, InputResponse>> {
    const { input, onError } = this.#host;
    const answers = Object.entries(requests).map(async ([key, request]) => {
      const asker = askerFor(input, request);
      if (asker === undefined) {
        throw new TaskError("INPUT_UNSUPPORTED", { detail: "There is no handler for it.", data: { key } });
      }
      return [key, await ask(asker, request, { key, taskId: undefined, signal }, onError)] as const;
    });
    const stopped = Promise.withResolvers<never>();
    const stop = () => stopped.reject(signal.reason);
    signal.addEventListener("abort", stop);
    try {
      return Object.fromEntries(await Promise.race([Promise.all(answers), stopped.promise]));
    } finally {
      signal.removeEventListener("abort", stop);
    }
  }
}

/** Declares what we can do for all requests, and has the same handlers answer a server that asks by requests of its own. */
function declare(client: Client, input: InputHandlers): void {
  client.registerCapabilities({ ...capabilitiesOf(input), extensions: { [tasksExtension]: {} } });
  const free = (method: string) => {
    try {
      client.assertCanSetRequestHandler(method);
      return true;
    } catch {
      return false;
    }
  };
  const { elicit, visit, sample, roots } = input;
  if ((elicit || visit) && free("elicitation/create")) {
    client.setRequestHandler("elicitation/create", async ({ params }, { mcpReq }) => {
      const context = { key: "", taskId: undefined, signal: mcpReq.signal };
      if (params.mode === "url") return (await visit?.(params, context)) ?? { action: "cancel" };
      return (await elicit?.(params, context)) ?? { action: "cancel" };
    });
  }
  if (sample && free("sampling/createMessage")) {
    client.setRequestHandler("sampling/createMessage", async ({ params }, { mcpReq }) =>
      sample(params, { key: "", taskId: undefined, signal: mcpReq.signal }),
    );
  }
  if (roots && free("roots/list")) {
    client.setRequestHandler("roots/list", async (_, { mcpReq }) =>
      roots({ key: "", taskId: undefined, signal: mcpReq.signal }),
    );
  }
}
