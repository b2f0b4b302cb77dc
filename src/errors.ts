/**
 * Every error this package raises on purpose: its JSON-RPC code and what it says. `docs/reference/errors.md`
 * explains each one, and a test keeps the two in step. Texts never carry a caller's data, a path, SQL or a stack.
 */
export const codes = {
  TASK_NOT_FOUND: { rpc: -32602, text: "No task has this id. Check the id, and that you are who started the task." },
  TASK_EXPIRED: {
    rpc: -32602,
    text: "The task has expired: its result was kept for as long as the server promised. Call the tool again.",
  },
  INVALID_PARAMS: { rpc: -32602, text: "The request's params don't have the form that this method takes." },
  EXTENSION_REQUIRED: {
    rpc: -32021,
    text: "This needs the extension io.modelcontextprotocol/tasks. Declare it in the request's client capabilities.",
  },
  STATE_REFUSED: {
    rpc: -32602,
    text: "The requestState was not given for this call, or it has expired. Call the tool again without it.",
  },
  INPUT_UNSUPPORTED: {
    rpc: -32021,
    text: "The tool needs a kind of input that the client which started the task did not declare.",
  },
  TASK_REQUIRED: {
    rpc: -32601,
    text: "The tool runs only as a task. Call it with the parameter task, from a client that knows tasks.",
  },
  TASK_UNSUPPORTED: { rpc: -32601, text: "The tool does not run as a task. Call it without the parameter task." },
  TASK_ENDED: { rpc: -32602, text: "The task has ended already: there is nothing left to cancel." },
  TOO_MANY_TASKS: {
    rpc: -32603,
    text: "You have as many unfinished tasks as this server allows. Wait for one to end, or cancel one.",
  },
  IDEMPOTENCY_MISMATCH: {
    rpc: -32602,
    text: "This idempotency key stands for another call. Repeat that call as it was, or make a new key for this one.",
  },
  TOO_LARGE: { rpc: -32602, text: "The request is larger than this server takes." },
  TOO_MANY_STREAMS: { rpc: -32603, text: "Too many open streams. Close one, or poll with tasks/get." },
  RATE_LIMITED: {
    rpc: -32603,
    text: "This task is polled more often than this server allows. Wait as long as its answers say (pollIntervalMs).",
  },
  ANSWER_REFUSED: {
    rpc: -32602,
    text: "An answer did not fit its question and was not taken: it can be answered again.",
  },
  STORE_UNAVAILABLE: { rpc: -32603, text: "The task store can't be reached. Nothing was changed; try again later." },
  STORE_ANSWER_LOST: {
    rpc: -32603,
    text: "The connection to the task store was lost before it answered. What was asked for may have been done: look first.",
  },
  STORE_BUSY: { rpc: -32603, text: "The task store is busy. Nothing was changed; try again." },
  STORE_CLOSED: { rpc: -32603, text: "The task store is closed: this server is shutting down." },
  STORE_UNREADABLE: {
    rpc: -32603,
    text: "The task store can't be opened: it is no task database, it is damaged, or it may not be written to.",
  },
  STORE_NEWER: { rpc: -32603, text: "The task store was written by a newer version of mcp-tasks. Update this one." },
  SHUTTING_DOWN: { rpc: -32603, text: "This server is shutting down. Try again in a moment." },
  INTERNAL: { rpc: -32603, text: "The server failed to handle this request. Its log says why." },
  TIMED_OUT: { rpc: -32603, text: "The task ran longer than its tool allows and was stopped." },
  ATTEMPTS_EXHAUSTED: { rpc: -32603, text: "The task was given up: each of its attempts ended without any progress." },
  INTERRUPTED: {
    rpc: -32603,
    text: "The task was interrupted, and its tool must not be run twice. Check what it did, then call it again.",
  },
  INVALID_RESULT: { rpc: -32603, text: "The tool returned something that is not a tool result." },
  RESULT_NOT_JSON: { rpc: -32603, text: "The tool returned a value that JSON can't hold." },
  RESULT_TOO_LARGE: { rpc: -32603, text: "The tool's result is larger than this server keeps." },
  INPUT_NEEDS_TASK: {
    rpc: -32603,
    text: "The tool asks for input that this client can't be asked for. Call it from a client of protocol 2026-07-28.",
  },
  DECLINED: { rpc: -32603, text: "The person asked said no." },
  INPUT_CANCELLED: { rpc: -32603, text: "The person asked closed the question without an answer." },
  WAIT_TIMED_OUT: { rpc: -32603, text: "No answer came within the time that the tool waits for one." },
  STEP_INTERRUPTED: {
    rpc: -32603,
    text: "A step that may run only once was interrupted, and nobody knows whether it took effect.",
  },
  STEP_NOT_JSON: { rpc: -32603, text: "A step returned a value that JSON can't hold." },
  STEP_TOO_LARGE: { rpc: -32603, text: "A step returned more than this server records." },
  STEP_TIMED_OUT: { rpc: -32603, text: "A step took longer than it was given." },
  UNSTEPPED_WORK: {
    rpc: -32603,
    text: "A tool works outside of steps before it waits. That work is done again after each wait: put it in a step.",
  },
  CANCELLED: { rpc: -32603, text: "The task was cancelled." },
  LEASE_LOST: { rpc: -32603, text: "Another worker has taken this task over." },
  MISUSE: { rpc: -32603, text: "mcp-tasks was called in a way it doesn't support." },
  NOT_A_TASK: { rpc: -32603, text: "The server answered with a task where the protocol allows none." },
  INVALID_RESPONSE: { rpc: -32603, text: "The server's answer doesn't follow the protocol." },
  TASK_FAILED: { rpc: -32603, text: "The task failed." },
  CALL_FAILED: { rpc: -32603, text: "The server answered the call with an error." },
  REFUSED: { rpc: -32603, text: "The server refused the request, or another server answered in its place." },
  CONNECTION_LOST: { rpc: -32603, text: "The server can't be reached. A task that it runs goes on; resume it later." },
  DEADLINE_PASSED: {
    rpc: -32603,
    text: "The deadline for waiting has passed. The task goes on: resume it by its id, or cancel it.",
  },
  DETACHED: { rpc: -32603, text: "Nobody waits for this task here any more. It goes on: resume it by its id." },
  INPUT_FAILED: {
    rpc: -32603,
    text: "A question of the task could not be answered. The task still waits: resume it by its id, or cancel it.",
  },
  OTHER_SERVER: {
    rpc: -32603,
    text: "The task was started on another server. Its id is not sent to this one: connect to the one that has it.",
  },
  LOG_UNAVAILABLE: { rpc: -32603, text: "The log of calls can't be written or read. Nothing more was sent." },
  LOG_DAMAGED: {
    rpc: -32603,
    text: "The log of calls holds records that can't be read. They were left out; all others stand.",
  },
  MAY_HAVE_STARTED: {
    rpc: -32603,
    text: "The answer to the call was lost after the call was sent: the tool may be running.",
  },
} as const satisfies Record<string, { rpc: number; text: string }>;

/** A name in the table of error codes. */
export type TaskErrorCode = keyof typeof codes;

/** A JSON-RPC error object as it goes over the wire. */
export interface RpcError {
  code: number;
  message: string;
  data?: unknown;
}

/** What an error may say beyond its code. `detail` reaches the caller: it must not hold data of anybody else. */
export interface TaskErrorOptions {
  detail?: string;
  data?: unknown;
  cause?: unknown;
  /** A server's own error, passed on as it came: its code, message and data stand in place of the table's. */
  answer?: RpcError;
}

/**
 * The one error class of this package. `code` names what happened, `rpc` is the JSON-RPC code it travels under,
 * `message` says what happened and what to do. The `cause` is for logs and never leaves the process.
 */
export class TaskError extends Error {
  readonly code: TaskErrorCode;
  readonly rpc: number;
  readonly data: unknown;

  constructor(code: TaskErrorCode, options: TaskErrorOptions = {}) {
    const { rpc, text } = codes[code];
    const said = options.answer?.message ?? (options.detail === undefined ? text : `${text} ${options.detail}`);
    super(said, { cause: options.cause });
    this.name = "TaskError";
    this.code = code;
    this.rpc = options.answer?.code ?? rpc;
    this.data = options.answer === undefined ? options.data : options.answer.data;
  }

  /** The error as a JSON-RPC error object. */
  toRpc(): RpcError {
    return this.data === undefined
      ? { code: this.rpc, message: this.message }
      : { code: this.rpc, message: this.message, data: this.data };
  }
}

/** Any thrown value as a {@link TaskError}; what isn't one already becomes `fallback`, with the value as its cause. */
export function asTaskError(thrown: unknown, fallback: TaskErrorCode = "INTERNAL"): TaskError {
  return thrown instanceof TaskError ? thrown : new TaskError(fallback, { cause: thrown });
}

/** Whether a store may do what it failed to do now, if it is asked again in a moment. */
export function isStoreAway({ code }: TaskError): boolean {
  return code === "STORE_BUSY" || code === "STORE_UNAVAILABLE" || code === "STORE_ANSWER_LOST";
}

/** Checks options that are whole numbers, by name; null and undefined pass. Throws `MISUSE` for what is none, or too small. */
export function requireWhole(least: number, options: Readonly<Record<string, number | null | undefined>>): void {
  for (const [name, value] of Object.entries(options)) {
    if (value === null || value === undefined || (Number.isSafeInteger(value) && value >= least)) continue;
    throw new TaskError("MISUSE", { detail: `${name} is a whole number from ${least}.` });
  }
}
