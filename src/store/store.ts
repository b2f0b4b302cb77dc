import type { ClientCapabilities } from "../protocol/capabilities.ts";
import type { InputRequest, InputRequests, InputResponse } from "../protocol/input.ts";
import type { Progress } from "../protocol/progress.ts";
import type { TaskStatus } from "../protocol/status.ts";
import type { TraceContext } from "../protocol/trace.ts";

/** A task as every part of the system sees it. Instants are milliseconds since the epoch, by the store's clock. */
export interface Task {
  readonly id: string;
  /** Who started it, as `createTasks({ owner })` names them; `""` where nobody is authenticated. */
  readonly owner: string;
  readonly tool: string;
  /** The version of the tool that it was created for; `""` where the tool has none. */
  readonly version: string;
  readonly status: TaskStatus;
  readonly statusMessage: string | null;
  readonly progress: Progress | null;
  readonly createdAt: number;
  /** The last visible change. Never goes back. */
  readonly updatedAt: number;
  /** The last change of status. */
  readonly turnedAt: number;
  /** From creation to deletion, or null while nothing bounds it. */
  readonly ttlMs: number | null;
  /** Rises with each visible change. */
  readonly rev: number;
  /** Rises with each claim. */
  readonly epoch: number;
  readonly cancelRequested: boolean;
  /** Its activation: in the queue (perhaps for later), with a worker, or null for none. */
  readonly activation: "queued" | "leased" | null;
  /** What is asked and not answered, in the order of asking; empty unless `input_required`. */
  readonly inputRequests: InputRequests;
  /** JSON text of the tool's result; only when `completed`. */
  readonly result: string | null;
  /** JSON text of a JSON-RPC error; only when `failed`. */
  readonly error: string | null;
}

export type { Progress } from "../protocol/progress.ts";

/** What is known of the call that started a task, besides its arguments. */
export interface CallerFacts extends ClientCapabilities {
  readonly trace?: TraceContext;
}

/** What a new task is made of. Lengths are milliseconds; the store turns them into instants by its own clock. */
export interface NewTask {
  readonly id: string;
  readonly owner: string;
  readonly tool: string;
  readonly version: string;
  readonly queue: string;
  /** Higher runs first. */
  readonly priority: number;
  /** JSON text of the call's arguments. */
  readonly args: string;
  /** JSON text of what was answered before the task existed. */
  readonly answers: string;
  readonly client: CallerFacts;
  /** JSON text of the parts of the caller's auth that the author keeps for the handler. */
  readonly auth: string;
  /** How long the task may take from creation to its end, or null. */
  readonly timeoutMs: number | null;
  /** How long it can be read after its end, or null for ever. */
  readonly keepMs: number | null;
  /** How many attempts in a row may end without progress before the task fails. */
  readonly attempts: number;
  /** Whether an interrupted attempt is followed by another, or ends the task as failed. */
  readonly recovery: "retry" | "fail";
  /** Whether a cancel resumes a waiting handler, so that it can clean up, or ends its task at once. */
  readonly unwind: boolean;
  /** What makes a repeated call known, or null for a task of its own. */
  readonly reuse: Reuse | null;
}

/** By what a call that is made again is told from a new one. Both are digests: no data of a caller's is in them. */
export interface Reuse {
  /** Names the call among those of its owner. */
  readonly key: string;
  /** The same for the same call. */
  readonly call: string;
  /** Which task still stands for the key: one that nobody has ended or asked to end, or any that can be read. */
  readonly scope: "unfinished" | "kept";
}

/** A claimed activation. Every write of a worker names it; once another epoch exists, it changes nothing. */
export interface Attempt {
  readonly taskId: string;
  readonly epoch: number;
}

/** An attempt with all that is needed to run it. */
export interface Claim extends Attempt {
  readonly task: Task;
  readonly args: string;
  readonly answers: string;
  readonly client: CallerFacts;
  readonly auth: string;
  /** 1 for the first attempt since the task last made progress. */
  readonly attempt: number;
  /** The instant at which the task times out, or null. */
  readonly deadline: number | null;
  /** The instant of the claim: what a timer's `wakeAt` is compared with. */
  readonly now: number;
  readonly journal: Journal;
}

/** What earlier attempts recorded, by key. */
export interface Journal {
  readonly steps: Readonly<Record<string, StepRecord>>;
  readonly inputs: Readonly<Record<string, InputRecord>>;
  /** Values that were sent for events, as JSON texts. Null: none came within the wait's timeout. */
  readonly events: Readonly<Record<string, string | null>>;
}

/**
 * One step, timer or poll. `started` stands for one that must not run twice, or, with `wakeAt`, for one that waits.
 * The `error` is a JSON text of the worker's own making.
 */
export type StepRecord =
  | { readonly state: "started"; readonly wakeAt: number | null }
  | { readonly state: "done"; readonly value: string }
  | { readonly state: "failed"; readonly error: string };

/** One request for input and, once it came, the answer; or that none came within its timeout. */
export interface InputRecord {
  readonly request: InputRequest;
  readonly response: InputResponse | "timed out" | null;
}

/**
 * What an attempt that parks waits for. With inputs, the task is `input_required`, and goes on when all of them are
 * answered. A wait whose timeout passes wakes it whatever else it waits for, and so does anything that comes from then on:
 * its handler may have gone on without the others.
 */
export interface Waits {
  /** The requests in the order in which they were asked. One that was asked before stays as it was. */
  readonly inputs: readonly InputWait[];
  readonly events: readonly EventWait[];
  /**
   * Timers: keys of steps and how long from now each is due. One recorded before that isn't due yet keeps its
   * instant. The earliest wakes the task, unless it waits for inputs.
   */
  readonly timers: readonly { readonly key: string; readonly dueInMs: number }[];
}

/**
 * A request, and how long it may stay open since it was first asked, or since the request `since` was. The instant that
 * comes of it stays, with whatever length, or none, a later attempt asks.
 */
export interface InputWait {
  readonly key: string;
  readonly request: InputRequest;
  readonly timeoutMs?: number | undefined;
  readonly since?: string | undefined;
}

/** An event, and how long it may take to come since it was first awaited. Its instant stays, too. */
export interface EventWait {
  readonly key: string;
  readonly timeoutMs?: number | undefined;
}

/** How a task ends. Payloads are JSON texts. */
export type Outcome =
  | { readonly status: "completed"; readonly result: string }
  | { readonly status: "failed"; readonly error: string; readonly statusMessage: string }
  | { readonly status: "cancelled"; readonly statusMessage: string | null };

/** What a worker may claim. */
export interface ClaimRequest {
  /** The worker's name, unique for the life of its process. */
  readonly worker: string;
  /** Tools and the versions of them that it can run. */
  readonly tools: readonly { readonly name: string; readonly version: string; readonly limit: number | null }[];
  readonly queues: readonly string[];
  /** How many tasks of one owner may run at once over all workers, or null. */
  readonly ownerLimit: number | null;
  /** At most so many. */
  readonly count: number;
  readonly leaseMs: number;
}

/** What renewing told: attempts that are no longer this worker's, and tasks whose end was asked for. */
export interface Renewal {
  readonly lost: readonly Attempt[];
  readonly cancelled: readonly Attempt[];
}

/** What one sweep did. `more` says that another batch is waiting. */
export interface Swept {
  readonly timedOut: number;
  readonly cancelled: number;
  /** Ids of what was deleted. */
  readonly purged: readonly string[];
  readonly more: boolean;
}

/** A task that is no longer there, but was: its result was kept for as long as promised. */
export type Gone = "expired";

/** How many unfinished tasks there are, by tool and status. */
export interface LiveCount {
  readonly tool: string;
  readonly status: TaskStatus;
  readonly count: number;
}

/** The tasks in a queue that a worker could take now, and how long the oldest of them could have been, in milliseconds. */
export interface QueueCount {
  readonly queue: string;
  readonly count: number;
  readonly oldestMs: number;
}

/** What a store holds that isn't finished, for whoever watches over it. */
export interface Census {
  readonly live: readonly LiveCount[];
  readonly queues: readonly QueueCount[];
}

/** What an operator's list shows. */
export interface ListFilter {
  readonly status?: TaskStatus;
  readonly tool?: string;
  readonly owner?: string;
  /** Tasks created before the one with this id, newest first. */
  readonly before?: string;
  readonly limit: number;
}

/** Where a task stands among those of its owner, for good. */
export interface Place {
  readonly createdAt: number;
  readonly id: string;
}

/**
 * Where tasks live. Each verb is one atomic step and durable when it returns. A task of another owner is absent, in
 * answers and in timing. A terminal task never changes. Verbs throw {@link TaskError} and nothing else.
 *
 * Invariants: a `working` task has exactly one activation (queued or leased), or awaits an event; a parked
 * `input_required` one has none before the timeout of one of its waits has passed; epochs only rise; `rev` rises at each
 * visible change.
 */
export interface TaskStore extends AsyncDisposable {
  /**
   * Stores a task and its first activation. With `liveLimit`, throws `TOO_MANY_TASKS` at so many unfinished ones. An id
   * is used once. Where a task of this owner stands for `reuse.key`, that one is returned as it is and nothing is stored;
   * if it is of another call, throws `IDEMPOTENCY_MISMATCH`.
   */
  create(task: NewTask, liveLimit: number | null): Promise<Task>;
  /** The task as it is now, in one consistent read. */
  get(id: string, owner: string): Promise<Task | Gone | undefined>;
  /**
   * Stores answers to outstanding requests, first one wins; others change nothing, nor does one after its request's
   * timeout. The last one makes the task `working`, clears the status message and queues its activation. `refused`
   * replaces the status message while requests are open, for answers that did not fit.
   */
  answer(
    id: string,
    owner: string,
    responses: Readonly<Record<string, InputResponse>>,
    refused: string | null,
  ): Promise<Task | Gone | undefined>;
  /**
   * Keeps the first value (JSON text) for an event and wakes the task if it awaits it. After the wait's timeout nothing
   * is kept. False: unknown or terminal.
   */
  send(id: string, key: string, value: string): Promise<boolean>;
  /**
   * Asks a task to end, once and for good. Queued or parked: cancelled at once, or with `unwind`, once an attempt was
   * made, queued for another attempt that learns of it. Running: its worker learns of it. After `graceMs` a sweep
   * cancels it. A terminal task stays as it is.
   */
  requestCancel(id: string, owner: string, graceMs: number): Promise<Task | Gone | undefined>;
  /** Calls `listener` with the ids of tasks that changed, or null for any. Hints: late, repeated or lost ones are allowed. */
  watch(listener: (taskId: string | null) => void): () => void;
  /**
   * Fails what timed out, cancels what outlived its grace, requeues what was lost, ends waits whose timeout has passed;
   * then purges what is over, perhaps in a step of its own. One batch each. Of several that sweep a database at the same
   * time, those that come second may do nothing.
   */
  sweep(): Promise<Swept>;
  /** Keeps the first value for a name, and returns the one that is kept: what replicas share and no client may know. */
  secret(name: string, value: string): Promise<string>;
  /** One owner's tasks, those that `get` gives, newest first, from after this place on (null: from the first). */
  page(owner: string, after: Place | null, limit: number): Promise<readonly Task[]>;
  /** For operators: tasks of every owner, newest first. */
  list(filter: ListFilter): Promise<readonly Task[]>;
  /** For operators: counts of what isn't finished, in no order. Takes time in proportion to that. */
  census(): Promise<Census>;

  /**
   * Takes activations: those due, those whose lease ran out, and those of tasks whose wait has timed out, which it records
   * for good. What has no attempts left fails instead. Each is the right one when it is taken: what comes in the meantime
   * may be taken after others that it would have gone before.
   */
  claim(request: ClaimRequest): Promise<readonly Claim[]>;
  /** Milliseconds until the next timer, timeout of a wait (even one that is over) or lease end, or null. */
  nextDue(): Promise<number | null>;
  /** Renews the leases of these attempts, each in a step of its own. */
  renew(worker: string, attempts: readonly Attempt[], leaseMs: number): Promise<Renewal>;
  /** Records that a step begins. False: the attempt lost its lease. */
  startStep(attempt: Attempt, key: string): Promise<boolean>;
  /** Records how a step ended; unless it failed, this counts as progress. False: the attempt lost its lease. */
  recordStep(attempt: Attempt, key: string, record: StepRecord): Promise<boolean>;
  /** What is recorded by now, for an attempt that holds its waits. Null: the attempt lost its lease. */
  journal(attempt: Attempt): Promise<Journal | null>;
  /** Replaces the status message and progress. False: the attempt lost its lease. */
  setStatus(attempt: Attempt, message: string | null, progress: Progress | null): Promise<boolean>;
  /**
   * Ends the attempt and stores what it waits for. What has come already (an answer, an event, a request to cancel)
   * takes effect at once. With `hold` the attempt goes on and keeps its lease. False: the attempt lost its lease.
   */
  park(attempt: Attempt, waits: Waits, hold: boolean): Promise<boolean>;
  /** Ends the task. False: the attempt lost its lease, and the task is as others left it. */
  finish(attempt: Attempt, outcome: Outcome): Promise<boolean>;
  /**
   * Hands the activation back, to run again after `delayMs`. `spend` counts the attempt and forgets failed steps, so
   * that the next one tries them again; the last one fails the task. False: the attempt lost its lease.
   */
  release(attempt: Attempt, options: { readonly delayMs: number; readonly spend: boolean }): Promise<boolean>;
}
