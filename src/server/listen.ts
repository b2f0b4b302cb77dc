import {
  SERVER_INFO_META_KEY,
  SUBSCRIPTION_ID_META_KEY,
  type Implementation,
  type JSONRPCResultResponse,
  type RequestId,
} from "@modelcontextprotocol/server";
import type { Engine } from "../engine/engine.ts";
import { asTaskError, TaskError } from "../errors.ts";
import { isTaskId } from "../protocol/ids.ts";
import { isTerminal } from "../protocol/status.ts";
import type { DetailedTask } from "../protocol/wire.ts";
import type { Task } from "../store/store.ts";
import type { Caller } from "./methods.ts";

/** Where a feed writes. */
export interface Sink {
  /** Whether the reader keeps up. While it doesn't, nothing is written, and only the newest state waits. */
  room(): boolean;
  write(task: DetailedTask): void;
  /** Nothing will follow: every task is finished, and its last state was written. */
  done(): void;
}

/** The states of some tasks, from now until each is finished. */
export interface Feed {
  /** The tasks that are reported: those that exist, and are the caller's own. */
  readonly ids: readonly string[];
  /** Writes what is due. To be called at first, and whenever there may be room again. */
  pump(): void;
  stop(): void;
}

/**
 * Follows tasks (Tasks extension, "Task Status Notifications"). Each is watched before it is read, so that no change
 * falls in between, and read again when its state is written: what a slow reader gets is late, but never old. Throws
 * when the store can't say which of the tasks exist.
 */
export async function openFeed(
  engine: Engine,
  { owner, client }: Caller,
  wanted: readonly string[],
  sink: Sink,
  onError: (error: TaskError) => void,
): Promise<Feed> {
  const watches = new Map<string, () => void>();
  const dirty = new Set<string>();
  const written = new Map<string, number>();
  let started = false;
  let pumping = false;
  let stopped = false;

  function drop(id: string): void {
    watches.get(id)?.();
    watches.delete(id);
    dirty.delete(id);
    written.delete(id);
  }

  function stop(): void {
    stopped = true;
    for (const id of watches.keys()) drop(id);
  }

  function changed(id: string): void {
    dirty.add(id);
    if (started) pump();
  }

  function pump(): void {
    started = true;
    if (!pumping && !stopped) void writeDue();
  }

  async function writeDue(): Promise<void> {
    pumping = true;
    let id: string | undefined;
    try {
      while (!stopped && sink.room() && (id = first(dirty)) !== undefined) {
        dirty.delete(id);
        const task = await find(engine, id, owner);
        if (stopped) break;
        if (task !== undefined && task.rev > (written.get(id) ?? -1)) {
          written.set(id, task.rev);
          sink.write(engine.describe(task, client));
        }
        if (task === undefined || isTerminal(task.status)) drop(id);
      }
    } catch (thrown) {
      // The next change, or the next keep-alive, tries again.
      if (id !== undefined) dirty.add(id);
      onError(asTaskError(thrown));
    }
    pumping = false;
    if (!stopped && watches.size === 0) {
      stopped = true;
      sink.done();
    }
  }

  for (const id of wanted)
    if (isTaskId(id))
      watches.set(
        id,
        engine.watch(id, () => changed(id)),
      );
  try {
    for (const id of watches.keys()) {
      if ((await find(engine, id, owner)) === undefined) drop(id);
      else dirty.add(id);
    }
  } catch (thrown) {
    stop();
    throw thrown;
  }
  return { ids: [...watches.keys()], pump, stop };
}

/** The task, or undefined for what this caller may not know of: unknown, somebody else's, or expired. */
async function find(engine: Engine, id: string, owner: string): Promise<Task | undefined> {
  try {
    return await engine.read(id, owner);
  } catch (thrown) {
    if (thrown instanceof TaskError && (thrown.code === "TASK_NOT_FOUND" || thrown.code === "TASK_EXPIRED")) return;
    throw thrown;
  }
}

function first<T>(set: ReadonlySet<T>): T | undefined {
  for (const value of set) return value;
  return undefined;
}

/** How many streams may be open. */
export interface StreamLimits {
  /** Takes a place and returns how to give it back, or throws `TOO_MANY_STREAMS`. */
  take(owner: string): () => void;
}

/** Counts streams, of each owner and of all. Nobody in particular (`""`) has no share to use up. */
export function streamLimits(perOwner: number, inAll: number): StreamLimits {
  const counts = new Map<string, number>();
  let all = 0;
  return {
    take(owner) {
      const own = counts.get(owner) ?? 0;
      if (all >= inAll || (owner !== "" && own >= perOwner)) throw new TaskError("TOO_MANY_STREAMS");
      all += 1;
      counts.set(owner, own + 1);
      let held = true;
      return () => {
        if (!held) return;
        held = false;
        all -= 1;
        const left = (counts.get(owner) ?? 1) - 1;
        if (left === 0) counts.delete(owner);
        else counts.set(owner, left);
      };
    },
  };
}

/** An acknowledgement of the SDK's, with the task ids that will be reported beside what it honours itself. */
export function acknowledgement(ofSdk: Acknowledgement, taskIds: readonly string[]): Acknowledgement {
  const { params } = ofSdk;
  return { ...ofSdk, params: { ...params, notifications: { ...params.notifications, taskIds } } };
}

/** `notifications/subscriptions/acknowledged`. */
export interface Acknowledgement {
  readonly jsonrpc: "2.0";
  readonly method: "notifications/subscriptions/acknowledged";
  readonly params: {
    readonly notifications: Readonly<Record<string, unknown>>;
    readonly _meta?: Readonly<Record<string, unknown>>;
  };
}

/** `notifications/tasks` for a subscription. */
export function taskNotification(subscription: RequestId, task: DetailedTask) {
  return {
    jsonrpc: "2.0" as const,
    method: "notifications/tasks",
    params: { ...task, _meta: { ...task._meta, [SUBSCRIPTION_ID_META_KEY]: subscription } },
  };
}

/** The answer that ends a subscription. */
export function lastAnswer(subscription: RequestId, serverInfo: unknown): JSONRPCResultResponse {
  const identity = serverInfo === undefined ? {} : { [SERVER_INFO_META_KEY]: serverInfo as Implementation };
  return {
    jsonrpc: "2.0",
    id: subscription,
    result: { resultType: "complete", _meta: { [SUBSCRIPTION_ID_META_KEY]: subscription, ...identity } },
  };
}
