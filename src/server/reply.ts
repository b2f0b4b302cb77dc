import type { AuthInfo, CallToolResult } from "@modelcontextprotocol/server";
import type { Engine } from "../engine/engine.ts";
import { codes, TaskError, type RpcError, type TaskErrorCode } from "../errors.ts";
import { tasksRequired } from "../protocol/capabilities.ts";
import { isWritable, missingFor, type InputRequests } from "../protocol/input.ts";
import type { TraceContext } from "../protocol/trace.ts";
import type { WireTask } from "../protocol/wire.ts";
import type { Task } from "../store/store.ts";
import { newTaskOf, type TaskTool } from "../tool.ts";
import { gather, questionsOf } from "./before.ts";
import type { Caller } from "./methods.ts";

/**
 * What becomes of a call, by whether its client declared the extension on it and whether its tool runs without.
 * `handle`: the client gets the task and comes back for the result. `hold`: the same durable task, with the call kept
 * open until it ends. `refuse`: no task.
 */
const policy = {
  declared: { optional: "handle", required: "handle" },
  undeclared: { optional: "hold", required: "refuse" },
} as const;

/** The least that the task of a held call is kept, in milliseconds: nobody else reads it, and once it ended, at once. */
const leastHeldMs = 60_000;

/** One `tools/call` of a task tool. */
export interface Call extends Caller {
  readonly tool: TaskTool;
  /** The arguments as the caller sent them: the worker parses them again. */
  readonly args: unknown;
  readonly auth: AuthInfo | undefined;
  /** Of the request, where it carries any. */
  readonly trace: TraceContext | null;
  /** Whether the protocol of this request knows results that ask for input. */
  readonly canAsk: boolean;
  readonly inputResponses: Readonly<Record<string, unknown>>;
  readonly requestState: unknown;
  /** Aborts when nobody waits for the answer any more. */
  readonly signal: AbortSignal;
}

/** What a call is answered with. `task` and `error` are none of the SDK's tool results. */
export type Reply =
  | { readonly kind: "result"; readonly result: CallToolResult }
  | { readonly kind: "asking"; readonly requests: InputRequests; readonly state: string }
  | { readonly kind: "task"; readonly task: WireTask }
  | { readonly kind: "error"; readonly error: RpcError };

/** What answering calls takes. */
export interface ReplyParts {
  readonly engine: Engine;
  readonly keepAuth: (auth: AuthInfo | undefined) => unknown;
}

/** Answers a call whose arguments are valid. */
export async function reply(parts: ReplyParts, call: Call): Promise<Reply> {
  const { tool, client } = call;
  if (!isWritable(call.args)) throw new TaskError("INVALID_PARAMS", { detail: "The arguments are nested too deeply." });
  const way = policy[client.tasks ? "declared" : "undeclared"][tool.support];
  if (way === "refuse") return refusal("EXTENSION_REQUIRED", tasksRequired);

  const questions = questionsOf(tool);
  let answers: Readonly<Record<string, unknown>> = {};
  if (questions.length > 0) {
    if (!call.canAsk) return toolError("INPUT_NEEDS_TASK");
    const missing = questions.map(({ request }) => missingFor(request, client)).find((kind) => kind !== null);
    if (missing !== undefined) return refusal("INPUT_UNSUPPORTED", { requiredCapabilities: missing });
    const gathered = await gather(questions, call.inputResponses, call.requestState);
    if (gathered.kind === "asking") return gathered;
    if (gathered.kind === "refused") return toolError(gathered.code);
    answers = gathered.answers;
  }

  call.signal.throwIfAborted();
  const keepMs = way === "hold" ? Math.max(tool.keepMs, leastHeldMs) : tool.keepMs;
  const task = await create(parts, call, answers, keepMs);
  return way === "handle" ? { kind: "task", task: parts.engine.handle(task) } : hold(parts.engine, task, call);
}

function create({ engine, keepAuth }: ReplyParts, call: Call, answers: object, keepMs: number): Promise<Task> {
  const { tool } = call;
  return engine.create({
    ...newTaskOf(tool),
    keepMs,
    owner: call.owner,
    args: JSON.stringify(call.args ?? {}),
    answers: JSON.stringify(answers),
    client: call.trace === null ? call.client : { ...call.client, trace: call.trace },
    auth: JSON.stringify(keepAuth(call.auth) ?? null),
  });
}

/** Waits for the end of a task whose client knows of no task. Who leaves before it ends takes it along. */
async function hold(engine: Engine, task: Task, { signal, canAsk }: Call): Promise<Reply> {
  let ended: Task;
  try {
    ended = await engine.settled(task.id, task.owner, signal);
  } catch (thrown) {
    // Whatever the reason: nobody is left who could fetch what it makes.
    await engine.cancel(task.id, task.owner);
    throw thrown;
  }
  switch (ended.status) {
    case "completed":
      return { kind: "result", result: resultOf(ended) };
    case "failed": {
      const error = JSON.parse(ended.error ?? "{}") as RpcError;
      // Older protocols don't have this code, and their clients declare input once for all requests, not on each.
      if (error.code === codes.INPUT_UNSUPPORTED.rpc && !canAsk) return toolError("INPUT_NEEDS_TASK");
      return { kind: "error", error };
    }
    case "cancelled":
      return toolError("CANCELLED");
    case "input_required":
      await engine.cancel(task.id, task.owner);
      // What can't go on without a task is refused for want of the extension, in the protocol that has it.
      return canAsk ? refusal("EXTENSION_REQUIRED", tasksRequired) : toolError("INPUT_NEEDS_TASK");
    case "working":
      throw new TaskError("INTERNAL");
  }
}

/** The SDK marks results itself, in the protocol that has marks. */
function resultOf({ result }: Task): CallToolResult {
  const { resultType: _resultType, ...rest } = JSON.parse(result ?? "{}") as CallToolResult & { resultType?: string };
  return rest;
}

function refusal(code: TaskErrorCode, data: object): Reply {
  return { kind: "error", error: new TaskError(code, { data }).toRpc() };
}

function toolError(code: TaskErrorCode): Reply {
  const { message } = new TaskError(code);
  return { kind: "result", result: { content: [{ type: "text", text: message }], isError: true } };
}
