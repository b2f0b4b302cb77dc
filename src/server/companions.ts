import type { AuthInfo, CallToolResult, McpServer, ServerContext, ToolAnnotations } from "@modelcontextprotocol/server";
import { z } from "zod";
import type { Clock } from "../clock.ts";
import type { Engine } from "../engine/engine.ts";
import { TaskError, type RpcError } from "../errors.ts";
import { unfit } from "../protocol/input.ts";
import { isTerminal } from "../protocol/status.ts";
import type { Task } from "../store/store.ts";
import type { TaskTool } from "../tool.ts";
import { companionNames, handleOf, isForModel, longestWaitMs, resultOf, type HandleOptions } from "./handle.ts";
import type { Incoming } from "./incoming.ts";
import { answerTo, type Params } from "./methods.ts";
import { progressReports, progressTo } from "./progress.ts";

/** What companion tools stand on. */
export interface CompanionParts extends HandleParts {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly owner: (auth: AuthInfo | undefined) => string;
  readonly onError: (error: TaskError) => void;
}

/** What telling a task in plain words takes. */
export interface HandleParts {
  readonly tools: readonly TaskTool[];
  /** Whether clients that know of no tasks are offered companions. */
  readonly companions: boolean;
  /** Says where a person answers what a model may not. */
  readonly answerAt: (taskId: string) => string;
}

/** How a server calls a companion: what was asked, and what ends a wait. */
export interface CompanionHost {
  incoming(ctx: ServerContext): Incoming;
  readonly stop: AbortSignal;
  /** Answers are waited for when the server stops. */
  track<T>(call: Promise<T>): Promise<T>;
}

/** Whether the author of a task's tool lets a model answer for it. A version that is no longer here allows nothing. */
function allows(tools: readonly TaskTool[], task: Task): boolean {
  return tools.some(({ name, version, modelMayAnswer }) => {
    return modelMayAnswer && name === task.tool && version === task.version;
  });
}

/** How a task is told to a client that knows of no tasks. */
export function handleOptions({ tools, companions, answerAt }: HandleParts, task: Task): HandleOptions {
  return { tool: task.tool, companions, answerAt, modelMayAnswer: allows(tools, task) };
}

/** Throws `MISUSE` where a tool of the author's has a companion's name: a handle would send models to the wrong one. */
export function checkNames(tools: readonly { readonly name: string }[]): void {
  const taken = tools.find(({ name }) => names.includes(name));
  if (taken !== undefined) throw misnamed(taken.name);
}

/** A list of tools for a client that needs no companions. */
export function withoutCompanions(result: Params): Params {
  const tools = (result.tools ?? []) as readonly { readonly name: string }[];
  return { ...result, tools: tools.filter(({ name }) => !names.includes(name)) };
}

const names: readonly string[] = Object.values(companionNames);

const misnamed = (name: string) =>
  new TaskError("MISUSE", { detail: `${name} is a tool of mcp-tasks. Rename yours, or say companions: false.` });

// Made once: there is a server for each request.
const taskSchema = z.object({ taskId: z.string().describe("The id that the handle of the call named") });
const respondSchema = taskSchema.extend({
  key: z.string().describe("The question's key"),
  answer: z.record(z.string(), z.unknown()).describe("The fields that the question asks for"),
});

/** Adds the tools by which a model goes on with a task whose host knows of none. Nothing that they do needs the extension. */
export function addCompanions(mcp: McpServer, parts: CompanionParts, host: CompanionHost): void {
  const { engine, tools } = parts;
  const told = (task: Task) => handleOf(engine.describe(task), handleOptions(parts, task));

  function add<S extends z.ZodObject>(
    name: string,
    about: { readonly description: string; readonly annotations: ToolAnnotations; readonly inputSchema: S },
    answer: (args: z.output<S>, owner: string, incoming: Incoming) => Promise<CallToolResult>,
  ): void {
    const guarded = async (args: z.output<S>, ctx: ServerContext) => {
      try {
        const incoming = host.incoming(ctx);
        return await answer(args, parts.owner(incoming.auth), incoming);
      } catch (thrown) {
        return says(answerTo(thrown, parts.onError).message);
      }
    };
    try {
      mcp.registerTool(name, about, ((args: z.output<S>, ctx: ServerContext) =>
        host.track(guarded(args, ctx))) as never);
    } catch (cause) {
      throw String(cause).includes("already registered") ? misnamed(name) : cause;
    }
  }

  add(
    companionNames.wait,
    {
      description:
        "Gets the result of a tool call that was answered with a task id because it takes long. Waits up to " +
        `${longestWaitMs / 1_000} seconds for it; if it takes longer, says how far it is, and is to be called again.`,
      annotations: { readOnlyHint: true, openWorldHint: false },
      inputSchema: taskSchema,
    },
    async ({ taskId }, owner, { send, params, signal }) => {
      const report = progressReports(parts.clock, progressTo(send, params));
      const seen = (task: Task) => {
        report(task);
        return task.status !== "working";
      };
      const { stop } = host;
      const task = await engine.wait(taskId, owner, { forMs: longestWaitMs, signal, stop, seen });
      return isTerminal(task.status) ? outcomeOf(task) : told(task);
    },
  );

  add(
    companionNames.cancel,
    {
      description:
        "Stops the task of a tool call that was answered with a task id. What it has done by then stays done.",
      annotations: { destructiveHint: true, idempotentHint: true, openWorldHint: false },
      inputSchema: taskSchema,
    },
    async ({ taskId }, owner) => {
      await engine.cancel(taskId, owner);
      const { tool, status } = await engine.read(taskId, owner);
      const over = { completed: "had completed", failed: "had failed", cancelled: "is cancelled" };
      const how = isTerminal(status) ? over[status] : "was asked to stop, and ends soon";
      const text = `"${tool}" (task ${taskId}) ${how}.`;
      return { content: [{ type: "text", text }], structuredContent: { taskId, status } };
    },
  );

  if (!tools.some(({ modelMayAnswer }) => modelMayAnswer)) return;
  add(
    companionNames.respond,
    {
      description:
        "Answers a question that a running task asks. Only with what you know: what you don't, ask the user.",
      annotations: { openWorldHint: false },
      inputSchema: respondSchema,
    },
    async ({ taskId, key, answer }, owner) => {
      const task = await engine.read(taskId, owner);
      const request = Object.hasOwn(task.inputRequests, key) ? task.inputRequests[key] : undefined;
      if (request === undefined) return says(`Task ${taskId} asks nothing under this key now.`);
      if (!allows(tools, task) || !isForModel(request))
        return says(`Only a person may answer this. Tell them: ${parts.answerAt(taskId)}`);
      const response = { action: "accept", content: answer };
      const complaint = unfit(request, response);
      if (complaint !== null) return says(`The answer was not taken: ${complaint}.`);
      await engine.answer(taskId, owner, { [key]: response });
      const after = await engine.read(taskId, owner);
      return isTerminal(after.status) ? outcomeOf(after) : told(after);
    },
  );
}

function says(text: string): CallToolResult {
  return { content: [{ type: "text", text }], isError: true };
}

/** What a finished task came to, as its call would have been answered. */
function outcomeOf({ status, result, error, statusMessage }: Task): CallToolResult {
  if (status === "failed") return says((JSON.parse(error ?? "{}") as RpcError).message);
  if (status === "cancelled") return says(statusMessage ?? new TaskError("CANCELLED").message);
  return resultOf({ result });
}
