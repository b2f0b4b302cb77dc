import { setImmediate } from "node:timers/promises";
import {
  McpServer,
  type AuthInfo,
  type CallToolResult,
  type McpRequestContext,
  type McpServerFactory,
  type ServerContext,
} from "@modelcontextprotocol/server";
import type { Blobs } from "../blobs.ts";
import type { Clock } from "../clock.ts";
import type { Engine } from "../engine/engine.ts";
import { TaskError } from "../errors.ts";
import { capabilitiesKey, readCapabilities, tasksExtension } from "../protocol/capabilities.ts";
import { idempotencyExtension, idempotentTools } from "../protocol/idempotency.ts";
import { newTaskId } from "../protocol/ids.ts";
import type { TaskTool } from "../tool.ts";
import { questionsOf } from "./before.ts";
import { answerCall, callerOf, currentTerms } from "./call.ts";
import { createOpenCalls } from "./calls.ts";
import { addCompanions, checkNames, withoutCompanions, type CompanionParts } from "./companions.ts";
import type { HostInfo, Limits } from "./hosts.ts";
import { incomingOf, type Incoming } from "./incoming.ts";
import { legacySide } from "./legacy.ts";
import type { StreamLimits } from "./listen.ts";
import { answerTo, cancelTask, getTask, setMethod, updateTask, type Caller, type Params } from "./methods.ts";
import type { Outlet } from "./outlet.ts";
import { createPushes } from "./push.ts";
import { addResults } from "./results.ts";
import { convertedOnce } from "./schemas.ts";
import type { Seal } from "./seal.ts";
import { intercept, type Amend, type Answer, type Exchanges } from "./swap.ts";

/** What a server is made of. */
export interface ServerParts extends CompanionParts {
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
  /** Resolves when the answers that came with a request are kept; rejects with what kept one from it. */
  kept(request: Request): Promise<unknown>;
  /** Makes a server for one call, which gives its answer elsewhere: of our tools and methods, it has this tool only. */
  callee(tool: TaskTool, context: McpRequestContext, detour: Detour): Promise<McpServer>;
  /** Answers the calls that wait for a task as if their time was up. Resolves when no call is left. */
  stop(): Promise<void>;
}

/** A way past the SDK for the answer of a call, and for what is sent before it. */
export interface Detour {
  readonly outlet: Outlet;
  /** Takes the answer; null: nobody waits for it any more. */
  take(answer: Promise<Answer | null>): void;
}

type Methods = Readonly<Record<string, (engine: Engine, caller: Caller, params: Params) => Promise<object>>>;

const methods: Methods = { "tasks/get": getTask, "tasks/update": updateTask, "tasks/cancel": cancelTask };

/**
 * Adds tasks to each server that a factory makes. `streams` bounds what waits without a task of its own. Throws `MISUSE`
 * for a question before a task that no form can ask.
 */
export function taskServers(parts: ServerParts, factory: McpServerFactory, streams: StreamLimits): TaskServers {
  const tools = [...new Map(parts.tools.map((tool) => [tool.name, tool])).values()];
  for (const tool of tools) questionsOf(tool);
  // What only runs as a task is never called without the extension.
  const hasCompanions = parts.companions && tools.some(({ support }) => support === "optional");
  if (hasCompanions) checkNames(tools);
  const calls = new Set<Promise<unknown>>();
  const stopping = new AbortController();
  const stop = stopping.signal;
  const connection = newTaskId();
  const keepings = new WeakMap<Request, Promise<void>[]>();
  const pushes = createPushes(parts);
  const legacyParts = { ...parts, tools, pushes, calls: createOpenCalls(), streams, stop, track, keeping };
  const callParts = { ...parts, connection, stop };

  function track<T>(call: Promise<T>): Promise<T> {
    const settled = () => calls.delete(call);
    calls.add(call);
    call.then(settled, settled);
    return call;
  }

  function keeping(request: Request, kept: Promise<void>): void {
    keepings.set(request, [...(keepings.get(request) ?? []), kept]);
  }

  /** The author's server, with us between it and its transport. */
  async function made(context: McpRequestContext) {
    const mcp = await factory(context);
    if (!(mcp instanceof McpServer)) throw new TaskError("MISUSE", { detail: "The factory makes an McpServer." });
    const old = context.era === "legacy" ? legacySide(legacyParts, mcp, context) : null;
    const amend: Amend = (method, params, given) => {
      const result = method === "tools/list" ? shownTo(isDeclared(params), hasCompanions, tools, given) : given;
      return old === null ? result : old.amend(method, params, result);
    };
    return { mcp, old, exchanges: intercept(mcp, amend, old?.door) };
  }

  function offer({ mcp, old, exchanges }: Awaited<ReturnType<typeof made>>, tool: TaskTool, detour?: Detour): void {
    const terms = (incoming: Incoming) =>
      old === null ? currentTerms(callParts, tool, incoming) : old.terms(tool, incoming);
    const registered = addTool(mcp, tool, async (ctx) => {
      const { id, inputResponses = {} } = ctx.mcpReq;
      const incoming = incomingOf(exchanges, ctx, detour?.outlet);
      const round = { inputResponses, requestState: ctx.mcpReq.requestState() };
      const answer = track(answerCall(callParts, incoming, round, terms));
      if (detour !== undefined) detour.take(answer);
      else exchanges.answer(id, await answer);
    });
    if (old !== null) registered.execution = { taskSupport: tool.support };
  }

  /** Reports what a factory throws: the SDK keeps it to itself. */
  function telling<C extends readonly unknown[]>(make: (...args: C) => Promise<McpServer>) {
    return (...args: C) =>
      make(...args).catch((thrown: unknown) => {
        answerTo(thrown, parts.onError);
        throw thrown;
      });
  }

  return {
    factory: telling(async (context: McpRequestContext) => {
      const server = await made(context);
      const { mcp, old, exchanges } = server;
      if (old === null) addMethods(mcp, parts, exchanges);
      else old.addMethods(exchanges);
      if (parts.blobs !== null) addResults(mcp, parts, parts.blobs);
      for (const tool of tools) offer(server, tool);
      const host = { incoming: (ctx: ServerContext) => incomingOf(exchanges, ctx), stop, track };
      if (hasCompanions) addCompanions(mcp, parts, host);
      return mcp;
    }),
    callee: telling(async (tool: TaskTool, context: McpRequestContext, detour: Detour) => {
      const server = await made(context);
      offer(server, tool, detour);
      return server.mcp;
    }),
    kept: (request) => Promise.all(keepings.get(request) ?? []),
    async stop() {
      stopping.abort(new TaskError("SHUTTING_DOWN"));
      while (calls.size > 0) await Promise.allSettled(calls);
      // The SDK still has to write the answers, which takes it no longer than a turn.
      await setImmediate();
    },
  };
}

/** The extension exists in protocol 2026-07-28 only: a server of an older one neither shows nor serves it. */
function addMethods(mcp: McpServer, parts: ServerParts, exchanges: Exchanges): void {
  const extensions = { [tasksExtension]: {}, [idempotencyExtension]: idempotentTools(parts.tools) };
  mcp.server.registerCapabilities({ extensions });
  for (const [name, method] of Object.entries(methods)) {
    setMethod(mcp, name, parts.onError, (ctx) => {
      const incoming = incomingOf(exchanges, ctx);
      return method(parts.engine, callerOf(parts, incoming), incoming.params);
    });
  }
}

/** Whether a request of 2026-07-28 declares the extension; one of an older protocol never does. */
function isDeclared(params: Params): boolean {
  return readCapabilities((params._meta as Params | undefined)?.[capabilitiesKey]).tasks;
}

/**
 * The tools that a client is shown: no companions of ours to one that declared the extension, and it needs none. To any other, a
 * tool that may be answered with a handle promises no form of its results: a handle would break the promise.
 */
function shownTo(hasTasks: boolean, hasCompanions: boolean, ours: readonly TaskTool[], result: Params): Params {
  // Without companions, tools by their names are the author's.
  if (hasTasks) return hasCompanions ? withoutCompanions(result) : result;
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

/** Adds a tool that gives its answer past the SDK, which gets a placeholder. */
function addTool(mcp: McpServer, tool: TaskTool, call: (ctx: ServerContext) => Promise<void>) {
  const { title, description, inputSchema, outputSchema, annotations, icons } = tool;
  const config = {
    ...(title === undefined ? {} : { title }),
    ...(description === undefined ? {} : { description }),
    ...(outputSchema === undefined ? {} : { outputSchema: convertedOnce(outputSchema) }),
    ...(annotations === undefined ? {} : { annotations }),
    ...(icons === undefined ? {} : { icons }),
  };
  // As an error it needs no structured content.
  const placeholder: CallToolResult = { content: [], ...(outputSchema === undefined ? {} : { isError: true }) };
  if (inputSchema === undefined) return mcp.registerTool(tool.name, config, (ctx) => call(ctx).then(() => placeholder));
  const withInput = { ...config, inputSchema: convertedOnce(inputSchema) };
  return mcp.registerTool(tool.name, withInput, (_args, ctx) => call(ctx).then(() => placeholder));
}
