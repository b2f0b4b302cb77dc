import type { CallToolResult } from "@modelcontextprotocol/client";
import type { FollowOptions, TaskRun, TaskSnapshot } from "../client/index.ts";
import type { Duration } from "../clock.ts";
import { TaskError } from "../errors.ts";
import { isTerminal } from "../protocol/status.ts";
import type { Context } from "./context.ts";
import { CliError, asCliError, exits, type Exit } from "./exit.ts";
import { answerLine, questionLines } from "./questions.ts";
import { documentOf, errorDocument, resultText, type Document } from "./output.ts";
import { isGone, type Remote } from "./remote.ts";
import { createView } from "./view.ts";

/** A call, or a task of an earlier one, to be followed to its end. */
export interface Job {
  readonly label: string;
  readonly taskId?: string;
  readonly startedAt: number;
  begin(options: FollowOptions): TaskRun | Promise<TaskRun>;
}

/** How a job is followed. */
export interface FollowHow {
  /** How long at most. */
  readonly wait?: Duration | undefined;
  /** With `--json`: a document for each change rather than one for the end. */
  readonly eachChange?: boolean;
  /** Whether an open question that nobody here answers ends the waiting. */
  readonly stopsAtInput: boolean;
  /** Takes the result in place of stdout. */
  readonly deliver?: ((result: CallToolResult) => Promise<void>) | undefined;
}

/** How long after the first Ctrl-C a second one asks the server to cancel. Milliseconds. */
const secondPressWithin = 2_000;

/** Follows a job, shows it, and says how it ended. Ctrl-C lets the task go on; once more asks for its end. */
export async function follow(context: Context, remote: Remote, job: Job, how: FollowHow): Promise<Exit> {
  const { out, interrupts, line } = context;
  const view = createView(out, job.label, job.startedAt);
  const stopped = Promise.withResolvers<never>();
  const giveUp = new AbortController();
  let presses = 0;
  let pressTimer: NodeJS.Timeout | undefined;
  let run: TaskRun | undefined;
  let last: TaskSnapshot | undefined;
  let taskId = job.taskId;
  let shown = "";

  function onUpdate(task: TaskSnapshot): void {
    last = task;
    taskId = task.taskId;
    if (presses > 0) return;
    view.show(task);
    if (how.eachChange === true) showChange(documentOf(task));
    if (how.stopsAtInput && isLeftOpen(task, out.canAsk)) stopped.reject(inputNeeded(context, task));
  }

  /** What changed may be none of the document's: who is asked, say. */
  function showChange(document: Document): void {
    const text = JSON.stringify(document);
    if (text !== shown) out.document(document);
    shown = text;
  }

  async function begin(): Promise<CallToolResult> {
    const limit = how.wait === undefined ? {} : { deadline: how.wait };
    run = await job.begin({ onUpdate, signal: giveUp.signal, keep: true, ...limit });
    taskId = run.taskId ?? taskId;
    if (presses > 0) leave();
    return await run.result();
  }

  /** After a Ctrl-C only the next one, or the time for it, decides. */
  const unlessPressed = async <T>(promise: Promise<T>) => {
    try {
      const value = await promise;
      if (presses === 0) return value;
    } catch (error) {
      if (presses === 0) throw error;
    }
    return await new Promise<never>(() => {});
  };

  function leave(): void {
    run?.detach();
    if (taskId === undefined) return;
    out.say(`Detached from ${taskId}, which goes on. To come back to it:`);
    out.say(`  ${line("result", taskId)}`);
    out.say("Ctrl-C again within two seconds asks the server to cancel it.");
  }

  function press(): void {
    presses += 1;
    clearTimeout(pressTimer);
    const end = (message: string) => stopped.reject(interrupted(context, message, taskId));
    if (presses === 1) {
      view.end();
      leave();
      if (taskId === undefined)
        out.say("No task was announced yet. Ctrl-C again within two seconds gives the call up.");
      const said = taskId === undefined ? leftUnanswered("Interrupted") : "Interrupted; the task goes on.";
      pressTimer = setTimeout(() => end(said), secondPressWithin);
    } else if (taskId === undefined) {
      giveUp.abort();
      setTimeout(() => end(leftUnanswered("Interrupted; the call was given up")), 300);
    } else if (presses > 2) {
      end("Interrupted; the server has not said whether it cancels the task.");
    } else {
      void remote.tasks.cancel(taskId, { keep: true }).then(
        () => end("Interrupted; the server was asked to cancel the task."),
        () => end("Interrupted; the server could not be asked to cancel the task."),
      );
    }
  }

  if (how.stopsAtInput)
    void remote.unanswered.then(() =>
      stopped.reject(last === undefined ? askedInVain(context) : inputNeeded(context, last)),
    );
  const giveBack = interrupts.take(press);
  try {
    const result = await Promise.race([unlessPressed(begin()), stopped.promise]);
    view.end();
    if (how.eachChange !== true || last === undefined) out.document(completed(result, last));
    if (how.deliver !== undefined) await how.deliver(result);
    else out.print(resultText(result));
    if (taskId !== undefined) remote.shown(taskId);
    if (result.isError !== true) return exits.done;
    const said = "The tool reported an error.";
    throw new CliError(exits.toolError, "TOOL_ERROR", said, {
      taskId,
      // Other arguments may help; of an earlier call there is nothing more to see.
      next: job.taskId === undefined ? line("tools") : undefined,
    });
  } catch (thrown) {
    view.end();
    const error = askedTooEarly(thrown, context, job.label) ?? asCliError(thrown, line, taskId);
    const told =
      error.exit === exits.toolError || (how.eachChange === true && last !== undefined && isTerminal(last.status));
    if (!told) out.document(unfinished(error, last, taskId));
    out.error(error);
    const ended = last?.status === "failed" || last?.status === "cancelled";
    if (taskId !== undefined && (ended || isGone(error.cause))) remote.shown(taskId);
    return error.exit;
  } finally {
    giveBack();
    run?.detach();
  }
}

/** Whether all that a task asks is asked of somebody else. What it doesn't show comes to a person by itself. */
function isLeftOpen(task: TaskSnapshot, canAsk: boolean): boolean {
  if (task.status !== "input_required") return false;
  const keys = Object.keys(task.inputRequests);
  return keys.length === 0 ? !canAsk : keys.every((key) => task.unhandledInput.includes(key));
}

function inputNeeded(context: Context, task: TaskSnapshot): CliError {
  const { out } = context;
  const { taskId } = task;
  const questions = task.status === "input_required" ? Object.entries(task.inputRequests) : [];
  for (const text of questions.flatMap(([key, request]) => questionLines(key, request))) out.say(text);
  const message = out.canAsk
    ? "The task waits for an answer."
    : "The task waits for input, and there is nobody to ask here.";
  return new CliError(exits.inputNeeded, "INPUT_NEEDED", message, { taskId, next: answerLine(task, context) });
}

/** What a tool asks before there is a task can't be left for later. */
export function askedTooEarly(thrown: unknown, { line }: Context, tool: string): CliError | undefined {
  if (!(thrown instanceof TaskError) || thrown.code !== "INPUT_UNSUPPORTED") return undefined;
  const message = "The tool asks something before it starts, and nobody answered. Call it on a terminal.";
  return new CliError(exits.inputNeeded, "INPUT_NEEDED", message, { next: line("call", tool, "…") });
}

const leftUnanswered = (what: string) =>
  `${what}, without an answer to the call. If it was sent, it may have started, and stays in ls.`;

/** The end by Ctrl-C of a call that is not followed: nothing is known yet of what it becomes. */
export const leftEarly = (context: Context) => interrupted(context, leftUnanswered("Interrupted"), undefined);

/** A server of 2025-11-25 asks, in the midst of a call without a task, and the input has ended: the call is left. */
export const askedInVain = ({ line }: Context) =>
  new CliError(
    exits.inputNeeded,
    "INPUT_NEEDED",
    "The tool asks something, and nobody answered. The call may have begun, and stays in ls.",
    { next: line("ls") },
  );

function interrupted({ out, line }: Context, message: string, taskId: string | undefined): CliError {
  // People were told at once.
  const next = taskId === undefined ? line("ls") : out.json ? line("result", taskId) : undefined;
  return new CliError(exits.interrupted, "INTERRUPTED", message, { taskId, next });
}

function completed(result: CallToolResult, last: TaskSnapshot | undefined): Document {
  const about = last === undefined ? {} : { taskId: last.taskId };
  const message = last?.statusMessage === undefined ? {} : { statusMessage: last.statusMessage };
  return { ...about, status: "completed", ...message, result };
}

/** The document of a job that has no result: what is known of the task, and otherwise the error. */
function unfinished(error: CliError, last: TaskSnapshot | undefined, taskId: string | undefined): Document {
  if (last !== undefined && (isTerminal(last.status) || isStillRunning(error))) return documentOf(last);
  const about = taskId === undefined ? {} : { taskId };
  if (taskId !== undefined && isStillRunning(error)) return { ...about, status: "working" };
  return { ...about, ...errorDocument(error), ...(last === undefined ? {} : { status: last.status }) };
}

const isStillRunning = ({ exit }: CliError) =>
  exit === exits.inputNeeded || exit === exits.timedOut || exit === exits.interrupted;
