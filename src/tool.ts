import type {
  CallToolResult,
  CreateMessageRequestParams,
  CreateMessageResult,
  Icon,
  Root,
  ToolAnnotations,
} from "@modelcontextprotocol/server";
import type { z } from "zod";
import { milliseconds, type Duration } from "./clock.ts";
import { requireWhole, TaskError } from "./errors.ts";
import { formSchema } from "./protocol/form.ts";

/** What a step may be told. */
export interface StepOptions {
  /** Record the start first: after a crash in between, the step throws `STEP_INTERRUPTED` instead of running again. */
  readonly once?: boolean;
  /** Try again when it throws: how often in all, and how long to wait before the second try (doubled each time, with jitter). */
  readonly retry?: { readonly attempts: number; readonly backoff?: Duration };
  /** How long one try may take; then its signal aborts and it throws `STEP_TIMED_OUT`. */
  readonly timeout?: Duration;
}

/** What a step's function is given. */
export interface StepContext {
  /** The same at every attempt, and different from every other step's: for calls that take an idempotency key. */
  readonly key: string;
  /** Aborts on cancel, time-out and when the lease is lost. */
  readonly signal: AbortSignal;
}

/** What a wait for others may be told. */
export interface WaitOptions {
  /**
   * How long to wait, from when it was first asked for, over restarts, by the store's clock. When it passes first, the wait
   * throws `WAIT_TIMED_OUT`, at every later attempt too; what comes afterwards changes nothing. Default: without end.
   */
  readonly timeout?: Duration;
}

/** What a poll may be told: how long to pause between two looks, and at most in all. It looks a last time at its timeout. */
export interface PollOptions extends WaitOptions {
  readonly every: Duration;
}

/** A form to fill in, or a page to visit. */
export type ElicitOptions<S extends z.ZodObject> = WaitOptions &
  ({ readonly message: string; readonly schema: S } | { readonly message: string; readonly url: string });

/** What a person did with a question. `content` comes only with `accept`. */
export interface ElicitAnswer<T> {
  readonly action: "accept" | "decline" | "cancel";
  readonly content?: T;
}

/** Asks a person. Ends the attempt: nothing is held while they think. */
export interface Elicit {
  /** The accepted content. Throws `DECLINED`, `INPUT_CANCELLED` or, after its timeout, `WAIT_TIMED_OUT` when there is none. */
  <S extends z.ZodObject>(
    key: string,
    ask: WaitOptions & { readonly message: string; readonly schema: S },
  ): Promise<z.output<S>>;
  (key: string, ask: WaitOptions & { readonly message: string; readonly url: string }): Promise<void>;
  /** The action whatever it is; never throws on a refusal. No action at all is `WAIT_TIMED_OUT` here, too. */
  raw<S extends z.ZodObject>(key: string, ask: ElicitOptions<S>): Promise<ElicitAnswer<z.output<S>>>;
}

/**
 * What a handler can do with its task. An attempt may end at any wait or crash, and the next one runs the handler
 * from its top: recorded steps and answers return at once, everything outside a step runs again.
 */
export interface TaskContext {
  readonly id: string;
  /** 1 for the first attempt since the task last made progress. */
  readonly attempt: number;
  /** Who started the task; `""` where nobody is authenticated. */
  readonly owner: string;
  /** What `createTasks({ keepAuth })` kept of the caller's auth. */
  readonly auth: unknown;
  /** What was answered before the task existed (`before` of the tool), by key. */
  readonly answers: Readonly<Record<string, unknown>>;
  /** Aborts on cancel, time-out and when the lease is lost; its reason is a {@link TaskError}. */
  readonly signal: AbortSignal;
  /** Replaces the status message. At most a few a second reach the store; the last one always does. */
  report(message: string, progress?: { readonly progress: number; readonly total?: number }): Promise<void>;
  /** Runs `fn` once and records its value (anything that JSON holds); later attempts get the record. */
  step<T>(name: string, fn: (step: StepContext) => T | Promise<T>, options?: StepOptions): Promise<T>;
  readonly elicit: Elicit;
  /** A yes or no. Returns on yes; throws as {@link Elicit} does on anything else, and on nothing in time. */
  approve(key: string, message: string, options?: WaitOptions): Promise<void>;
  /** Asks the client's model. Throws `WAIT_TIMED_OUT`. */
  sample(key: string, params: CreateMessageRequestParams, options?: WaitOptions): Promise<CreateMessageResult>;
  /** Asks for the client's roots. Throws `WAIT_TIMED_OUT`. */
  roots(key: string, options?: WaitOptions): Promise<readonly Root[]>;
  /** Waits without a worker, over restarts. */
  sleep(key: string, duration: Duration): Promise<void>;
  /** Runs `fn` every so often until it returns something other than undefined. Parked in between. Throws `WAIT_TIMED_OUT`. */
  poll<T>(
    key: string,
    options: PollOptions,
    fn: (step: StepContext) => T | undefined | Promise<T | undefined>,
  ): Promise<T>;
  /** Waits for `tasks.send(id, key, value)`. Throws `WAIT_TIMED_OUT`. */
  event<T = unknown>(key: string, options?: WaitOptions): Promise<T>;
}

/** How a tool runs as a task. */
export interface TaskSettings {
  /**
   * `optional` (the default): every client may call it. One that declared the extension gets a task, unless the work ends
   * within the grace; any other is held, and gets the result. `required`: always a task, and refused to everybody else.
   */
  readonly support?: "optional" | "required";
  /** From creation to the end, waits included; then the task is `failed`. Default: unbounded. */
  readonly timeout?: Duration;
  /** How long a finished task can be read. Default `"7d"`. */
  readonly keep?: Duration;
  /** How many attempts in a row may end without progress, a crash for instance. Default 3. */
  readonly attempts?: number;
  /** `retry` (the default): an interrupted attempt is followed by another. `fail`: never run twice. */
  readonly recovery?: "retry" | "fail";
  /**
   * What a cancel does while the handler waits. `end` (the default): the task is cancelled at once. `unwind`: the
   * handler is resumed and its wait throws `CANCELLED`, so that its `catch` and `finally` blocks can clean up outside.
   */
  readonly onCancel?: "end" | "unwind";
  /**
   * Who may answer what the handler asks. `any` (the default): whoever may answer the task, so that a question waits even
   * where the caller can't be asked. `caller`: the client that made the call, or asking throws `INPUT_UNSUPPORTED`.
   */
  readonly input?: "any" | "caller";
  /** Try the whole tool again when it throws: how often in all, and the first pause (doubled each time). */
  readonly retry?: { readonly attempts: number; readonly backoff?: Duration };
  /**
   * What becomes of a call that its client makes again while the first one's task still runs, for clients that know
   * neither tasks nor idempotency keys. True (the default): the same sender gets the same task for the same arguments.
   * False: each call is a task of its own; for tools that are meant to run twice at once with the same arguments.
   */
  readonly reuse?: boolean;
  /**
   * Whether a model may answer the forms that the tool asks for, where its host can't ask a person (`task_respond`).
   * Default false. Approvals and pages to visit are for a person in any case.
   */
  readonly modelMayAnswer?: boolean;
  /** Tasks of this tool that run at once, over all workers. */
  readonly concurrency?: number;
  /** The queue that workers claim it from. Default `"default"`. */
  readonly queue?: string;
  /** Higher runs first. Default 0. */
  readonly priority?: number;
}

/** Questions that are asked on the call itself, before there is a task (multi-round-trip requests). */
export type Before = Readonly<Record<string, { readonly message: string; readonly schema: z.ZodObject }>>;

/** What an author writes. */
export interface ToolDefinition<I extends z.ZodObject, O extends z.ZodType> {
  readonly name: string;
  readonly title?: string;
  readonly description?: string;
  readonly inputSchema?: I;
  readonly outputSchema?: O;
  readonly annotations?: ToolAnnotations;
  readonly icons?: Icon[];
  /** Workers run only the versions that they know; tasks of others stay queued. */
  readonly version?: string;
  readonly task?: TaskSettings;
  /** Asked before the task exists; the answers are in `task.answers`. */
  readonly before?: Before;
  run(args: z.output<I>, task: TaskContext): Promise<CallToolResult> | CallToolResult;
}

/** A tool whose settings are complete. Lengths are milliseconds. */
export interface TaskTool {
  readonly name: string;
  readonly version: string;
  readonly title: string | undefined;
  readonly description: string | undefined;
  readonly inputSchema: z.ZodObject | undefined;
  readonly outputSchema: z.ZodType | undefined;
  readonly annotations: ToolAnnotations | undefined;
  readonly icons: Icon[] | undefined;
  readonly before: Before;
  readonly support: "optional" | "required";
  readonly timeoutMs: number | null;
  readonly keepMs: number;
  readonly attempts: number;
  readonly recovery: "retry" | "fail";
  readonly unwind: boolean;
  readonly input: "any" | "caller";
  readonly reuse: boolean;
  readonly modelMayAnswer: boolean;
  readonly retry: { readonly attempts: number; readonly backoffMs: number };
  readonly concurrency: number | null;
  readonly queue: string;
  readonly priority: number;
  readonly run: (args: never, task: TaskContext) => Promise<CallToolResult> | CallToolResult;
}

/** Defines a long-running tool. Throws `MISUSE` when a setting makes no sense, and a `RangeError` for what is no duration. */
export function taskTool<I extends z.ZodObject, O extends z.ZodType>(definition: ToolDefinition<I, O>): TaskTool {
  const { task = {} } = definition;
  const { attempts = 3, retry, concurrency, priority = 0 } = task;
  const keepMs = milliseconds(task.keep ?? "7d");
  if (!/^[A-Za-z0-9_.\-/]{1,128}$/.test(definition.name))
    throw new TaskError("MISUSE", { detail: "A tool's name has 1 to 128 of A-Z a-z 0-9 _ - . /" });
  requireWhole(1, { attempts, "retry.attempts": retry?.attempts, concurrency, keep: keepMs });
  requireWhole(Number.MIN_SAFE_INTEGER, { priority });
  for (const { schema } of Object.values(definition.before ?? {})) formSchema(schema);
  return {
    name: definition.name,
    version: definition.version ?? "",
    title: definition.title,
    description: definition.description,
    inputSchema: definition.inputSchema,
    outputSchema: definition.outputSchema,
    annotations: definition.annotations,
    icons: definition.icons,
    before: definition.before ?? {},
    support: task.support ?? "optional",
    timeoutMs: task.timeout === undefined ? null : milliseconds(task.timeout),
    keepMs,
    // A tool that is tried again when it throws must not be given up for it before.
    attempts: Math.max(attempts, retry?.attempts ?? 1),
    recovery: task.recovery ?? "retry",
    // What must never run twice holds its waits, and learns of a cancel where it waits.
    unwind: task.onCancel === "unwind" && task.recovery !== "fail",
    input: task.input ?? "any",
    reuse: task.reuse ?? true,
    modelMayAnswer: task.modelMayAnswer ?? false,
    retry: { attempts: retry?.attempts ?? 1, backoffMs: milliseconds(retry?.backoff ?? "1s") },
    concurrency: concurrency ?? null,
    queue: task.queue ?? "default",
    priority,
    run: (args, context) => definition.run(args, context),
  };
}

/** What a new task takes from its tool. */
export function newTaskOf(tool: TaskTool) {
  const { version, queue, priority, timeoutMs, keepMs, attempts, recovery, unwind } = tool;
  return { tool: tool.name, version, queue, priority, timeoutMs, keepMs, attempts, recovery, unwind };
}
