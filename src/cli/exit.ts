import { TaskError, type TaskErrorCode } from "../errors.ts";

/** What the process ends with; `docs/guide/cli.md` has the table. */
export const exits = {
  done: 0,
  unexpected: 1,
  usage: 2,
  unauthorised: 3,
  unreachable: 4,
  toolError: 5,
  inputNeeded: 6,
  timedOut: 7,
  failed: 8,
  cancelled: 9,
  unknownTask: 10,
  interrupted: 130,
} as const;

/** One of {@link exits}. */
export type Exit = (typeof exits)[keyof typeof exits];

/** What an error says beside its message. */
export interface CliErrorOptions {
  readonly taskId?: string | undefined;
  /** The next command to run. */
  readonly next?: string | undefined;
  readonly cause?: unknown;
}

/** An end other than "done": how the process exits, what it says, and what to run next. */
export class CliError extends Error {
  readonly exit: Exit;
  readonly code: string;
  readonly taskId: string | undefined;
  readonly next: string | undefined;

  constructor(exit: Exit, code: string, message: string, { taskId, next, cause }: CliErrorOptions = {}) {
    super(message, { cause });
    this.name = "CliError";
    this.exit = exit;
    this.code = code;
    this.taskId = taskId;
    this.next = next;
  }
}

/** The command line was wrong. */
export const usage = (message: string, next?: string) => new CliError(exits.usage, "USAGE", message, { next });

const byCode: Partial<Record<TaskErrorCode, Exit>> = {
  CONNECTION_LOST: exits.unreachable,
  MAY_HAVE_STARTED: exits.unreachable,
  STORE_UNAVAILABLE: exits.unreachable,
  STORE_ANSWER_LOST: exits.unreachable,
  STORE_BUSY: exits.unreachable,
  STORE_UNREADABLE: exits.unreachable,
  STORE_NEWER: exits.unreachable,
  INPUT_UNSUPPORTED: exits.inputNeeded,
  DEADLINE_PASSED: exits.timedOut,
  TASK_FAILED: exits.failed,
  CALL_FAILED: exits.failed,
  CANCELLED: exits.cancelled,
  TASK_NOT_FOUND: exits.unknownTask,
  TASK_EXPIRED: exits.unknownTask,
  OTHER_SERVER: exits.unknownTask,
};

/** Writes a command for the same server or database: `line("get", id)`. */
export type Line = (...words: string[]) => string;

const statusOf = ({ data }: TaskError) => (data as { status?: number } | undefined)?.status ?? 0;

function exitOf(error: TaskError): Exit {
  if (error.code !== "REFUSED") return byCode[error.code] ?? exits.unexpected;
  return [401, 403].includes(statusOf(error)) ? exits.unauthorised : exits.unreachable;
}

/** The next command after an end of this kind. */
export function nextAfter(exit: Exit, line: Line, taskId?: string): string {
  if (exit === exits.unauthorised) return `${line("doctor")} --header 'Authorization: Bearer …'`;
  if (exit === exits.unknownTask) return line("ls");
  if (exit === exits.failed && taskId === undefined) return line("tools");
  if (taskId === undefined || exit === exits.unreachable) return line("doctor");
  // To wait again would end the same way.
  if (exit === exits.failed || exit === exits.cancelled || exit === exits.unexpected) return line("get", taskId);
  return exit === exits.inputNeeded ? line("answer", taskId) : line("result", taskId);
}

/** The ids of our own servers have so many characters, and those of others seldom fewer. */
const wholeLength = 22;
const shortIdsAre =
  "The beginning of an id is known only where its task was started, until its outcome was shown: give the whole id.";

/** A task was to be answered that asks nothing now. */
export const nothingAsked = (taskId: string, line: Line, message = "The task asks nothing.") =>
  new CliError(exits.usage, "NOTHING_ASKED", message, { taskId, next: line("get", taskId) });

/** Any thrown value as the end of this process. */
export function asCliError(thrown: unknown, line: Line, taskId?: string): CliError {
  if (thrown instanceof CliError) return thrown;
  if (!(thrown instanceof TaskError)) {
    const message = thrown instanceof Error ? thrown.message : "Something failed that should not.";
    return new CliError(exits.unexpected, "UNEXPECTED", message, { cause: thrown, next: line("doctor") });
  }
  const id = (thrown.data as { taskId?: string } | undefined)?.taskId ?? taskId;
  const exit = exitOf(thrown);
  const isShort = thrown.code === "TASK_NOT_FOUND" && id !== undefined && id.length < wholeLength;
  return new CliError(exit, thrown.code, isShort ? `${thrown.message} ${shortIdsAre}` : thrown.message, {
    cause: thrown,
    taskId: id,
    next: nextAfter(exit, line, id),
  });
}
