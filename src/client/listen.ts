import {
  type McpSubscription,
  ProtocolError,
  SdkHttpError,
  type SubscriptionFilter,
} from "@modelcontextprotocol/client";
import { readAcceptedTaskIdsV2 } from "@modelcontextprotocol/ext-tasks/core/v2";
import type { Clock } from "../clock.ts";
import { tasksExtension } from "../protocol/capabilities.ts";
import type { Connection, Notification } from "./connection.ts";
import { failureOf } from "./failures.ts";
import { backoff, defaultInterval } from "./pace.ts";
import { type Report, readReport } from "./replies.ts";

/** Tasks that start together share one request, and one that ends at once needs none. Milliseconds. */
const gatherFor = 50;
const acknowledgeWithin = 10_000;
/** A stream that lived for so long has earned a quick reconnect. Milliseconds. */
const longLived = 10_000;

/** Whoever follows a task, as the side that pushed changes come in by. */
export interface Watched {
  readonly taskId: string;
  /** Takes a report that was pushed. */
  accept(report: Report): void;
  /** Says whether changes are being pushed from now on. Where they are, polling is only the safety net. */
  pushing(pushed: boolean): void;
}

/** A failure that no repetition on this connection will mend: the server doesn't know the method or the extension. */
const isFinal = (error: unknown) =>
  (ProtocolError.isInstance(error) && error.code !== -32603) ||
  (SdkHttpError.isInstance(error) && error.status >= 400 && error.status < 500 && error.status !== 429);

/** What the SDK's error comes to: an outage, say. */
const reasonOf = (error: unknown) =>
  failureOf(
    error,
    true,
    ProtocolError.isInstance(error) ? { error: { code: error.code, message: error.message } } : undefined,
  );

/** Told of what goes wrong in passing, and what that comes to where it is an error of the SDK's. */
type OnError = (error: unknown, reason?: unknown) => void;

/**
 * Has the changes of all tasks that are followed pushed over one stream, where the server does that (Tasks extension,
 * "Task Status Notifications"). Nothing depends on it: after each acknowledgement, and whenever the stream is lost, the
 * tasks are looked at, and a slow poll goes on all the while.
 */
export class Listener {
  readonly #connection: Connection;
  readonly #clock: Clock;
  readonly #onError: OnError;
  readonly #tasks = new Map<string, Watched>();
  /** The ids that the server has said it reports. */
  #honoured: ReadonlySet<string> = new Set();
  #asked: ReadonlySet<string> = new Set();
  /** What the acknowledgement held that came last: the SDK drops the part of it that matters here. */
  #acknowledged: { notifications?: unknown } | undefined;
  #open: McpSubscription | undefined;
  #changed = Promise.withResolvers<void>();
  #busy = false;
  /** The transport whose server doesn't push. */
  #mute: unknown;

  constructor(connection: Connection, clock: Clock, onError: OnError) {
    this.#connection = connection;
    this.#clock = clock;
    this.#onError = onError;
  }

  /** Has a task's changes told to whoever follows it, until the returned function is called. */
  watch(task: Watched): () => void {
    const { taskId } = task;
    this.#tasks.set(taskId, task);
    if (this.#honoured.has(taskId)) task.pushing(true);
    if (!this.#asked.has(taskId)) this.#wake();
    void this.#listen();
    return () => {
      if (this.#tasks.get(taskId) === task) this.#tasks.delete(taskId);
      if (this.#tasks.size === 0) this.#wake();
    };
  }

  /** Takes a notification from the server; those that are about something else are ignored. */
  receive({ method, params }: Notification): void {
    if (method === "notifications/subscriptions/acknowledged") this.#acknowledged = params;
    const taskId = params?.taskId;
    const task = typeof taskId === "string" ? this.#tasks.get(taskId) : undefined;
    if (method !== "notifications/tasks" || task === undefined) return;
    try {
      task.accept(readReport(params, task.taskId));
    } catch (error) {
      this.#onError(error);
    }
  }

  #wake(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }

  /** Keeps a stream open for as long as there is anybody to tell. */
  async #listen(): Promise<void> {
    const { client } = this.#connection;
    if (this.#busy || !this.#mayListen()) return;
    this.#busy = true;
    await this.#pause(gatherFor);
    for (let failures = 0; this.#tasks.size > 0 && this.#mayListen();) {
      // The old stream stays open until the new one is acknowledged: what is on both misses nothing.
      const before = this.#open;
      try {
        this.#open = await this.#subscribe();
      } catch (error) {
        this.#open = undefined;
        this.#onError(error, reasonOf(error));
        if (isFinal(error)) this.#mute = client.transport;
      }
      await before?.close().catch(this.#onError);
      const openedAt = this.#clock.now();
      if (this.#open !== undefined && !(await this.#untilClosedOrChanged(this.#open))) {
        await this.#pause(gatherFor);
        continue;
      }
      this.#lost();
      failures = this.#clock.now() - openedAt > longLived ? 1 : failures + 1;
      if (this.#mayListen()) await this.#pause(backoff(failures, defaultInterval));
    }
    await this.#open?.close().catch(this.#onError);
    this.#lost();
    this.#busy = false;
    // Somebody may have come in while the stream was being closed.
    if (this.#tasks.size > 0) void this.#listen();
  }

  #mayListen(): boolean {
    const { client, modern } = this.#connection;
    const advertised = client.getServerCapabilities()?.extensions?.[tasksExtension] !== undefined;
    return modern && advertised && client.transport !== undefined && client.transport !== this.#mute;
  }

  async #subscribe(): Promise<McpSubscription> {
    const { client } = this.#connection;
    this.#connection.hook();
    const asked = new Set(this.#tasks.keys());
    this.#asked = asked;
    this.#acknowledged = undefined;
    const filter = { taskIds: [...asked] } as SubscriptionFilter;
    const subscription = await client.listen(filter, { timeout: acknowledgeWithin });
    this.#honoured = new Set(readAcceptedTaskIdsV2(this.#acknowledged));
    for (const [taskId, task] of this.#tasks) if (this.#honoured.has(taskId)) task.pushing(true);
    // A stream may break while nobody waits for that, because another one is being opened.
    void subscription.closed.then(() => this.#open === subscription && this.#honoured.size > 0 && this.#lost());
    return subscription;
  }

  /** Whether the stream was closed by the other side, rather than outlived by what it is needed for. */
  async #untilClosedOrChanged(open: McpSubscription): Promise<boolean> {
    const changed = this.#changed.promise.then(() => false);
    if (this.#tasks.size === 0 || [...this.#tasks.keys()].some((taskId) => !this.#asked.has(taskId))) return false;
    // Where nothing is reported the stream ends at once, and asking again for the same tasks would change nothing.
    if (this.#honoured.size === 0) return await changed;
    return await Promise.race([open.closed.then(() => true), changed]);
  }

  #lost(): void {
    this.#open = undefined;
    this.#honoured = new Set();
    this.#asked = new Set();
    for (const task of this.#tasks.values()) task.pushing(false);
  }

  /** Waits so many milliseconds, or until nobody is left to wait for. */
  async #pause(ms: number): Promise<void> {
    const passed = Promise.withResolvers<void>();
    const takeBack = this.#clock.after(ms, passed.resolve);
    let over = false;
    void passed.promise.then(() => (over = true));
    while (!over && this.#tasks.size > 0) await Promise.race([passed.promise, this.#changed.promise]);
    takeBack();
  }
}
