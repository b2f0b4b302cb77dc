import { channels } from "../channels.ts";
import { systemClock, type Clock } from "../clock.ts";
import { asTaskError, isStoreAway, TaskError } from "../errors.ts";
import { newTaskId, isTaskId } from "../protocol/ids.ts";
import type { ClientCapabilities } from "../protocol/capabilities.ts";
import { fitFor, unfit, type InputResponse } from "../protocol/input.ts";
import {
  detailedTask,
  detailedText,
  pollInterval,
  shortestPoll,
  wireTask,
  type DetailedTask,
  type Stamp,
  type WireTask,
} from "../protocol/wire.ts";
import type { Gone, NewTask, Place, Reuse, Task, TaskStore } from "../store/store.ts";
import { tellingRefusals, type AttemptVerbs } from "./attempts.ts";
import { createChanges, type Span } from "./changes.ts";

/** What the engine is made of, and its policy. Lengths are milliseconds. */
export interface EngineOptions {
  readonly store: TaskStore;
  readonly clock?: Clock;
  readonly newId?: () => string;
  /** How long a running handler may go on after a cancel. Default 10 000. */
  readonly cancelGraceMs?: number;
  /** Fixes the poll interval that clients are told; by default it follows the task's age. */
  readonly pollMs?: number;
  /** Unfinished tasks that one owner may have, or null for any number. Default 10 000. */
  readonly liveTasksPerOwner?: number | null;
  /** The pause between two sweeps. Default 1 000. */
  readonly sweepMs?: number;
  /** Told which tasks were deleted. */
  readonly onPurged?: (taskIds: readonly string[]) => Promise<void> | undefined;
  /** Told of what fails in the background. */
  readonly onError?: (error: TaskError) => void;
}

/** A wait for a task. */
export interface Wait extends Span {
  /** Called with the task at first, at each change, and every few seconds. True ends the wait. */
  readonly seen: (task: Task) => boolean;
}

/** What a task is made of, but for its id. */
export type TaskToCreate = Omit<NewTask, "id" | "reuse"> & { readonly reuse?: Reuse | null };

/**
 * What may happen to a task. The verbs that a client reaches take the owner: to anybody else the task doesn't exist
 * (`TASK_NOT_FOUND`). A purged task throws `TASK_EXPIRED`.
 */
export interface Engine extends AsyncDisposable {
  /**
   * Stores a task; when it returns, the task survives a crash. With `wait` it returns later, as {@link Engine.wait} does,
   * and without reading the task before it changes. With `reuse` it may be one that stood for the call before; throws
   * `IDEMPOTENCY_MISMATCH` where the key is of another call. The `id` is a fresh one unless it is given; it is refused a
   * second time.
   */
  create(task: TaskToCreate, wait?: Wait, id?: string): Promise<Task>;
  read(id: string, owner: string): Promise<Task>;
  /** Takes answers. What fits no open request is ignored; what doesn't fit its request leaves it open and says why. */
  answer(id: string, owner: string, responses: Readonly<Record<string, unknown>>): Promise<void>;
  cancel(id: string, owner: string): Promise<void>;
  /** Keeps the first value for an event of a task, for the author's own code. False: unknown or finished. */
  send(id: string, key: string, value: unknown): Promise<boolean>;
  /** Tells, as a hint, that the task with this id may have changed. The function returned ends it. */
  watch(id: string, changed: () => void): () => void;
  /** Tells, as a hint, that any task may have changed. The function returned ends it. */
  watchAll(changed: () => void): () => void;
  /**
   * Waits for what `seen` looks for, for so long, or until the signal aborts. Resolves with the task as it was last
   * seen, whatever ended the wait.
   */
  wait(id: string, owner: string, wait: Wait): Promise<Task>;
  /** A page of an owner's tasks, newest first, from after this place on. */
  page(owner: string, after: Place | null, limit: number): Promise<readonly Task[]>;
  /** Waits until the task is final or asks for input; rejects with the signal's reason. */
  settled(id: string, owner: string, signal: AbortSignal): Promise<Task>;
  /** The task for `CreateTaskResult`. */
  handle(task: Task, client?: ClientCapabilities): WireTask;
  /**
   * The task for `tasks/get` and `notifications/tasks`. With a client, less the requests that it may not be sent: where
   * none is left, the task is `working`, and says what it waits for.
   */
  describe(task: Task, client?: ClientCapabilities): DetailedTask;
  /** The same as JSON text, with what the server says in each answer. */
  describeText(task: Task, client: ClientCapabilities, stamp: Stamp): string;
  /** The shortest poll interval that clients are told, in milliseconds. */
  readonly shortestPollMs: number;
  /** Sweeps now and then until the engine closes. */
  expire(): void;
  readonly attempts: AttemptVerbs;
}

/** An engine over a store. Closing it leaves the store open. */
export function createEngine(options: EngineOptions): Engine {
  const { store, clock = systemClock, newId = newTaskId, cancelGraceMs = 10_000, sweepMs = 1_000 } = options;
  const liveLimit = options.liveTasksPerOwner === undefined ? 10_000 : options.liveTasksPerOwner;
  const changes = createChanges(store, clock);
  let stopSweeping = () => {};
  let closed = false;

  const poll = (task: Task) => options.pollMs ?? pollInterval(task, clock.now());

  async function read(id: string, owner: string): Promise<Task> {
    return present(isTaskId(id) ? await store.get(id, owner) : undefined);
  }

  async function begin(task: TaskToCreate, id: string): Promise<Task> {
    const created = await store.create({ reuse: null, ...task, id }, liveLimit);
    if (created.id === id && channels.created.hasSubscribers) {
      const { id: taskId, tool, version } = created;
      channels.created.publish({ taskId, tool, version, queue: task.queue, trace: task.client.trace ?? null });
    }
    return created;
  }

  /**
   * Waits for a task. With `fresh` the first look makes it: it is watched from before it exists, so that nothing it does
   * falls in between. Not an async function: each call that is held is in here, and what that would keep counts.
   */
  function follow(id: string, owner: string, wait: Wait, fresh: TaskToCreate | null = null): Promise<Task> {
    let toMake = fresh;
    let last: Task | undefined;
    const look = async () => {
      const make = toMake;
      toMake = null;
      try {
        last = await (make === null ? read(id, owner) : begin(make, id));
      } catch (thrown) {
        // A store that is away for a moment is no reason to give up on what is seen later.
        const error = asTaskError(thrown);
        if (last === undefined || !isStoreAway(error)) throw thrown;
        options.onError?.(error);
        return false;
      }
      // Another one may stand for the call already.
      return last.id !== id || wait.seen(last);
    };
    return changes.until(id, wait, look, fresh !== null).then(() => {
      const task = last as Task;
      return task.id === id ? task : follow(task.id, owner, wait);
    });
  }

  async function sweep(): Promise<boolean> {
    const { purged, more } = await store.sweep();
    if (purged.length > 0) await options.onPurged?.(purged);
    return more;
  }

  function scheduleSweep(afterMs: number): void {
    if (closed) return;
    stopSweeping = clock.after(afterMs, () => {
      sweep().then(
        (more) => scheduleSweep(more ? 0 : sweepMs),
        (thrown: unknown) => {
          if (!closed) options.onError?.(asTaskError(thrown));
          scheduleSweep(sweepMs);
        },
      );
    });
  }

  return {
    create(task, wait, id = newId()) {
      if (wait !== undefined && wait.forMs > 0) return follow(id, task.owner, wait, task);
      return begin(task, id).then((made) => {
        wait?.seen(made);
        return made;
      });
    },
    read,

    async answer(id, owner, responses) {
      const task = await read(id, owner);
      const { accepted, refused } = sift(task, responses);
      if (refused !== null) options.onError?.(new TaskError("ANSWER_REFUSED", { detail: refused }));
      if (Object.keys(accepted).length === 0 && refused === null) return;
      present(await store.answer(id, owner, accepted, refused));
    },

    async cancel(id, owner) {
      present(isTaskId(id) ? await store.requestCancel(id, owner, cancelGraceMs) : undefined);
    },

    async send(id, key, value) {
      const text = JSON.stringify(value ?? null);
      return isTaskId(id) && (await store.send(id, key, text));
    },

    watch: changes.watch,
    watchAll: changes.watchAll,

    wait: (id, owner, wait) => follow(id, owner, wait),
    page: (owner, after, limit) => store.page(owner, after, limit),

    async settled(id, owner, signal) {
      signal.throwIfAborted();
      const task = await follow(id, owner, { forMs: Infinity, signal, seen: ({ status }) => status !== "working" });
      if (task.status === "working") signal.throwIfAborted();
      return task;
    },

    handle: (task, client) => wireTask(shownTo(client, task), poll(task)),
    describe: (task, client) => detailedTask(shownTo(client, explained(task, clock.now())), poll(task)),
    describeText: (task, client, stamp) =>
      detailedText(shownTo(client, explained(task, clock.now())), poll(task), stamp),
    shortestPollMs: options.pollMs ?? shortestPoll,
    expire: () => scheduleSweep(0),
    attempts: tellingRefusals(store),

    async [Symbol.asyncDispose]() {
      closed = true;
      stopSweeping();
      changes.close();
    },
  };
}

/** How long a task may be in the queue before a client is told. */
const unclaimedMs = 5_000;

function present(found: Task | Gone | undefined): Task {
  if (found === undefined) throw new TaskError("TASK_NOT_FOUND");
  if (found === "expired") throw new TaskError("TASK_EXPIRED");
  return found;
}

/** A task that no worker takes, perhaps because none knows its tool or version, says so. */
function explained(task: Task, now: number): Task {
  const unclaimed = task.activation === "queued" && task.epoch === 0 && now - task.createdAt > unclaimedMs;
  return unclaimed && task.statusMessage === null
    ? { ...task, statusMessage: "Queued: no worker has taken it yet." }
    : task;
}

/** What is said of a task to a client that can't be asked what it asks. */
const elsewhere =
  "Waits for input of a kind that this client did not declare. It can be given elsewhere: with mcp-tasks answer, for one.";

/** A task with only the requests that this client may be sent (core specification, "Multi Round-Trip Requests"). */
function shownTo(client: ClientCapabilities | undefined, task: Task): Task {
  if (client === undefined || task.status !== "input_required") return task;
  const inputRequests = fitFor(client, task.inputRequests);
  // With nothing to answer, `input_required` would leave a client stuck.
  return Object.keys(inputRequests).length > 0
    ? { ...task, inputRequests }
    : { ...task, status: "working", inputRequests, statusMessage: elsewhere };
}

/** Parts responses into those that fit an open request, and a sentence on the others that tried to. */
function sift(task: Task, responses: Readonly<Record<string, unknown>>) {
  const accepted: [key: string, response: InputResponse][] = [];
  const complaints: string[] = [];
  for (const [key, request] of Object.entries(task.inputRequests)) {
    if (!Object.hasOwn(responses, key)) continue;
    const reason = unfit(request, responses[key]);
    if (reason === null) accepted.push([key, responses[key] as InputResponse]);
    else complaints.push(`The answer to "${key}" was not taken: ${reason}.`);
  }
  // `Object.fromEntries` defines its properties, so that even a key named `__proto__` is an ordinary one.
  return { accepted: Object.fromEntries(accepted), refused: complaints.length === 0 ? null : complaints.join(" ") };
}
