import type { CallToolResult } from "@modelcontextprotocol/server";
import type { InputRequest } from "../protocol/input.ts";
import type { DetailedTask } from "../protocol/wire.ts";
import type { Task } from "../store/store.ts";

/** The tools by which a model goes on with a task whose host knows of none. */
export const companionNames = { wait: "task_wait", cancel: "task_cancel", respond: "task_respond" } as const;

/** How long `task_wait` waits at most, in milliseconds: less than the minute after which many clients give up. */
export const longestWaitMs = 45_000;

/** What a handle needs to know beside the task. */
export interface HandleOptions {
  /** The name of the task's tool. */
  readonly tool: string;
  /** Whether this server has the companion tools; else the text can't send anybody to them. */
  readonly companions: boolean;
  /** Whether the tool's author lets a model answer the tool's questions. */
  readonly modelMayAnswer: boolean;
  /** Says where a person answers what a model may not, in words or as a URL. */
  readonly answerAt: (taskId: string) => string;
}

/** A question as a handle shows it. `by` is who may answer it here. */
interface ShownQuestion {
  readonly key: string;
  readonly message: string;
  readonly by: "model" | "person";
  readonly requestedSchema?: unknown;
}

/**
 * A task that is not over, as a tool result for a client that knows of no tasks: plain words for a model, which say what
 * happens and how to go on, and the same as data. Fits no output schema of the tool's own.
 */
export function handleOf(task: DetailedTask, options: HandleOptions): CallToolResult {
  const { inputRequests, _meta, ...facts } = { inputRequests: {}, ...task };
  const questions = Object.entries(inputRequests).map(([key, request]) => shown(key, request, options));
  const text = questions.length > 0 ? asking(task, questions, options) : working(task, options);
  return {
    content: [{ type: "text", text }],
    structuredContent: { ...facts, ...(questions.length === 0 ? {} : { questions }) },
    ...(_meta === undefined ? {} : { _meta }),
  };
}

/** The result of a completed task. The SDK marks results itself, in the protocol that has marks. */
export function resultOf({ result }: Pick<Task, "result">): CallToolResult {
  const { resultType: _resultType, ...rest } = JSON.parse(result ?? "{}") as CallToolResult & { resultType?: string };
  return rest;
}

/**
 * Whether a model may answer a question where the tool's author lets it: only a form with something to fill in. What is
 * no more than a yes or a no is an approval, and a page is to be visited, both by a person.
 */
export function isForModel({ method, params }: InputRequest): boolean {
  const { properties = {} } = (params?.requestedSchema ?? {}) as { properties?: object };
  return method === "elicitation/create" && params?.mode !== "url" && Object.keys(properties).length > 0;
}

function shown(key: string, request: InputRequest, { companions, modelMayAnswer }: HandleOptions): ShownQuestion {
  const { message, url, requestedSchema } = request.params ?? {};
  const words = typeof message === "string" ? message : `It asks for ${request.method}.`;
  return {
    key,
    message: typeof url === "string" ? `${words} (${url})` : words,
    by: companions && modelMayAnswer && isForModel(request) ? "model" : "person",
    ...(requestedSchema === undefined ? {} : { requestedSchema }),
  };
}

function working({ taskId, statusMessage }: DetailedTask, { tool, companions }: HandleOptions): string {
  const latest = statusMessage === undefined ? "" : ` Its latest message: ${JSON.stringify(statusMessage)}`;
  return [
    `This is not the result yet: "${tool}" is still running, as the task ${taskId}.${latest}`,
    `It goes on by itself, and its result is kept. Don't call "${tool}" again for it.`,
    companions ? `Call ${waitTool(taskId)}: ${howToWait} ${cancelTool}` : unreachable,
  ].join("\n");
}

function asking({ taskId }: DetailedTask, questions: readonly ShownQuestion[], options: HandleOptions): string {
  const { tool, companions, answerAt } = options;
  const lines = [`"${tool}" (task ${taskId}) waits for an answer, and goes on when it has it.`];
  for (const { key, message, by, requestedSchema } of questions) {
    lines.push(`Question ${JSON.stringify(key)}: ${JSON.stringify(message)}`);
    const fields = requestedSchema === undefined ? "" : ` The answer's fields: ${JSON.stringify(requestedSchema)}`;
    const how = `${companionNames.respond} with ${JSON.stringify({ taskId, key, answer: {} })}, the fields in "answer".`;
    if (by === "model") lines.push(`If you know the answer, call ${how}${fields}`);
    else lines.push(`Only a person may answer it. Tell them: ${answerAt(taskId)}`);
  }
  // Before that a wait returns at once, and a model would call it over and over.
  lines.push(companions ? `When it is answered, call ${waitTool(taskId)}. ${cancelTool}` : unreachable);
  return lines.join("\n");
}

const waitTool = (taskId: string) => `${companionNames.wait} with ${JSON.stringify({ taskId })} for the result`;

const howToWait = `it waits up to ${longestWaitMs / 1_000} seconds by itself, so call it at once, and again until the result is there.`;

const cancelTool = `To stop the task, call ${companionNames.cancel} with the same argument.`;

const unreachable =
  "Its result can be read by a client with the extension io.modelcontextprotocol/tasks, by the task's id.";
