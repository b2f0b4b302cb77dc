import { channels, type AttemptEnd, type AttemptStarted } from "../channels.ts";
import type { Clock } from "../clock.ts";
import { asTaskError, TaskError, type TaskErrorCode } from "../errors.ts";
import type { AttemptVerbs } from "../engine/attempts.ts";
import type { Claim, Outcome } from "../store/store.ts";
import type { TaskTool } from "../tool.ts";
import { createContext } from "./context.ts";
import { createReporter } from "./report.ts";
import { failed, isToolError, outcomeOfReturn, outcomeOfThrow } from "./result.ts";
import { backoff } from "./steps.ts";
import { steadfast } from "./steadfast.ts";
import { fitResult, type ValueLimits } from "./values.ts";
import { createWaits } from "./waits.ts";

/** What an attempt needs besides its claim. */
export interface AttemptOptions {
  readonly claim: Claim;
  readonly tool: TaskTool;
  readonly verbs: AttemptVerbs;
  readonly clock: Clock;
  readonly limits: ValueLimits;
  readonly onError: (error: TaskError) => void;
  /** Told how long the handler was outside of steps before it parked: that time is spent again at each attempt. */
  readonly onUnstepped: (ms: number) => void;
  /** Told when the handler has ended, and its end is about to be stored. */
  readonly onEnding: () => void;
}

/** An attempt under way. */
export interface RunningAttempt {
  readonly claim: Claim;
  /** Resolves when nothing more will be written for it; never rejects. */
  readonly done: Promise<void>;
  /** Asks the handler to end: `CANCELLED`, `TIMED_OUT`, `LEASE_LOST` or `SHUTTING_DOWN`. */
  abort(error: TaskError): void;
  /** The task changed: something the handler waits for in memory may have come. False: no news reaches it any more. */
  look(): boolean;
}

/** How an attempt came to its end. */
type End = { readonly returned: unknown } | { readonly thrown: unknown } | "parked" | "lost";

/** Runs the handler of a claimed task to its end, its next wait, or the loss of its lease. */
export function startAttempt(options: AttemptOptions): RunningAttempt {
  const { claim, tool, clock, onError } = options;
  const verbs = steadfast(options.verbs, clock, onError);
  const controller = new AbortController();
  const { promise: cut, resolve: cutOff } = Promise.withResolvers<"parked" | "lost">();
  const reportFailure = (thrown: unknown) => onError(asTaskError(thrown));

  const reporter = createReporter(
    clock,
    { message: claim.task.statusMessage ?? "", progress: claim.task.progress },
    ({ message, progress }) => verbs.setStatus(claim, message, progress).then(() => {}, reportFailure),
  );
  const waits = createWaits({
    attempt: claim,
    verbs,
    clock,
    hold: tool.recovery === "fail",
    settle: () => reporter.flush(),
    unstepped: options.onUnstepped,
    ended: cutOff,
    failed: (error) => {
      reportFailure(error);
      cutOff("lost");
    },
  });

  function abort(error: TaskError): void {
    if (!controller.signal.aborted) {
      controller.abort(error);
      waits.abort(error);
    }
    // Also after a cancel or a time-out: a handler that ignored it must not keep its place.
    if (error.code === "LEASE_LOST") cutOff("lost");
  }

  const context = createContext({
    claim,
    verbs,
    clock,
    reporter,
    waits,
    signal: controller.signal,
    onlyCaller: tool.input === "caller",
    limits: options.limits,
    lost: () => abort(new TaskError("LEASE_LOST")),
  });
  const cancelDeadline =
    claim.deadline === null
      ? () => {}
      : clock.after(claim.deadline - claim.now, () => abort(new TaskError("TIMED_OUT")));

  // A handler that is resumed to clean up finds its signal aborted from the start.
  if (claim.task.cancelRequested) abort(new TaskError("CANCELLED"));

  const { around, over } = told(claim, clock);

  async function run(): Promise<AttemptEnd> {
    const end = await Promise.race([cut, around(() => handle(tool, claim, context))]);
    cancelDeadline();
    const parking = !waits.close();
    if (end === "parked" || end === "lost" || parking) {
      const how = await cut;
      abort(new TaskError("LEASE_LOST"));
      return how;
    }
    await reporter.flush();
    options.onEnding();
    return settle({ ...options, verbs }, end, controller.signal);
  }

  return {
    claim,
    done: run().then(over, (thrown: unknown) => {
      reportFailure(thrown);
      over("lost");
    }),
    abort,
    look: () => waits.look(),
  };
}

async function handle(tool: TaskTool, claim: Claim, context: Parameters<TaskTool["run"]>[1]): Promise<End> {
  try {
    const args: unknown = JSON.parse(claim.args);
    const parsed = tool.inputSchema === undefined ? args : await tool.inputSchema.parseAsync(args);
    return { returned: await tool.run(parsed as never, context) };
  } catch (thrown) {
    return { thrown };
  }
}

/** Tells whoever listens of an attempt's beginning, now, and of its end. */
function told({ task, taskId, epoch, attempt, client, now }: Claim, clock: Clock) {
  if (!channels.started.hasSubscribers && !channels.ended.hasSubscribers)
    return { around: <T>(run: () => T): T => run(), over: () => {} };
  const { tool, version, createdAt } = task;
  const waitedMs = epoch === 1 ? Math.max(0, now - createdAt) : null;
  const trace = client.trace ?? null;
  const started: AttemptStarted = { taskId, epoch, attempt, tool, version, waitedMs, trace, around: null };
  const began = clock.now();
  channels.started.publish(started);
  return {
    around: <T>(run: () => T): T => (started.around === null ? run() : started.around(run)),
    over: (end: AttemptEnd) => channels.ended.publish({ started, end, ms: clock.now() - began }),
  };
}

/** Writes down how the handler ended, or hands the task back to be tried again. */
async function settle(options: AttemptOptions, end: Exclude<End, string>, signal: AbortSignal): Promise<AttemptEnd> {
  const { claim, tool, verbs } = options;
  const reason = signal.aborted ? (signal.reason as TaskError).code : null;
  if (reason === "LEASE_LOST") return "lost";
  const release = async (delayMs: number, spend: boolean) =>
    (await verbs.release(claim, { delayMs, spend })) ? "released" : "lost";
  if ("thrown" in end && tool.recovery === "retry") {
    if (reason === "SHUTTING_DOWN") return release(0, false);
    if (reason === null && claim.attempt < tool.retry.attempts && isToolError(end.thrown))
      return release(backoff(tool.retry.backoffMs, claim.attempt), true);
  }
  const result = await outcome(options, end, reason);
  return (await verbs.finish(claim, result)) ? result.status : "lost";
}

async function outcome(
  { claim, tool, limits }: AttemptOptions,
  end: Exclude<End, string>,
  reason: TaskErrorCode | null,
): Promise<Outcome> {
  if ("returned" in end) return fitResult(limits, claim, tool, await outcomeOfReturn(tool, end.returned));
  if (reason === "CANCELLED") return { status: "cancelled", statusMessage: null };
  if (reason === "TIMED_OUT") return failed(new TaskError("TIMED_OUT").toRpc());
  if (reason === "SHUTTING_DOWN") return failed(new TaskError("INTERRUPTED").toRpc());
  return fitResult(limits, claim, tool, outcomeOfThrow(end.thrown));
}
