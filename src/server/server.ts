import { setImmediate } from "node:timers/promises";
import {
  CLIENT_INFO_META_KEY,
  inputRequired,
  McpServer,
  ProtocolError,
  type AuthInfo,
  type CallToolResult,
  type InputRequiredResult,
  type McpServerFactory,
  type ServerContext,
} from "@modelcontextprotocol/server";
import { z } from "zod";
import type { Blobs } from "../blobs.ts";
import type { Clock } from "../clock.ts";
import type { Engine } from "../engine/engine.ts";
import { TaskError } from "../errors.ts";
import { capabilitiesKey, noCapabilities, readCapabilities, tasksExtension } from "../protocol/capabilities.ts";
import { readTrace } from "../protocol/trace.ts";
import type { TaskTool } from "../tool.ts";
import { questionsOf } from "./before.ts";
import { answerTo, cancelTask, getTask, updateTask, type Caller, type Params } from "./methods.ts";
import type { HostInfo, Limits } from "./hosts.ts";
import type { Generation } from "./policy.ts";
import { reply, type Call } from "./reply.ts";
import { addResults } from "./results.ts";
import type { Seal } from "./seal.ts";
import { intercept, type Exchanges } from "./swap.ts";

/** What a server is made of. */
export interface ServerParts {
  readonly engine: Engine;
  readonly clock: Clock;
  /** Seals what clients carry from one round of a call to the next. */
  readonly seal: Seal;
  /** How long the calls of a client may wait. */
  readonly limits: (host: HostInfo | undefined) => Limits;
  /** Of several versions of a tool, the last one is offered. */
  readonly tools: readonly TaskTool[];
  /** Names who a request is from; `""` where nobody is authenticated. */
  readonly owner: (auth: AuthInfo | undefined) => string;
  /** What a handler may see of the caller's auth: JSON. */
  readonly keepAuth: (auth: AuthInfo | undefined) => unknown;
  /** Where results are that are too large for the store, or null. */
  readonly blobs: Blobs | null;
  readonly onError: (error: TaskError) => void;
}

/** A factory whose servers know tasks, and what it takes to stop serving without losing anything. */
export interface TaskServers {
  readonly factory: McpServerFactory;
  /** Answers the calls that wait for a task as if their time was up. Resolves when no call is left. */
  stop(): Promise<void>;
}

type Methods = Readonly<Record<string, (engine: Engine, caller: Caller, params: Params) => Promise<object>>>;

const methods: Methods = { "tasks/get": getTask, "tasks/update": updateTask, "tasks/cancel": cancelTask };

/** Params are checked by the methods themselves: their texts are ours, and no value of a caller's is in them. */
const anyParams = z.looseObject({});

/** Stands in a tool's place until the real answer takes its own; as an error it needs no structured content. */
const placeholder: CallToolResult = { content: [], isError: true };

/** Adds tasks to each server that a factory makes. Throws `MISUSE` for a question before a task that no form can ask. */
export function taskServers(parts: ServerParts, factory: McpServerFactory): TaskServers {
  const tools = [...new Map(parts.tools.map((tool) => [tool.name, tool])).values()];
  for (const tool of tools) questionsOf(tool);
  const calls = new Set<Promise<unknown>>();
  const stopping = new AbortController();

  function track<T>(call: Promise<T>): Promise<T> {
    const settled = call.catch(() => {}).finally(() => calls.delete(settled));
    calls.add(settled);
    return call;
  }

  return {
    async factory(context) {
      try {
        const mcp = await factory(context);
        if (!(mcp instanceof McpServer)) throw new TaskError("MISUSE", { detail: "The factory makes an McpServer." });
        const exchanges = intercept(mcp, (method, params, result) =>
          method === "tools/list" && !isDeclared(params) ? withoutHandles(tools, result) : result,
        );
        const modern = context.era === "modern";
        if (modern) addMethods(mcp, parts, exchanges);
        if (parts.blobs !== null) addResults(mcp, parts, parts.blobs);
        for (const tool of tools) {
          const answer = (ctx: ServerContext) =>
            answerCall(parts, exchanges, { mcp, tool, modern, stop: stopping.signal }, ctx);
          addTool(mcp, tool, (ctx) => track(answer(ctx)));
        }
        return mcp;
      } catch (thrown) {
        answerTo(thrown, parts.onError);
        throw thrown;
      }
    },
    async stop() {
      stopping.abort(new TaskError("SHUTTING_DOWN"));
      while (calls.size > 0) await Promise.all(calls);
      // The SDK still has to write the answers, which takes it no longer than a turn.
      await setImmediate();
    },
  };
}

/** The extension exists in protocol 2026-07-28 only: a server of an older one neither shows nor serves it. */
function addMethods({ server }: McpServer, parts: ServerParts, exchanges: Exchanges): void {
  server.registerCapabilities({ extensions: { [tasksExtension]: {} } });
  for (const [name, method] of Object.entries(methods)) {
    server.setRequestHandler(name, { params: anyParams }, async (_params, ctx) => {
      try {
        return { ...(await method(parts.engine, callerOf(parts, ctx), exchanges.params(ctx.mcpReq.id))) };
      } catch (thrown) {
        const { code, message, data } = answerTo(thrown, parts.onError);
        throw new ProtocolError(code, message, data);
      }
    });
  }
}

function callerOf(parts: ServerParts, ctx: ServerContext): Caller {
  return {
    owner: parts.owner(ctx.http?.authInfo),
    client: readCapabilities((ctx.mcpReq.envelope as Params | undefined)?.[capabilitiesKey]),
  };
}

/** Whether a request of 2026-07-28 declares the extension; one of an older protocol never does. */
function isDeclared(params: Params): boolean {
  return readCapabilities((params._meta as Params | undefined)?.[capabilitiesKey]).tasks;
}

/** A tool that may be answered with a handle promises no form of its results: a handle would break the promise. */
function withoutHandles(ours: readonly TaskTool[], result: Params): Params {
  const held = new Set(ours.filter(({ support }) => support === "optional").map(({ name }) => name));
  const listed = (result.tools ?? []) as readonly { readonly name: string; readonly outputSchema?: unknown }[];
  return {
    ...result,
    tools: listed.map((tool) => {
      const { outputSchema: _outputSchema, ...rest } = tool;
      return held.has(tool.name) ? rest : tool;
    }),
  };
}

type ToolAnswer = CallToolResult | InputRequiredResult;

function addTool(mcp: McpServer, tool: TaskTool, answer: (ctx: ServerContext) => Promise<ToolAnswer>): void {
  const { title, description, inputSchema, outputSchema, annotations, icons } = tool;
  const config = {
    ...(title === undefined ? {} : { title }),
    ...(description === undefined ? {} : { description }),
    ...(outputSchema === undefined ? {} : { outputSchema }),
    ...(annotations === undefined ? {} : { annotations }),
    ...(icons === undefined ? {} : { icons }),
  };
  if (inputSchema === undefined) mcp.registerTool(tool.name, config, (ctx) => answer(ctx));
  else mcp.registerTool(tool.name, { ...config, inputSchema }, (_args, ctx) => answer(ctx));
}

interface CallParts {
  readonly mcp: McpServer;
  readonly tool: TaskTool;
  readonly modern: boolean;
  readonly stop: AbortSignal;
}

async function answerCall(
  parts: ServerParts,
  exchanges: Exchanges,
  callParts: CallParts,
  ctx: ServerContext,
): Promise<ToolAnswer> {
  const { id, signal } = ctx.mcpReq;
  try {
    const answer = await reply(parts, callOf(parts, exchanges, callParts, ctx));
    switch (answer.kind) {
      case "result":
        return answer.result;
      case "round":
        return inputRequired({
          ...(Object.keys(answer.requests).length === 0 ? {} : { inputRequests: answer.requests as never }),
          requestState: answer.state,
        });
      case "handle":
        exchanges.answer(id, { result: { ...(callParts.modern ? { resultType: "complete" } : {}), ...answer.result } });
        return placeholder;
      case "task":
        exchanges.answer(id, { result: { resultType: "task", ...answer.task } });
        return placeholder;
      case "error":
        exchanges.answer(id, { error: answer.error });
        return placeholder;
    }
  } catch (thrown) {
    // Who has left gets no answer, and their leaving is no fault of ours.
    if (!signal.aborted || thrown !== signal.reason) exchanges.answer(id, { error: answerTo(thrown, parts.onError) });
    return placeholder;
  }
}

function callOf(
  parts: ServerParts,
  exchanges: Exchanges,
  { mcp, tool, modern, stop }: CallParts,
  ctx: ServerContext,
): Call {
  const { id, signal, inputResponses = {}, _meta } = ctx.mcpReq;
  const { owner, client } = callerOf(parts, ctx);
  const generation: Generation = modern ? (client.tasks ? "declared" : "rounds") : "legacy";
  const envelope = ctx.mcpReq.envelope as Params | undefined;
  const host = modern ? (envelope?.[CLIENT_INFO_META_KEY] as HostInfo | undefined) : mcp.server.getClientVersion();
  const progressToken = _meta?.progressToken;
  return {
    owner,
    client: modern ? client : noCapabilities,
    tool,
    generation,
    args: exchanges.params(id).arguments,
    auth: ctx.http?.authInfo,
    trace: readTrace(exchanges.params(id)._meta),
    limits: parts.limits(host),
    inputResponses,
    requestState: modern ? ctx.mcpReq.requestState() : undefined,
    progress:
      progressToken === undefined
        ? null
        : (report) => {
            const params = { progressToken, ...report };
            // Who has left hears nothing; the call itself learns of it by its signal.
            ctx.mcpReq.notify({ method: "notifications/progress", params }).catch(() => {});
          },
    signal,
    stop,
  };
}
