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
import { backoff, defaultInterval } from "./pace.ts";
import { readReport } from "./replies.ts";
import type { WatchedRun } from "./run.ts";

/** Tasks that start together share one request, and one that ends at once needs none. Milliseconds. */
const gatherFor = 50;
const acknowledgeWithin = 10_000;
/** A stream that lived for so long has earned a quick reconnect. Milliseconds. */
const longLived = 10_000;

/** A failure that no repetition on this connection will mend: the server doesn't know the method or the extension. */
const isFinal = (error: unknown) =>
  (ProtocolError.isInstance(error) && error.code !== -32603) ||
  (SdkHttpError.isInstance(error) && error.status >= 400 && error.status < 500 && error.status !== 429);

/**
 * Has the changes of all tasks that are followed pushed over one stream, where the server does that (Tasks extension,
 * "Task Status Notifications"). Nothing depends on it: after each acknowledgement, and whenever the stream is lost, the
 * tasks are looked at, and a slow poll goes on all the while.
 */
export class Listener {
  readonly #connection: Connection;
  readonly #clock: Clock;
  readonly #onError: (error: unknown) => void;
  readonly #runs = new Map<string, Set<WatchedRun>>();
  /** The ids that the server has said it reports. */
  #honoured: ReadonlySet<string> = new Set();
  #asked: ReadonlySet<string> = new Set();
  /** What the acknowledgement held that came last: the SDK drops the part of it that matters here. */
  #acknowledged: { notifications?: unknown } | undefined;
  #changed = Promise.withResolvers<void>();
  #busy = false;
  /** The transport whose server doesn't push. */
  #mute: unknown;

  constructor(connection: Connection, clock: Clock, onError: (error: unknown) => void) {
    this.#connection = connection;
    this.#clock = clock;
    this.#onError = onError;
  }

  /** Has this run told of its task's changes, until the returned function is called. */
  watch(run: WatchedRun): () => void {
    const { taskId } = run;
    const runs = this.#runs.get(taskId) ?? new Set();
    this.#runs.set(taskId, runs.add(run));
    if (this.#honoured.has(taskId)) this.#push(run);
    if (!this.#asked.has(taskId)) this.#wake();
    void this.#listen();
    return () => {
      runs.delete(run);
      if (runs.size === 0) this.#runs.delete(taskId);
      if (this.#runs.size === 0) this.#wake();
    };
  }

  /** Takes a notification from the server; those that are about something else are ignored. */
  receive({ method, params }: Notification): void {
    if (method === "notifications/subscriptions/acknowledged") this.#acknowledged = params;
    const taskId = params?.taskId;
    const runs = typeof taskId === "string" ? this.#runs.get(taskId) : undefined;
    if (method !== "notifications/tasks" || runs === undefined) return;
    try {
      const report = readReport(params, taskId as string);
      for (const run of runs) run.accept(report);
    } catch (error) {
      this.#onError(error);
    }
  }

  #wake(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }

  #push(run: WatchedRun): void {
    run.pushed = true;
    // Whatever happened between the last look and the acknowledgement was not pushed.
    run.hurry(0);
  }

  /** Keeps a stream open for as long as there is anybody to tell. */
  async #listen(): Promise<void> {
    const { client } = this.#connection;
    if (this.#busy || !this.#mayListen()) return;
    this.#busy = true;
    let open: McpSubscription | undefined;
    await this.#pause(gatherFor);
    for (let failures = 0; this.#runs.size > 0 && this.#mayListen();) {
      const before = open;
      try {
        open = await this.#subscribe();
      } catch (error) {
        open = undefined;
        this.#onError(error);
        if (isFinal(error)) this.#mute = client.transport;
      }
      await before?.close().catch(this.#onError);
      const openedAt = this.#clock.now();
      if (open !== undefined && !(await this.#untilClosedOrChanged(open))) {
        await this.#pause(gatherFor);
        continue;
      }
      open = undefined;
      this.#lost();
      failures = this.#clock.now() - openedAt > longLived ? 1 : failures + 1;
      if (this.#mayListen()) await this.#pause(backoff(failures, defaultInterval));
    }
    await open?.close().catch(this.#onError);
    this.#lost();
    this.#busy = false;
    // Somebody may have come in while the stream was being closed.
    if (this.#runs.size > 0) void this.#listen();
  }

  #mayListen(): boolean {
    const { client, modern } = this.#connection;
    const advertised = client.getServerCapabilities()?.extensions?.[tasksExtension] !== undefined;
    return modern && advertised && client.transport !== undefined && client.transport !== this.#mute;
  }

  async #subscribe(): Promise<McpSubscription> {
    const { client } = this.#connection;
    this.#connection.hook();
    const asked = new Set(this.#runs.keys());
    this.#asked = asked;
    this.#acknowledged = undefined;
    const filter = { taskIds: [...asked] } as SubscriptionFilter;
    const subscription = await client.listen(filter, { timeout: acknowledgeWithin });
    this.#honoured = new Set(readAcceptedTaskIdsV2(this.#acknowledged));
    for (const [taskId, runs] of this.#runs) if (this.#honoured.has(taskId)) runs.forEach((run) => this.#push(run));
    return subscription;
  }

  /** Whether the stream was closed by the other side, rather than outlived by what it is needed for. */
  async #untilClosedOrChanged(open: McpSubscription): Promise<boolean> {
    const changed = this.#changed.promise.then(() => false);
    if (this.#runs.size === 0 || [...this.#runs.keys()].some((taskId) => !this.#asked.has(taskId))) return false;
    // Where nothing is reported the stream ends at once, and asking again for the same tasks would change nothing.
    if (this.#honoured.size === 0) return await changed;
    return await Promise.race([open.closed.then(() => true), changed]);
  }

  #lost(): void {
    this.#honoured = new Set();
    this.#asked = new Set();
    for (const runs of this.#runs.values()) {
      for (const run of runs) {
        if (run.pushed) run.hurry(defaultInterval);
        run.pushed = false;
      }
    }
  }

  /** Waits so many milliseconds, or until nobody is left to wait for. */
  async #pause(ms: number): Promise<void> {
    const passed = Promise.withResolvers<void>();
    const takeBack = this.#clock.after(ms, passed.resolve);
    let over = false;
    void passed.promise.then(() => (over = true));
    while (!over && this.#runs.size > 0) await Promise.race([passed.promise, this.#changed.promise]);
    takeBack();
  }
}
