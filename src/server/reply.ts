import type { AuthInfo, CallToolResult } from "@modelcontextprotocol/server";
import type { Clock } from "../clock.ts";
import type { Engine } from "../engine/engine.ts";
import { codes, TaskError, type RpcError, type TaskErrorCode } from "../errors.ts";
import { tasksRequired } from "../protocol/capabilities.ts";
import { fitFor, isShallow, missingFor, type InputRequests } from "../protocol/input.ts";
import { newTaskId } from "../protocol/ids.ts";
import { isTerminal } from "../protocol/status.ts";
import type { TraceContext } from "../protocol/trace.ts";
import type { WireTask } from "../protocol/wire.ts";
import type { Task } from "../store/store.ts";
import { newTaskOf, type TaskTool } from "../tool.ts";
import type { Asker } from "./asker.ts";
import { again, gather, gatherByAsking, questionsOf, type Gathered } from "./before.ts";
import { handleOptions, type HandleParts } from "./companions.ts";
import { handleOf, resultOf } from "./handle.ts";
import { mostRounds, policy, type Generation, type Way } from "./policy.ts";
import { progressReports, type ProgressReport } from "./progress.ts";
import { reuseOf, type Repeatable } from "./reuse.ts";
import type { Binding, CallState, Seal } from "./seal.ts";
import { askMeanwhile, leastKept, waitOf, type Patience } from "./waiting.ts";

/** One `tools/call` of a task tool. */
export interface Call extends Repeatable, Patience {
  readonly tool: TaskTool;
  readonly generation: Generation;
  /** The arguments as the caller sent them: the worker parses them again. */
  readonly args: unknown;
  readonly auth: AuthInfo | undefined;
  /** Of the request, where it carries any. */
  readonly trace: TraceContext | null;
  /** Asks the client while the call is open, or null where its protocol has another way. */
  readonly push: Push | null;
  readonly inputResponses: Readonly<Record<string, unknown>>;
  readonly requestState: unknown;
  /** Sends progress to who called, or null where they did not ask for it. */
  readonly progress: ((report: ProgressReport) => void) | null;
}

/** What the protocol of a call makes of it. */
export type Terms = Pick<Call, "owner" | "client" | "tool" | "generation" | "limits" | "push" | "signal"> & {
  /** The call is answered. */
  leave(): void;
};

/** Puts questions to a client while its call is open. */
export interface Push {
  /** Asks all of these; null when one of them was answered with an error. */
  ask(requests: InputRequests): Promise<Readonly<Record<string, unknown>> | null>;
  /** Asks what a task asks. */
  asker(): Asker;
}

/** What a call is answered with. A `handle` is shown as it is, and no result of the tool's. */
export type Reply =
  | { readonly kind: "result"; readonly result: CallToolResult }
  | { readonly kind: "round"; readonly requests: InputRequests; readonly state: string }
  | { readonly kind: "handle"; readonly result: CallToolResult }
  | { readonly kind: "task"; readonly task: WireTask }
  | { readonly kind: "error"; readonly error: RpcError };

/** What answering calls takes. */
export interface ReplyParts extends HandleParts {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly seal: Seal;
  readonly keepAuth: (auth: AuthInfo | undefined) => unknown;
}

/** Answers a call whose arguments are valid, as `policy` says. */
export async function reply(parts: ReplyParts, call: Call): Promise<Reply> {
  const { tool } = call;
  if (!isShallow(call.args)) throw new TaskError("INVALID_PARAMS", { detail: "The arguments are nested too deeply." });
  const way = policy[call.generation][tool.support];
  if (way === "refuse")
    return call.generation === "legacy"
      ? { kind: "error", error: new TaskError("TASK_REQUIRED").toRpc() }
      : refusal("EXTENSION_REQUIRED", tasksRequired);

  const state: CallState =
    call.requestState === undefined ? { rounds: 0 } : await parts.seal.open(call.requestState, bindingOf(call));
  if (state.taskId !== undefined) return follow(parts, call, way, { ...state, taskId: state.taskId });

  const before = await askBefore(call, state);
  if (before.kind === "refusal") return before.reply;
  if (before.kind === "asking") {
    const kept = { answers: before.kept, taskId: state.before?.taskId ?? newTaskId() };
    return round(parts, call, before.requests, { rounds: state.rounds, before: kept });
  }
  call.signal.throwIfAborted();
  call.stop.throwIfAborted();
  const id = state.before?.taskId;
  const { answers } = before;
  const task = await (id === undefined ? start(parts, call, way, answers) : startOnce(parts, call, way, answers, id));
  return answer(parts, call, way, state, task);
}

type Asked = Exclude<Gathered, { kind: "refused" }> | { readonly kind: "refusal"; readonly reply: Reply };

/** The questions that are asked before there is a task. */
async function askBefore({ tool, client, push, inputResponses }: Call, state: CallState): Promise<Asked> {
  const questions = questionsOf(tool);
  if (questions.length === 0) return { kind: "answered", answers: {} };
  const missing = questions.map(({ request }) => missingFor(request, client)).find((kind) => kind !== null);
  if (missing !== undefined) {
    // Older protocols don't have this code.
    const reply =
      push === null ? refusal("INPUT_UNSUPPORTED", { requiredCapabilities: missing }) : failed("INPUT_NEEDS_TASK");
    return { kind: "refusal", reply };
  }
  const gathered =
    push === null
      ? await gather(questions, inputResponses, state.before?.answers ?? {})
      : await gatherByAsking(questions, (requests) => push.ask(requests));
  return gathered.kind === "refused" ? { kind: "refusal", reply: failed(gathered.code) } : gathered;
}

/** As `start`, where the state of an earlier round names the task: one that comes twice has started it already. */
async function startOnce(parts: ReplyParts, call: Call, way: Way, answers: object, id: string): Promise<Task> {
  try {
    return await waitFor(parts, call, way, id);
  } catch (thrown) {
    if (!(thrown instanceof TaskError) || thrown.code !== "TASK_NOT_FOUND") throw thrown;
  }
  try {
    return await start(parts, call, way, answers, id);
  } catch (thrown) {
    // It may have come twice at the same time.
    return await waitFor(parts, call, way, id).catch(() => Promise.reject(thrown));
  }
}

/** Waits for a task that there is already, as long as the policy says. */
function waitFor({ engine, clock }: ReplyParts, call: Call, way: Way, id: string): Promise<Task> {
  return engine.wait(id, call.owner, waitOf(call, way, progressReports(clock, call.progress)));
}

/** Starts the task, and waits for its end as long as the policy says. Keeps no more meanwhile than it has to. */
function start(parts: ReplyParts, call: Call, way: Way, answers: object, id?: string): Promise<Task> {
  const { engine, clock, keepAuth } = parts;
  const { tool, push } = call;
  const made = newTaskOf(tool);
  const report = progressReports(clock, call.progress);
  const wait = waitOf(call, way, report);
  const settled = engine.create(
    {
      ...made,
      keepMs: Math.max(made.keepMs, leastKept(call, way)),
      owner: call.owner,
      args: JSON.stringify(call.args ?? {}),
      answers: JSON.stringify(answers),
      client: call.trace === null ? call.client : { ...call.client, trace: call.trace },
      auth: JSON.stringify(keepAuth(call.auth) ?? null),
      reuse: reuseOf(call, answers),
    },
    wait,
    id,
  );
  if (push === null || way.waits === "not") return settled;
  return settled.then((task) =>
    task.status === "input_required" ? askMeanwhile(engine, task, push.asker(), wait, report) : task,
  );
}

/** Goes on with the task of an earlier round. Answers are taken by their keys, so that a repeated round changes nothing. */
async function follow(
  parts: ReplyParts,
  call: Call,
  way: Way,
  state: CallState & { readonly taskId: string },
): Promise<Reply> {
  const { taskId } = state;
  if (Object.keys(call.inputResponses).length > 0) await parts.engine.answer(taskId, call.owner, call.inputResponses);
  const task = await waitFor(parts, call, way, taskId);
  return answer(parts, call, way, state, task);
}

/** What is answered when the wait is over. */
async function answer(parts: ReplyParts, call: Call, way: Way, state: CallState, task: Task): Promise<Reply> {
  if (call.signal.aborted) {
    if (isStop(call.signal.reason)) await parts.engine.cancel(task.id, task.owner);
    throw call.signal.reason;
  }
  if (isTerminal(task.status)) return way.waits === "not" ? taskOf(parts, call, task) : ended(parts, call, way, task);
  const requests = fitFor(call.client, task.inputRequests);
  const next = Object.keys(requests).length > 0 ? way.asks : way.runs;
  if (next === "task") return taskOf(parts, call, task);
  // Nobody is asked to come back to what waits for somebody else.
  const stuck = task.status === "input_required" && Object.keys(requests).length === 0;
  if (next === "handle" || stuck || state.rounds >= mostRounds) return handle(parts, task);
  const { rounds } = state;
  return round(parts, call, remarked(requests, call.inputResponses), { rounds, taskId: task.id });
}

/**
 * Whether a request was taken back by somebody who wants the work to stop. A connection that is gone, or a time limit,
 * tells nothing of the kind: hosts cut every call after a while, and whoever made it may make it again.
 */
function isStop(reason: unknown): boolean {
  if (typeof reason === "string") return !/time.{0,2}out|deadline/i.test(reason);
  return reason instanceof DOMException;
}

function ended(parts: ReplyParts, call: Call, way: Way, task: Task): Reply {
  if (task.status === "completed") return { kind: "result", result: resultOf(task) };
  if (task.status === "failed") {
    const error = JSON.parse(task.error ?? "{}") as RpcError;
    // Older protocols don't have this code, and their clients declare input once for all requests, not on each.
    const unknown = error.code === codes.INPUT_UNSUPPORTED.rpc && call.generation === "legacy";
    return unknown ? failed("INPUT_NEEDS_TASK") : { kind: "error", error };
  }
  return way.runs === "task" ? taskOf(parts, call, task) : failed("CANCELLED");
}

async function round({ seal }: ReplyParts, call: Call, requests: InputRequests, state: CallState): Promise<Reply> {
  const sealed = await seal.seal({ ...state, rounds: state.rounds + 1 }, bindingOf(call));
  return { kind: "round", requests, state: sealed };
}

/** A question that comes back says what was wrong about its answer. */
function remarked(requests: InputRequests, responses: Readonly<Record<string, unknown>>): InputRequests {
  return Object.fromEntries(
    Object.entries(requests).map(([key, request]) => [
      key,
      Object.hasOwn(responses, key) ? again(request, responses[key]) : request,
    ]),
  );
}

function bindingOf({ owner, tool, args }: Call): Binding {
  return { owner, tool: tool.name, args };
}

function taskOf({ engine }: ReplyParts, { client }: Call, task: Task): Reply {
  return { kind: "task", task: engine.handle(task, client) };
}

function handle(parts: ReplyParts, task: Task): Reply {
  return { kind: "handle", result: handleOf(parts.engine.describe(task), handleOptions(parts, task)) };
}

function refusal(code: TaskErrorCode, data: object): Reply {
  return { kind: "error", error: new TaskError(code, { data }).toRpc() };
}

function failed(code: TaskErrorCode): Reply {
  return { kind: "result", result: toolError(code) };
}

/** What went wrong, as the result of a tool: for the model to read. */
export function toolError(code: TaskErrorCode): CallToolResult {
  return { content: [{ type: "text", text: new TaskError(code).message }], isError: true };
}
